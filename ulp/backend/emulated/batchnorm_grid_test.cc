// A batch norm's reduction and the pass that uses it in one launch, against two launches: the same
// bytes and the same range events.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/backend/emulated/fused_sample.h"

namespace ulp::cuda {
namespace {

struct Formats {
  const char *forward, *grad, *weight;
};

// A pass, and the reduction that gives its channel values.
struct Pair {
  Sample sample;
  NodeId reduction, pass;
  std::vector<NodeId> inlined, shared;  // in the pass, and in both
  TensorId x, out;

  Pair(const std::string& pattern, const Shape& shape) : sample(pattern, shape) {
    pass = sample.nodes.back();
    out = sample.graph[pass].out[0];
    inlined.assign(sample.nodes.begin(), sample.nodes.end() - 1);
    const bool backward = pattern.starts_with("batch_norm_grad");
    x = backward || pattern.find("(x,batch") != std::string::npos ? sample.leaves.back() : sample.leaves[0];
    Node node;
    node.name = "reduction";
    const std::vector<TensorId>& values = sample.channel_values;
    if (backward) {
      shared = inlined;
      const Node& grad = sample.graph[pass];
      node.op = &kBatchNormSums;
      node.in = {grad.in[0], x, values[0], values[1]};
      node.out = {values[2], values[3]};
    } else {
      node.op = &kBatchStats;
      node.in = {x};
      node.out = {values[0], values[1]};
    }
    node.attrs.set("epsilon", 1e-5);
    reduction = sample.graph.add_node(node);
  }

  std::vector<TensorFormat> formats(const Formats& wanted) const {
    std::vector<TensorFormat> made;
    const bool backward = !shared.empty() || sample.graph[pass].op == &kBatchNormGrad;
    for (size_t i = 0; i < sample.graph.tensor_count(); ++i) {
      const TensorInfo& tensor = sample.graph.tensors()[i];
      TensorFormat format{parse_storage("fp32"), {}};
      if (tensor.kind == Kind::weight && *wanted.weight != 0) format.operand = parse_storage(wanted.weight);
      if (tensor.kind == Kind::activation) {
        const bool kept = tensor.name.starts_with("leaf") && static_cast<int>(i) != sample.leaves[0].index;
        format.storage = parse_storage(backward && !kept ? wanted.grad : wanted.forward);
      }
      made.push_back(format);
    }
    return made;
  }
};

std::unique_ptr<Task> join(const Bench& bench, const Pair& pair, std::vector<std::unique_ptr<Task>>& both) {
  both.push_back(bench.make(pair.shared, {pair.reduction}, {}));
  both.push_back(bench.make(pair.inlined, {pair.pass}, pair.shared));
  return make_merged(*both[0], *both[1]);
}

// over: which leaf the result overlays; -1: none.
void check(const std::string& pattern, const Shape& shape, const Formats& formats, bool specials, int over) {
  SCOPED_TRACE(pattern + " " + shape_text(shape) + " " + formats.forward + (specials ? " specials" : ""));
  const Pair pair(pattern, shape);
  for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
    Bench apart(pair.sample, pair.formats(formats), Round::nearest_even, overflow),
        merged(pair.sample, pair.formats(formats), Round::nearest_even, overflow);
    for (Bench* bench : {&apart, &merged}) {
      fill(*bench, pair.sample, specials);
      if (over >= 0) bench->lie_over(pair.out, pair.sample.leaves[static_cast<size_t>(over)]);
    }
    std::vector<std::unique_ptr<Task>> both;
    const std::unique_ptr<Task> task = join(merged, pair, both);
    ASSERT_NE(task, nullptr);
    merged.run(*task);
    apart.run(pair.shared, {pair.reduction});
    apart.run(pair.inlined, {pair.pass}, pair.shared);
    for (const TensorId id : pair.sample.graph[pair.reduction].out)
      ASSERT_EQ(merged.bytes(id), apart.bytes(id));
    ASSERT_EQ(merged.bytes(pair.out), apart.bytes(pair.out));
    for (size_t i = 0; i < apart.stats.size(); ++i) {
      const EncodeStats &wanted = apart.stats[i], &seen = merged.stats[i];
      const std::string& name = pair.sample.graph.tensors()[i].name;
      ASSERT_EQ(seen.overflow, wanted.overflow) << name;
      ASSERT_EQ(seen.underflow, wanted.underflow) << name;
      ASSERT_EQ(seen.nan, wanted.nan) << name;
      ASSERT_EQ(std::memcmp(&seen.amax, &wanted.amax, sizeof(seen.amax)), 0) << name;
    }
  }
}

constexpr const char* kPatterns[] = {"batch_norm(x)",
                                     "relu(batch_norm(x))",
                                     "relu(add(batch_norm(x),x))",
                                     "relu(add(x,batch_norm(x)))",
                                     "batch_norm_grad(x,x)",
                                     "batch_norm_grad(relu_grad(x,x),x)"};
constexpr Formats kFormats[] = {{"bf16", "bf16", ""},
                                {"fp(4,3,4)", "fp(5,2,0)", "fp(4,3,4)"},
                                {"e4m3", "e5m2", ""},
                                {"fp(6,9,0)", "fp(6,9,0)", "bf16"},
                                {"fp(4,11,0)", "fp(4,11,0)", ""}};

TEST(BatchnormGrid, GivesTheBitsOfTwoLaunches) {
  for (const char* pattern : kPatterns) {
    for (const Formats& formats : kFormats) {
      // One block; several blocks with rows to combine; several slices; widths that are no power of
      // two.
      const bool masked = std::string(pattern).find("relu_grad") != std::string::npos;
      // A mask of codes that are no numbers.
      if (masked && std::string(formats.forward) == "e4m3") continue;
      for (const bool specials : {false, true}) check(pattern, {37, 24}, formats, specials, -1);
      check(pattern, {300, 136}, formats, true, -1);
      if (HasFatalFailure()) return;
    }
    check(pattern, {2700, 16}, kFormats[1], false, -1);
    check(pattern, {1100, 88}, kFormats[0], false, -1);
    if (HasFatalFailure()) return;
  }
}

// Threads with one pixel, and with many: eight, and then a few of the last ones.
TEST(BatchnormGrid, KeepsAsManyPixelsAsThereAre) {
  for (const char* pattern : kPatterns) {
    check(pattern, {3, 8}, kFormats[0], false, -1);
    check(pattern, {500, 64}, kFormats[1], false, -1);
    if (HasFatalFailure()) return;
  }
  check("relu(batch_norm(x))", {132 * 512 * 2 + 9, 8}, kFormats[1], false, -1);
  check("batch_norm_grad(relu_grad(x,x),x)", {132 * 512 * 2 + 9, 8}, kFormats[1], false, -1);
}

TEST(BatchnormGrid, WritesOverWhatItReads) {
  for (const Formats& formats : {kFormats[0], kFormats[3]}) {
    check("relu(add(batch_norm(x),x))", {900, 16}, formats, true, 1);
    check("relu(add(batch_norm(x),x))", {900, 16}, formats, true, 0);
    for (const int over : {0, 1}) check("batch_norm_grad(x,x)", {900, 16}, formats, true, over);
    for (const int over : {0, 1, 2})
      check("batch_norm_grad(relu_grad(x,x),x)", {900, 16}, formats, true, over);
    if (HasFatalFailure()) return;
  }
}

TEST(BatchnormGrid, DeclinesWhatItCannot) {
  const auto merges = [](const Pair& pair, const Formats& formats) {
    const Bench bench(pair.sample, pair.formats(formats), Round::nearest_even);
    std::vector<std::unique_ptr<Task>> both;
    return join(bench, pair, both) != nullptr;
  };
  EXPECT_TRUE(merges(Pair("relu(batch_norm(x))", {64, 16}), kFormats[0]));
  EXPECT_FALSE(merges(Pair("relu(batch_norm(x))", {64, 16}), {"fp32", "fp32", ""}));
  EXPECT_FALSE(merges(Pair("relu(batch_norm(x))", {64, 12}), kFormats[0]));
  EXPECT_FALSE(merges(Pair("add(batch_norm(x),x)", {64, 16}), kFormats[0]));
  // More than the multiprocessors' shared memory holds.
  EXPECT_TRUE(merges(Pair("batch_norm_grad(relu_grad(x,x),x)", {1 << 17, 16}), kFormats[0]));
  EXPECT_FALSE(merges(Pair("batch_norm_grad(relu_grad(x,x),x)", {1 << 20, 16}), kFormats[0]));
  // Statistics of another tensor.
  Pair other("relu(add(batch_norm(x),x))", {64, 16});
  Node node;
  node.op = &kBatchStats;
  node.name = "others";
  node.in = {other.sample.leaves[1]};
  node.out = other.sample.graph[other.reduction].out;
  other.reduction = other.sample.graph.add_node(node);
  EXPECT_FALSE(merges(other, kFormats[0]));
}

}  // namespace
}  // namespace ulp::cuda
