// The rules of counting and grouping on graphs small enough to do by hand. The papers' nets are
// compared with the public code's figures in tests/assignment_golden_test.cc.
#include "ulp/precision/groups.h"

#include <gtest/gtest.h>

#include <tuple>

#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

using Row = std::tuple<std::string, Kind, size_t, int>;  // name, kind, elements, group

std::vector<Row> rows(const Graph& graph) {
  std::vector<Row> found;
  for (const CountedTensor& t : counted_tensors(graph))
    found.emplace_back(t.name, t.kind, t.elements, t.group);
  return found;
}

// Every rule in one: split, concat, views, norm, pooling, a bias, a loss.
struct Net {
  Graph graph = {};
  TensorId loss;

  explicit Net(Mode mode = Mode::training) {
    Builder b(graph, mode);
    const TensorId x = input(b, "input", Shape::image(2, 3, 4, 4));
    const TensorId labels = indices(b, "labels", {2});
    const auto half = split(b, "split", batch_norm(b, "bn", conv2d(b, "conv", x, {.out = 4})), 2);
    const TensorId right = conv2d(b, "right", half[1], {.out = 2, .bias = true});
    const TensorId mixed = channel_shuffle(b, "shuffle", concat(b, "concat", {half[0], right}), 2);
    const TensorId side = conv2d(b, "side", mixed, {.out = 4});
    const TensorId pooled = max_pool(b, "pool", add(b, "add", side, mixed), {.kernel = 4});
    const TensorId scores = linear(b, "fc", flatten(b, "flatten", pooled), {.out = 5});
    loss = nll(b, "loss", log_softmax(b, "log_softmax", scores), labels);
    classify(b, "accuracy", scores, labels, loss);
  }
};

TEST(Groups, FollowTheRules) {
  constexpr Kind a = Kind::activation, ag = Kind::activation_grad, w = Kind::weight, wg = Kind::weight_grad;
  const std::vector<Row> expected = {
      {"input.out", a, 96, 0},
      {"input.out.grad", ag, 96, 0},
      {"conv.out", a, 128, 1},
      {"conv.out.grad", ag, 128, 1},
      {"conv.weight", w, 12, 0},
      {"conv.weight.grad", wg, 12, 0},  // with the input, which the conv reads
      {"bn.out", a, 128, 1},
      {"bn.out.grad", ag, 128, 1},
      {"bn.weight", w, 4, 1},
      {"bn.bias", w, 4, 1},
      {"bn.weight.grad", wg, 4, 1},
      {"bn.bias.grad", wg, 4, 1},
      {"split.out0", a, 64, 1},
      {"split.out1", a, 64, 1},
      {"split.out0.grad", ag, 64, 1},
      {"split.out1.grad", ag, 64, 1},
      {"right.out", a, 64, 2},
      {"right.out.grad", ag, 64, 2},
      {"right.weight", w, 4, 1},
      {"right.bias", w, 2, 1},
      {"right.weight.grad", wg, 4, 1},
      {"right.bias.grad", wg, 2, 1},
      {"concat.out", a, 128, 2},
      {"concat.out.grad", ag, 128, 2},
      {"side.out", a, 128, 3},
      {"side.out.grad", ag, 128, 3},
      {"side.weight", w, 16, 2},
      {"side.weight.grad", wg, 16, 2},  // through the shuffle: what made the concat
      {"add.out", a, 128, 3},
      {"add.out.grad", ag, 128, 3},
      {"pool.out", a, 8, 3},
      {"pool.out.grad", ag, 8, 3},
      {"fc.out", a, 10, 4},
      {"fc.out.grad", ag, 10, 4},
      {"fc.weight", w, 20, 3},
      {"fc.bias", w, 5, 3},
      {"fc.weight.grad", wg, 20, 3},
      {"fc.bias.grad", wg, 5, 3},
      {"log_softmax.out", a, 10, 4},
      {"log_softmax.out.grad", ag, 10, 4},
      {"loss.out", a, 2, 4},
      {"loss.out.grad", ag, 2, 4}};
  const Net net;
  const std::vector<Row> found = rows(net.graph);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], expected[i]) << i << ": " << std::get<0>(found[i]);

  const std::vector<size_t> sums = group_elements(counted_tensors(net.graph));
  EXPECT_EQ(sums, (std::vector<size_t>{216, 796, 416, 578, 44}));
}

TEST(Groups, AreTheSameAfterReverseModeAndForInference) {
  Net net;
  const std::vector<Row> before = rows(net.graph);
  for (const CountedTensor& t : counted_tensors(net.graph)) {
    const bool grad = t.kind == Kind::activation_grad || t.kind == Kind::weight_grad;
    EXPECT_EQ(static_cast<bool>(t.id), !grad) << t.name;
  }
  differentiate(net.graph, net.loss, 2);
  add_updates(net.graph, UpdateSpec{{}, {"momentum"}}, 1);
  EXPECT_EQ(rows(net.graph), before);
  EXPECT_EQ(rows(Net(Mode::inference).graph), before);
  for (const CountedTensor& t : counted_tensors(net.graph)) {
    if (t.name == "input.out.grad") {
      EXPECT_FALSE(t.id);  // counted, never computed
    } else {
      ASSERT_TRUE(t.id) << t.name;
      EXPECT_EQ(net.graph[t.id].name, t.name);
      EXPECT_EQ(net.graph[t.id].kind, t.kind);
      EXPECT_EQ(net.graph[t.id].elements(), t.elements);
    }
  }
}

TEST(Groups, LayersAndSlotsNumberTheRows) {
  int layer = 0;
  for (const CountedTensor& t : counted_tensors(Net().graph)) {
    EXPECT_TRUE(t.layer == layer || t.layer == layer + 1) << t.name;
    layer = t.layer;
    EXPECT_EQ(t.slot, t.name.find("bias") != std::string::npos || t.name.find("out1") != std::string::npos)
        << t.name;
  }
  EXPECT_EQ(layer, 11);
}

TEST(Groups, AWeightUsedTwiceCountsOnce) {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x = input(b, "input", {2, 4});
  const TensorId tied = b.weight("tied", {4, 4}, Init::normal(1));
  nodes(b).add_one(kLinear, "second", {nodes(b).add_one(kLinear, "first", {x, tied}), tied});
  EXPECT_EQ(group_elements(counted_tensors(graph)), (std::vector<size_t>{2 * 8 + 2 * 16, 2 * 8, 2 * 8}));
}

TEST(Groups, ATableThatNoOperatorMadeIsInItsOperatorsGroup) {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x = embedding(b, "table", indices(b, "words", {2}), 10, 4);
  linear(b, "fc", x, {.out = 3, .bias = false});
  EXPECT_EQ(group_elements(counted_tensors(graph)), (std::vector<size_t>{2 * (8 + 40 + 12), 2 * 6}));
}

}  // namespace
}  // namespace ulp
