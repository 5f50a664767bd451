// What a machine can do at best, measured: the rates that a step's own are shares of.
#pragma once

#include <string>

namespace ulp {

struct Ceilings {
  // 1e9 bytes a second, read and written, of a copy far larger than the caches.
  double copy_gbs = 0;
  // 1e12 operations a second of a large matrix product. A multiply-add is two operations.
  double product_tflops = 0;
  std::string how = {};  // what was measured, in words
};

}  // namespace ulp
