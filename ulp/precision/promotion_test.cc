#include "ulp/precision/promotion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/precision/policy.h"

namespace ulp {
namespace {

TEST(Promotion, ThresholdsReadAsShares) {
  EXPECT_EQ(parse_promotion("off"), std::nullopt);
  EXPECT_EQ(parse_promotion("0.01"), 0.01);
  EXPECT_EQ(parse_promotion("0"), 0);
  EXPECT_EQ(parse_promotion("1"), 1);
  for (const char* text : {"", "on", "-0.1", "1.01", "nan", "inf", "0.01x", "1%"}) {
    EXPECT_THROW(parse_promotion(text), Error) << text;
  }
}

TEST(Promotion, IsUsualWhereThereIsALowFormat) {
  for (const char* policy : {"uniform", "op", "op-out", "size:0.5", "size-inc:1", "random:0.5:3",
                             "list:a.json", "sensitivity:0.5", "peak:1GB"}) {
    EXPECT_EQ(default_promotion(policy), 0.01) << policy;
  }
  for (const char* policy : {"fp32", "amp:bf16", "amp:fp16", "fpu16:bf16", "s2fp8", "fp8", "products:bf16"}) {
    EXPECT_EQ(default_promotion(policy), std::nullopt) << policy;
  }
}

struct Net {
  Graph graph = {};
  Net() {
    Builder b(graph, Mode::training);
    const TensorId x = input(b, "input", Shape::image(2, 3, 4, 4));
    const TensorId labels = indices(b, "labels", {2});
    const TensorId hidden = relu(b, "relu", conv2d(b, "conv", x, {.out = 4}));
    const TensorId scores = linear(b, "fc", flatten(b, "flatten", hidden), {.out = 5});
    differentiate(graph, nll(b, "loss", log_softmax(b, "log_softmax", scores), labels));
  }
};

std::vector<std::string> promoted(const Net& net, const Assignment& assignment, uint64_t overflow,
                                  double threshold) {
  // Everything overflows equally often, gradients too; a step of 100 elements each.
  const std::vector<EncodeStats> stats(net.graph.tensor_count(), EncodeStats{overflow, 50, 0, 1});
  const std::vector<uint64_t> elements(net.graph.tensor_count(), 100);
  std::vector<std::string> names;
  for (const Promotion& found : overflowing(net.graph, stats, elements, threshold, assignment)) {
    EXPECT_EQ(found.overflow_ratio, static_cast<double>(overflow) / 100);
    EXPECT_EQ(found.from, assignment.storage_of(found.tensor));
    EXPECT_EQ(found.to, assignment.high_of(found.tensor));
    names.push_back(found.tensor);
  }
  return names;
}

TEST(Promotion, ConcernsForwardTensorsThatAreLow) {
  const Net net;
  const std::vector<std::string> forward = {"conv.out",        "conv.weight", "fc.bias",
                                            "fc.out",          "fc.weight",   "input.out",
                                            "log_softmax.out", "loss.out",    "relu.out"};
  Assignment low = parse_policy("uniform")->assign(net.graph);
  std::vector<std::string> found = promoted(net, low, 2, 0.01);
  for (const std::string& name : forward) {
    EXPECT_EQ(std::count(found.begin(), found.end(), name), 1) << name;
  }
  for (const std::string& name : found) {
    const Kind kind = net.graph[net.graph.find(name)].kind;
    EXPECT_TRUE(kind == Kind::activation || kind == Kind::weight) << name;
  }
  // High ones stay, and with them all that were promoted before.
  EXPECT_TRUE(promoted(net, parse_policy("size:0")->assign(net.graph), 50, 0.01).empty());
  for (const std::string& name : found) EXPECT_TRUE(low.promote(name));
  EXPECT_TRUE(promoted(net, low, 50, 0.01).empty());
  EXPECT_TRUE(promoted(net, {}, 50, 0).empty());
}

TEST(Promotion, BeginsAboveTheThreshold) {
  const Net net;
  const Assignment low = parse_policy("uniform")->assign(net.graph);
  EXPECT_TRUE(promoted(net, low, 0, 0).empty());
  EXPECT_FALSE(promoted(net, low, 1, 0).empty());
  EXPECT_TRUE(promoted(net, low, 1, 0.01).empty());  // exactly at it
  EXPECT_FALSE(promoted(net, low, 2, 0.01).empty());
  EXPECT_TRUE(promoted(net, low, 100, 1).empty());
}

}  // namespace
}  // namespace ulp
