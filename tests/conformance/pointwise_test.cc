// 1x1 convolutions of any even number of channels on a GPU: the kernels, thread by thread, held to
// the reference; what is taken and what is not; how work is cut.
#include "ulp/backend/cuda/conv/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/ref/reference.h"

namespace ulp::conformance {
namespace {

constexpr uint32_t kProcessors = 132;

// These kernels, and the reference for all that they do not take.
const Backend& points() {
  static const Backend backend = [] {
    const auto own = cuda::pointwise_kernels(), others = reference_kernels();
    Backend made{"points", {own.begin(), own.end()}};
    made.kernels.insert(made.kernels.end(), others.begin(), others.end());
    return made;
  }();
  return backend;
}

// Formats follow from names: with names of their own, cases meet different ones.
Case conv(const Shape& x, int64_t out) {
  const std::string name = "conv" + shape_text(x) + "to" + std::to_string(out);
  return {name, [=](Sketch& s) { s.train(conv2d(s.b, name, s.operand(x), {.out = out, .bias = false})); }};
}

// A pixel, a tile that is full, several, the last not; channels of one step and of several, with
// some missing; one warp's columns and several; weights that have no room in shared memory.
const std::vector<Case>& convolutions() {
  static const std::vector<Case> all = {
      conv({1, 1, 1, 2}, 2),    conv({1, 16, 8, 58}, 58),  conv({3, 9, 11, 58}, 58),  conv({2, 5, 9, 24}, 58),
      conv({1, 7, 5, 58}, 116), conv({1, 6, 7, 116}, 116), conv({1, 3, 5, 232}, 232), conv({1, 5, 27, 30}, 6),
      conv({1, 2, 2, 18}, 130), conv({1, 3, 2, 280}, 474), conv({1, 1, 3, 510}, 14),  conv({2, 3, 3, 64}, 32),
  };
  return all;
}

// Each kind of operand, and of result. At random: results that are rounded so are declined, weights
// are not.
const std::vector<Scheme>& tested() {
  static const std::vector<Scheme> all = {
      {"bf16", {"bf16"}},
      {"fp(4,3,4)", {"fp(4,3,4)"}},
      {"bf16 and fp(4,3,4)", {"bf16", "fp(4,3,4)"}},
      {"8 bits", {"fp(4,3,4)", "fp(5,2,0)"}, {.overflow = Overflow::infinity}},
      {"8 bits and fp32", {"fp(5,2,0)", "fp(5,2,0)", "fp32"}},
      {"bf16 and fp(6,9,0)", {"bf16", "bf16", "fp(6,9,0)"}},
      {"at random", {"fp32", "fp(4,3,4)"}, {.round = Round::stochastic}},
  };
  return all;
}

TEST(Pointwise, KeepsToTheReference) {
  for (const Scheme& scheme : tested()) {
    for (const Case& one : convolutions()) check(one, scheme, points());
  }
}

// NaN, infinities, subnormals and zeros, which bf16 has: what lies beside a pixel, and what is not
// there, does not touch it.
TEST(Pointwise, KeepsToTheReferenceWithSpecials) {
  for (const Scheme& scheme : tested()) {
    if (!scheme.name.starts_with("bf16")) continue;
    for (const Shape& x : {Shape{1, 7, 5, 58}, {1, 1, 3, 6}, {2, 9, 8, 20}}) {
      const Case one{"specials", [=](Sketch& s) {
                       s.specials = true;
                       s.train(conv2d(s.b, "conv", s.operand(x), {.out = 22, .bias = false}));
                     }};
      check(one, scheme, points());
    }
  }
}

TEST(Pointwise, IsReached) {
  for (const Scheme& scheme : tested()) {
    std::map<std::string_view, size_t> times;
    for (const Case& one : convolutions()) {
      for (const Checked& checked : reached(one, scheme, points())) {
        if (checked.kernel == "pointwise") ++times[checked.op];
      }
    }
    for (const std::string_view op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"}) {
      if (scheme.storages.size() == 1) {
        EXPECT_EQ(times[op], convolutions().size()) << op << " in " << scheme.name;
      } else if (scheme.compute.round == Round::nearest_even) {
        EXPECT_GT(times[op], 0u) << op << " in " << scheme.name;
      }
    }
  }
}

TEST(Pointwise, DeclinesWhatItIsNotFor) {
  const auto declined = [](const Shape& x, const ConvOptions& options, const Scheme& scheme = tested()[0]) {
    const Case one{"conv", [=](Sketch& s) { s.train(conv2d(s.b, "conv", s.operand(x), options)); }};
    const auto seen = reached(one, scheme, points());
    return std::none_of(seen.begin(), seen.end(), [](const Checked& c) { return c.kernel == "pointwise"; });
  };
  EXPECT_FALSE(declined({2, 4, 4, 6}, {.out = 10, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 5}, {.out = 10, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 6}, {.out = 9, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 6}, {.out = 10, .kernel = 3, .padding = 1, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 6}, {.out = 10, .stride = 2, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 6}, {.out = 10, .padding = 1, .bias = false}));
  EXPECT_TRUE(declined({2, 4, 4, 6}, {.out = 10, .groups = 2, .bias = false}));
  EXPECT_TRUE(declined({1, 2, 2, 514}, {.out = 10, .bias = false}));
  const ConvOptions plain{.out = 10, .bias = false};
  Scheme scheme{"bf16 alone", {"bf16"}};
  EXPECT_FALSE(declined({2, 4, 4, 6}, plain, scheme));
  scheme.compute.accumulator = parse_format("fp16");
  EXPECT_TRUE(declined({2, 4, 4, 6}, plain, scheme));
  for (const char* format : {"fp16", "e5m2", "e4m3", "fp(6,9,0)", "fp32"}) {
    EXPECT_TRUE(declined({2, 4, 4, 6}, plain, {format, {format}})) << format;
  }
}

// Everything has its place in shared memory, all pixels a block, and all channels a warp.
TEST(Pointwise, TilingsCoverTheWork) {
  for (uint32_t c = 2; c <= cuda::kPointMost; c += 22) {
    for (uint32_t k = 2; k <= cuda::kPointMost; k += 34) {
      for (const uint32_t bytes : {1u, 2u}) {
        for (const uint32_t pixels : {1u, 127u, 16384u, 1u << 20}) {
          const auto grad = cuda::make_point_grad_tiling(pixels, c, k, bytes, bytes, kProcessors);
          const uint32_t stage = grad.pixels * bytes * (c + k);
          EXPECT_EQ(grad.pixels % 16, 0u);
          EXPECT_EQ(grad.warps_in * grad.warps_out * grad.slices, cuda::kPointGradThreads / 32);
          EXPECT_LE(16 * grad.slices, grad.pixels);
          EXPECT_GE(grad.blocks_in * grad.warps_in * 64, c);
          EXPECT_GE(grad.blocks_out * grad.warps_out * 64, k);
          EXPECT_GE(grad.pieces * grad.each, grad.tiles);
          EXPECT_LT((grad.pieces - 1) * grad.each, grad.tiles);
          EXPECT_GE(grad.tiles * uint64_t{grad.pixels}, pixels);
          EXPECT_GE(grad.stages, 2u);
          EXPECT_LE(grad.stages, 4u);
          EXPECT_GE(grad.shared, grad.stages * stage + 126);
          EXPECT_LE(grad.shared, cuda::kPointShared);
          const auto tiling = cuda::make_point_tiling(pixels, c, k, bytes, bytes, kProcessors);
          ASSERT_TRUE(tiling);
          EXPECT_GE(tiling->tiles * uint64_t{tiling->pixels}, pixels);
          EXPECT_LE(tiling->threads(), cuda::kPointThreads);
          EXPECT_GE(tiling->stages, 2u);
          EXPECT_LE(tiling->stages, 4u);
          EXPECT_LE(tiling->shared, cuda::kPointShared);
          EXPECT_LE(tiling->grid, tiling->tiles);
          EXPECT_GE(tiling->shared, size_t{tiling->pixels} * bytes * (tiling->stages * c + k) +
                                        (tiling->stationary ? 4 * tiling->image_words() : 0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulp::conformance
