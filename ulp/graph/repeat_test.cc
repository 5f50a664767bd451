// Which nodes are made twice, on what, and with whose random words.
#include "ulp/graph/repeat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ulp/graph/builder.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/graph/ops/update.h"

namespace ulp {
namespace {

struct Net {
  Graph graph;
  explicit Net(int micro_batches, bool shared = false) {
    Builder b(graph, Mode::training);
    const TensorId x = input(b, "x", {4, 2, 2, 3});
    const TensorId labels = indices(b, "labels", {4});
    TensorId y = relu(b, "relu", batch_norm(b, "bn", conv2d(b, "conv", x, {.out = 3})));
    if (shared) y = add(b, "twice", y, y);
    const TensorId scores = linear(b, "fc", flatten(b, "flatten", y), {.out = 5});
    differentiate(graph, nll(b, "loss", log_softmax(b, "log_softmax", scores), labels), micro_batches);
  }
};

std::vector<const Node*> of_phase(const Graph& graph, Phase phase) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes()) {
    if (node.phase == phase) found.push_back(&node);
  }
  return found;
}

TEST(Repeat, EveryBackwardNodeHasATwinOnTheSameActivations) {
  Net net(1, true);
  const size_t nodes = net.graph.node_count();
  const std::vector<TensorId> twins = repeat_gradients(net.graph);
  const auto backward = of_phase(net.graph, Phase::backward), again = of_phase(net.graph, Phase::recompute);
  ASSERT_EQ(backward.size(), again.size());
  EXPECT_EQ(net.graph.node_count(),
            nodes + again.size() + of_phase(net.graph, Phase::recompute_finish).size());
  EXPECT_EQ(of_phase(net.graph, Phase::finish).size(), of_phase(net.graph, Phase::recompute_finish).size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i]->op, backward[i]->op);
    EXPECT_EQ(again[i]->name, backward[i]->name + ".again");
    for (size_t k = 0; k < again[i]->in.size(); ++k) {
      const TensorId before = backward[i]->in[k], now = again[i]->in[k];
      // What forward left is read again; what backward made is made again.
      const NodeId producer = net.graph[before].producer;
      const bool forward = !producer || net.graph[producer].phase == Phase::forward;
      EXPECT_EQ(now, forward ? before : twins[static_cast<size_t>(before.index)]) << net.graph[before].name;
    }
    for (size_t k = 0; k < again[i]->out.size(); ++k) {
      const TensorInfo &before = net.graph[backward[i]->out[k]], &now = net.graph[again[i]->out[k]];
      EXPECT_EQ(now.number, before.number);
      EXPECT_EQ(now.twin, backward[i]->out[k]);
      EXPECT_EQ(net.graph.format_of(again[i]->out[k]), net.graph.format_of(backward[i]->out[k]));
      EXPECT_EQ(now.kind, before.kind);
      EXPECT_FALSE(is_state(now.kind));
      if (before.alias) {
        EXPECT_EQ(now.alias, twins[static_cast<size_t>(before.alias.index)]);
      }
    }
  }
}

TEST(Repeat, SumsOverMicroBatchesAreOnlyFinishedAgain) {
  Net net(3);
  repeat_gradients(net.graph);
  EXPECT_TRUE(of_phase(net.graph, Phase::recompute).empty());
  const auto again = of_phase(net.graph, Phase::recompute_finish);
  ASSERT_EQ(again.size(), 5u);  // conv, gamma, beta, fc and its bias
  for (const Node* node : again) EXPECT_EQ(net.graph[node->in[0]].kind, Kind::grad_sum);
}

TEST(Repeat, UpdatesReadWhatWasMadeAgainAndTheNormWhatWasMadeFirst) {
  Net net(1);
  add_updates(net.graph,
              [](TensorId) {
                return UpdateSpec{{}, {"momentum"}};
              },
              {.max_norm = 1, .twice = true});
  size_t updates = 0;
  for (const Node& node : net.graph.nodes()) {
    if (node.op == &kGradSquares) {
      EXPECT_FALSE(net.graph[node.in[0]].twin);
      EXPECT_EQ(node.phase, Phase::finish);
    }
    if (node.op != &kUpdate) continue;
    ++updates;
    const TensorInfo& grad = net.graph[node.in[0]];
    ASSERT_TRUE(grad.twin);
    EXPECT_EQ(net.graph[node.out[0]].grad, grad.twin);
  }
  EXPECT_EQ(updates, 5u);
  // Phases come in order, so that a plan's lives are those of a run.
  for (size_t i = 1; i < net.graph.node_count(); ++i) {
    EXPECT_GE(net.graph.nodes()[i].phase, net.graph.nodes()[i - 1].phase) << net.graph.nodes()[i].name;
  }
}

}  // namespace
}  // namespace ulp
