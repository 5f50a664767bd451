// The kernel of conv_igemm.h as plain loops on the host, for tests without a GPU: the same tiles,
// input stages, offsets, weight blocks and codes, and the same epilogue. It enforces what the
// hardware requires. The kernel of conv_halo.h needs no stand-in: it is compiled for the host
// itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "ulp/backend/cuda/igemm/conv_halo.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/igemm/epilogue.h"
#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/backend/emulated/fake_igemm.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

float fp16_value(uint32_t half) {
  const float magnitude = bits_float((half & 0x7FFFu) << 13) * 0x1p112f;
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

// A code as the tensor core sees it; from an input stage converted to fp16 if the feed is fp16.
float operand(const IgemmCall& call, OperandFeed feed, const uint8_t* at) {
  uint16_t code = 0;
  std::memcpy(&code, at, feed_bytes(feed));
  if (feed == OperandFeed::bf16) return bits_float(uint32_t{code} << 16);
  if (feed == OperandFeed::bf16_from_8) {
    const auto wide = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(code)));
    return bits_float((wide << call.shift & call.mask & 0xFFFFu) << 16);
  }
  if (feed == OperandFeed::fp16_from_8) {
    const auto wide = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(code)));
    return fp16_value(wide << call.shift & call.mask & 0xFFFFu);
  }
  if (feed == OperandFeed::fp16_from_16) return fp16_value(code);
  const uint32_t top = uint32_t{code} << (32 - 8 * feed_bytes(feed));
  const uint32_t placed = static_cast<uint32_t>(static_cast<int32_t>(top) >> call.shift) & call.mask;
  const float value = bits_float(placed) * call.factor;
  if ((float_bits(value) & 0x1FFFu) != 0) fail("fake", "tf32 does not hold a number");
  return value;
}

float weight(const IgemmCall& call, OperandFeed feed, const uint8_t* block, uint32_t n, uint32_t c) {
  const bool tf32 = feeds_tf32(feed);
  const uint32_t at = block_position(call.tiling.columns, call.tiling.channels, tf32, n, c);
  uint32_t bits = 0;
  std::memcpy(&bits, block + at * (tf32 ? 4 : 2), tf32 ? 4 : 2);
  if (feeds_fp16(feed)) return fp16_value(bits);
  return bits_float(tf32 ? bits : bits << 16);
}

void check_aligned(const IgemmCall& call, const IgemmTaps& part, OperandFeed feed, const uint8_t* in) {
  if ((reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(part.image) |
       call.shape.in_c * feed_bytes(feed)) %
          16 !=
      0)
    fail("fake", "images or weights are not aligned to 16 bytes");
}

class Loops {
 public:
  Loops(const IgemmCall& call, const IgemmTaps& part, OperandFeed feed, const uint8_t* in)
      : call_(call), part_(part), feed_(feed), in_(in) {
    row_bytes_ = tiling_.channels * feed_bytes(feed);
    input_rows_ = tiling_.boxes * tiling_.box_rows;
    check_aligned(call, part, feed, in);
    if (tiling_.box_rows > 256 || tiling_.box_rows % 8 != 0 || input_rows_ < tiling_.input_rows)
      fail("fake", "a box that the copy engine does not take");
    if (feed == OperandFeed::fp16_from_16 && call.most != nullptr)
      offset_ = window_offset(call.fp16_source, float_bits(*call.most));
    factor_ = feeds_fp16(feed) ? std::ldexp(1.0f, static_cast<int>(offset_) - call.fp16_power) : 1;
  }

  void run(RangeCount& seen) {
    const uint32_t tiles = tiling_.row_tiles * tiling_.column_tiles;
    if (feeds_tf32(feed_) && call_.marked != nullptr && *call_.marked == 0) return;
    if (feeds_fp16(feed_) && std::any_of(call_.outside, call_.outside + call_.outside_words,
                                         [](uint32_t word) { return word != 0; })) {
      std::fill_n(call_.marks, tiles, uint8_t{1});
      *call_.marked = 1;
      return;
    }
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      if (feeds_tf32(feed_) && call_.marks != nullptr && call_.marks[call_.mark_of(tile)] == 0) continue;
      const uint32_t first = tile / tiling_.column_tiles * tiling_.rows, column = tile % tiling_.column_tiles;
      std::vector<float> sums(size_t{tiling_.rows} * tiling_.columns);
      const Place start = place(first);
      uint32_t outside = 0;
      std::vector<uint32_t> where;  // chunks
      for (uint32_t chunk = 0; chunk < tiling_.chunks && part_.taps() != 0; ++chunk) {
        load_input(start.pixel + part_.lowest, chunk);
        if (const uint32_t found = feeds_fp16(feed_) ? convert_input() : 0; found != 0) {
          outside += found;
          where.push_back(chunk);
        }
        for (uint32_t row = 0; row < tiling_.rows && first + row < shape_.results(); ++row) {
          add(place(first + row), start.pixel + part_.lowest, column, chunk, &sums[row * tiling_.columns],
              false);
        }
      }
      if (feeds_fp16(feed_)) {
        call_.marks[tile] = outside > kMostOutside ? 1 : 0;
        if (outside > kMostOutside) {
          *call_.marked = 1;
          continue;
        }
        for (const uint32_t chunk : where) {
          load_input(start.pixel + part_.lowest, chunk);
          for (uint32_t row = 0; row < tiling_.rows && first + row < shape_.results(); ++row) {
            add(place(first + row), start.pixel + part_.lowest, column, chunk, &sums[row * tiling_.columns],
                true);
          }
        }
        for (float& sum : sums) sum *= factor_;
      }
      if (part_.taps() != 0) ++written_tiles(feed_);
      for (uint32_t row = 0; row < tiling_.rows && first + row < shape_.results(); ++row) {
        write(place(first + row), column, &sums[row * tiling_.columns], seen);
      }
    }
  }

 private:
  struct Place {
    uint32_t image, p, q;
    int32_t pixel;  // without a tap
  };
  Place place(uint32_t result) const {
    const uint32_t image = call_.area.quotient(result), rest = result - image * call_.area.divisor;
    const uint32_t p = call_.width.quotient(rest), q = rest - p * call_.width.divisor;
    return {image, p, q,
            static_cast<int32_t>((image * shape_.in_h + p * shape_.stride_h) * shape_.in_w +
                                 q * shape_.stride_w)};
  }

  // Like the copy engine: elements outside the tensor are 0.
  void load_input(int64_t first, uint32_t chunk) {
    input_stage_.assign(size_t{input_rows_} * row_bytes_, 0);
    const auto pixels = int64_t{shape_.images} * shape_.in_h * shape_.in_w;
    const uint32_t bytes = feed_bytes(feed_), c = chunk * tiling_.channels;
    const uint32_t there = std::min(tiling_.channels, shape_.in_c - c);
    for (uint32_t row = 0; row < input_rows_; ++row) {
      const int64_t pixel = first + row;
      if (pixel < 0 || pixel >= pixels) continue;
      std::memcpy(&input_stage_[size_t{row} * row_bytes_],
                  in_ + (static_cast<uint64_t>(pixel) * shape_.in_c + c) * bytes, size_t{there} * bytes);
    }
  }

  // How many threads saw values below the window in their pieces; more than kMostOutside if only
  // tf32 will do.
  uint32_t convert_input() {
    const Fp16Window window = Fp16Window::of(call_.fp16_source, offset_);
    std::array<HalvesSeen, 64> seen;
    uint32_t found = 0;
    for (size_t at = 0; at < size_t{tiling_.input_rows} * row_bytes_; at += 16) {
      uint32_t word[4];
      std::memcpy(word, &input_stage_[at], sizeof word);
      if (feed_ == OperandFeed::fp16_from_8) {
        for (const uint32_t codes : word) found |= 0x80808080u - (~codes & call_.highest);
      } else {
        // The copy engine swizzles wide rows.
        const size_t turned = swizzles_rows(feed_, tiling_.channels) ? at ^ (at / row_bytes_ % 8 * 16) : at;
        to_fp16(window, word, seen[turned / 16 % seen.size()]);
        std::memcpy(&input_stage_[at], word, sizeof word);
      }
    }
    const auto above = [&](const HalvesSeen& one) { return one.above(window); };
    if (feed_ == OperandFeed::fp16_from_8)
      return call_.highest != 0 && (found & 0x80808080u) != 0 ? kMostOutside + 1 : 0;
    if (std::any_of(seen.begin(), seen.end(), above)) return kMostOutside + 1;
    return static_cast<uint32_t>(
        std::count_if(seen.begin(), seen.end(), [&](const HalvesSeen& one) { return one.below(window); }));
  }

  // What fp16 loses of a 16-bit code, from an input stage that is not converted.
  float missing(const uint8_t* at) const {
    uint16_t code = 0;
    std::memcpy(&code, at, sizeof code);
    const Fp16Window window = Fp16Window::of(call_.fp16_source, offset_);
    return lies_below(window, code) ? missing_part(call_.fp16_source, window, offset_, code) : 0;
  }

  // The products of a result's row, or with `lacking` what fp16 misses of them.
  void add(const Place& at, int32_t input_first, uint32_t column, uint32_t chunk, float* sums,
           bool lacking) const {
    for (uint32_t tap = 0; tap < part_.taps(); ++tap) {
      const uint32_t y = at.p * shape_.stride_h + static_cast<uint32_t>(part_.row[tap / part_.columns]),
                     x = at.q * shape_.stride_w + static_cast<uint32_t>(part_.column[tap % part_.columns]);
      if (y >= shape_.in_h || x >= shape_.in_w) continue;
      const int64_t from = int64_t{at.pixel - input_first} * row_bytes_ + part_.offset[tap];
      if (from < 0 || from + row_bytes_ > int64_t{tiling_.input_rows} * row_bytes_)
        fail("fake", "a pixel outside of its input_stage");
      const uint8_t* block = part_.image + (size_t{column * tiling_.chunks + chunk} * part_.taps() + tap) *
                                               tiling_.block_bytes(feed_);
      for (uint32_t c = 0; c < tiling_.channels; ++c) {
        const uint8_t* code = &input_stage_[static_cast<size_t>(from) + c * feed_bytes(feed_)];
        const float a = lacking ? missing(code) : operand(call_, feed_, code);
        if (lacking && a == 0) continue;
        for (uint32_t n = 0; n < tiling_.columns; ++n) {
          // One rounding, as products are exact.
          sums[n] = static_cast<float>(static_cast<double>(a) * weight(call_, feed_, block, n, c) + sums[n]);
        }
      }
    }
  }

  void write(const Place& at, uint32_t column, const float* sums, RangeCount& seen) const {
    const uint64_t pixel =
        (uint64_t{at.image} * shape_.full_h + at.p * shape_.step_h + part_.first_h) * shape_.full_w +
        at.q * shape_.step_w + part_.first_w;
    for (uint32_t t = 0; t < 4; ++t) {
      const uint32_t channel = column * tiling_.columns + t * (tiling_.columns / 4);
      if (channel >= shape_.out_c) continue;
      const uint64_t element = pixel * shape_.out_c + channel;
      const float* own = sums + t * (tiling_.columns / 4);
      switch (tiling_.columns) {
        case 32:
          store<8>(element, own, seen);
          break;
        case 64:
          store<16>(element, own, seen);
          break;
        case 128:
          store<32>(element, own, seen);
          break;
        default:
          fail("fake", "{} columns", tiling_.columns);
      }
    }
  }
  template <int n>
  void store(uint64_t element, const float* sums, RangeCount& seen) const {
    float x[n];
    std::memcpy(x, sums, sizeof x);
    store_sums(call_.out, call_.rounder, element, x, seen);
  }

  const IgemmCall& call_;
  const IgemmTaps& part_;
  const IgemmShape& shape_ = call_.shape;
  const IgemmTiling& tiling_ = call_.tiling;
  OperandFeed feed_;
  const uint8_t* in_;
  uint32_t row_bytes_, input_rows_;
  uint32_t offset_ = 0;  // of the fp16 window
  float factor_ = 1;     // the power of two that sums of fp16 products lack
  std::vector<uint8_t> input_stage_;
};

// A code in bf16's position, without the missing exponent; bf16 unchanged.
float placed(const uint8_t* at, uint32_t bytes, uint32_t shift, uint32_t mask) {
  uint16_t code = 0;
  std::memcpy(&code, at, bytes);
  if (bytes == 2) return bits_float(uint32_t{code} << 16);
  const auto wide = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(code)));
  return bits_float((wide << shift & mask & 0xFFFFu) << 16);
}

// A value that bf16 must hold.
float as_bf16(float x) {
  if ((float_bits(x) & 0xFFFFu) != 0 || float_bits(x) << 1 >= 0xFF000000u)
    fail("fake", "bf16 does not hold a number");
  return x;
}

// A code as tf32: 16-bit codes from the upper half of a register, 8-bit codes via bf16. All but
// bf16 must be normal.
float as_tf32(const uint8_t* at, uint32_t bytes, uint32_t shift, uint32_t mask, uint32_t lift, float factor) {
  uint16_t code = 0;
  std::memcpy(&code, at, bytes);
  float value = 0;
  if (bytes == 1) {
    value = as_bf16(placed(at, 1, shift, mask) * bits_float(lift << 16));
  } else {
    const auto top = static_cast<int32_t>(uint32_t{code} << 16);
    value = bits_float(static_cast<uint32_t>(top >> shift) & mask) * factor;
  }
  const bool bf16 = bytes == 2 && shift == 0;
  const uint32_t magnitude = float_bits(value) & 0x7FFFFFFFu;
  if ((magnitude & 0x1FFFu) != 0) fail("fake", "tf32 does not hold a number");
  if (!bf16 && magnitude != 0 && (magnitude < 0x00800000u || magnitude >= 0x7F800000u))
    fail("fake", "an operand of tf32 is not normal");
  return value;
}

// The input and the lifted gradient of a product.
float left_operand(const GradCall& call, const uint8_t* at) {
  if (call.tf32) return as_tf32(at, call.in_bytes, call.in_shift, call.in_mask, call.lift[0], call.in_factor);
  return placed(at, call.in_bytes, call.in_shift, call.in_mask);
}
float right_operand(const GradCall& call, const uint8_t* at) {
  if (call.tf32)
    return as_tf32(at, call.out_bytes, call.out_shift, call.out_mask, call.lift[1], call.out_factor);
  const float b = placed(at, call.out_bytes, call.out_shift, call.out_mask);
  if (call.out_bytes == 2) return b;
  return as_bf16(as_bf16(b * bits_float(call.lift[0] << 16)) * bits_float(call.lift[1] << 16));
}

// One piece of the batch of a weight gradient.
void sum_piece(const GradCall& call, const uint8_t* in, const uint8_t* grad, uint32_t piece, float* part) {
  const IgemmShape& shape = call.shape;
  const uint32_t begin = piece * call.tiling.each * kGradPixels;
  const auto end =
      static_cast<uint32_t>(std::min<uint64_t>(begin + call.tiling.each * kGradPixels, shape.results()));
  for (uint32_t k = 0; k < shape.out_c; ++k) {
    for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
      for (uint32_t c = 0; c < shape.in_c; ++c) {
        float sum = 0;
        for (uint32_t result = begin; result < end; ++result) {
          const uint32_t image = call.area.quotient(result), rest = result - image * call.area.divisor;
          const uint32_t p = call.width.quotient(rest), q = rest - p * call.width.divisor;
          const uint32_t y = p * shape.stride_h + static_cast<uint32_t>(shape.row[tap / shape.columns]),
                         x = q * shape.stride_w + static_cast<uint32_t>(shape.column[tap % shape.columns]);
          if (y >= shape.in_h || x >= shape.in_w) continue;
          const uint64_t pixel = (uint64_t{image} * shape.in_h + y) * shape.in_w + x;
          const float a = left_operand(call, in + (pixel * shape.in_c + c) * call.in_bytes);
          const float b = right_operand(call, grad + (uint64_t{result} * shape.out_c + k) * call.out_bytes);
          sum = static_cast<float>(static_cast<double>(a) * b + sum);
        }
        part[(uint64_t{k} * shape.taps() + tap) * shape.in_c + c] = sum * call.factor;
      }
    }
  }
}

}  // namespace

void run_grad(const GradCall& call, const uint8_t* in, const uint8_t* grad, Stream) {
  if (call.shape.in_c * call.in_bytes % 16 != 0 || call.shape.out_c * call.out_bytes % 16 != 0)
    fail("fake", "a pixel is not whole pieces of 16 bytes");
  const uint64_t elements = uint64_t{call.shape.out_c} * call.shape.taps() * call.shape.in_c;
  for (uint32_t piece = 0; piece < call.tiling.pieces; ++piece) {
    sum_piece(call, in, grad, piece, call.parts + piece * elements);
  }
}

uint64_t& written_tiles(OperandFeed feed) {
  static uint64_t written[6] = {};
  return written[static_cast<size_t>(feed)];
}

uint32_t igemm_processors() { return kProcessors; }
// Low enough that tests have convolutions on both sides of it.
double fp16_operations() { return 1e6; }

void run_conv_igemm(const IgemmCall& call, OperandFeed feed, const uint8_t* in, Stream stream) {
  if (call.tiling.is_halo()) {
    IgemmCall filled = call;
    filled.in = in;
    check_aligned(call, call.part[0], feed, in);
    return start_halo(filled, feed, stream);
  }
  RangeCount seen;
  for (uint32_t i = 0; i < call.parts; ++i) Loops(call, call.part[i], feed, in).run(seen);
  if (call.out.stats == nullptr) return;
  EncodeStats& stats = *call.out.stats;
  stats.overflow += seen.overflow;
  stats.underflow += seen.underflow;
  stats.nan += seen.nan;
  stats.amax = std::max(stats.amax, bits_float(seen.amax));
}

}  // namespace ulp::cuda
