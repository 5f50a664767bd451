// What the fuzzers share. A target is one source of fuzz/targets, which defines try_input. An Error
// is a fine answer to any input. All else is a finding and ends the program: a report of a
// sanitizer, another exception, a failed `expect`, more than a second of processor time, more than
// 512 MB of memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp::fuzz {

// Defined by each target. Another input must not matter: what it leaves behind is its own affair.
void try_input(std::string_view input);

// A finding, unless it is so.
void expect(bool is_so, std::string_view what);

// Runs f, which an Error may end: false then. For a target that asks several readers.
template <typename F>
bool tried(const F& f) {
  try {
    f();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A folder in memory, the program's own, which goes away with it; and a file in it, for readers that
// take paths. A file of the same name is replaced.
std::string folder();
std::string file(std::string_view name, std::string_view bytes);
std::string content(const std::string& path);

// Takes an input apart, from its front. What is not there any more reads as zeros.
class Cutter {
 public:
  explicit Cutter(std::string_view input) : left_(input) {}

  uint8_t byte();
  // Up to so many bytes.
  std::string_view take(size_t bytes);
  // Up to the mark, which is dropped, or to the end.
  std::string_view until(char mark);
  std::string_view rest() const { return left_; }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

inline std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace ulp::fuzz
