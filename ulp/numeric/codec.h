// Arrays of fp32 to packed codes and back.
//
// Codes are packed without gaps, least significant bit first: element i of a b-bit format occupies
// bits [i b, (i + 1) b) of the byte string. So 8-bit codes are bytes, 16-bit codes little-endian
// pairs.
//
// The work runs on all threads of ulp/base/parallel.h and on the best vector unit
// (ulp/numeric/simd.h); the result depends on neither, and equals encode_scalar and decode_scalar
// element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp {

// Bytes of n packed codes of the given width: ceil(n * bits / 8). Throws Error for more elements
// than a tensor may have (2^50), so that no size wraps.
size_t packed_bytes(int bits, size_t n);

// Writes in[k] as code k of `out`, which must hold packed_bytes(format.bits(), in.size()) bytes
// (unused bits of the last byte become zero) and not overlap `in`. in[k] is element `first` + k of
// its tensor: that numbers its random word. With `histogram`, adds the inputs to it in the same
// pass.
EncodeStats encode(const FloatFormat& format, const Rounding& rounding, std::span<const float> in,
                   std::span<uint8_t> out, uint64_t first = 0, ExponentHistogram* histogram = nullptr);

// Reads out.size() codes. Exact.
void decode(const FloatFormat& format, std::span<const uint8_t> in, std::span<float> out);

}  // namespace ulp
