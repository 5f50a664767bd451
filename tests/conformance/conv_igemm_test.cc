// Convolutions from codes to codes on a GPU: what is taken and what is not, and results beside the
// reference's. The kernel itself is loops here (fake_igemm.cc).
#include "ulp/backend/cuda/igemm/conv_igemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/conformance/conformance.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/ref/reference.h"

namespace ulp::conformance {
namespace {

// These kernels, and the reference for all that they do not take.
const Backend& igemm_backend() {
  static const Backend backend = [] {
    const auto own = cuda::conv_igemm_kernels(), grads = cuda::conv_wgrad_kernels();
    Backend made{"igemm", {own.begin(), own.end()}};
    made.kernels.insert(made.kernels.end(), grads.begin(), grads.end());
    const auto others = reference_kernels();
    made.kernels.insert(made.kernels.end(), others.begin(), others.end());
    return made;
  }();
  return backend;
}

// Formats follow from names: with names of their own, cases meet different ones.
Case conv(const Shape& x, const ConvOptions& o) {
  const std::string name = "conv" + shape_text(x) + "to" + std::to_string(o.out);
  return {name, [=](Sketch& s) { s.train(conv2d(s.b, name, s.operand(x), o)); }};
}

// Tiles that are full and that are not; input stages of 16, 32 and 64 channels, with some missing;
// several chunks and tiles of columns; images smaller than a tile and larger; parts of gradients
// with and without taps.
const std::vector<Case>& convolutions() {
  static const std::vector<Case> all = {
      conv({1, 1, 1, 16}, {16, 3, 1, 1, 1, false}),
      conv({3, 5, 7, 16}, {24, 3, 1, 1, 1, false}),
      conv({2, 16, 17, 16}, {16, 3, 1, 1, 1, false}),
      conv({5, 9, 9, 48}, {64, 3, 1, 1, 1, false}),
      conv({2, 6, 5, 80}, {32, 3, 1, 1, 1, false}),
      conv({2, 4, 4, 128}, {256, 1, 1, 0, 1, false}),
      conv({3, 8, 9, 32}, {96, 3, 2, 1, 1, false}),
      conv({3, 9, 8, 16}, {32, 1, 2, 0, 1, false}),
      conv({2, 9, 9, 64}, {40, 5, 2, 2, 1, false}),
      conv({2, 11, 10, 16}, {16, 2, 3, 0, 1, false}),
      conv({2, 7, 7, 16}, {16, 3, 1, 0, 1, false}),
      conv({3, 6, 6, 8}, {8, 3, 1, 1, 1, false}),
      // Of bf16, halo: several images in a tile, a kernel larger than its images and one with
      // much padding, columns that are no channels.
      conv({7, 4, 4, 32}, {32, 3, 1, 1, 1, false}),
      conv({2, 13, 6, 64}, {24, 5, 1, 2, 1, false}),
      conv({5, 3, 2, 16}, {8, 5, 1, 3, 1, false}),
      // Few channels, whose windows are gathered.
      conv({3, 6, 5, 3}, {16, 3, 1, 1, 1, false}),
      conv({2, 7, 8, 1}, {32, 5, 2, 2, 1, false}),
  };
  return all;
}

const Scheme& scheme_of(std::string_view name) {
  return *std::find_if(schemes().begin(), schemes().end(),
                       [&](const Scheme& one) { return one.name == name; });
}

// Formats for each way of feeding. At random: results that are rounded so are declined, weights are
// not.
const std::vector<Scheme>& tested() {
  static const std::vector<Scheme> all = [] {
    std::vector<Scheme> made = {scheme_of("fp(6,9,0)"), scheme_of("fp(4,3,4)"), scheme_of("bf16"),
                                scheme_of("mixed")};
    made.push_back({"bf16 and fp(4,3,4)", {"bf16", "fp(4,3,4)"}});
    made.push_back({"8 bits", {"fp(4,3,4)", "fp(5,2,0)"}, {.overflow = Overflow::infinity}});
    made.push_back({"at random", {"fp32", "fp(4,3,4)"}, {.round = Round::stochastic}});
    made.push_back({"8 and 16 bits", {"fp(5,2,0)", "fp(6,9,0)", "fp16"}});
    made.push_back({"narrow and wide", {"fp(4,3,4)", "fp(6,9,0)", "bf16"}});
    return made;
  }();
  return all;
}

TEST(ConvIgemm, KeepsToTheReference) {
  for (const Scheme& scheme : tested()) {
    for (const Case& one : convolutions()) check(one, scheme, igemm_backend());
  }
}

// At random gradients of inputs are in codes, which are declined.
TEST(ConvIgemm, IsReached) {
  for (const Scheme& scheme : tested()) {
    std::map<std::string_view, size_t> times;
    for (const Case& one : convolutions()) {
      for (const Checked& checked : reached(one, scheme, igemm_backend())) {
        if (checked.kernel == "conv_igemm") ++times[checked.op];
      }
    }
    EXPECT_GT(times["conv2d"], 0u) << scheme.name;
    EXPECT_EQ(times["conv2d_grad_input"] > 0, scheme.name != "at random") << scheme.name;
    EXPECT_GT(times["conv2d_grad_weight"], 0u) << scheme.name;
  }
}

// Of the schemes that make test runs on all emulated kernels, one.
TEST(ConvIgemm, IsReachedInAMixture) {
  std::vector<std::string_view> operators;
  for (const Case& one : cases()) {
    for (const Checked& checked : reached(one, scheme_of("mixed with infinities"), igemm_backend())) {
      if (checked.kernel == "conv_igemm") operators.push_back(checked.op);
    }
  }
  for (const std::string_view op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"}) {
    EXPECT_NE(std::find(operators.begin(), operators.end(), op), operators.end()) << op;
  }
}

}  // namespace
}  // namespace ulp::conformance
