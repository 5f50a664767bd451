// Private to the folder: the lines of a text file with tabs between columns, plain or gzip, read as
// they are asked for.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/data/readers.h"

namespace ulp {

class TabLines {
 public:
  // A digest that nothing has been added to.
  static constexpr uint32_t kNoDigest = 2166136261u;

  // Adds the bytes that are read to the digest. A file without any throws an Error: `need` says what
  // it lacks.
  TabLines(const std::string& path, std::string_view need, uint32_t& digest);

  // Goes to the next line; false at the end of the file.
  bool next();
  // Of this line, from 1 on.
  size_t number() const { return number_; }
  // Valid until the next line.
  std::span<const std::string_view> fields() const { return fields_; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("data", "{}, line {}: {}", path_, number_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool refill();

  const std::string path_;
  FileReader reader_;
  uint32_t& digest_;
  std::string text_;  // what was read, from the line before the next one on
  size_t at_ = 0;     // in text_: where the next line begins
  size_t number_ = 0;
  std::vector<std::string_view> fields_;
};

}  // namespace ulp
