// The convolutions that conv_igemm_check does: what they are of, and numbers among them that fp16
// does not have.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/cuda/igemm_bench.h"
#include "tests/support/square_conv.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"

namespace ulp::cuda {

struct Work {
  std::string_view name;
  ConvExtents32 conv;
  bool gradient = false;
  OperandFeed feed = OperandFeed::bf16_from_8;
  Format x, weight, out;
  bool rounds = false;  // the weight is stored in fp32 and rounded as it is read
  // In fp16: what there is that it does not have. Full: as much as a tile may have; over: more.
  enum class Outside : uint8_t {
    nothing,
    few,
    full,
    over,
    everywhere,
    weight,
    largest_unknown,
    largest_wrong
  };
  Outside outside = Outside::nothing;
};

// Puts numbers that fp16 does not have among those of a tensor: small ones beside a large one, or
// in 8 bits those of the highest field.
inline std::vector<uint8_t> spoil(const Work& work, bool weight, std::vector<uint8_t> codes) {
  if (!feeds_fp16(work.feed)) return codes;
  const Format& format = weight ? work.weight : work.x;
  const uint32_t bytes = format.bits() / 8;
  const QuickCodec codec = format.codec();
  const auto put = [&](size_t i, float value) {
    const uint32_t code = encode_even(codec, float_bits(value)).code;
    std::memcpy(&codes[i * bytes], &code, bytes);
  };
  const size_t count = codes.size() / bytes;
  if (weight) {
    for (size_t i = 0; i < count; ++i) {
      uint32_t code = 0;
      std::memcpy(&code, &codes[i * bytes], bytes);
      if (std::fabs(bits_float(decode_quick(codec, code))) >= 1) put(i, 0.5f);
    }
    if (work.outside == Work::Outside::weight) put(count / 2, -1);
    return codes;
  }
  const float odd = bytes == 1 ? 1e9f : std::ldexp(-1.25f, -30);
  if (work.outside != Work::Outside::nothing && work.outside != Work::Outside::weight && bytes == 2)
    put(count / 2, 100);
  const bool full = work.outside == Work::Outside::full, over = work.outside == Work::Outside::over;
  if (work.outside == Work::Outside::few || full || over) {
    const uint32_t c = work.gradient ? work.conv.out_c : work.conv.c,
                   w = work.gradient ? work.conv.out_w : work.conv.w;
    // Sums show whether they were there where all others are 0: in the first and the last image.
    // Beside 100 the first field below the window is that of 2^-24.
    const auto image = static_cast<std::ptrdiff_t>(codes.size() / work.conv.n);
    std::fill(codes.begin(), codes.begin() + image, uint8_t{0});
    std::fill(codes.end() - image, codes.end(), uint8_t{0});
    const auto put_small = [&](size_t i, int which) {
      put(i, bytes == 1 ? odd : std::ldexp(which % 2 == 0 ? -1.25f : 1.875f, -24 - which % 4));
    };
    if (full || over) {
      // One to a piece of eight channels, so that each is another thread's.
      for (uint32_t i = 0; i < kMostOutside + (over ? 1 : 0); ++i)
        put_small(8 * i + i % 8, static_cast<int>(i));
    } else {
      // Several in an input stage, in a pixel that all taps meet, and in the last.
      for (int i = 0; i < 10; ++i) put_small(3 + 2 * static_cast<size_t>(i), i);
      put_small((w + 1) * c + 1, 1), put_small((w + 2) * c - 1, 2);
      put_small(count - 2, 3), put_small(count - c / 2, 0);
    }
  }
  if (work.outside == Work::Outside::everywhere) {
    for (size_t i = 5; i < count; i += 16) put(i, odd);
  }
  return codes;
}

}  // namespace ulp::cuda
