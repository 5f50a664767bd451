// Networks of one's own in the engine: feeds, weights of the loss, shapes, outputs, and what is
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_device.h"
#include "tests/support/temp.h"
#include "ulp/base/error.h"
#include "ulp/graph/ops.h"
#include "ulp/runtime/init.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {
namespace {

constexpr int64_t kWide = 6;

// A regression over positions: (examples, length) sequences, one target and one weight a position.
Network regression(Builder& b, const BatchShape& shape) {
  const int64_t positions = shape.examples * shape.extents.at(0);
  const TensorId x = input(b, "x", {positions, kWide}), y = target(b, "y", {positions, 2});
  Network made;
  made.weights = target(b, "weights", {positions});
  const TensorId hidden = relu(b, "relu", linear(b, "fc1", x, {.out = 16}));
  const TensorId out = linear(b, "fc2", hidden, {.out = 2});
  made.loss = mse(b, "loss", out, y);
  made.outputs = {out};
  return made;
}

// The same without weights.
Network plain_regression(Builder& b, const BatchShape& shape) {
  const int64_t positions = shape.examples * shape.extents.at(0);
  const TensorId x = input(b, "x", {positions, kWide}), y = target(b, "y", {positions, 2});
  const TensorId hidden = relu(b, "relu", linear(b, "fc1", x, {.out = 16}));
  Network made;
  made.loss = mse(b, "loss", linear(b, "fc2", hidden, {.out = 2}), y);
  return made;
}

FeedBatch batch_of(const BatchShape& shape, const std::vector<Feed>& feeds) {
  FeedBatch batch;
  batch.shape = shape;
  batch.feeds = feeds;
  return batch;
}

struct Data {
  std::vector<float> x, y, weights;
  BatchShape shape;

  explicit Data(const BatchShape& of, uint32_t stream = 1) : shape(of) {
    const auto positions = static_cast<size_t>(of.examples * of.extents.at(0));
    x.resize(positions * kWide);
    y.resize(positions * 2);
    fill_initial(Init::normal(1), 3, stream, x);
    fill_initial(Init::normal(1), 4, stream, y);
    weights.assign(positions, 1);
  }
  FeedBatch weighted() const {
    return batch_of(shape, {feed_of("x", x), feed_of("y", y), feed_of("weights", weights)});
  }
  FeedBatch plain() const { return batch_of(shape, {feed_of("x", x), feed_of("y", y)}); }
};

EngineOptions options(const BuildFunction& build, const BatchShape& batch, int64_t micro_batches = 1) {
  EngineOptions made;
  made.build = build;
  made.batch = batch;
  made.micro_batches = micro_batches;
  made.optimizer.momentum = 0.9;
  made.seed = 7;
  return made;
}

StepState step_of(const EngineOptions& made, uint32_t step) {
  StepState state;
  state.seed = made.seed;
  state.step = step;
  state.update = update_scalars(made.optimizer, step, 0.1);
  return state;
}

std::vector<float> weights_of(Engine& engine, const std::string& name) {
  return engine.state().find(name).values();
}

TEST(Network, LearnsWithAnyFeedsAndShapes) {
  const BatchShape large{4, {3}}, small{4, {1}};
  EngineOptions made = options(regression, large);
  for (const char* policy : {"fp32", "size:0.5"}) {
    made.precision.policy = policy;
    Engine engine(made);
    engine.plan_training(small);
    engine.plan_evaluation(large);
    engine.allocate();
    const Data first(large), second(small, 2);
    double before = 0, after = 0;
    for (uint32_t step = 0; step < 60; ++step) {
      const StepResult result =
          engine.train(step_of(made, step), (step % 2 == 0 ? first : second).weighted());
      EXPECT_TRUE(result.updated);
      (step < 2 ? before : after) += step < 2 || step >= 58 ? result.mean() : 0;
    }
    EXPECT_LT(after, 0.5 * before) << policy;
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes()) << policy;
    // Outputs are read by name, of every example.
    size_t seen = 0;
    engine.evaluate(step_of(made, 60), first.weighted(), [&](const Outputs& outputs) {
      EXPECT_EQ(outputs["fc2.out"].size(), 24u);
      seen += static_cast<size_t>(outputs.count());
      EXPECT_SAYS(outputs["relu.out"], "'relu.out' is no output of the network");
    });
    EXPECT_EQ(seen, 4u);
  }
}

// A weight of 0 is as if the term were not there, a weight of 2 as if it were there twice.
TEST(Network, WeightsOfTheLossCount) {
  const BatchShape three{3, {1}}, two{2, {1}};
  Data weighted(three);
  weighted.weights = {1, 0, 1};
  Data without(two);
  for (size_t i = 0; i < 2; ++i) {
    std::copy_n(weighted.x.begin() + static_cast<std::ptrdiff_t>(2 * i * kWide), kWide,
                without.x.begin() + static_cast<std::ptrdiff_t>(i * kWide));
    std::copy_n(weighted.y.begin() + static_cast<std::ptrdiff_t>(4 * i), 2,
                without.y.begin() + static_cast<std::ptrdiff_t>(2 * i));
  }
  const EngineOptions a = options(regression, three), b = options(plain_regression, two);
  Engine left(a), right(b);
  left.allocate();
  right.allocate();
  for (uint32_t step = 0; step < 5; ++step) {
    const StepResult with = left.train(step_of(a, step), weighted.weighted());
    const StepResult bare = right.train(step_of(b, step), without.plain());
    EXPECT_EQ(with.weight, 2);
    EXPECT_EQ(bare.weight, 2);
    EXPECT_NEAR(with.mean(), bare.mean(), 1e-5 * bare.mean());
  }
  const std::vector<float> u = weights_of(left, "fc1.weight"), v = weights_of(right, "fc1.weight");
  for (size_t i = 0; i < u.size(); ++i) EXPECT_NEAR(u[i], v[i], 1e-5f);
}

// The division is by the weights of the whole step, not of a micro-batch.
TEST(Network, MicroBatchesShareTheWeightsOfTheStep) {
  const BatchShape six{6, {2}};
  Data data(six);
  for (size_t i = 0; i < data.weights.size(); ++i) data.weights[i] = static_cast<float>(i % 4);
  const EngineOptions whole = options(regression, six), parts = options(regression, six, 3);
  Engine one(whole), three(parts);
  one.allocate();
  three.allocate();
  for (uint32_t step = 0; step < 4; ++step) {
    const StepResult a = one.train(step_of(whole, step), data.weighted());
    const StepResult b = three.train(step_of(parts, step), data.weighted());
    EXPECT_EQ(a.weight, b.weight);
    EXPECT_NEAR(a.mean(), b.mean(), 1e-5 * a.mean());
  }
  const std::vector<float> u = weights_of(one, "fc2.weight"), v = weights_of(three, "fc2.weight");
  for (size_t i = 0; i < u.size(); ++i) EXPECT_NEAR(u[i], v[i], 1e-5f);
}

// Range events of another shape belong to the tensors of that name.
TEST(Network, EventsAreJoinedByName) {
  // With one position a longer network would number its tensors otherwise.
  const BuildFunction build = [](Builder& b, const BatchShape& shape) {
    const int64_t length = shape.extents.at(0);
    const TensorId x = input(b, "x", {shape.examples, kWide}), y = target(b, "y", {shape.examples, 2});
    const TensorId table = b.weight("table", {kWide, kWide}, Init::normal(1));
    TensorId h = x;
    for (int64_t t = 0; t < length; ++t)
      h = relu(b, fmt::format("relu{}", t), matmul(b, fmt::format("h{}", t), h, table));
    Network made;
    made.loss = mse(b, "loss", linear(b, "fc", h, {.out = 2}), y);
    return made;
  };
  EngineOptions made = options(build, {4, {3}});
  made.precision.policy = "size:1";
  made.precision.overrides = parse_overrides("fc.weight=fp(4,3,12)");  // much of it overflows
  Engine engine(made);
  engine.plan_training({4, {1}});
  engine.allocate();
  std::vector<float> x(4 * kWide), y(8);
  fill_initial(Init::normal(1), 1, 1, x);
  const auto at = [&](const char* name) { return static_cast<size_t>(engine.graph().find(name).index); };
  for (const int64_t length : {3, 1}) {
    const BatchShape shape{4, {length}};
    engine.train(step_of(made, 0), batch_of(shape, {feed_of("x", x), feed_of("y", y)}));
    EXPECT_GT(engine.stats()[at("fc.weight")].overflow, 0u) << length;
    EXPECT_EQ(engine.elements()[at("fc.weight")], 2u * kWide) << length;
    EXPECT_EQ(engine.elements()[at("relu0.out")], 4u * kWide) << length;
    EXPECT_EQ(engine.elements()[at("relu2.out")], length == 3 ? 4u * kWide : 0u) << length;
  }
  EXPECT_SAYS(engine.plan_training({4, {4}}), "'h3.out' exists in training for a batch of 4, 4 only");
}

TEST(Network, RefusesFeedsThatDoNotFit) {
  const BatchShape shape{4, {1}};
  const EngineOptions made = options(regression, shape, 2);
  Engine engine(made);
  engine.allocate();
  const Data data(shape);
  const auto train = [&](FeedBatch batch) { engine.train(step_of(made, 0), batch); };
  const FeedBatch good = data.weighted();
  FeedBatch bad = good;
  bad.feeds.pop_back();
  EXPECT_SAYS(train(bad), "nothing is fed to 'weights': a step needs x, y, weights");
  bad = good;
  bad.feeds[0].elements -= 1;
  EXPECT_SAYS(train(bad), "'x' is fed 23 elements, and a batch of (4, 1) takes 24");
  bad = good;
  bad.feeds[0].element = Element::int32;
  EXPECT_SAYS(train(bad), "'x' takes fp32, and is fed int32");
  bad = good;
  bad.feeds.push_back(feed_of("z", std::span<const float>(data.x)));
  EXPECT_SAYS(train(bad), "'z' is fed, but the network has no such source");
  bad = good;
  bad.feeds.push_back(bad.feeds[0]);
  EXPECT_SAYS(train(bad), "the source 'x' is fed twice");
  bad = good;
  bad.shape.extents = {2};
  EXPECT_SAYS(train(bad), "training is not planned for a batch of (4, 2): planned are (2, 1)");
  Data zero(shape);
  zero.weights.assign(4, 0);
  EXPECT_SAYS(train(zero.weighted()), "add up to 0");
  EXPECT_SAYS(engine.evaluate(step_of(made, 0), good), "evaluation is not planned");
  train(good);
}

TEST(Network, RefusesGraphsThatCannotBeTrained) {
  const BatchShape shape{2, {1}};
  const auto make = [&](const BuildFunction& build) { Engine engine(options(build, shape)); };
  EXPECT_SAYS(make(nullptr), "there is no build function");
  EXPECT_SAYS(make([](Builder& b, const BatchShape& of) {
                Network made = regression(b, of);
                made.loss = {};
                return made;
              }),
              "returned no loss");
  EXPECT_SAYS(make([](Builder& b, const BatchShape&) {
                Network made;
                made.loss = input(b, "x", {2});
                return made;
              }),
              "depends on no weight");
  EXPECT_SAYS(make([](Builder& b, const BatchShape& of) {
                regression(b, of);
                return regression(b, of);
              }),
              "two tensors are called 'x.out'");
  EXPECT_SAYS(make([](Builder& b, const BatchShape& of) {
                Network made = regression(b, of);
                made.weights = nodes(b).graph().find("y.out");
                return made;
              }),
              "weights of the loss must be a target of its shape");
  EXPECT_SAYS(make([](Builder& b, const BatchShape& of) {
                Network made = plain_regression(b, of);
                made.loss_sum = nodes(b).graph().find("fc2.out");
                return made;
              }),
              "'fc2.out' is no sum of the loss");
  EXPECT_SAYS(make([](Builder& b, const BatchShape&) {
                const TensorId x = linear(b, "fc", input(b, "x", {3, 2}), {.out = 1});
                Network made;
                made.loss = mse(b, "loss", x, target(b, "y", {3, 1}));
                return made;
              }),
              "the loss has 3 terms for 2 examples");
  int calls = 0;
  EXPECT_SAYS(make([&](Builder& b, const BatchShape& of) {
                Network made = plain_regression(b, of);
                if (++calls > 1) made.loss = relu(b, "again", made.loss);
                return made;
              }),
              "two different graphs for one batch shape");
  // The graph may stay, and what is returned of it change.
  const auto changed = [&](auto change) {
    int made_before = 0;
    make([&](Builder& b, const BatchShape& of) {
      Network made = regression(b, of);
      if (++made_before > 1) change(made);
      return made;
    });
  };
  EXPECT_SAYS(changed([](Network& made) { made.outputs.clear(); }), "two different networks for one batch");
  EXPECT_SAYS(changed([](Network& made) { made.outputs.push_back(made.loss); }),
              "two different networks for one batch");
}

TEST(Network, EvaluationHasTheTensorsOfTraining) {
  const BatchShape shape{2, {1}};
  Engine engine(options(
      [](Builder& b, const BatchShape& of) {
        Network made = plain_regression(b, of);
        if (!b.training()) made.outputs = {softmax(b, "softmax", nodes(b).graph().find("fc2.out"))};
        return made;
      },
      shape));
  EXPECT_SAYS(engine.plan_evaluation(shape), "'softmax.out' exists in evaluation for a batch of 2, 1 only");
}

// Where a batch comes from changes no format: checkpoints of one device fit another.
TEST(Network, ResidentImagesHaveTheFormatsOfFedOnes) {
  for (const char* policy : {"fp32", "uniform", "op", "op-out", "size:0.5", "size:1", "amp:bf16"}) {
    for (const bool ends : {false, true}) {
      std::vector<Assignment> found;
      for (const bool resident : {false, true}) {
        TaskOptions of;
        of.model = "resnet8";
        of.batch = 4;
        of.resident = resident;
        const std::unique_ptr<LearningTask> task = sketch_task(of, {.input = "3x16x16", .classes = 10});
        EngineOptions made = options(task->build(), task->batch());
        made.precision.policy = policy;
        made.precision.keep_first_last = ends;
        found.push_back(Engine(made).assignment());
      }
      EXPECT_EQ(assignment_digest(found[0]), assignment_digest(found[1])) << policy << " " << ends;
    }
  }
}

TEST(Network, AGradientByRowsIsReadWhole) {
  const BuildFunction build = [](Builder& b, const BatchShape& shape) {
    const TensorId x = embedding(b, "table", indices(b, "tokens", {shape.examples}), 50, 8);
    return Network{.loss = mse(b, "loss", x, target(b, "y", {shape.examples, 8}))};
  };
  const BatchShape six{6, {}};
  const std::vector<int32_t> tokens{49, 3, 3, 0, 49, 3};
  const std::vector<float> y(48, 3.0f);
  std::vector<std::vector<float>> found;
  for (const auto tables : {EngineOptions::TableGradients::dense, EngineOptions::TableGradients::rows}) {
    EngineOptions made = options(build, six);
    made.keep_gradients = true;
    made.table_gradients = tables;
    Engine engine(made);
    engine.allocate();
    engine.train(step_of(made, 0), batch_of(six, {feed_of("tokens", tokens), feed_of("y", y)}));
    EXPECT_EQ(engine.updates_by_rows(), tables == EngineOptions::TableGradients::rows);
    found.push_back(engine.gradient("table.weight"));
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(std::count_if(found[0].begin(), found[0].end(), [](float x) { return x != 0; }), 24);
}

// Rows that lie in the backend's memory, on a device other than the host too.
TEST(Network, BatchesOfResidentData) {
  fake_device::add();
  const BuildFunction build = [](Builder& b, const BatchShape& shape) {
    const TensorId examples = indices(b, "examples", {shape.examples});
    const TensorId tokens = take(b, "tokens", examples, 5, std::array<int64_t, 1>{3});
    const TensorId labels = take(b, "labels", examples, 5);
    const TensorId x = flatten(b, "window", embedding(b, "table", tokens, 7, 4));
    Network made;
    made.loss = cross_entropy(b, "loss", linear(b, "fc", x, {.out = 3}), labels);
    return made;
  };
  std::vector<int32_t> tokens(15), labels{0, 1, 2, 1, 0};
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 5 % 7);
  const auto bytes = [](const std::vector<int32_t>& of) {
    return std::span(reinterpret_cast<const uint8_t*>(of.data()), of.size() * sizeof(int32_t));
  };
  const BatchShape two{2, {}};
  std::vector<std::vector<float>> tables;
  for (const char* device : {"cpu", "fake"}) {
    EngineOptions made = options(build, two);
    made.device = device;
    Engine engine(made);
    engine.keep_resident(Mode::training, "tokens", bytes(tokens));
    EXPECT_SAYS(engine.allocate(), "'labels' reads resident data in training, and none is kept for that");
    Engine second(made);
    second.keep_resident(Mode::training, "tokens", bytes(tokens));
    second.keep_resident(Mode::training, "labels", bytes(labels));
    second.allocate();
    EXPECT_EQ(second.memory().peak(), second.planned_peak_bytes());
    double first = 0, last = 0;
    for (uint32_t step = 0; step < 40; ++step) {
      const std::array<int32_t, 2> numbers{static_cast<int32_t>(step % 5),
                                           static_cast<int32_t>((step + 2) % 5)};
      const FeedBatch batch = batch_of(two, {feed_of("examples", std::span<const int32_t>(numbers))});
      const StepResult result = second.train(step_of(made, step), batch);
      (step == 0 ? first : last) = result.mean();
    }
    EXPECT_LT(last, 0.5 * first);
    const std::array<int32_t, 2> beyond{0, 5};
    const FeedBatch bad = batch_of(two, {feed_of("examples", std::span<const int32_t>(beyond))});
    EXPECT_SAYS(second.train(step_of(made, 40), bad),
                "element 1 of 'examples' is 5, and 'tokens' takes numbers from 0 to 4");
    tables.push_back(weights_of(second, "table.weight"));
  }
  EXPECT_EQ(tables[0], tables[1]);
}

// A cell of five nodes, unrolled over as many steps as the shape has. Its first step reads no
// state, so that `both.out` has no gradient there.
Network recurrent(Builder& b, const BatchShape& shape) {
  const int64_t n = shape.examples;
  TensorId state = input(b, "start", {n, 8}), terms;
  const std::vector<TensorId> in =
      split(b, "steps", input(b, "x", {n, 3 * shape.extents[0]}), shape.extents[0]);
  for (int64_t t = 0; t < shape.extents[0]; ++t) {
    b.time_step(t);
    const TensorId both = concat(b, "both", {in[static_cast<size_t>(t)], state});
    const TensorId gate = sigmoid(b, "gate", linear(b, "gates", both, {.out = 8}));
    state = multiply(b, "state", gate,
                     tanh(b, "tanh", linear(b, "cell", dropout(b, "drop", both, 0.2), {.out = 8})));
  }
  b.end_time_steps();
  return {.loss = mse(b, "loss", linear(b, "head", state, {.out = 1}), target(b, "y", {n, 1}))};
}

struct Sequences {
  explicit Sequences(const BatchShape& shape)
      : start(static_cast<size_t>(shape.examples) * 8),
        x(static_cast<size_t>(shape.examples * shape.extents[0]) * 3),
        y(static_cast<size_t>(shape.examples)),
        batch{shape, {feed_of("start", start), feed_of("x", x), feed_of("y", y)}} {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11) / 11 - 0.4f;
    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 3) / 4 - 0.2f;
  }
  std::vector<float> start, x, y;
  FeedBatch batch;
};

TEST(Network, TimeStepsAreOneTensor) {
  const BatchShape longer{4, {5}}, shorter{4, {2}};
  EngineOptions made = options(recurrent, longer);
  made.precision.policy = "size:0.5";
  Engine engine(made);
  engine.plan_training(shorter);
  engine.plan_evaluation(longer);
  engine.allocate();
  // Counted once, with the elements of all steps, and in one group.
  std::map<std::string, size_t> counted;
  for (const CountedTensor& tensor : engine.counted()) counted[tensor.name] += tensor.elements;
  EXPECT_EQ(counted.at("gates.out"), 5u * 4 * 8);
  EXPECT_EQ(counted.at("gates.out.grad"), 5u * 4 * 8);
  EXPECT_EQ(counted.at("both.out"), 5u * 4 * 11);
  EXPECT_EQ(counted.at("both.out.grad"), 5u * 4 * 11);
  EXPECT_EQ(counted.at("gates.weight"), 8u * 11);
  for (const auto& [name, elements] : counted) EXPECT_EQ(name.find('@'), std::string::npos) << name;
  // All steps have the format of the first, and the weights of the first.
  const Graph& graph = engine.graph();
  const auto storage_of = [&](const std::string& name) {
    const TensorId id = engine.graph().find(name);  // promotion makes another
    EXPECT_TRUE(static_cast<bool>(id)) << name;
    return engine.training_plan().formats()[static_cast<size_t>(id.index)].storage;
  };
  size_t low = 0;
  for (const char* name : {"both", "gates", "gate", "drop", "cell", "tanh", "state"}) {
    const std::string first = std::string(name) + ".out";
    low += storage_of(first) == parse_storage("fp(4,3,4)") ? 1 : 0;
    for (int t = 1; t < 5; ++t)
      EXPECT_EQ(storage_of(fmt::format("{}@{}.out", name, t)), storage_of(first)) << name << t;
    for (int t = 2; t < 5; ++t)
      EXPECT_EQ(storage_of(fmt::format("{}@{}.out.grad", name, t)), storage_of(first + ".grad")) << name << t;
  }
  EXPECT_GT(low, 0u);
  EXPECT_FALSE(static_cast<bool>(graph.find("gates@1.weight")));
  // Events of all steps are the first's, also of a shape that has fewer.
  const auto at = [&](const std::string& name) { return static_cast<size_t>(graph.find(name).index); };
  double before = 0, after = 0;
  for (uint32_t step = 0; step < 60; ++step) {
    const BatchShape& shape = step % 2 == 0 ? longer : shorter;
    const Sequences data(shape);
    const StepResult result = engine.train(step_of(made, step), data.batch);
    EXPECT_EQ(engine.elements()[at("gates.out")], static_cast<size_t>(shape.extents[0]) * 4 * 8);
    EXPECT_EQ(engine.elements()[at("gates@2.out")], 0u);
    if (step == 0) before = result.mean();
    if (step == 58) after = result.mean();
  }
  EXPECT_LT(after, 0.5 * before);
  // Promotion of the first is that of all.
  Assignment assignment = engine.assignment();
  for (const CountedTensor& tensor : engine.counted()) assignment.promote(tensor.name);
  engine.set_assignment(assignment);
  EXPECT_EQ(storage_of("cell@3.out"), parse_storage("fp(6,9,0)"));
  engine.train(step_of(made, 60), Sequences(longer).batch);
}

TEST(Network, TimeStepsDrawWordsOfTheirOwn) {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x = input(b, "x", {2, 3});
  for (int64_t t = 0; t < 3; ++t) {
    b.time_step(t);
    dropout(b, "drop", x, 0.5);
  }
  std::set<double> words;
  for (const Node& node : graph.nodes()) {
    if (node.op == &kDropout) words.insert(node.attrs.real("tensor"));
  }
  EXPECT_EQ(words.size(), 3u);
  EXPECT_EQ(graph[graph.find("drop@2.out")].step_of, graph.find("drop.out"));
  // A name comes once in each step, and once only outside.
  EXPECT_SAYS(dropout(b, "drop", x, 0.5), "drop@2.out");
  b.end_time_steps();
  EXPECT_SAYS(dropout(b, "drop", x, 0.5), "drop.out");
  b.time_step(4);
  b.weight("w", {2}, Init::constant(0));
  b.time_step(5);
  EXPECT_SAYS(b.weight("w", {3}, Init::constant(0)), "'w' is 2 in one time step and 3 in another");
  EXPECT_SAYS(b.time_step(-1), "time steps are numbered from 0");
}

}  // namespace
}  // namespace ulp
