// What is computed inside a node against the same nodes one by one, each of which the conformance test holds to the reference: the same
// stored bytes and the same range events. Patterns are built from their texts.
#include "ulp/backend/cuda/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/backend/cuda/families.h"
#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/tensor/stored.h"

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

const std::map<std::string, const OpDef*>& ops() {
  static const std::map<std::string, const OpDef*> all = {
      {"relu", &kRelu},
      {"relu_grad", &kReluGrad},
      {"add", &kAdd},
      {"sum", &kSum},
      {"batch_norm", &kBatchNorm},
      {"batch_norm_grad", &kBatchNormGrad},
      {"copy", &kCopy},
      {"batch_norm_sums", &kBatchNormSums},
  };
  return all;
}

// A graph of one pattern.
class Sample {
 public:
  Graph graph;
  Shape shape;
  std::vector<TensorId> leaves, channel_values, weights;
  std::vector<NodeId> nodes;  // the root is the last

  Sample(const std::string& pattern, const Shape& domain) : shape(domain) {
    size_t at = 0;
    parse(pattern, at);
  }

 private:
  TensorId tensor(const std::string& what, const Shape& of, Kind kind) {
    TensorInfo info;
    info.name = what + std::to_string(names_++);
    info.shape = of;
    info.kind = kind;
    return graph.add_tensor(info);
  }

  TensorId parse(const std::string& text, size_t& at) {
    std::string name;
    while (at < text.size() && (std::isalpha(text[at]) != 0 || text[at] == '_')) name += text[at++];
    if (name == "x") {
      leaves.push_back(tensor("leaf", shape, Kind::activation));
      return leaves.back();
    }
    Node node;
    node.op = ops().at(name);
    node.name = name + std::to_string(names_++);
    while (text[at++] != ')') {
      if (text[at] != ')') node.in.push_back(parse(text, at));
    }
    const Shape channels{shape.back()};
    std::vector<std::string> more;
    if (name == "batch_norm") more = {"gamma", "beta", "mean", "variance"};
    if (name == "batch_norm_grad") more = {"gamma", "mean", "variance", "sum", "product"};
    if (name == "batch_norm_sums") more = {"mean", "variance"};
    for (const std::string& what : more) {
      const bool weight = what == "gamma" || what == "beta";
      node.in.push_back(tensor(what, channels, weight ? Kind::weight : Kind::kept));
      (weight ? weights : channel_values).push_back(node.in.back());
    }
    if (!more.empty()) {
      node.attrs.set("epsilon", 1e-5);
      node.attrs.set("rows", static_cast<double>(shape.rows()));
    }
    const bool reduces = node.op->form == Form::reduction;
    for (int i = 0; i < (reduces ? 2 : 1); ++i) {
      node.out.push_back(tensor("out", reduces ? channels : shape, reduces ? Kind::kept : Kind::activation));
    }
    const TensorId out = node.out[0];
    nodes.push_back(graph.add_node(node));
    return out;
  }

  int names_ = 0;
};

// Tensors with bytes of their own, each between guards.
class Bench {
 public:
  Bench(const Sample& sample, std::vector<TensorFormat> formats, Round round)
      : sample_(sample), formats_(std::move(formats)), plan_{sample.graph, formats_, round} {
    plan_.overflow = Overflow::infinity;
    for (size_t i = 0; i < sample.graph.tensor_count(); ++i) {
      size_.push_back(tensor_bytes(sample.graph.tensors()[i], formats_[i].storage));
      memory_.push_back(std::make_unique<uint64_t[]>(size_[i] / 8 + 3 * kGuard));
      data_.push_back(aligned(memory_[i].get()));
      std::memset(data_[i] - kGuard, 0xA5, size_[i] + 2 * kGuard);
    }
    state.seed = 77;
    state.step = 5;
    state.micro_batch = 1;
  }

  void set(TensorId id, const std::vector<float>& values) {
    const auto i = static_cast<size_t>(id.index);
    const StoredParts parts = stored_parts(formats_[i].storage, data_[i], values.size());
    encode(formats_[i].storage, {}, values, parts.codes, parts.side);
  }
  std::vector<uint8_t> bytes(TensorId id) const {
    const auto i = static_cast<size_t>(id.index);
    return {data_[i], data_[i] + size_[i]};
  }
  void lie_over(TensorId out, TensorId in) {
    data_[static_cast<size_t>(out.index)] = data_[static_cast<size_t>(in.index)];
  }
  const Storage& storage(TensorId id) const { return formats_[static_cast<size_t>(id.index)].storage; }

  void run(const std::vector<NodeId>& inlined, const std::vector<NodeId>& roots,
           const std::vector<NodeId>& silent = {}) {
    const Problem problem{plan_, inlined, roots, silent};
    const KernelDef* kernel = nullptr;
    for (const KernelDef& one : pipeline_kernels()) {
      if (one.op == problem.root().op->name) kernel = &one;
    }
    ASSERT_EQ(kernel->why_not(problem), "");
    const std::unique_ptr<Task> task = kernel->make(problem);
    std::vector<uint64_t> workspace(task->workspace() / 8 + 3 * kGuard, 0xFFFFFFFFFFFFFFFFu);
    uint8_t* space = aligned(workspace.data());
    stats.resize(data_.size());
    RunContext context;
    context.data = data_;
    context.state = &state;
    context.workspace = space;
    context.stats = stats.data();
    task->run(context);
    for (size_t i = 0; i < kGuard; ++i) ASSERT_EQ(space[task->workspace() + i], 0xFF);
    for (size_t t = 0; t < data_.size(); ++t) {
      for (size_t i = 1; i <= kGuard; ++i) {
        ASSERT_EQ(*(data_[t] - i), 0xA5);
        ASSERT_EQ(data_[t][size_[t] + i - 1], 0xA5);
      }
    }
  }

  StepState state;
  std::vector<EncodeStats> stats;  // by tensor

 private:
  static constexpr size_t kGuard = 64;
  static uint8_t* aligned(uint64_t* memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    return reinterpret_cast<uint8_t*>(memory) + (kMemoryAlignment - address % kMemoryAlignment) + kGuard;
  }

  const Sample& sample_;
  std::vector<TensorFormat> formats_;
  PlanContext plan_;
  std::vector<size_t> size_;
  std::vector<std::unique_ptr<uint64_t[]>> memory_;
  std::vector<uint8_t*> data_;
};

std::vector<float> values(size_t n, uint32_t seed, bool specials) {
  std::vector<float> made(n);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {NAN, -NAN, kInfinity, -kInfinity, 0.0f, -0.0f, 1e-40f, -3e-6f, 3e38f, 1e30f};
  for (size_t i = 0; i < n; ++i) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), seed, 0, 0}}, {{1, 2}});
    const float unit = static_cast<float>(words.word[0]) * 0x1p-31f - 1;
    // Magnitudes over thirty binades: some vanish and some overflow in narrow formats.
    made[i] =
        unit * std::exp2(static_cast<float>(words.word[1] % 8) - (words.word[1] / 8 % 8 == 0 ? 20.0f : 2.0f));
    if (specials && words.word[2] % 16 == 0) made[i] = special[words.word[3] % std::size(special)];
  }
  return made;
}

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

void fill(Bench& bench, const Sample& sample, bool specials) {
  uint32_t seed = 1;
  for (const TensorId id : sample.leaves) bench.set(id, values(sample.shape.elements(), seed++, specials));
  const auto channels = static_cast<size_t>(sample.shape.back());
  for (const auto* ids : {&sample.weights, &sample.channel_values}) {
    for (const TensorId id : *ids) {
      std::vector<float> some = values(channels, seed++, false);
      if (sample.graph[id].name.starts_with("variance")) {
        for (float& x : some) x = std::abs(x) * 100;
      }
      bench.set(id, some);
    }
  }
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

TEST(Pipeline, FusedNodesGiveTheBitsOfSingleOnes) {
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
TEST(Pipeline, GoesThroughLargeTensors) {
  check("relu(add(batch_norm(x),x))", {72, 1000}, kSettings[0]);
  check("batch_norm_sums(relu_grad(x,x),x)", {600, 116}, kSettings[1]);
  check("batch_norm_grad(relu_grad(x,x),x)", {5, 4160}, kSettings[1]);
  check("add(batch_norm(x),x)", {1, 24}, kSettings[5]);
  check("relu(batch_norm(x))", {11, 8}, kSettings[2]);
}

TEST(Pipeline, DeclinesWhatIsNotCompiled) {
  Sample twice("relu(add(relu(x),relu(x)))", {4, 8});
  const std::vector<TensorFormat> formats = formats_of(twice, kSettings[0]);
  const PlanContext plan{twice.graph, formats};
  const std::vector<NodeId> inlined(twice.nodes.begin(), twice.nodes.end() - 1);
  for (const KernelDef& kernel : pipeline_kernels()) {
    if (kernel.op == "relu") {
      EXPECT_EQ(kernel.why_not({plan, inlined, {twice.nodes.back()}, {}}),
                "no kernel for relu(add(relu(x),relu(x)))");
    }
  }
}

// The mean of squares about a mean far away, and a channel of one outlier, which a thread meets first.
TEST(Pipeline, VarianceDoesNotCancel) {
  Graph graph;
  constexpr int64_t kRows = 4096, kChannels = 12;
  TensorInfo info;
  info.name = "x";
  info.shape = {kRows, kChannels};
  const TensorId x = graph.add_tensor(info);
  Builder b(graph, Mode::training);
  const std::vector<TensorId> out = b.add(kBatchStats, "stats", {x});
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

TEST(Pipeline, CopiesManyTensorsAtOnce) {
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

}  // namespace
}  // namespace ulp::cuda
