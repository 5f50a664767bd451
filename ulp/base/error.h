// The one exception of the project. Bad input throws it with a message that names the thing and
// says what would be right; the command line prints that on one line and exits with 2. Overflow and
// NaN in a tensor are data, never errors.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ulp {

class Error : public std::runtime_error {
 public:
  // `where` is the part of the program that speaks: `[format] unknown format ...`.
  Error(std::string_view where, std::string_view what)
      : std::runtime_error(fmt::format("[{}] {}", where, what)), where_(where.size()) {}

  // Without the part that speaks.
  std::string_view message() const { return std::string_view(what()).substr(where_ + 3); }

 private:
  size_t where_;
};

template <typename... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(where, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace ulp
