// What the kernel says about this process's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ulp {

// Resident bytes now. 0 where the kernel does not tell.
size_t resident_bytes();

// The most that was resident since the last call of forget_peak, or since the start where the
// kernel does not let it be forgotten (then this says false).
size_t peak_resident_bytes();
bool forget_peak_resident();

// How much more memory this process could have. SIZE_MAX is what nobody limits or nobody knows, so
// that a run is refused only where it is certain not to fit.
struct MemoryLeft {
  // That could become resident: what the machine has free or can free, swap included, and what the
  // control groups leave. A little more than the kernel says, which keeps a reserve.
  size_t resident = SIZE_MAX;
  // Addresses under a limit (ulimit -v).
  size_t addresses = SIZE_MAX;

  size_t least() const { return std::min(resident, addresses); }
};

// `root` is where the files of the kernel lie, for tests.
MemoryLeft memory_left(const std::string& root = "");

// The most that is resident while this lives, over what was there before. Where the kernel does not
// let the highest be forgotten it is seen at the calls of look alone, which is enough for memory
// that is given back at the end.
class ResidentGrowth {
 public:
  ResidentGrowth() : forgotten_(forget_peak_resident()), before_(resident_bytes()) {}
  void look() { most_ = std::max({most_, resident_bytes(), forgotten_ ? peak_resident_bytes() : 0}); }
  size_t bytes() const { return most_ - std::min(most_, before_); }

 private:
  bool forgotten_;
  size_t before_, most_ = 0;
};

}  // namespace ulp
