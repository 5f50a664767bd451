// The structure of graphs: names, parts, sums and views. What the nodes compute is tested with the
// backends.
#include <gtest/gtest.h>

#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/graph/products.h"

namespace ulp {
namespace {

template <typename F>
void expect_error(F&& f, const std::string& words) {
  try {
    f();
    ADD_FAILURE() << "no error; expected: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

using Names = std::vector<std::string>;

Names names(const Graph& graph, const std::vector<TensorId>& ids) {
  Names found;
  for (const TensorId id : ids) found.push_back(graph[id].name);
  return found;
}

const Node& producer(const Graph& graph, std::string_view name) {
  return graph[graph[graph.find(name)].producer];
}

std::vector<const Node*> nodes_of(const Graph& graph, const OpDef& op) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes()) {
    if (node.op == &op) found.push_back(&node);
  }
  return found;
}

struct Net {
  Graph graph = {};
  Builder b{graph, Mode::training};
  TensorId x = input(b, "input", {8, 4});
  TensorId labels = indices(b, "labels", {8});

  TensorId loss_of(TensorId scores) { return nll(b, "loss", log_softmax(b, "log_softmax", scores), labels); }
};

TEST(Graph, TensorsAreFoundByName) {
  Net net;
  const TensorId out = linear(net.b, "fc", net.x, {.out = 3});
  EXPECT_EQ(net.graph.find("fc.out"), out);
  EXPECT_EQ(net.graph[out].shape, (Shape{8, 3}));
  EXPECT_EQ(net.graph[net.graph.find("fc.weight")].shape, (Shape{3, 4}));
  EXPECT_EQ(net.graph[net.graph.find("fc.bias")].kind, Kind::weight);
  EXPECT_FALSE(net.graph.find("fc"));
  EXPECT_EQ(net.graph.parameters(), 15u);
  EXPECT_EQ(producer(net.graph, "fc.out").name, "fc");
  EXPECT_FALSE(net.graph[net.graph.find("fc.weight")].producer);
  EXPECT_EQ(net.graph[out].number, tensor_number("fc.out"));
}

TEST(Graph, NumbersAreFnv1a) {
  // From the published test vectors.
  EXPECT_EQ(tensor_number(""), 0x811C9DC5u);
  EXPECT_EQ(tensor_number("a"), 0xE40C292Cu);
  EXPECT_EQ(tensor_number("foobar"), 0xBF9CF968u);
}

TEST(Graph, TwoTensorsOfOneNameAreRefused) {
  Net net;
  linear(net.b, "fc", net.x, {.out = 3});
  expect_error([&] { linear(net.b, "fc", net.x, {.out = 3}); }, "two tensors are called 'fc.weight'");
}

// Two names as a model might have them, found by looking: some hundred thousand names suffice for
// 32 bits.
TEST(Graph, TwoNamesOfOneNumberAreRefused) {
  std::unordered_map<uint32_t, std::string> seen;
  std::string first, second;
  for (int i = 0; second.empty() && i < 5'000'000; ++i) {
    std::string name = "layer" + std::to_string(i / 1000) + "." + std::to_string(i % 1000 / 10) + ".conv" +
                       std::to_string(i % 10);
    const auto [entry, fresh] = seen.emplace(tensor_number(name + ".out"), name);
    if (fresh) continue;
    first = entry->second;
    second = name;
  }
  ASSERT_FALSE(second.empty());
  ASSERT_NE(first, second);
  Net net;
  relu(net.b, first, net.x);
  expect_error([&] { relu(net.b, second, net.x); },
               "'" + second + ".out' and '" + first + ".out' have the same number");
}

TEST(Graph, ShapeErrorsNameTheNode) {
  Net net;
  const TensorId image = input(net.b, "image", Shape::image(2, 6, 8, 8));
  expect_error([&] { add(net.b, "sum", net.x, image); },
               "sum (broadcast_add): 8x4 and 2x8x8x6 do not go together: 4 and 6 differ and neither is 1");
  expect_error([&] { conv2d(net.b, "conv", net.x, {.out = 3}); }, "conv: a convolution reads images");
  expect_error([&] { conv2d(net.b, "conv", image, {.out = 3, .kernel = 9}); }, "conv (conv2d)");
  expect_error([&] { conv2d(net.b, "grouped", image, {.out = 3, .groups = 4}); }, "grouped: 6 channels");
  expect_error([&] { max_pool(net.b, "pool", net.x, {.kernel = 2}); }, "pool (max_pool)");
  expect_error([&] { split(net.b, "halves", image, 4); }, "halves (split)");
  expect_error([&] { split(net.b, "rows", image, 3, 1); }, "8 places of axis 1 cannot be split in 3 parts");
  expect_error([&] { split(net.b, "far", image, 2, 4); },
               "far: 2x8x8x6 has axes 0 to 3, or -1 to -4 from the back, got 4");
  expect_error([&] { concat(net.b, "near", {image, image}, -5); }, "from the back, got -5");
  expect_error(
      [&] {
        concat(net.b, "ranks", {image, net.x}, 0);
      },
      "2x8x8x6 and 8x4 differ in more than axis 0");
  expect_error([&] { dot_interaction(net.b, "pairs", net.x); }, "(examples, two or more, width), got 8x4");
  expect_error(
      [&] {
        dot_interaction(net.b, "lone", reshape(net.b, "one", net.x, {8, 1, 4}));
      },
      "(examples, two or more, width), got 8x1x4");
  expect_error([&] { channel_shuffle(net.b, "mix", image, 4); }, "mix (channel_shuffle)");
  expect_error([&] { concat(net.b, "both", {net.x, image}); }, "both (concat)");
  expect_error([&] { reshape(net.b, "flat", net.x, {31}); }, "flat (reshape)");
  expect_error([&] { matmul(net.b, "product", net.x, net.x); }, "product (matmul)");
  expect_error([&] { nll(net.b, "loss", image, net.labels); }, "loss (nll)");
}

TEST(Graph, AxesFromTheFrontAndTheBack) {
  Net net;
  const TensorId image = input(net.b, "image", Shape::image(2, 6, 8, 4));
  EXPECT_EQ(net.graph[concat(net.b, "a", {image, image}, 1)].shape, (Shape{2, 16, 4, 6}));
  EXPECT_EQ(net.graph[concat(net.b, "b", {image, image}, -4)].shape, (Shape{4, 8, 4, 6}));
  EXPECT_EQ(net.graph[split(net.b, "c", image, 4, -3)[1]].shape, (Shape{2, 2, 4, 6}));
  // The last axis is said in one way alone: graphs are compared by what their nodes say.
  EXPECT_FALSE(producer(net.graph, net.graph[concat(net.b, "d", {image, image}, 3)].name).attrs.has("axis"));
  const std::vector<std::pair<std::pair<Shape, Shape>, Shape>> sums = {{{{3, 4}, {4}}, {3, 4}},
                                                                       {{{2, 1, 4}, {3, 1}}, {2, 3, 4}},
                                                                       {{{1}, {2, 3}}, {2, 3}},
                                                                       {{{1, 1}, {1}}, {1, 1}}};
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string name = "sum" + std::to_string(i);
    const TensorId sum = add(net.b, name, input(net.b, name + "x", sums[i].first.first),
                             input(net.b, name + "y", sums[i].first.second));
    EXPECT_EQ(net.graph[sum].shape, sums[i].second) << name;
  }
  const TensorId pairs = dot_interaction(net.b, "pairs", input(net.b, "vectors", {5, 27, 16}));
  EXPECT_EQ(net.graph[pairs].shape, (Shape{5, 351}));
  EXPECT_EQ(multiply_adds(net.graph, Phase::forward), uint64_t{5} * 351 * 16);
}

TEST(Gradients, EveryTensorHasItsOwnByName) {
  Net net;
  const TensorId hidden = relu(net.b, "relu", linear(net.b, "fc1", net.x, {.out = 5}));
  const TensorId loss = net.loss_of(linear(net.b, "fc2", hidden, {.out = 3}));
  const size_t forward = net.graph.node_count();
  differentiate(net.graph, loss);
  for (const char* name : {"fc1.out", "relu.out", "fc2.out", "log_softmax.out", "loss.out", "fc1.weight",
                           "fc1.bias", "fc2.weight", "fc2.bias"}) {
    const TensorInfo& tensor = net.graph[net.graph.find(name)];
    ASSERT_TRUE(tensor.grad) << name;
    const TensorInfo& grad = net.graph[tensor.grad];
    EXPECT_EQ(grad.name, std::string(name) + ".grad");
    EXPECT_EQ(grad.shape, tensor.shape);
    EXPECT_EQ(grad.kind, tensor.kind == Kind::weight ? Kind::weight_grad : Kind::activation_grad);
    EXPECT_TRUE(grad.producer) << name;
  }
  // No weight lies before the input: nothing is computed for it.
  EXPECT_FALSE(net.graph[net.x].grad);
  EXPECT_EQ(nodes_of(net.graph, kLinearGradInput).size(), 1u);
  EXPECT_EQ(producer(net.graph, "relu.out.grad").name, "fc2.linear_grad_input");
  EXPECT_EQ(names(net.graph, producer(net.graph, "fc1.out.grad").in), (Names{"relu.out.grad", "relu.out"}));
  // The mean over the examples starts it all.
  EXPECT_EQ(producer(net.graph, "loss.out.grad").op, &kSeed);
  EXPECT_EQ(producer(net.graph, "loss.out.grad").attrs.real("value"), 1.0 / 8);
  for (size_t i = 0; i < net.graph.node_count(); ++i) {
    EXPECT_EQ(net.graph.nodes()[i].phase, i < forward ? Phase::forward : Phase::backward);
  }
}

// A node reads only what has been written before it.
TEST(Gradients, NodesStandInTheOrderTheyRun) {
  Net net;
  TensorId x = linear(net.b, "fc1", net.x, {.out = 6});
  const auto half = split(net.b, "split", x, 2);
  x = concat(net.b, "concat", {relu(net.b, "relu", half[1]), half[0]});
  x = add(net.b, "add", channel_shuffle(net.b, "shuffle", x, 2), x);
  differentiate(net.graph, net.loss_of(x), 2);
  std::vector<bool> written(net.graph.tensor_count());
  for (const Node& node : net.graph.nodes()) {
    for (const TensorId in : node.in) {
      const bool there = written[static_cast<size_t>(in.index)] || is_state(net.graph[in].kind);
      EXPECT_TRUE(there) << node.name << " reads " << net.graph[in].name;
    }
    for (const TensorId out : node.out) {
      EXPECT_EQ(written[static_cast<size_t>(out.index)], node.adds) << node.name;
      written[static_cast<size_t>(out.index)] = true;
    }
  }
}

TEST(Gradients, PartsStandInTheOrderOfTheirReaders) {
  Net net;
  const TensorId x = linear(net.b, "fc", net.x, {.out = 3});
  const TensorId first = tanh(net.b, "first", x);
  const TensorId second = sigmoid(net.b, "second", x);
  const TensorId third = relu(net.b, "third", x);
  differentiate(net.graph, net.loss_of(add(net.b, "b", add(net.b, "a", first, second), third)));
  const Node& sum = producer(net.graph, "fc.out.grad");
  EXPECT_EQ(sum.op, &kSum);
  EXPECT_EQ(sum.name, "fc.out.grad.add");
  EXPECT_EQ(names(net.graph, sum.in), (Names{"fc.out.grad.0", "fc.out.grad.1", "fc.out.grad.2"}));
  EXPECT_EQ(producer(net.graph, "fc.out.grad.0").name, "first.tanh_grad");
  EXPECT_EQ(producer(net.graph, "fc.out.grad.1").name, "second.sigmoid_grad");
  EXPECT_EQ(producer(net.graph, "fc.out.grad.2").name, "third.relu_grad");
  for (const TensorId part : sum.in) {
    EXPECT_EQ(net.graph.format_of(part), net.graph.find("fc.out.grad"));
    EXPECT_EQ(net.graph[part].kind, Kind::activation_grad);
  }
}

TEST(Gradients, OneNodeMayReadATensorTwice) {
  Net net;
  const TensorId x = linear(net.b, "fc", net.x, {.out = 3});
  differentiate(net.graph, net.loss_of(multiply(net.b, "square", x, x)));
  EXPECT_EQ(names(net.graph, producer(net.graph, "fc.out.grad").in),
            (Names{"fc.out.grad.0", "fc.out.grad.1"}));
}

TEST(Gradients, AParameterUsedTwiceHasASum) {
  Net net;
  const TensorId weight = net.b.weight("tied", {4, 4}, Init::normal(1));
  TensorId x = nodes(net.b).add_one(kLinear, "first", {net.x, weight});
  x = nodes(net.b).add_one(kLinear, "second", {x, weight});
  differentiate(net.graph, net.loss_of(x));
  const TensorId sum = net.graph.find("tied.grad.sum");
  ASSERT_TRUE(sum);
  EXPECT_EQ(net.graph[sum].kind, Kind::grad_sum);
  const auto uses = nodes_of(net.graph, kLinearGradWeight);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0]->out, std::vector{sum});
  EXPECT_FALSE(uses[0]->adds);
  EXPECT_EQ(uses[1]->out, std::vector{sum});
  EXPECT_TRUE(uses[1]->adds);
  const Node& round = producer(net.graph, "tied.grad");
  EXPECT_EQ(round.op, &kCopy);
  EXPECT_EQ(round.phase, Phase::finish);
  EXPECT_EQ(round.in, std::vector{sum});
}

TEST(Gradients, MicroBatchesHaveSums) {
  Net net;
  const TensorId loss = net.loss_of(linear(net.b, "fc", net.x, {.out = 3}));
  differentiate(net.graph, loss, 4);
  EXPECT_EQ(producer(net.graph, "loss.out.grad").attrs.real("value"), 1.0 / 32);
  for (const char* name : {"fc.weight", "fc.bias"}) {
    EXPECT_TRUE(net.graph.find(std::string(name) + ".grad.sum")) << name;
    EXPECT_EQ(producer(net.graph, std::string(name) + ".grad").phase, Phase::finish) << name;
  }
}

TEST(Gradients, ViewsShareBytesAndFormats) {
  Net net;
  const TensorId image = input(net.b, "image", Shape::image(8, 2, 4, 4));
  const TensorId conv = conv2d(net.b, "conv", image, {.out = 4});
  const TensorId mixed = channel_shuffle(net.b, "shuffle", conv, 2);
  const TensorId flat = flatten(net.b, "flatten", mixed);
  differentiate(net.graph, net.loss_of(linear(net.b, "fc", flat, {.out = 3})));
  const Graph& graph = net.graph;
  // A reshape is the same bytes; a shuffle has bytes of its own. Both have the format of what they
  // show.
  EXPECT_EQ(graph.bytes_of(flat), mixed);
  EXPECT_EQ(graph.bytes_of(mixed), mixed);
  EXPECT_EQ(graph.format_of(flat), conv);
  EXPECT_EQ(graph.format_of(mixed), conv);
  EXPECT_EQ(graph[flat].shape, (Shape{8, 64}));
  // Backward the bytes are those of the gradient that is written first, the format is still the
  // first tensor's.
  EXPECT_EQ(graph.bytes_of(graph[mixed].grad), graph[flat].grad);
  EXPECT_EQ(graph.format_of(graph[flat].grad), graph[conv].grad);
  EXPECT_EQ(graph.format_of(graph[mixed].grad), graph[conv].grad);
}

TEST(Gradients, AHalfThatNobodyReadsIsZero) {
  Net net;
  const auto half = split(net.b, "split", linear(net.b, "fc", net.x, {.out = 6}), 2);
  differentiate(net.graph, net.loss_of(half[1]));
  const Node& back = producer(net.graph, "fc.out.grad");
  EXPECT_EQ(back.op, &kConcat);
  EXPECT_EQ(names(net.graph, back.in), (Names{"split.zero0", "split.out1.grad"}));
}

TEST(Gradients, BatchNormKeepsItsStatisticsOutOfIt) {
  Net net;
  const TensorId x = linear(net.b, "fc", net.x, {.out = 3, .bias = false});
  differentiate(net.graph, net.loss_of(batch_norm(net.b, "bn", x)));
  // The statistics read x too, but nothing flows back from them: one part, no sum.
  EXPECT_EQ(producer(net.graph, "fc.out.grad").op, &kBatchNormGrad);
  EXPECT_FALSE(net.graph[net.graph.find("bn.running_mean")].grad);
  EXPECT_EQ(producer(net.graph, "bn.weight.grad").op, &kCopy);
}

TEST(Gradients, SplitsHaveAnyNumberOfParts) {
  Net net;
  const auto parts = split(net.b, "split", linear(net.b, "fc", net.x, {.out = 24}), 12);
  ASSERT_EQ(parts.size(), 12u);
  for (size_t i = 0; i < parts.size(); ++i)
    EXPECT_EQ(net.graph[parts[i]].name, "split.out" + std::to_string(i));
  EXPECT_EQ(net.graph[parts[11]].shape.back(), 2);
  differentiate(net.graph, net.loss_of(multiply(net.b, "product", parts[0], parts[11])));
  EXPECT_EQ(producer(net.graph, "fc.out.grad").in.size(), 12u);
  expect_error([&] { split(net.b, "more", parts[0], 5); }, "2 channels cannot be split in 5 parts");
  expect_error([&] { split(net.b, "none", parts[0], 0); }, "2 channels cannot be split in 0 parts");
}

TEST(Gradients, BadRequestsAreRefused) {
  Net net;
  const TensorId nothing = net.loss_of(relu(net.b, "relu", net.x));
  expect_error([&] { differentiate(net.graph, nothing); },
               "'loss.out' depends on no weight: there is nothing to train");
  expect_error([&] { differentiate(net.graph, nothing, 0); }, "micro-batches must be positive, got 0");

  const OpDef sign{"sign", Form::elementwise,
                   [](const Attrs&, std::span<const Shape> in) -> std::vector<Output> {
                     return {{"out", in[0]}};
                   }};
  Net blocked;
  const TensorId x = linear(blocked.b, "fc", blocked.x, {.out = 3});
  const TensorId loss = blocked.loss_of(nodes(blocked.b).add_one(sign, "step", {x}));
  expect_error([&] { differentiate(blocked.graph, loss); }, "step (sign) has no gradient rule");
}

TEST(Updates, EveryWeightHasOne) {
  Net net;
  net.b.weight("unused", {3}, Init::constant(0));
  differentiate(net.graph, net.loss_of(linear(net.b, "fc", net.x, {.out = 3})));
  add_updates(net.graph, UpdateSpec{{{"beta1", 0.9}}, {"m", "v"}}, 2.5);
  const auto updates = nodes_of(net.graph, kUpdate);
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(names(net.graph, updates[0]->in), (Names{"fc.weight.grad", "grad_norm"}));
  EXPECT_EQ(names(net.graph, updates[0]->out), (Names{"fc.weight", "fc.weight.m", "fc.weight.v"}));
  EXPECT_EQ(net.graph[net.graph.find("fc.weight.m")].kind, Kind::optimizer);
  EXPECT_EQ(updates[0]->attrs.real("beta1"), 0.9);
  EXPECT_EQ(names(net.graph, producer(net.graph, "grad_norm").in),
            (Names{"fc.weight.grad.squares", "fc.bias.grad.squares"}));
  EXPECT_EQ(names(net.graph, producer(net.graph, "fc.bias.grad.squares").in), Names{"fc.bias.grad"});
}

}  // namespace
}  // namespace ulp
