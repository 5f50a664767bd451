// Fused nodes against the same nodes one by one, each of which the conformance test checks against
// the reference: the same stored bytes and the same range events. Patterns are built from their
// texts.
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ulp/backend/emulated/fused_sample.h"

namespace ulp::cuda {
namespace {

constexpr const char* kFused[] = {
    "relu(batch_norm(x))",
    "relu(add(batch_norm(x),x))",
    "relu(add(x,batch_norm(x)))",
    "relu(add(batch_norm(x),batch_norm(x)))",
    "add(batch_norm(x),x)",
    "add(x,batch_norm(x))",
    "add(batch_norm(x),batch_norm(x))",
    "batch_norm_grad(relu_grad(x,x),x)",
    "batch_norm_grad(sum(x,x),x)",
    "relu_grad(sum(x,x),x)",
    "batch_norm_sums(relu_grad(x,x),x)",
    "batch_norm_sums(sum(x,x),x)",
};

struct Setting {
  std::vector<const char*> storages;  // of tensors in turn
  Round round = Round::nearest_even;
  bool specials = false;
  const char* operand = "";  // of weights
};

const Setting kSettings[] = {
    {{"e4m3"}},
    {{"e4m3"}, Round::nearest_even, true},
    {{"e5m2", "fp(4,3,7)"}, Round::nearest_even, true, "e4m3"},
    {{"bf16"}, Round::nearest_even, true},
    {{"fp16", "e5m2"}, Round::nearest_even, true},
    {{"fp32"}, Round::nearest_even, true},
    {{"fp32", "e4m3", "bf16"}, Round::nearest_even, true, "bf16"},
    {{"fp(3,2,3)", "fp(5,6,15)"}, Round::nearest_even, true},
    {{"e4m3", "fp16", "fp(5,6,15)"}, Round::stochastic, true, "e5m2"},
    {{"e5m2"}, Round::nearest_away, false},
    {{"fp(4,3,7)"}, Round::toward_zero, true},
    {{"e4m3"}, Round::nearest_even, false, "s2fp8"},
};

std::vector<TensorFormat> formats_of(const Sample& sample, const Setting& setting) {
  std::vector<TensorFormat> formats;
  size_t turn = 0;
  for (const TensorInfo& tensor : sample.graph.tensors()) {
    TensorFormat format{parse_storage("fp32"), {}};
    if (tensor.kind == Kind::activation) {
      format.storage = parse_storage(setting.storages[turn++ % setting.storages.size()]);
    } else if (tensor.kind == Kind::weight && *setting.operand != 0) {
      format.operand = parse_storage(setting.operand);
    }
    formats.push_back(format);
  }
  return formats;
}

void check(const std::string& pattern, const Shape& shape, const Setting& setting) {
  SCOPED_TRACE(pattern + " " + shape_text(shape) + " " + setting.storages[0] + " " +
               std::string(round_name(setting.round)));
  const Sample sample(pattern, shape);
  const std::vector<TensorFormat> formats = formats_of(sample, setting);
  const std::vector<NodeId> inlined(sample.nodes.begin(), sample.nodes.end() - 1);
  const Node& root = sample.graph[sample.nodes.back()];

  Bench apart(sample, formats, setting.round);
  fill(apart, sample, setting.specials);
  for (const NodeId id : sample.nodes) apart.run({}, {id});

  for (const bool silent : {false, true}) {
    for (const bool in_place : {false, true}) {
      Bench fused(sample, formats, setting.round);
      fill(fused, sample, setting.specials);
      if (in_place) {
        if (silent || root.op->form == Form::reduction ||
            !(fused.storage(root.out[0]) == fused.storage(sample.leaves[0])))
          continue;
        fused.lie_over(root.out[0], sample.leaves[0]);
      }
      fused.run(inlined, {sample.nodes.back()}, silent ? inlined : std::vector<NodeId>{});
      for (const TensorId out : root.out) {
        ASSERT_EQ(fused.bytes(out), apart.bytes(out)) << "in place: " << in_place;
      }
      for (size_t i = 0; i < fused.stats.size(); ++i) {
        const TensorInfo& tensor = sample.graph.tensors()[i];
        const TensorId id{static_cast<int32_t>(i)};
        const bool at_root = tensor.producer == sample.nodes.back() ||
                             (!tensor.producer && std::count(root.in.begin(), root.in.end(), id) > 0);
        const bool hushed = silent && !at_root;
        const EncodeStats none{}, &wanted = hushed ? none : apart.stats[i], &seen = fused.stats[i];
        EXPECT_EQ(seen.overflow, wanted.overflow) << tensor.name;
        EXPECT_EQ(seen.underflow, wanted.underflow) << tensor.name;
        EXPECT_EQ(seen.nan, wanted.nan) << tensor.name;
        EXPECT_EQ(std::memcmp(&seen.amax, &wanted.amax, sizeof(seen.amax)), 0) << tensor.name;
      }
    }
  }
}

TEST(FusedElementwise, FusedNodesGiveTheBitsOfSingleOnes) {
  for (const char* pattern : kFused) {
    for (const Setting& setting : kSettings) {
      for (const Shape& shape : {Shape{16, 3}, {5, 10}, {4, 58}, {3, 116}}) {
        check(pattern, shape, setting);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More than a thread takes at once, and channels that fill several blocks.
TEST(FusedElementwise, GoesThroughLargeTensors) {
  check("relu(add(batch_norm(x),x))", {72, 1000}, kSettings[0]);
  check("batch_norm_sums(relu_grad(x,x),x)", {600, 116}, kSettings[1]);
  check("batch_norm_grad(relu_grad(x,x),x)", {5, 4160}, kSettings[1]);
  check("add(batch_norm(x),x)", {1, 24}, kSettings[5]);
  check("relu(batch_norm(x))", {11, 8}, kSettings[2]);
}

TEST(FusedElementwise, DeclinesWhatIsNotCompiled) {
  Sample twice("relu(add(relu(x),relu(x)))", {4, 8});
  const std::vector<TensorFormat> formats = formats_of(twice, kSettings[0]);
  const PlanContext plan{twice.graph, formats};
  const std::vector<NodeId> inlined(twice.nodes.begin(), twice.nodes.end() - 1);
  for (const KernelDef& kernel : fused_elementwise_kernels()) {
    if (kernel.op == "relu") {
      EXPECT_EQ(kernel.why_not({plan, inlined, {twice.nodes.back()}, {}}),
                "no kernel for relu(add(relu(x),relu(x)))");
    }
  }
}

// The variance about a distant mean, and a channel with one outlier that a thread meets first.
TEST(FusedElementwise, VarianceDoesNotCancel) {
  Graph graph;
  constexpr int64_t kRows = 4096, kChannels = 12;
  TensorInfo info;
  info.name = "x";
  info.shape = {kRows, kChannels};
  const TensorId x = graph.add_tensor(info);
  Builder b(graph, Mode::training);
  const std::vector<TensorId> out = nodes(b).add(kBatchStats, "stats", {x});
  Sample sample("copy(x)", {1, 1});
  sample.graph = graph;
  Bench bench(sample, std::vector<TensorFormat>(graph.tensor_count(), {parse_storage("fp32"), {}}),
              Round::nearest_even);
  std::vector<float> numbers(kRows * kChannels);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t c = i % kChannels;
    const float unit =
        static_cast<float>(philox({{static_cast<uint32_t>(i), 0, 0, 0}}, {{3, 4}}).word[0]) * 0x1p-32f;
    numbers[i] = c == 0 ? 0.1f : c == 1 ? 1e6f + unit : unit * static_cast<float>(c) + 1000;
    if (i < kChannels && c < 6) numbers[i] = 12345;
  }
  bench.set(x, numbers);
  bench.run({}, {NodeId{0}});
  const std::vector<uint8_t> bytes = bench.bytes(out[1]);
  for (size_t c = 0; c < kChannels; ++c) {
    double mean = 0, variance = 0;
    for (size_t i = c; i < numbers.size(); i += kChannels) mean += numbers[i] / double{kRows};
    for (size_t i = c; i < numbers.size(); i += kChannels) {
      variance += (numbers[i] - mean) * (numbers[i] - mean) / double{kRows};
    }
    float made;
    std::memcpy(&made, bytes.data() + 4 * c, 4);
    EXPECT_NEAR(made, variance, 1e-5 * variance) << c;
  }
}

TEST(FusedElementwise, CopiesManyTensorsAtOnce) {
  Graph graph;
  std::vector<TensorId> in, out;
  std::vector<NodeId> copies;
  std::vector<TensorFormat> formats;
  const char* kStorages[] = {"e4m3", "fp32", "bf16", "s2fp8", "fp(5,6,15)", "scaled(e4m3)"};
  for (int i = 0; i < 40; ++i) {
    for (const bool source : {true, false}) {
      TensorInfo info;
      info.name = (source ? "in" : "out") + std::to_string(i);
      info.shape = {1 + 37 * i % 700, 3};
      info.kind = source ? Kind::activation : Kind::weight_grad;
      (source ? in : out).push_back(graph.add_tensor(info));
      formats.push_back({parse_storage(source && i % 7 != 0 ? "fp32" : kStorages[i % 6]), {}});
    }
    Node node;
    node.op = &kCopy;
    node.name = "copy" + std::to_string(i);
    node.in = {in.back()};
    node.out = {out.back()};
    copies.push_back(graph.add_node(node));
  }
  Sample sample("copy(x)", {1, 1});
  sample.graph = graph;
  Bench apart(sample, formats, Round::stochastic), together(sample, formats, Round::stochastic);
  for (size_t i = 0; i < in.size(); ++i) {
    for (Bench* bench : {&apart, &together}) {
      bench->set(in[i], values(graph[in[i]].elements(), static_cast<uint32_t>(i), false));
    }
    apart.run({}, {copies[i]});
  }
  together.run({}, copies);
  for (const TensorId id : out) {
    EXPECT_EQ(together.bytes(id), apart.bytes(id)) << graph[id].name;
    const auto i = static_cast<size_t>(id.index);
    EXPECT_EQ(together.stats[i].underflow, apart.stats[i].underflow);
    EXPECT_EQ(together.stats[i].amax, apart.stats[i].amax);
  }
}

// What serves any activation must not hide the faster kernels of some.
TEST(FusedPatterns, ActivationsWithPatternsOfTheirOwnTakeThem) {
  EXPECT_EQ(find_fused("relu(x)"), find_elementwise("relu(x)"));
  EXPECT_EQ(find_fused("relu_grad(x,x)"), find_elementwise_grad("relu_grad(x,x)"));
  for (const char* text : {"relu(x)", "relu_grad(x,x)"})
    EXPECT_NE(find_fused(text), find_activation(text)) << text;
  for (const char* text : {"silu(x)", "silu_grad(x,x)"})
    EXPECT_EQ(find_fused(text), find_activation(text)) << text;
}

}  // namespace
}  // namespace ulp::cuda
