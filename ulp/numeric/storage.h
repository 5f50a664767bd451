// What a tensor is stored as: plain codes, or one of the storages that keep something beside the
// codes. The one place where all of them have a name, a size, a way in and a way out.
//
//   fp16, e4m3, fp(4,3,4) ...    Plain: codes
//   bf16+8, fp16+13sr ...        Split: high parts; beside them the extra bits (`sr`: stochastic
//                                high part)
//   s2fp8                        S2fp8: e5m2 codes; beside them alpha and beta
//   scaled(e4m3) ...             Scaled: 8-bit codes; beside them a scale per block of 256
//   scaled(e5m2,nonzero) ...     the same, where what is not zero does not become zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/scaled.h"
#include "ulp/numeric/split.h"
#include "ulp/numeric/stats.h"

namespace ulp {

struct Plain {
  FloatFormat format;
  bool operator==(const Plain&) const = default;
};

struct S2fp8 {
  bool operator==(const S2fp8&) const = default;
};

using Storage = std::variant<Plain, S2fp8, Split, Scaled>;

// Throw Error for a name that is none, or a storage that cannot be.
Storage parse_storage(std::string_view name);
std::string storage_name(const Storage& storage);

// What n elements take: packed codes, and 32-bit words beside them.
struct StorageSize {
  size_t code_bytes;
  size_t side_words;
  size_t bytes() const { return code_bytes + 4 * side_words; }
};
StorageSize storage_size(const Storage& storage, size_t n);
// Whether a number beyond the largest can become infinity. S2FP8 saturates.
bool has_infinity(const Storage& storage);

// Throws Error where the storage rounds in its own way and cannot follow: Split and S2fp8 round to
// nearest-even, S2fp8 saturates, and infinity needs a format that has one.
void check_rounding(const Storage& storage, const Rounding& rounding);

// Write and read n elements, of which the first is element `first` of its tensor; see codec.h,
// split.h, scaled.h and s2fp8.h. S2fp8 takes a whole tensor at once.
EncodeStats encode(const Storage& storage, const Rounding& rounding, std::span<const float> in,
                   std::span<uint8_t> codes, std::span<uint32_t> side, uint64_t first = 0,
                   ExponentHistogram* histogram = nullptr);
void decode(const Storage& storage, std::span<const uint8_t> codes, std::span<const uint32_t> side,
            std::span<float> out);

}  // namespace ulp
