#include "ulp/backend/cpu/move.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/move.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::move::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Pieces of a size known at compile time; the last one overlaps the one before.
template <size_t size>
HWY_INLINE void copy_pieces(const uint8_t* HWY_RESTRICT from, uint8_t* HWY_RESTRICT to, size_t n) {
  for (size_t i = 0; i + size <= n; i += size) std::memcpy(to + i, from + i, size);
  std::memcpy(to + n - size, from + n - size, size);
}

// Rows are short, often a few dozen bytes: a call to memcpy for each would take longer than the
// copy.
void copy_rows(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, size_t bytes,
               size_t rows) {
  const auto each = [&](auto copy) {
    for (size_t r = 0; r < rows; ++r) copy(from + r * from_stride, to + r * to_stride);
  };
  if (bytes >= 1024) {
    each([=](const uint8_t* a, uint8_t* b) { std::memcpy(b, a, bytes); });
  } else if (bytes >= 64) {
    each([=](const uint8_t* a, uint8_t* b) { copy_pieces<64>(a, b, bytes); });
  } else if (bytes >= 16) {
    each([=](const uint8_t* a, uint8_t* b) { copy_pieces<16>(a, b, bytes); });
  } else if (bytes >= 4) {
    each([=](const uint8_t* a, uint8_t* b) { copy_pieces<4>(a, b, bytes); });
  } else {
    each([=](const uint8_t* a, uint8_t* b) {
      for (size_t i = 0; i < bytes; ++i) b[i] = a[i];
    });
  }
}

template <typename T>
struct Halves {
  using Tag = hn::CappedTag<T, 16 / sizeof(T)>;

  // Interleaves two rows of n.
  static HWY_INLINE void interleave(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* HWY_RESTRICT to,
                                    size_t n) {
    const Tag d;
    const size_t lanes = hn::Lanes(d);
    const auto at = [&](size_t i) {
      hn::StoreInterleaved2(hn::LoadU(d, a + i), hn::LoadU(d, b + i), d, to + 2 * i);
    };
    if (n < lanes) {
      for (size_t i = 0; i < n; ++i) {
        to[2 * i] = a[i];
        to[2 * i + 1] = b[i];
      }
      return;
    }
    for (size_t i = 0; i + lanes <= n; i += lanes) at(i);
    at(n - lanes);
  }

  static HWY_INLINE void separate(const T* HWY_RESTRICT from, T* HWY_RESTRICT a, T* HWY_RESTRICT b,
                                  size_t n) {
    const Tag d;
    const size_t lanes = hn::Lanes(d);
    const auto at = [&](size_t i) {
      hn::Vec<Tag> even, odd;
      hn::LoadInterleaved2(d, from + 2 * i, even, odd);
      hn::StoreU(even, d, a + i);
      hn::StoreU(odd, d, b + i);
    };
    if (n < lanes) {
      for (size_t i = 0; i < n; ++i) {
        a[i] = from[2 * i];
        b[i] = from[2 * i + 1];
      }
      return;
    }
    for (size_t i = 0; i + lanes <= n; i += lanes) at(i);
    at(n - lanes);
  }
};

template <typename T>
HWY_INLINE void shuffle(const uint8_t* from_bytes, uint8_t* to_bytes, size_t channels, size_t groups,
                        size_t rows) {
  const T* from = reinterpret_cast<const T*>(from_bytes);
  T* to = reinterpret_cast<T*>(to_bytes);
  const size_t each = channels / groups;
  for (size_t r = 0; r < rows; ++r, from += channels, to += channels) {
    if (groups == 2) {
      Halves<T>::interleave(from, from + each, to, each);
    } else if (each == 2) {
      Halves<T>::separate(from, to, to + groups, groups);
    } else {
      for (size_t g = 0; g < groups; ++g) {
        for (size_t i = 0; i < each; ++i) to[i * groups + g] = from[g * each + i];
      }
    }
  }
}

void shuffle_rows(const uint8_t* from, uint8_t* to, size_t code_bytes, size_t channels, size_t groups,
                  size_t rows) {
  switch (code_bytes) {
    case 1:
      return shuffle<uint8_t>(from, to, channels, groups, rows);
    case 2:
      return shuffle<uint16_t>(from, to, channels, groups, rows);
    default:
      return shuffle<uint32_t>(from, to, channels, groups, rows);
  }
}

}  // namespace ulp::move::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::move {

HWY_EXPORT(copy_rows);
HWY_EXPORT(shuffle_rows);

void copy_rows(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, size_t bytes,
               size_t rows) {
  HWY_DYNAMIC_DISPATCH(copy_rows)(from, from_stride, to, to_stride, bytes, rows);
}

void shuffle_rows(const uint8_t* from, uint8_t* to, size_t code_bytes, size_t channels, size_t groups,
                  size_t rows) {
  HWY_DYNAMIC_DISPATCH(shuffle_rows)(from, to, code_bytes, channels, groups, rows);
}

}  // namespace ulp::move
#endif
