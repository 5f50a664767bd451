// How an Error is thrown: fail("plan", "batch must be positive, got {}", batch). The command line
// prints its message on one line and exits with 2.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "ulp/error.h"  // IWYU pragma: export

namespace ulp {

template <typename... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(where, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace ulp
