#include "ulp/runtime/init.h"

#include <algorithm>
#include <cmath>

#include "ulp/numeric/math.h"
#include "ulp/numeric/rounding.h"

namespace ulp {
namespace {

// Random words for initial weights are used for nothing else.
constexpr uint64_t kInitSeed = 0x696E697469616C73u;

// Uniform in (-1, 1), an odd multiple of 2^-25: neither end is reached and the middle is not
// favoured.
float uniform(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 7) - (1 << 24)) * 0x1p-24f + 0x1p-25f;
}

// Marsaglia's polar method: a point in the unit circle, found after 1.27 attempts on average, gives
// a normal number with one logarithm and one root. Attempts are numbered, so that an element's
// words are its own.
float normal(const RoundKey& key, uint64_t element) {
  for (RoundKey attempt = key;; ++attempt.step) {
    const float x = uniform(random_word(attempt, 2 * element)),
                y = uniform(random_word(attempt, 2 * element + 1));
    const float s = x * x + y * y;
    if (s < 1.0f && s > 0.0f) return x * std::sqrt(-2.0f * log_near(s) / s);
  }
}

}  // namespace

void fill_initial(const Init& init, uint64_t seed, uint32_t tensor, std::span<float> out) {
  const RoundKey key{seed ^ kInitSeed, 0, tensor, 0};
  switch (init.law) {
    case Init::Law::constant:
      std::fill(out.begin(), out.end(), init.value);
      return;
    case Init::Law::uniform:
      for (size_t i = 0; i < out.size(); ++i) out[i] = init.value * uniform(random_word(key, i));
      return;
    case Init::Law::normal:
      for (size_t i = 0; i < out.size(); ++i) out[i] = init.value * normal(key, i);
      return;
  }
}

}  // namespace ulp
