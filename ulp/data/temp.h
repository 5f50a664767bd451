// For the tests of this folder: a folder that goes away with its scope, files in it, what an Error says, and
// how often memory was asked for.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp {

class TempFolder {
 public:
  TempFolder() {
    std::string name = ::testing::TempDir() + "ulp_data_XXXXXX";
    if (!::mkdtemp(name.data())) fail("data_test", "cannot make {}", name);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string_view name) const { return path_ / name; }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void put(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);  // a file cut to nothing and written again makes ext4 wait for the disk
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// For its scope the folder may not be searched, by root neither: permissions bind root only as somebody else.
class Forbidden {
 public:
  explicit Forbidden(const std::string& folder) : folder_(folder) {
    std::filesystem::permissions(folder, std::filesystem::perms::none);
    EXPECT_EQ(::seteuid(root_ ? 65534 : ::geteuid()), 0);
  }
  Forbidden(const Forbidden&) = delete;
  Forbidden& operator=(const Forbidden&) = delete;
  ~Forbidden() {
    EXPECT_EQ(::seteuid(root_ ? 0 : ::geteuid()), 0);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }

 private:
  const std::string folder_;
  const bool root_ = ::geteuid() == 0;
};

// How often this program has called operator new.
size_t allocations();

// What the Error says that f throws, with `path` shortened to F; "" if it throws none.
template <typename F>
std::string complaint_of(F&& f, const std::string& path = "") {
  try {
    f();
    return "";
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    for (size_t at = 0; !path.empty() && (at = text.find(path, at)) != text.npos;) {
      text.replace(at, path.size(), "F");
    }
    return text;
  }
}

}  // namespace ulp
