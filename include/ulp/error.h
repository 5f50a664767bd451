// The one exception of Ulp. Bad input throws it with a message that names the thing and says what
// would be right. Overflow and NaN in a tensor are data, never errors.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace ulp {

class Error : public std::runtime_error {
 public:
  // `where` is the part of Ulp that speaks: what() is "[where] what".
  Error(std::string_view where, std::string_view what)
      : std::runtime_error(std::string("[").append(where).append("] ").append(what)), where_(where.size()) {}

  // Without the part that speaks.
  std::string_view message() const { return std::string_view(what()).substr(where_ + 3); }

 private:
  size_t where_;
};

}  // namespace ulp
#pragma GCC visibility pop
