// The policies on graphs small enough to do by hand. The papers' nets are compared with the public
// code's figures in tests/assignment_golden_test.cc.
#include "ulp/precision/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

using Names = std::set<std::string>;

// Products behind each other, behind a split, behind a shuffle and behind a view.
struct Net {
  Graph graph = {};
  TensorId loss;

  Net() {
    Builder b(graph, Mode::training);
    const TensorId x = input(b, "input", Shape::image(2, 3, 4, 4));
    const TensorId labels = indices(b, "labels", {2});
    const auto half = split(b, "split", relu(b, "relu", conv2d(b, "first", x, {.out = 4})), 2);
    const TensorId mid = conv2d(b, "mid", half[1], {.out = 2});
    const TensorId mixed = channel_shuffle(b, "shuffle", concat(b, "concat", {half[0], mid}), 2);
    const TensorId wide = batch_norm(b, "bn", conv2d(b, "wide", mixed, {.out = 6, .bias = true}));
    const TensorId scores = linear(b, "last", flatten(b, "flatten", wide), {.out = 5});
    loss = nll(b, "loss", log_softmax(b, "log_softmax", scores), labels);
  }
};

Names counted_names(const Graph& graph) {
  Names names;
  for (const CountedTensor& tensor : counted_tensors(graph)) names.insert(tensor.name);
  return names;
}

Names low_names(const Assignment& assignment) {
  Names names;
  for (const auto& [name, high] : assignment.high) names.insert(name);
  return names;
}

Names low_by(const std::string& policy, const PolicyOptions& options = {}) {
  return low_names(parse_policy(policy, options)->assign(Net().graph));
}

Names without(Names names, const Names& others) {
  for (const std::string& name : others) names.erase(name);
  return names;
}

Names with_grads(const Names& names) {
  Names both = names;
  for (const std::string& name : names) both.insert(name + ".grad");
  return both;
}

const Names kEnds =
    with_grads({"input.out", "first.weight", "first.out", "bn.out", "last.weight", "last.bias", "last.out"});
const Names kOp = {"split.out1",  "mid.weight", "mid.out.grad", "concat.out",
                   "wide.weight", "wide.bias",  "wide.out.grad"};
const Names kParameterGrads = {"first.weight.grad", "mid.weight.grad", "wide.weight.grad", "wide.bias.grad",
                               "bn.weight.grad",    "bn.bias.grad",    "last.weight.grad", "last.bias.grad"};

void expect_refused(const std::string& policy, const std::string& words, const PolicyOptions& options = {}) {
  try {
    parse_policy(policy, options);
    ADD_FAILURE() << "no error for " << policy;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("forms: " + policy_forms()), std::string::npos) << error.what();
  }
}

TEST(Policy, Fp32NamesNothing) {
  const Assignment assignment = parse_policy("fp32", {.keep_first_last = true})->assign(Net().graph);
  EXPECT_TRUE(assignment.storage.empty());
  EXPECT_TRUE(assignment.high.empty());
}

// What is asked of every policy: the same answer twice and before reverse mode, and storage for all or none.
TEST(Policy, EveryPolicyIsPure) {
  Net net;
  const Graph before = net.graph;
  differentiate(net.graph, net.loss);
  const size_t groups = group_elements(counted_tensors(net.graph)).size();
  const PolicyOptions options{.peak =
                                  [](const Assignment&) {
                                    return PeakUse{1, {}};
                                  },
                              .sensitivities = [groups] { return std::vector<double>(groups, 1); }};
  EXPECT_NE(policy_forms().find("fp32, uniform, op"), std::string::npos);
  for (const std::string_view text : policy_examples()) {
    SCOPED_TRACE(text);
    const Assignment assignment = parse_policy(text, options)->assign(net.graph);
    EXPECT_EQ(assignment.storage.size(), text == "fp32" ? 0 : counted_tensors(net.graph).size());
    EXPECT_NO_THROW(resolve_formats(net.graph, assignment));
    EXPECT_EQ(parse_policy(text, options)->assign(net.graph).storage, assignment.storage);
    EXPECT_EQ(parse_policy(text, options)->assign(before).storage, assignment.storage);
    const std::string_view name = text.substr(0, text.find(':'));
    expect_refused(std::string(name) + ":", name == text ? "nothing follows" : "it needs");
  }
}

TEST(Policy, EveryCountedTensorIsNamedAndConformsToTheCandidates) {
  Net net;
  const Graph before = net.graph;
  differentiate(net.graph, net.loss);
  for (const char* preset : {"hfp8", "fp8", "s2fp8"}) {
    for (const bool keep : {false, true}) {
      const PolicyOptions options{make_candidates(preset), keep};
      for (const char* text : {"uniform", "op", "op-out", "size:0.4", "size-inc:0.4", "random:0.4:3"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", preset, text, keep));
        const Assignment assignment = parse_policy(text, options)->assign(net.graph);
        EXPECT_EQ(assignment.storage.size(), counted_tensors(net.graph).size());
        for (const CountedTensor& tensor : counted_tensors(net.graph)) {
          const Candidates::Pair& pair = options.candidates[tensor.kind];
          const bool low = assignment.is_low(tensor.name);
          EXPECT_EQ(assignment.storage.at(tensor.name), low ? pair.low : pair.high) << tensor.name;
          EXPECT_EQ(assignment.high_of(tensor.name), pair.high) << tensor.name;
        }
        EXPECT_NO_THROW(resolve_formats(net.graph, assignment));
        // The same before reverse mode.
        EXPECT_EQ(parse_policy(text, options)->assign(before).storage, assignment.storage);
      }
    }
  }
}

TEST(Policy, UniformIsAllLowButWeightGradients) {
  const Names all = counted_names(Net().graph);
  EXPECT_EQ(low_by("uniform"), without(all, kParameterGrads));
  EXPECT_EQ(low_by("uniform", {make_candidates("hfp8", "", "", "", "bf16/e5m2"), false}), all);
  EXPECT_EQ(parse_policy("uniform")->assign(Net().graph).low_groups, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Policy, OneFormatForBothIsNeverLow) {
  EXPECT_TRUE(low_by("uniform", {make_candidates("fp8", "bf16", "bf16", "bf16"), false}).empty());
}

TEST(Policy, OpLowersWhatProductsRead) {
  EXPECT_EQ(low_by("op"), kOp);
  EXPECT_EQ(low_by("op", {make_candidates(), true}), kOp);  // ends are high already
}

TEST(Policy, OpOutLowersWhatTheyWriteToo) {
  Names expected = kOp;
  expected.insert({"mid.out", "wide.out", "split.out1.grad", "concat.out.grad"});
  EXPECT_EQ(low_by("op-out"), expected);
  expected.insert({"mid.weight.grad", "wide.weight.grad", "wide.bias.grad"});
  EXPECT_EQ(low_by("op-out", {make_candidates("hfp8", "", "", "", "bf16/e5m2"), false}), expected);
}

TEST(Policy, TheFirstProductsOutputStaysHighEvenWhereAProductReadsIt) {
  Graph graph;
  Builder b(graph, Mode::training);
  TensorId x = linear(b, "a", input(b, "input", {2, 4}), {.out = 4, .bias = false});
  for (const char* name : {"b", "c", "d"}) x = linear(b, name, x, {.out = 4, .bias = false});
  // c.out is what the last one reads.
  EXPECT_EQ(low_names(parse_policy("op")->assign(graph)),
            (Names{"b.weight", "b.out", "b.out.grad", "c.weight"}));
  Graph single;
  Builder one(single, Mode::training);
  linear(one, "a", input(one, "input", {2, 4}), {.out = 4});
  EXPECT_TRUE(low_names(parse_policy("op-out")->assign(single)).empty());
}

TEST(Policy, KeptEndsAreWhatTheFirstAndLastProductTouch) {
  for (const char* text : {"uniform", "size:1", "size:0.5", "size-inc:0.5", "random:0.5", "amp:fp16"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(low_by(text, {make_candidates(), true}), without(low_by(text), kEnds));
    EXPECT_EQ(parse_policy(text, {make_candidates(), true})->assign(Net().graph).low_groups,
              parse_policy(text)->assign(Net().graph).low_groups);
  }
}

TEST(Policy, AmpLeavesLossesAndNormParametersInFp32) {
  Names expected = counted_names(Net().graph);
  for (const char* name : {"bn.weight", "bn.bias", "log_softmax.out", "loss.out"}) {
    expected.erase(name);
    expected.erase(name + std::string(".grad"));
  }
  for (const char* format : {"bf16", "fp16"}) {
    const Assignment assignment = parse_policy(fmt::format("amp:{}", format))->assign(Net().graph);
    EXPECT_EQ(low_names(assignment), expected);
    for (const auto& [name, storage] : assignment.storage) {
      EXPECT_EQ(storage_name(storage), expected.contains(name) ? format : "fp32") << name;
      EXPECT_TRUE(is_fp32(assignment.high_of(name))) << name;
    }
  }
}

TEST(Policy, AmpTakesPyTorchsNamesOfFormats) {
  for (const auto& [other, own] : {std::pair("bfloat16", "bf16"), std::pair("float16", "fp16")}) {
    const auto assigned = [](const char* format) {
      return parse_policy(fmt::format("amp:{}", format))->assign(Net().graph);
    };
    EXPECT_EQ(assigned(other).storage, assigned(own).storage);
  }
}

const Names kProducts =
    with_grads({"input.out", "first.weight", "first.out", "split.out1", "mid.weight", "mid.out", "concat.out",
                "wide.weight", "wide.out", "bn.out", "last.weight", "last.out"});

TEST(Policy, ProductsAreNarrowInWhatTheyReadAndWrite) {
  for (const auto& [text, format] : {std::pair("s2fp8", "s2fp8"),
                                     {"fp8", "e5m2"},
                                     {"products:bf16", "bf16"},
                                     {"products:scaled(e4m3)", "scaled(e4m3)"}}) {
    SCOPED_TRACE(text);
    const Assignment assignment = parse_policy(text)->assign(Net().graph);
    EXPECT_EQ(low_names(assignment), kProducts);
    for (const auto& [name, storage] : assignment.storage) {
      EXPECT_EQ(storage_name(storage), kProducts.contains(name) ? format : "fp32") << name;
      EXPECT_TRUE(is_fp32(assignment.high_of(name))) << name;
    }
    EXPECT_EQ(low_by(text, {make_candidates(), true}), without(kProducts, kEnds));
    // It has the same formats whatever the candidates are.
    EXPECT_EQ(parse_policy(text, {make_candidates("fp8"), false})->assign(Net().graph).storage,
              assignment.storage);
    EXPECT_TRUE(has_own_formats(text));
  }
  EXPECT_FALSE(has_own_formats("size:0.5"));
}

TEST(Policy, OfATableThatIsLookedUpTheRowsAreNarrow) {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId rows = embedding(b, "table", indices(b, "rows", {3}), 10, 4);
  linear(b, "fc", relu(b, "relu", rows), {.out = 2});
  Names expected = with_grads({"table.out", "relu.out", "fc.weight", "fc.out"});
  expected.insert("table.weight.grad");
  EXPECT_EQ(low_names(parse_policy("s2fp8")->assign(graph)), expected);
}

// What is multiplied with itself is an operand as any other; views stand for what they are views of.
TEST(Policy, VectorsThatAreMultipliedWithEachOtherAreNarrow) {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x = relu(b, "relu", input(b, "x", {3, 8}));
  const TensorId pairs = dot_interaction(b, "pairs", reshape(b, "vectors", x, {3, 4, 2}));
  relu(b, "after", pairs);
  EXPECT_EQ(low_names(parse_policy("s2fp8")->assign(graph)), with_grads({"relu.out", "pairs.out"}));
  EXPECT_EQ(low_names(parse_policy("op-out")->assign(graph)), Names());  // the first product, and the last
}

// Ten groups of one size.
Graph ten_inputs() {
  Graph graph;
  Builder b(graph, Mode::training);
  for (int i = 0; i < 10; ++i) input(b, fmt::format("input{}", i), {2, 3});
  return graph;
}

TEST(Policy, AFractionThatIsReachedExactlyIsReached) {
  const Graph graph = ten_inputs();
  for (const char* name : {"size", "size-inc"}) {
    for (int tenths = 0; tenths <= 10; ++tenths) {
      const auto chosen = parse_policy(fmt::format("{}:{}", name, tenths / 10.0))->assign(graph).low_groups;
      ASSERT_EQ(chosen.size(), static_cast<size_t>(tenths)) << name;
      // Ties by number.
      for (int i = 0; i < tenths; ++i) EXPECT_EQ(chosen[static_cast<size_t>(i)], i);
    }
  }
  EXPECT_EQ(parse_policy("size:0.3000001")->assign(graph).low_groups.size(), 4u);
  EXPECT_EQ(parse_policy("size:1e-9")->assign(graph).low_groups.size(), 1u);
}

TEST(Policy, RandomFollowsFromItsSeed) {
  const Graph graph = ten_inputs();
  const auto order = [&](const std::string& text) { return parse_policy(text)->assign(graph).low_groups; };
  EXPECT_EQ(order("random:1"), order("random:1:0"));
  EXPECT_EQ(order("random:1:7"), order("random:1:7"));
  EXPECT_EQ(order("random:0:7"), std::vector<int>());
  std::set<std::vector<int>> orders;
  std::set<int> first;
  for (int seed = 0; seed < 100; ++seed) {
    std::vector<int> all = order(fmt::format("random:1:{}", seed));
    orders.insert(all);
    first.insert(all[0]);
    // A smaller ratio takes the beginning of the same order.
    const std::vector<int> some = order(fmt::format("random:0.4:{}", seed));
    ASSERT_EQ(some.size(), 4u);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_EQ(orders.size(), 100u);
  EXPECT_EQ(first.size(), 10u);
  // Both halves of the seed count, and the order is one on every machine.
  EXPECT_EQ(order("random:1:0"), (std::vector<int>{4, 7, 9, 5, 1, 6, 8, 3, 2, 0}));
  EXPECT_NE(order("random:1:1"), order("random:1:4294967297"));
  EXPECT_EQ(order("random:1:18446744073709551615").size(), 10u);
}

TEST(Policy, AGraphWithoutTensorsHasNoGroups) {
  for (const char* text : {"uniform", "op", "op-out", "size:0.5", "random:1", "amp:bf16"}) {
    EXPECT_TRUE(parse_policy(text, {make_candidates(), true})->assign(Graph()).storage.empty()) << text;
  }
}

TEST(Policy, BadTextIsRefused) {
  for (const char* text : {"", "fp16", "Size:0.5", "size-dec:0.5", "amp16", "opout", " op"}) {
    expect_refused(text, fmt::format("unknown policy '{}'", text));
  }
  for (const char* text : {"fp32:", "fp32:1", "uniform:0.5", "op:0", "op-out:x"}) {
    expect_refused(text, "nothing follows");
  }
  for (const char* text : {"size", "size:", "size-inc", "random", "random:"})
    expect_refused(text, "it needs a ratio R");
  for (const char* ratio :
       {"-0.1", "1.1", "1.0000001", "nan", "inf", "half", "0.5x", "0,5", "50%", "0.5:1", " 1"}) {
    for (const char* name : {"size", "size-inc"}) {
      expect_refused(fmt::format("{}:{}", name, ratio),
                     fmt::format("policy '{0}:{1}': R must be a number from 0 to 1, got '{1}'", name, ratio));
    }
  }
  expect_refused("random:2:1", "R must be a number from 0 to 1, got '2'");
  expect_refused("random::1", "R must be a number from 0 to 1, got ''");
  for (const char* seed : {"", "-1", "x", "1.5", "18446744073709551616", "1:2"}) {
    expect_refused(fmt::format("random:0.5:{}", seed), "SEED must be a whole number from 0 to 2^64 - 1");
  }
  expect_refused("amp", "it needs a format");
  expect_refused("amp:", "it needs a format");
  for (const char* format : {"fp32", "float32", "e4m3", "bf17", "fp(5,10,0)"}) {
    expect_refused(fmt::format("amp:{}", format), "its format must be bf16 or fp16");
  }
  expect_refused("products", "it needs a format");
  expect_refused("s2fp8:1", "nothing follows");
  expect_refused("list", "it needs a file");
  expect_refused("list:", "it needs a file");
}

}  // namespace
}  // namespace ulp
