// Whole steps on the CPU backend against the reference backend.
#include "ulp/backend/cpu/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/guarded_node.h"
#include "tests/support/node_runner.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

// A small network with most operators in it.
struct Net {
  Graph graph;
  TensorId images, labels, loss;
  OptimizerConfig optimizer;

  Net() {
    Builder b(graph, Mode::training);
    images = input(b, "images", Shape::image(6, 3, 12, 10));
    labels = indices(b, "labels", {6});
    TensorId x = conv2d(b, "stem", images, {.out = 16, .kernel = 3, .padding = 1});
    x = relu(b, "act1", batch_norm(b, "norm1", x));
    x = max_pool(b, "pool", x, {.kernel = 2});
    const TensorId left =
        conv2d(b, "left", x, {.out = 16, .kernel = 3, .padding = 1, .groups = 4, .bias = true});
    const auto halves = split(b, "halves", x, 2);
    x = channel_shuffle(b, "shuffle", concat(b, "join", {left, halves[1]}), 2);
    x = relu(
        b, "act2",
        batch_norm(b, "norm2", conv2d(b, "down", x, {.out = 20, .kernel = 3, .stride = 2, .padding = 1})));
    x = flatten(b, "flat", avg_pool(b, "avg", x, {.kernel = 3, .stride = 1, .padding = 1}));
    x = layer_norm(b, "norm3", linear(b, "fc1", x, {.out = 32}));
    x = linear(b, "fc2", tanh(b, "act3", x), {.out = 10});
    loss = cross_entropy(b, "loss", x, labels, 0.1);
    optimizer.momentum = 0.9;
    differentiate(graph, loss);
    add_updates(graph, update_spec(optimizer), 1.0);
  }
};

std::vector<std::vector<float>> step(const Net& net, const Backend& backend,
                                     const KernelChoice& choice = {}) {
  NodeRunner runner(net.graph, {}, backend, choice);
  const std::vector<float> images = test_values(net.graph[net.images].elements(), 3);
  const std::vector<int32_t> labels{1, 9, 0, 4, 4, 7};
  runner.feed(net.images, images.data());
  runner.feed(net.labels, labels.data());
  uint32_t seed = 10;
  for (size_t i = 0; i < net.graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (net.graph[id].kind == Kind::weight)
      runner.set(id, test_values(net.graph[id].elements(), seed++, 0.5f));
  }
  runner.state.update = update_scalars(net.optimizer, 0, 0.1);
  runner.run();
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < net.graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    values.push_back(net.graph[id].element == Element::real ? runner.get(id) : std::vector<float>{});
  }
  return values;
}

TEST(Cpu, AStepIsTheReferences) {
  const Net net;
  const auto expected = step(net, reference_backend());
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    const auto values = step(net, cpu_backend());
    for (size_t i = 0; i < values.size(); ++i) {
      float largest = 0, worst = 0;
      for (size_t k = 0; k < values[i].size(); ++k) {
        largest = std::max(largest, std::abs(expected[i][k]));
        worst = std::max(worst, std::abs(values[i][k] - expected[i][k]));
      }
      EXPECT_LE(worst, 1e-4f * largest + 1e-6f) << net.graph.tensors()[i].name;
    }
    EXPECT_EQ(step(net, cpu_backend()), values);
  }
}

TEST(Cpu, ItsOwnKernelsComeFirst) {
  const Net net;
  const std::vector<TensorFormat> formats(net.graph.tensor_count(), {parse_storage("fp(4,3,4)"), {}});
  const PlanContext plan{net.graph, formats};
  const std::set<std::string_view> left = {"input", "indices", "batch_track", "grad_norm"};
  for (size_t i = 0; i < net.graph.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    if (net.graph[id].op->form == Form::view) continue;
    const KernelDef* kernel = KernelChoice().pick(cpu_backend(), Problem{plan, {}, {id}, {}});
    ASSERT_NE(kernel, nullptr) << net.graph[id].name;
    EXPECT_EQ(kernel->name == "reference", left.count(net.graph[id].op->name) > 0) << net.graph[id].name;
  }
}

}  // namespace
}  // namespace ulp
