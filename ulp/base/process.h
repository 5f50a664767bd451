// What the kernel says about this process's memory.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ulp {

// Resident bytes now. 0 where the kernel does not tell.
size_t resident_bytes();

// The most that was resident since the last call of forget_peak, or since the start where the
// kernel does not let it be forgotten (then this says false).
size_t peak_resident_bytes();
bool forget_peak_resident();

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
