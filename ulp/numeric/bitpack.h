// Codes of 1 to 32 bits, packed without gaps, least significant bit first. Thirty-two codes of b
// bits fill b words, so runs that start at a multiple of 32 elements can be written by different
// threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulp {

// Packs the low `bits` bits of codes[0..n) from the first bit of `out`, which must hold ceil(n bits
// / 8) bytes; unused bits of the last byte become zero. Higher bits of a code must be zero.
void pack_bits(const uint32_t* codes, size_t n, int bits, uint8_t* out);

// Reads n codes back; touches no byte past the last code's.
void unpack_bits(const uint8_t* in, size_t n, int bits, uint32_t* codes);

}  // namespace ulp
