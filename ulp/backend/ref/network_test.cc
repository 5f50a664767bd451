// Gradients of a small network: against differences, over micro-batches, and under a loss scale.
#include "tests/support/numeric_gradient.h"

namespace ulp::ref {
namespace {

TensorId small_network(Trial& t, TensorId x, TensorId labels) {
  Builder& b = t.b;
  TensorId y = conv2d(b, "conv1", x, {.out = 4, .kernel = 3, .padding = 1});
  y = ulp::tanh(b, "tanh1", batch_norm(b, "norm1", y, {.epsilon = 0.1}));
  const TensorId skip = y;
  y = conv2d(b, "conv2", channel_shuffle(b, "shuffle", y, 2),
             {.out = 4, .kernel = 3, .padding = 1, .groups = 2});
  y = add(b, "residual", sigmoid(b, "sigmoid", y), skip);
  y = flatten(b, "flatten", avg_pool(b, "pool", y, {.kernel = 2}));
  y = linear(b, "fc", y, {.out = 3});
  const TensorId loss = cross_entropy(b, "loss", y, labels, 0.1);
  classify(b, "count", y, labels, loss);
  return loss;
}

TEST(Network, GradientEqualsDifferences) {
  Trial t;
  t.check(small_network(t, t.input("x", {2, 4, 4, 2}), t.indices("labels", {2}, {2, 0})));
  EXPECT_GE(t.largest(), 50);
}

double distance_of(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(sum / norm);
}

// Two halves of a batch, one after the other, against the whole. A weight is used twice besides.
TEST(MicroBatches, AddUpToTheWholeBatch) {
  const Shape whole{4, 6}, half{2, 6};
  const auto build = [](Trial& t, const Shape& shape) {
    const TensorId w = t.weight("w", {6, 6}), v = t.weight("v", {2, 6});
    TensorId y = nodes(t.b).add_one(kLinear, "first", {t.input("x", shape), w});
    y = nodes(t.b).add_one(kLinear, "second", {ulp::tanh(t.b, "tanh", y), w});
    // A view of a weight, and a row of it for each example.
    const TensorId rows = nodes(t.b).add_one(kLinear, "rows", {y, reshape(t.b, "view", v, {2, 6})});
    return mse(t.b, "loss", rows, t.target("t", {shape[0], 2}));
  };
  Trial one, two;
  const TensorId loss = build(one, whole);
  differentiate(one.graph, loss);
  const TensorId part_loss = build(two, half);
  differentiate(two.graph, part_loss, 2);
  const std::vector<float> x = one.random(24), t = one.random(8);
  one.feed(one.graph.find("x.out"), x);
  one.feed(one.graph.find("t.out"), t);
  NodeRunner& runner = one.start();
  runner.run();
  for (const char* name : {"w", "v"}) two.set(name, one.value(name));
  NodeRunner& parts = two.start();
  // Twice: sums start anew.
  for (int step = 0; step < 2; ++step) {
    for (uint16_t micro = 0; micro < 2; ++micro) {
      parts.feed(two.graph.find("x.out"), x.data() + 12 * micro);
      parts.feed(two.graph.find("t.out"), t.data() + 4 * micro);
      parts.state.micro_batch = micro;
      parts.run(Phase::forward);
      parts.run(Phase::backward);
    }
    parts.run(Phase::finish);
    for (const char* name : {"w.grad", "v.grad"}) {
      // fp32 roundings in another order.
      EXPECT_LE(distance_of(parts.get(two.graph.find(name)), runner.get(one.graph.find(name))), 1e-6) << name;
    }
  }
}

TEST(LossScale, MultipliesEveryGradient) {
  Trial t;
  const TensorId loss = small_network(t, t.input("x", {2, 4, 4, 2}), t.indices("labels", {2}, {2, 0}));
  differentiate(t.graph, loss);
  NodeRunner& runner = t.start();
  runner.run();
  std::map<std::string, std::vector<float>> plain;
  for (const TensorInfo& tensor : t.graph.tensors()) {
    if (tensor.kind == Kind::weight) plain[tensor.name] = runner.get(tensor.grad);
  }
  runner.state.loss_scale = 1024;  // a power of two: not a bit changes
  runner.run();
  for (const auto& [name, grad] : plain) {
    const std::vector<float> scaled = runner.get(t.graph[t.graph.find(name)].grad);
    for (size_t i = 0; i < grad.size(); ++i) ASSERT_EQ(scaled[i], 1024 * grad[i]) << name << " " << i;
  }
}

}  // namespace
}  // namespace ulp::ref
