// Codes of 1 to 32 bits, packed without gaps, least significant bit first. Eight codes of any width end on a
// byte border, so runs that start at a multiple of eight elements can be written by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ulp {

// Packs the low `bits` bits of codes[0..n) from the first bit of `out`, which must hold ceil(n bits / 8)
// bytes; unused bits of the last byte become zero. Higher bits of a code must be zero.
inline void pack_bits(const uint32_t* codes, size_t n, int bits, uint8_t* out) {
  uint64_t pending = 0;
  int held = 0;
  for (size_t i = 0; i < n; ++i) {
    pending |= uint64_t{codes[i]} << held;
    held += bits;
    if (held >= 32) {
      const uint32_t word = static_cast<uint32_t>(pending);
      std::memcpy(out, &word, sizeof word);
      out += sizeof word;
      pending >>= 32;
      held -= 32;
    }
  }
  for (; held > 0; held -= 8, pending >>= 8) *out++ = static_cast<uint8_t>(pending);
}

// Reads n codes back.
inline void unpack_bits(const uint8_t* in, size_t n, int bits, uint32_t* codes) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  size_t bytes_left = (n * static_cast<size_t>(bits) + 7) / 8;
  uint64_t pending = 0;
  int held = 0;
  for (size_t i = 0; i < n; ++i) {
    if (held < bits && bytes_left >= 4) {
      uint32_t word;
      std::memcpy(&word, in, sizeof word);
      pending |= uint64_t{word} << held;
      in += sizeof word;
      bytes_left -= sizeof word;
      held += 32;
    }
    // Near the end, byte by byte: nothing past the last code's byte is read.
    for (; held < bits; held += 8, --bytes_left) pending |= uint64_t{*in++} << held;
    codes[i] = static_cast<uint32_t>(pending & mask);
    pending >>= bits;
    held -= bits;
  }
}

}  // namespace ulp
