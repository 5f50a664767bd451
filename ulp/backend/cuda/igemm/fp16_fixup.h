// The fixup for values that fp16 does not hold, in the kernel of conv_igemm.h. The warps that
// convert input stages detect such values. Where they are few and below the window, the products
// that the tensor core missed are added to the tile's sums. The order of these additions depends on
// shapes alone. Only for files compiled for sm_90a.
#pragma once

#include "ulp/backend/cuda/igemm/sm90.h"

namespace ulp::cuda {

// Two warps detect values that fp16 does not hold; they also convert 16-bit codes in place.
constexpr uint32_t kConverters = 64;
template <OperandFeed feed, int kPieces>
class Converter {
 public:
  __device__ Converter(const IgemmCall& call, uint32_t offset)
      : window_(Fp16Window::of(call.fp16_source, offset)), highest_(call.highest) {}

  // Converts the 16-byte pieces from `at`, the thread's first, to `end`. Returns how many threads
  // of the warp saw values below the window, or more than kMostOutside if some values can only be
  // done in tf32.
  __device__ uint32_t convert(uint32_t at, uint32_t end) const {
    constexpr uint32_t kNext = kConverters * 16;
    HalvesSeen seen;
    uint32_t found = 0;
    if (feed == OperandFeed::fp16_from_8 && highest_ == 0) return 0;
    // Several loads are in flight at a time.
    for (; at + (kPieces - 1) * kNext < end; at += kPieces * kNext) several<kPieces>(at, seen, found);
    for (; at < end; at += kNext) several<1>(at, seen, found);
    __syncwarp();
    const bool above = feed == OperandFeed::fp16_from_8 ? (found & 0x80808080u) != 0 : seen.above(window_);
    const uint32_t below =
        __ballot_sync(0xFFFFFFFFu, feed == OperandFeed::fp16_from_16 && seen.below(window_));
    return __any_sync(0xFFFFFFFFu, above) != 0 ? kMostOutside + 1 : static_cast<uint32_t>(__popc(below));
  }

 private:
  template <int n>
  __device__ void several(uint32_t at, HalvesSeen& seen, uint32_t& found) const {
    constexpr uint32_t kNext = kConverters * 16;
    uint32_t word[n][4];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(word[i][0]), "=r"(word[i][1]), "=r"(word[i][2]), "=r"(word[i][3])
                   : "r"(at + static_cast<uint32_t>(i) * kNext)
                   : "memory");
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (feed == OperandFeed::fp16_from_8) {
        // A byte with all bits of `highest_` set gives 0x80 - 0, whose highest bit is set.
#pragma unroll
        for (int k = 0; k < 4; ++k) found |= 0x80808080u - (~word[i][k] & highest_);
      } else {
        to_fp16(window_, word[i], seen);
        asm volatile("st.shared.v4.b32 [%4], {%0,%1,%2,%3};" ::"r"(word[i][0]), "r"(word[i][1]),
                     "r"(word[i][2]), "r"(word[i][3]), "r"(at + static_cast<uint32_t>(i) * kNext)
                     : "memory");
      }
    }
  }

  Fp16Window window_;
  uint32_t highest_;
};

// One row of a consumer thread.
struct IgemmRow {
  uint32_t at;     // address in the input stage, in bytes, of its part of the pixel
  uint32_t valid;  // bit mask of taps that lie inside the image
  uint32_t pixel;  // the result's pixel; all ones: none
};

// Bit mask of the codes below the window, among n neighbouring ones; n is 4 or a multiple of 8.
// `left` codes remain: a group of eight with none of them is skipped.
template <int n>
__device__ inline uint32_t which_below(const Fp16Window& window, const uint16_t* codes, uint32_t left) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < n; i += 8) {
    if (static_cast<uint32_t>(i) >= left) continue;
    uint4 word = {0, 0, 0, 0};
    if constexpr (n == 4) {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(codes));
      word.x = two.x;
      word.y = two.y;
    } else {
      word = __ldg(reinterpret_cast<const uint4*>(codes + i));
    }
    const uint32_t each[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int k = 0; k < (n == 4 ? 4 : 8); ++k) {
      bits |= lies_below(window, each[k / 2] >> (16 * (k % 2)) & 0xFFFFu) ? 1u << (i + k) : 0;
    }
  }
  return bits;
}

// Adds the missing products of a chunk's values below the window to a thread's sums; the thread is
// the t-th of four that share rows. No wgmma may be in flight, and all threads of a warp must call
// it. `first` is the input stage's first pixel, `blocks` the weights of the chunk and columns.
// Codes are read from global memory, as conversion has overwritten them in shared memory. Products
// are exact, so each is rounded once, when it is added.
template <int kColumns, int kRowTiles, int kChannels>
__device__ inline void add_below(const IgemmCall& call, const IgemmTaps& part, uint32_t offset,
                                 uint32_t first, uint32_t chunk, const uint8_t* blocks, uint32_t t,
                                 const IgemmRow (&rows)[kRowTiles][2],
                                 float (&sums)[kRowTiles][kColumns / 2]) {
  constexpr uint32_t kRowBytes = kChannels * 2, kPartBytes = kRowBytes / 4, kOwn = kColumns / 4;
  constexpr uint32_t kEach = kChannels / 4, kBlockBytes = kColumns * kChannels * 2, kAll = 0xFFFFFFFFu;
  const Fp16Window window = Fp16Window::of(call.fp16_source, offset);
  const uint32_t taps = part.taps(), in_c = call.shape.in_c, own = chunk * kChannels + t * kEach;
  const auto* codes = reinterpret_cast<const uint16_t*>(call.in);
  // The codes of the pixel that a row's tap meets; the tap must lie inside the image.
  const auto pixel_at = [&](const IgemmRow& row, uint32_t tap) {
    const uint32_t at = row.at - t * kPartBytes + static_cast<uint32_t>(part.offset[tap]);
    return codes + uint64_t{first + at / kRowBytes} * in_c;
  };
  // Values below the window among the thread's own channels.
  const auto find = [&](const IgemmRow& row, uint32_t tap, bool wanted) {
    const bool there = wanted && (row.valid >> tap & 1) != 0 && own < in_c;
    return there ? which_below<kEach>(window, pixel_at(row, tap) + own, in_c - own) : 0;
  };
  // This path is rare: it is short rather than fast, so that it takes no registers from the main
  // loop.
#pragma unroll 1
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    IgemmRow row = rows[0][0];
#pragma unroll
    for (int i = 1; i < 2 * kRowTiles; ++i) row = r == i ? rows[i / 2][i % 2] : row;
    uint32_t met = 0;  // taps that meet such values
#pragma unroll 2
    for (uint32_t tap = 0; tap < taps; ++tap) met |= find(row, tap, true) != 0 ? 1u << tap : 0;
    met |= __shfl_xor_sync(kAll, met, 1);
    met |= __shfl_xor_sync(kAll, met, 2);
    // Each row goes to its next tap.
#pragma unroll 1
    for (; __any_sync(kAll, met != 0); met &= met - 1) {
      const uint32_t tap = met != 0 ? static_cast<uint32_t>(__ffs(static_cast<int>(met))) - 1 : 0;
      const uint32_t mine = find(row, tap, met != 0);
#pragma unroll 1
      for (uint32_t thread = 0; thread < 4; ++thread) {
        uint32_t bits = __shfl_sync(kAll, mine, static_cast<int>(thread), 4);
#pragma unroll 1
        for (; bits != 0; bits &= bits - 1) {
          const uint32_t c = thread * kEach + static_cast<uint32_t>(__ffs(static_cast<int>(bits))) - 1;
          const float x = missing_part(call.fp16_source, window, offset,
                                       __ldg(pixel_at(row, tap) + chunk * kChannels + c));
          const auto* weight = reinterpret_cast<const uint16_t*>(blocks + tap * kBlockBytes) +
                               block_position(kColumns, kChannels, false, t * kOwn, c);
          // The thread's own columns, in the layout of block_position.
          constexpr uint32_t kAtOnce = 8;
          constexpr auto column = [](uint32_t i) { return i / 2 * 64 + i % 2 * 8; };
          static_assert(column(kOwn - 1) == block_position(kColumns, kChannels, false, kOwn - 1, 0));
#pragma unroll
          for (uint32_t i = 0; i < kOwn; i += kAtOnce) {
            float by[kAtOnce];
#pragma unroll
            for (uint32_t j = 0; j < kAtOnce; ++j)
              asm("cvt.f32.f16 %0, %1;" : "=f"(by[j]) : "h"(__ldg(weight + column(i + j))));
#pragma unroll
            for (int k = 0; k < 2 * kRowTiles; ++k) {
              if (r != k) continue;
#pragma unroll
              for (uint32_t j = 0; j < kAtOnce; ++j) {
                float& sum = sums[k / 2][4 * ((i + j) / 2) + 2 * (k % 2) + j % 2];
                sum = __fmaf_rn(x, by[j], sum);
              }
            }
          }
        }
        __syncwarp();
      }
    }
  }
}

}  // namespace ulp::cuda
