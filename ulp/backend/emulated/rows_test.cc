// Cases that the conformance test, which runs nodes one by one on valid labels, does not cover.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ulp/backend/elementwise.h"
#include "ulp/backend/emulated/emulated.h"
#include "ulp/backend/kernel.h"
#include "ulp/graph/builder.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

const KernelDef& kernel_of(std::string_view op) {
  for (const KernelDef& kernel : emulated_backend().kernels) {
    if (kernel.op == op) return kernel;
  }
  throw std::logic_error("no kernel");
}

// All tensors in fp32, each in its own memory.
class Bench {
 public:
  explicit Bench(const Graph& graph)
      : graph_(graph), formats_(graph.tensor_count(), TensorFormat{parse_storage("fp32"), {}}) {
    memory_.resize(graph.tensor_count());
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i].assign(graph.tensors()[i].elements(), static_cast<float>(i) + 0.5f);
      data_.push_back(reinterpret_cast<uint8_t*>(memory_[i].data()));
    }
    stats_.resize(memory_.size());
  }

  std::vector<float>& operator[](TensorId id) { return memory_[static_cast<size_t>(id.index)]; }

  void run(const std::vector<NodeId>& roots) {
    const PlanContext plan{graph_, formats_};
    const Problem problem{plan, {}, roots, {}};
    const KernelDef& kernel = kernel_of(problem.root().op->name);
    ASSERT_EQ(kernel.why_not(problem), "");
    const std::unique_ptr<Task> task = kernel.make(problem);
    std::vector<double> workspace(task->workspace() / sizeof(double) + 1);
    RunContext context;
    context.data = data_;
    context.state = &state_;
    context.stats = stats_.data();
    context.workspace = reinterpret_cast<uint8_t*>(workspace.data());
    task->run(context);
  }

 private:
  const Graph& graph_;
  std::vector<TensorFormat> formats_;
  std::vector<std::vector<float>> memory_;
  std::vector<uint8_t*> data_;
  std::vector<EncodeStats> stats_;
  StepState state_;
};

std::vector<NodeId> nodes_of(const Graph& graph, const OpDef& op) {
  std::vector<NodeId> found;
  for (size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    if (graph[id].op == &op) found.push_back(id);
  }
  return found;
}

// More batch norms in one task than one launch takes, of different widths.
TEST(CudaRows, ManyRunningStatisticsInOneTask) {
  Graph graph;
  Builder b{graph, Mode::training};
  for (int64_t i = 0; i < 70; ++i) {
    const std::string name = "norm" + std::to_string(i);
    batch_norm(b, name, input(b, name + ".in", {3, 1 + i * 5 % 300}));
  }
  const std::vector<NodeId> tracks = nodes_of(graph, kBatchTrack);
  ASSERT_EQ(tracks.size(), 70u);
  Bench bench(graph), before(graph);
  bench.run(tracks);
  for (const NodeId id : tracks) {
    const Node& node = graph[id];
    const double momentum = node.attrs.real("momentum");
    const auto keep = static_cast<float>(1 - momentum), fresh = static_cast<float>(momentum);
    for (size_t c = 0; c < before[node.in[0]].size(); ++c) {
      EXPECT_EQ(bench[node.out[0]][c],
                elementwise::batch_track(before[node.out[0]][c], before[node.in[0]][c], keep, fresh));
      EXPECT_EQ(bench[node.out[1]][c],
                elementwise::batch_track(
                    before[node.out[1]][c],
                    elementwise::Multiply::forward(before[node.in[1]][c], elementwise::batch_unbias(3)), keep,
                    fresh));
    }
  }
}

// A device cannot throw: such an example has the loss NaN and does not count as correct.
TEST(CudaRows, ALabelThatIsNoClass) {
  Graph graph;
  Builder b{graph, Mode::training};
  const TensorId x = input(b, "x", {3, 5}), labels = indices(b, "labels", {3});
  const TensorId loss = cross_entropy(b, "loss", x, labels);
  classify(b, "classify", x, labels, loss);
  Bench bench(graph);
  bench[x] = {5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4};
  bench[labels] = {bits_float(0), bits_float(5), bits_float(0xFFFFFFFFu)};
  bench.run(nodes_of(graph, kCrossEntropy));
  EXPECT_FALSE(std::isnan(bench[loss][0]));
  EXPECT_TRUE(std::isnan(bench[loss][1]));
  EXPECT_TRUE(std::isnan(bench[loss][2]));
  const std::vector<NodeId> counts = nodes_of(graph, kClassify);
  bench.run(counts);
  const std::vector<float>& sums = bench[graph[counts[0]].out[0]];
  EXPECT_TRUE(std::isnan(sums[0]));
  EXPECT_EQ(sums[1], 1);
}

}  // namespace
}  // namespace ulp
