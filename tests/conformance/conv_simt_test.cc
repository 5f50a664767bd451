// Convolutions in plain fp32 on a GPU (conv_simt.h): the kernels, thread by thread, in every tile
// and in several pieces, held to loops in double; what is taken and what is not; how work is cut.
#include "ulp/backend/cuda/conv/conv_simt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/ref/reference.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kProcessors = 132;
constexpr ConvSimtTile kTiles[] = {ConvSimtTile::slim, ConvSimtTile::narrow, ConvSimtTile::wide};
constexpr ConvKind kKinds[] = {ConvKind::forward, ConvKind::grad_input, ConvKind::grad_weight};

ConvExtents32 conv(uint32_t images, uint32_t h, uint32_t w, uint32_t c, uint32_t k, uint32_t kernel,
                   uint32_t stride, uint32_t padding) {
  return ConvExtents32{images, h, w, c, 1, 1, k, kernel, kernel, stride, stride, padding, padding}
      .with_output();
}

// One pixel; more and fewer than a tile of pixels and of channels; half a chunk of channels; pixels
// that no tap meets; small images, of which a chunk of pixels has several.
const std::vector<ConvExtents32>& convolutions() {
  static const std::vector<ConvExtents32> all = {
      conv(1, 1, 1, 4, 4, 1, 1, 0),   conv(2, 9, 8, 12, 20, 3, 1, 1), conv(3, 7, 5, 4, 132, 3, 2, 1),
      conv(2, 6, 7, 36, 8, 1, 2, 0),  conv(5, 2, 2, 8, 12, 3, 1, 1),  conv(1, 9, 7, 8, 68, 5, 3, 2),
      conv(9, 1, 3, 16, 24, 3, 1, 1), conv(1, 8, 9, 132, 4, 2, 1, 0), conv(2, 5, 6, 4, 8, 3, 2, 0),
  };
  return all;
}

std::string title(const ConvExtents32& one, ConvKind kind, const ConvSimtTiling& tiling) {
  constexpr std::string_view names[] = {"forward", "gradient of inputs", "gradient of weights"};
  return fmt::format("{} of {}x{}x{}x{} to {}, kernel {}, stride {}, tile of {}, {} pieces",
                     names[static_cast<size_t>(kind)], one.n, one.h, one.w, one.c, one.out_c, one.kernel_h,
                     one.stride_h, tile_columns(tiling.tile), tiling.pieces);
}

std::vector<float> random(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> unit(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = unit(engine);
  return values;
}

// Tensors of a convolution, and what it makes of them.
struct Work {
  ConvExtents32 conv;
  ConvKind kind;
  std::vector<float> x, weight, grad;
  std::vector<double> sums, magnitudes;

  Work(const ConvExtents32& one, ConvKind which) : conv(one), kind(which) {
    x = random(one.x_elements(), 1);
    weight = random(one.weight_elements(), 2);
    grad = random(one.out_elements(), 3);
    sums.assign(kind == ConvKind::forward      ? grad.size()
                : kind == ConvKind::grad_input ? x.size()
                                               : weight.size(),
                0);
    magnitudes = sums;
    for (size_t result = 0; result < grad.size() / one.out_c; ++result) {
      for (uint32_t tap = 0; tap < one.kernel_h * one.kernel_w; ++tap) meet(result, tap);
    }
  }

  void meet(size_t result, uint32_t tap) {
    const size_t area = size_t{conv.out_h} * conv.out_w, image = result / area;
    const auto row = static_cast<int64_t>(result % area / conv.out_w * conv.stride_h + tap / conv.kernel_w) -
                     conv.padding_h,
               column = static_cast<int64_t>(result % conv.out_w * conv.stride_w + tap % conv.kernel_w) -
                        conv.padding_w;
    if (row < 0 || row >= conv.h || column < 0 || column >= conv.w) return;
    const size_t pixel = (image * conv.h + static_cast<size_t>(row)) * conv.w + static_cast<size_t>(column);
    for (size_t k = 0; k < conv.out_c; ++k) {
      for (size_t c = 0; c < conv.c; ++c) {
        const size_t in = pixel * conv.c + c, out = result * conv.out_c + k,
                     by = (k * conv.kernel_h * conv.kernel_w + tap) * conv.c + c;
        if (kind == ConvKind::forward) add(out, x[in], weight[by]);
        if (kind == ConvKind::grad_input) add(in, grad[out], weight[by]);
        if (kind == ConvKind::grad_weight) add(by, x[in], grad[out]);
      }
    }
  }
  void add(size_t at, float a, float b) {
    sums[at] += static_cast<double>(a) * b;
    magnitudes[at] += std::fabs(static_cast<double>(a) * b);
  }
  double terms() const {
    return kind == ConvKind::grad_weight ? static_cast<double>(grad.size()) / conv.out_c
                                         : static_cast<double>(conv.kernel_h) * conv.kernel_w *
                                               (kind == ConvKind::forward ? conv.c : conv.out_c);
  }

  // The pieces' sums, and a NaN behind them. `tiling` becomes that which was taken.
  std::vector<float> run(ConvSimtTiling& tiling) const {
    std::vector<float> out;
    const auto start = [&](auto call, auto function) {
      call.tiling = tiling;
      complete(call);
      tiling = call.tiling;
      out.assign(sums.size() * tiling.pieces + 1, std::numeric_limits<float>::quiet_NaN());
      call.out = out.data();
      function(call);
    };
    if (kind == ConvKind::grad_weight) {
      start(conv_simt_wgrad(forward_part(conv)), [&](ConvSimtGrad& call) {
        call.images = x.data();
        call.grad = grad.data();
        run_conv_simt_wgrad(call, nullptr);
      });
      return out;
    }
    const bool gradient = kind == ConvKind::grad_input;
    const std::vector<IgemmPart> parts = gradient ? gradient_parts(conv) : std::vector{forward_part(conv)};
    start(conv_simt_call(parts, conv.kernel_h * conv.kernel_w, gradient), [&](ConvSimtCall& call) {
      call.images = gradient ? grad.data() : x.data();
      call.weight = weight.data();
      run_conv_simt(call, nullptr);
    });
    return out;
  }
};

TEST(ConvSimt, SumsInEveryTileAndInPieces) {
  for (const ConvExtents32& one : convolutions()) {
    for (const ConvKind kind : kKinds) {
      const Work work(one, kind);
      for (const ConvSimtTile tile : kTiles) {
        for (const uint32_t pieces : {1u, 3u}) {
          ConvSimtTiling tiling{tile, pieces};
          const std::vector<float> made = work.run(tiling);
          SCOPED_TRACE(title(one, kind, tiling));
          EXPECT_TRUE(std::isnan(made.back()));
          size_t wrong = 0;
          for (size_t i = 0; i < work.sums.size(); ++i) {
            double sum = 0;
            for (uint32_t piece = 0; piece < tiling.pieces; ++piece)
              sum += static_cast<double>(made[piece * work.sums.size() + i]);
            const double allowed = work.terms() * std::ldexp(1.0, -24) * work.magnitudes[i];
            wrong += std::fabs(sum - work.sums[i]) <= allowed ? 0 : 1;
          }
          EXPECT_EQ(wrong, 0u);
        }
      }
    }
  }
}

// ResNet-18's layers have work for all processors: no tile is mostly empty, and where tiles are few
// they are cut.
TEST(ConvSimt, CutsWorkForAllProcessors) {
  for (const uint32_t images : {128u, 1024u}) {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const uint32_t c = 64u << layer, size = 32u >> layer;
      const ConvExtents32 one = conv(images, size, size, c, c, 3, 1, 1);
      const ConvSimtTile expected = layer == 0 ? ConvSimtTile::narrow : ConvSimtTile::wide;
      for (const bool gradient : {false, true}) {
        const auto parts = gradient ? gradient_parts(one) : std::vector{forward_part(one)};
        ConvSimtCall call = conv_simt_call(parts, 9, gradient);
        call.tiling = choose_tiling(call, kProcessors, size_t{64} << 20);
        complete(call);
        EXPECT_EQ(call.tiling.tile, expected) << images << " images of layer " << layer;
        EXPECT_GE(call.blocks, 7 * kProcessors / 4) << images << " images of layer " << layer;
        EXPECT_LE(uint64_t{call.tiling.pieces} * call.elements * sizeof(float),
                  std::max(uint64_t{64} << 20, uint64_t{call.elements} * sizeof(float)));
      }
      ConvSimtGrad grad = conv_simt_wgrad(forward_part(one));
      grad.tiling = choose_tiling(grad, kProcessors, size_t{64} << 20);
      complete(grad);
      EXPECT_NE(grad.tiling.tile, ConvSimtTile::slim) << images << " images of layer " << layer;
      EXPECT_GE(grad.row_tiles * grad.column_tiles * grad.tiling.pieces, 7 * kProcessors / 4);
    }
  }
}

// Without room for pieces there is one.
TEST(ConvSimt, KeepsWithinTheWorkspace) {
  const ConvExtents32 one = conv(128, 4, 4, 512, 512, 3, 1, 1);
  const std::vector parts{forward_part(one)};
  const ConvSimtCall call = conv_simt_call(parts, 9, false);
  EXPECT_GT(choose_tiling(call, kProcessors, size_t{64} << 20).pieces, 1u);
  EXPECT_EQ(choose_tiling(call, kProcessors, 0).pieces, 1u);
  EXPECT_LE(choose_tiling(call, kProcessors, size_t{9} << 20).pieces, 2u);
  EXPECT_EQ(choose_tiling(conv_simt_wgrad(parts[0]), kProcessors, 1000).pieces, 1u);
}

}  // namespace
}  // namespace ulp::cuda

namespace ulp::conformance {
namespace {

// These kernels, and the reference for all that they do not take.
const Backend& directs() {
  static const Backend backend = [] {
    const auto own = cuda::conv_simt_kernels(), others = reference_kernels();
    Backend made{"directs", {own.begin(), own.end()}};
    made.kernels.insert(made.kernels.end(), others.begin(), others.end());
    return made;
  }();
  return backend;
}

Case conv(const Shape& x, const ConvOptions& options) {
  return {"conv" + shape_text(x), [=](Sketch& s) { s.train(conv2d(s.b, "conv", s.operand(x), options)); }};
}

// Of the three operators those that are taken, each with its kernel.
size_t taken(const Case& one, const Scheme& scheme) {
  const std::vector<Checked> all = reached(one, scheme, directs());
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [](const Checked& checked) { return checked.kernel == "conv_simt"; }));
}

TEST(ConvSimt, TakesWhatIsFp32AsItLies) {
  const Scheme fp32{"fp32", {"fp32"}};
  EXPECT_EQ(taken(conv({2, 6, 6, 12}, {8, 3, 2, 1, 1, false}), fp32), 3u);
  EXPECT_EQ(taken(conv({2, 6, 6, 12}, {8, 3, 2, 1, 1, true}), fp32), 2u);  // adds no bias
  EXPECT_EQ(taken(conv({2, 6, 6, 6}, {8, 3, 1, 1, 1, false}), fp32), 0u);  // channels
  EXPECT_EQ(taken(conv({2, 6, 6, 8}, {8, 3, 1, 1, 2, false}), fp32), 0u);  // groups
  EXPECT_EQ(taken(conv({2, 8, 8, 8}, {8, 7, 1, 3, 1, false}), fp32), 0u);  // a large kernel
  EXPECT_EQ(taken(conv({2, 3, 3, 8}, {8, 3, 4, 1, 1, false}), fp32), 2u);  // a large stride
  EXPECT_EQ(taken(conv({2, 6, 6, 12}, {8, 3, 1, 1, 1, false}), {"bf16", {"bf16"}}), 0u);
  EXPECT_EQ(taken(conv({2, 6, 6, 12}, {8, 3, 1, 1, 1, false}), {"s2fp8", {"s2fp8"}}), 0u);
  const Scheme narrow{"summed", {"fp32"}, {.accumulator = parse_format("fp16")}};
  EXPECT_EQ(taken(conv({2, 6, 6, 12}, {8, 3, 1, 1, 1, false}), narrow), 0u);
}

}  // namespace
}  // namespace ulp::conformance
