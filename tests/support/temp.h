// For tests: a folder that goes away with its scope, files in it, a disk that is full, what an
// Error says, and how often memory was asked for.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
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
  // A file cut to nothing and written again makes ext4 wait for the disk.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// For its scope the folder may not be searched, by root neither: permissions bind root only as
// somebody else.
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

// For its scope no file may grow past so many bytes: a disk that is full, for one process.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &old_), 0);
    const rlimit now{bytes, old_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old_), 0);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_{};
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
      text.replace(at, path.size(), 1, 'F');
    }
    return text;
  }
}

}  // namespace ulp

// `act` throws an Error of one line that has these words in it.
#define EXPECT_SAYS(act, words)                                             \
  do {                                                                      \
    const std::string said = ::ulp::complaint_of([&] { (void)(act); });     \
    EXPECT_NE(said.find(words), std::string::npos) << #act << ": " << said; \
  } while (false)
