// How far a stored tensor is from what it was.
#pragma once

#include <cstdint>
#include <span>

namespace ulp {

struct Quality {
  uint64_t compared = 0;  // pairs whose original is finite; the others have no error to speak of
  double mse = 0;         // mean squared error over those
  // 10 log10(sum x^2 / sum error^2); infinite where nothing was lost, NaN for all zeros.
  double snr_db = 0;
  // Mean |error| / |x| over non-zero x: what the many small numbers suffer.
  double mean_relative = 0;
};

// In double, summed in an order that does not depend on the number of threads.
Quality compare(std::span<const float> original, std::span<const float> restored);

}  // namespace ulp
