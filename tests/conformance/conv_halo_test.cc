// The kernel of conv_halo.h, compiled for the host, against plain loops in every kind of tiling:
// also with so few processors that blocks have one tile after the other, which plans of small
// tensors never have. Numbers are small integers, whose sums are exact.
#include "ulp/backend/cuda/igemm/conv_halo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/quick.h"

namespace ulp::cuda {
namespace {

QuickCodec codec_of(std::string_view name) {
  const FloatFormat format = parse_format(name);
  return make_quick(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate));
}

struct Work {
  ConvExtents32 conv;
  bool gradient;
  OperandFeed feed;

  uint32_t in_c() const { return gradient ? conv.out_c : conv.c; }
  uint32_t out_c() const { return gradient ? conv.c : conv.out_c; }
};

// Memory that the copy engine takes.
struct alignas(16) Line {
  uint8_t bytes[16];
};

class Run {
 public:
  explicit Run(const Work& work)
      : work_(work), part_(work.gradient ? gradient_parts(work.conv)[0] : forward_part(work.conv)) {
    std::mt19937 random(7);
    const IgemmShape& shape = part_.shape;
    const uint32_t bytes = feed_bytes(work.feed);
    x_.resize(size_t{shape.images} * shape.in_h * shape.in_w * shape.in_c);
    codes_.resize((x_.size() * bytes + 15) / 16);
    for (size_t i = 0; i < x_.size(); ++i) {
      x_[i] = static_cast<float>(random() % 15) - 7;
      const uint32_t code = encode_even(codec(), float_bits(x_[i])).code;
      std::memcpy(codes_[0].bytes + i * bytes, &code, bytes);
    }
    weight_.resize(size_t{shape.taps()} * shape.in_c * shape.out_c);
    for (float& value : weight_) value = static_cast<float>(random() % 15) - 7;
  }

  const IgemmShape& shape() const { return part_.shape; }

  std::vector<float> expected() const {
    const IgemmShape& shape = part_.shape;
    std::vector<float> sums(shape.results() * shape.out_c);
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto n = static_cast<uint32_t>(i % shape.out_c);
      const int64_t q = i / shape.out_c % shape.out_w, p = i / shape.out_c / shape.out_w % shape.out_h,
                    image = i / shape.out_c / shape.out_w / shape.out_h;
      for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
        const int64_t row = p + shape.row[tap / shape.columns],
                      column = q + shape.column[tap % shape.columns];
        if (row < 0 || column < 0 || row >= shape.in_h || column >= shape.in_w) continue;
        const size_t pixel = static_cast<size_t>((image * shape.in_h + row) * shape.in_w + column);
        for (uint32_t c = 0; c < shape.in_c; ++c) {
          const size_t outer = work_.gradient ? c : n, inner = work_.gradient ? n : c,
                       many = work_.gradient ? shape.out_c : shape.in_c;
          sums[i] +=
              x_[pixel * shape.in_c + c] * weight_[(outer * shape.taps() + part_.source[tap]) * many + inner];
        }
      }
    }
    return sums;
  }

  std::vector<float> computed(const IgemmTiling& tiling) {
    const IgemmShape& shape = part_.shape;
    std::vector<Line> image((tiling.image_bytes(work_.feed, shape.taps()) + 15) / 16);
    StepState state;
    IgemmWeights weights;
    weights.view.stored.codes = reinterpret_cast<uint8_t*>(weight_.data());
    weights.view.stored.elements = weight_.size();
    weights.state = &state;
    weights.in_c = shape.in_c;
    weights.out_c = shape.out_c;
    weights.weight_taps = shape.taps();
    weights.transposed = work_.gradient;
    if (work_.feed == OperandFeed::bf16_from_8)
      weights.factor = std::ldexp(1.0f, 127 - parse_format(kNarrow).bias);
    weights.images = 1;
    weights.image[0] = weight_image(part_, tiling, reinterpret_cast<uint32_t*>(image.data()));
    prepare_weights({&weights, 1}, nullptr);

    std::vector<float> out(shape.results() * shape.out_c, NAN);
    IgemmCall call;
    call.part[0].image = image[0].bytes;
    call.shape = shape;
    call.tiling = tiling;
    call.out.stored.codes = reinterpret_cast<uint8_t*>(out.data());
    call.out.stored.elements = out.size();
    call.rounder = make_rounder(true, call.out.stored.codec, Round::nearest_even, 0);
    complete(call, work_.feed, codec());
    run_conv_igemm(call, work_.feed, codes_[0].bytes, nullptr);
    return out;
  }

 private:
  static constexpr std::string_view kNarrow = "fp(4,3,4)";
  QuickCodec codec() const { return codec_of(work_.feed == OperandFeed::bf16 ? "bf16" : kNarrow); }

  Work work_;
  IgemmPart part_;
  std::vector<float> x_, weight_;
  std::vector<Line> codes_;
};

// How many tilings there were.
size_t expect_same(const Work& work) {
  Run run(work);
  const std::vector<float> expected = run.expected();
  size_t fitted = 0;
  for (const uint32_t columns : {16u, 32u, 64u}) {
    for (const uint32_t images : {1u, 2u}) {
      for (const uint32_t rows : {run.shape().out_h, 3u}) {
        for (const uint32_t processors : {1u, 132u}) {
          IgemmTiling tiling;
          tiling.columns = columns;
          tiling.halo.images = images;
          tiling.halo.rows = rows;
          if (!make_halo(run.shape(), work.feed, processors, tiling)) continue;
          ++fitted;
          EXPECT_EQ(run.computed(tiling), expected)
              << columns << " columns, " << images << " images, " << rows << " rows, " << tiling.grid
              << " blocks for " << tiling.row_tiles * tiling.column_tiles << " tiles, gradient "
              << work.gradient << ", " << feed_bytes(work.feed) << " bytes";
        }
      }
    }
  }
  return fitted;
}

TEST(ConvHalo, IsTheSumInEveryTiling) {
  for (const OperandFeed feed : {OperandFeed::bf16, OperandFeed::bf16_from_8}) {
    for (const bool gradient : {false, true}) {
      EXPECT_GT(expect_same({{3, 7, 9, 16, 7, 9, 16, 3, 3, 1, 1, 1, 1}, gradient, feed}), 8u);
      EXPECT_GT(expect_same({{5, 8, 5, 32, 8, 5, 64, 3, 3, 1, 1, 1, 1}, gradient, feed}), 8u);
      EXPECT_GT(expect_same({{2, 6, 6, 64, 6, 6, 32, 5, 5, 1, 1, 2, 2}, gradient, feed}), 4u);
      EXPECT_GT(expect_same({{3, 6, 10, 16, 6, 8, 64, 1, 3, 1, 1, 0, 0}, gradient, feed}), 8u);
    }
    EXPECT_GT(expect_same({{3, 5, 4, 16, 5, 4, 40, 3, 3, 1, 1, 1, 1}, false, feed}), 4u);
    EXPECT_GT(expect_same({{3, 5, 4, 8, 7, 6, 64, 3, 3, 1, 1, 2, 2}, true, feed}), 4u);
  }
}

}  // namespace
}  // namespace ulp::cuda
