// How a value is written: rounding mode, what overflow becomes, and where random words come from.
#pragma once

#include <cstdint>
#include <string_view>

#include "ulp/base/device.h"
#include "ulp/base/philox.h"

namespace ulp {

enum class Round : uint8_t {
  // Ties to the even significand; with m = 0, where both are odd, to the larger magnitude.
  nearest_even,
  nearest_away,  // ties to the larger magnitude
  toward_zero,
  stochastic,  // up iff random word < floor(fraction * 2^32)
};

enum class Overflow : uint8_t {
  saturate,  // the largest finite number
  infinity,  // only for formats that have one
};

// Names the random words of one tensor at one step. The word of element i depends on these and on i
// alone, so it is the same for any number of threads, after a resume, and on every device.
struct RoundKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t tensor = 0;
  uint16_t micro_batch = 0;
};

struct Rounding {
  Round mode = Round::nearest_even;
  Overflow overflow = Overflow::saturate;
  RoundKey key = {};
};

// Names of the command line: even, away, zero, stochastic; saturate, inf. Throw Error for others.
Round parse_round(std::string_view name);
Overflow parse_overflow(std::string_view name);
std::string_view round_name(Round mode);

// Elements are numbered below this: the high word of the block number shares a counter word with
// the micro-batch number, 16 bits each.
inline constexpr uint64_t kMaxRandomElements = uint64_t{1} << 50;

// The Philox counter of the block of four elements `block`: (low word of the block number, its high
// 16 bits with the micro-batch number above them, step, tensor).
ULP_HD constexpr PhiloxWords round_counter(const RoundKey& key, uint64_t block) {
  return {{static_cast<uint32_t>(block),
           static_cast<uint32_t>(block >> 32) | static_cast<uint32_t>(key.micro_batch) << 16, key.step,
           key.tensor}};
}

ULP_HD constexpr PhiloxKey round_philox_key(const RoundKey& key) {
  return {{static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
}

// The random word of element i: word i mod 4 of block i / 4.
ULP_HD constexpr uint32_t random_word(const RoundKey& key, uint64_t i) {
  return philox(round_counter(key, i / 4), round_philox_key(key)).word[i % 4];
}

}  // namespace ulp
