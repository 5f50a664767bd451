// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): a counter and a
// key give four random words, with no state in between. The same words on every thread count and
// every device.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"

namespace ulp {

struct PhiloxWords {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

// The multipliers and the key schedule's increments, shared with the vector version of the
// generator.
inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

ULP_HD constexpr PhiloxWords philox_round(const PhiloxWords& c, const PhiloxKey& k) {
  const uint64_t p0 = uint64_t{kPhiloxMul0} * c.word[0];
  const uint64_t p1 = uint64_t{kPhiloxMul1} * c.word[2];
  return {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k.word[0], static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k.word[1], static_cast<uint32_t>(p0)}};
}
ULP_HD constexpr PhiloxKey philox_next_key(const PhiloxKey& k) {
  return {{k.word[0] + kPhiloxWeyl0, k.word[1] + kPhiloxWeyl1}};
}

ULP_HD constexpr PhiloxWords philox(PhiloxWords c, PhiloxKey k) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    c = philox_round(c, k);
    k = philox_next_key(k);
  }
  return c;
}

}  // namespace ulp
