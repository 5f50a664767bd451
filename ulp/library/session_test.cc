// As a user of the library sees it: the public headers alone.
#include <gtest/gtest.h>
#include <ulp/ulp.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "tests/support/temp.h"

namespace ulp {
namespace {

constexpr int64_t kInputs = 6;

Network build(Builder& b, const BatchShape& shape) {
  TensorId x = input(b, "x", {shape.examples, kInputs});
  x = relu(b, "relu", linear(b, "fc1", x, {.out = 16}));
  x = linear(b, "fc2", x, {.out = 3});
  return {.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples})), .outputs = {x}};
}

struct Data {
  explicit Data(int64_t examples, uint32_t seed = 1) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < examples; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < kInputs; ++k) {
        x.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
        sum += x.back();
      }
      labels.push_back(sum < -0.5f ? 0 : sum < 0.5f ? 1 : 2);
    }
  }
  FeedBatch batch() const {
    return {{static_cast<int64_t>(labels.size())}, {feed_of("x", x), feed_of("labels", labels)}};
  }
  std::vector<float> x;
  std::vector<int32_t> labels;
};

SessionOptions options(Settings settings = {}, int64_t examples = 32) {
  settings.insert({{"optimizer", "adam"}, {"lr", "0.02"}});
  return {.batch = {examples}, .settings = std::move(settings)};
}

double trained(const Settings& settings, int64_t examples = 32) {
  Session session(build, options(settings, examples));
  const Data data(examples);
  for (int i = 0; i < 150; ++i) session.train(data.batch());
  return session.evaluate(data.batch()).mean();
}

TEST(Session, LearnsUnderEveryPolicyAndRule) {
  for (const Settings& settings : std::vector<Settings>{{},
                                                        {{"policy", "size:0.5"}},
                                                        {{"policy", "uniform"}},
                                                        {{"policy", "amp:fp16"}},
                                                        {{"update", "kahan"}},
                                                        {{"update", "stochastic"}},
                                                        {{"update", "extra:8"}, {"fused_backward", "true"}},
                                                        {{"policy", "size:0.5"}, {"grad_accum", "4"}},
                                                        {{"loss_scale", "auto"}, {"policy", "size:1"}},
                                                        {{"device", "reference"}}}) {
    EXPECT_LT(trained(settings), 0.15) << ::testing::PrintToString(settings);
  }
}

TEST(Session, PlannedMemoryIsWhatItTakes) {
  for (const char* policy : {"fp32", "size:0.5"}) {
    SessionOptions made = options({{"policy", policy}}, 64);
    made.training = {{40}};
    made.evaluation = {{64}, {200}};
    Session session(build, made);
    EXPECT_EQ(session.memory().measured_peak, 0u);
    const size_t planned = session.memory().planned_peak;
    for (const int64_t examples : {64, 40}) session.train(Data(examples).batch());
    session.evaluate(Data(200).batch());
    session.evaluate_fp32(Data(64).batch());
    EXPECT_EQ(session.memory().planned_peak, planned);
    EXPECT_EQ(session.memory().measured_peak, planned);
    EXPECT_NE(session.plan().find(policy), std::string::npos);
  }
}

TEST(Session, ReportsTensorsWithFormatsAndEvents) {
  // A format that 0.02 underflows and 1 overflows in, for one tensor.
  Session session(build, options({{"formats", "relu.out=fp(2,1,0)"}, {"promote", "off"}}));
  const Data data(32);
  session.train(data.batch());
  bool found = false;
  for (const TensorReport& tensor : session.tensors()) {
    EXPECT_GT(tensor.elements, 0u);
    if (tensor.name != "relu.out") continue;
    found = true;
    EXPECT_EQ(tensor.format, "fp(2,1,0)");
    EXPECT_EQ(tensor.kind, "activation");
    EXPECT_EQ(tensor.elements, 32u * 16);
    EXPECT_EQ(tensor.written, tensor.elements);
    EXPECT_GT(tensor.underflow, 0u);
    EXPECT_GT(tensor.largest, 0);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(session.parameters(), 6u * 16 + 16 + 16 * 3 + 3);
}

TEST(Session, PromotesWhatOverflowsAndGoesOn) {
  Session session(build, options({{"policy", "size:1"}, {"lo", "fp(2,1,4)"}, {"optimizer", "sgd"}}));
  const Data data(32);
  for (int i = 0; i < 5; ++i) session.train(data.batch());
  ASSERT_FALSE(session.promotions().empty());
  EXPECT_EQ(session.promotions().front().from, "fp(2,1,4)");
  EXPECT_EQ(session.promotions().front().to, "fp(6,9,0)");
  EXPECT_GT(session.promotions().front().overflow_ratio, 0.01);
  // And so does one that is loaded.
  const TempFolder folder;
  session.save(folder / "a");
  Session other(build, options({{"policy", "size:1"}, {"lo", "fp(2,1,4)"}, {"optimizer", "sgd"}}));
  other.load(folder / "a");
  EXPECT_EQ(other.tensors().front().format, session.tensors().front().format);
  session.train(data.batch());
  other.train(data.batch());
  session.save(folder / "a");
  other.save(folder / "b");
  EXPECT_EQ(content(folder / "a"), content(folder / "b"));
}

TEST(Session, ResumesBitForBit) {
  const TempFolder folder;
  for (const Settings& settings :
       std::vector<Settings>{{{"policy", "size:0.5"}, {"steps", "20"}, {"schedule", "cosine"}},
                             {{"policy", "size:1"}, {"update", "stochastic"}, {"state", "bf16:sr"}},
                             {{"update", "extra:8"}, {"fused_backward", "true"}, {"policy", "size:0.5"}}}) {
    Session whole(build, options(settings));
    const auto train = [](Session& session, uint64_t steps) {
      while (session.step() < steps) session.train(Data(32, static_cast<uint32_t>(session.step())).batch());
    };
    train(whole, 20);
    whole.save(folder / "whole");
    {
      Session first(build, options(settings));
      train(first, 7);
      first.save(folder / "part");
    }
    Session second(build, options(settings));
    second.load(folder / "part");
    EXPECT_EQ(second.step(), 7u);
    train(second, 20);
    second.save(folder / "part");
    EXPECT_EQ(content(folder / "part"), content(folder / "whole"));
  }
}

TEST(Session, RefusesCheckpointsOfOthers) {
  const TempFolder folder;
  Session session(build, options({{"policy", "size:0.5"}}));
  session.train(Data(32).batch());
  session.save(folder / "a");
  Session rate(build, options({{"policy", "size:0.5"}, {"lr", "0.5"}}));
  EXPECT_SAYS(rate.load(folder / "a"), "is of a run with lr 0.02, this one has lr 0.5");
  const auto wider = [](Builder& b, const BatchShape& shape) {
    const TensorId x = linear(b, "fc1", input(b, "x", {shape.examples, kInputs}), {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples}))};
  };
  Session other(wider, options({{"policy", "size:0.5"}}));
  EXPECT_SAYS(other.load(folder / "a"), "has 'fc1.bias' as 'fp32 16', the run has it as 'fp32 3'");
  EXPECT_SAYS(other.load(folder / "none"), "none");
  put(folder / "b", "not a checkpoint");
  EXPECT_SAYS(other.load(folder / "b"), "b");
  // Of a refused file nothing was taken.
  EXPECT_EQ(other.step(), 0u);
}

TEST(Session, WeightsCanBeReadAndSet) {
  Session session(build, options());
  EXPECT_EQ(session.weights(),
            (std::vector<std::string>{"fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"}));
  std::vector<float> values(6 * 16);
  std::iota(values.begin(), values.end(), 0.f);
  session.set_weight("fc1.weight", values);
  EXPECT_EQ(session.weight("fc1.weight"), values);
  EXPECT_SAYS(session.set_weight("fc1.weight", std::vector<float>(5)),
              "'fc1.weight' has 96 elements (16x6), got 5");
  EXPECT_SAYS(session.weight("fc3.weight"), "the network has no weight 'fc3.weight': it has fc1.bias, ");
  // In a narrow storage they are rounded as it stores them.
  Session narrow(build, options({{"update", "plain"}}));
  narrow.set_weight("fc2.bias", std::vector<float>{1, 1 + 0x1p-9f, 1 + 0x1p-7f});
  EXPECT_EQ(narrow.weight("fc2.bias"), (std::vector<float>{1, 1, 1 + 0x1p-7f}));
}

TEST(Session, RatesFollowTheScheduleOrTheCaller) {
  Session constant(build, options());
  EXPECT_DOUBLE_EQ(constant.learning_rate(), 0.02);
  constant.train(Data(32).batch());
  EXPECT_DOUBLE_EQ(constant.learning_rate(), 0.02);
  Session falling(build, options({{"steps", "10"}, {"schedule", "linear"}}));
  for (int i = 0; i < 5; ++i) falling.train(Data(32).batch());
  EXPECT_NEAR(falling.learning_rate(), 0.01, 1e-12);
  const std::vector<float> before = falling.weight("fc2.bias");
  falling.train_at(0.0, Data(32).batch());
  EXPECT_EQ(falling.weight("fc2.bias"), before);
  EXPECT_SAYS(falling.train_at(-1.0, Data(32).batch()),
              "a learning rate is a finite fp32 number from 0, got -1");
  EXPECT_SAYS(falling.train_at(std::nan(""), Data(32).batch()), "a learning rate is a finite fp32 number");
}

TEST(Session, RefusesSettingsThatMakeNoSense) {
  const auto made = [](Settings settings) { Session session(build, options(std::move(settings))); };
  EXPECT_SAYS(made({{"polici", "fp32"}}), "unknown option 'polici'; the nearest is policy");
  EXPECT_SAYS(made({{"policy", "fp33"}}), "fp33");
  EXPECT_SAYS(made({{"model", "resnet20"}}), "'model' is an option of whole runs");
  EXPECT_SAYS(made({{"batch", "5"}}), "'batch' is an option of whole runs");
  EXPECT_SAYS(made({{"schedule", "cosine"}}), "schedule cosine needs to know the end: set steps or epochs");
  EXPECT_SAYS(made({{"grad_accum", "5"}}), "a batch of 32 cannot be cut into 5 equal micro-batches");
  EXPECT_SAYS(made({{"device", "tpu"}}), "tpu");
  EXPECT_SAYS(Session(build, {}), "SessionOptions::batch must have at least 1 example, got 0");
  EXPECT_SAYS(Session(BuildFunction(), options()), "there is no build function");
}

TEST(Session, SettingsOfACommandLine) {
  const char* argv[] = {"program",          "--policy",     "size:0.5", "--lr=0.1",
                        "--fused-backward", "--grad-accum", "2"};
  EXPECT_EQ(
      settings_of(7, argv),
      (Settings{{"policy", "size:0.5"}, {"lr", "0.1"}, {"fused_backward", "true"}, {"grad_accum", "2"}}));
  const char* bad[] = {"program", "--polici", "a"};
  EXPECT_SAYS(settings_of(3, bad), "unknown option 'polici'; the nearest is policy");
  const char* none[] = {"program", "--policy"};
  EXPECT_SAYS(settings_of(2, none), "--policy has no value");
  const char* word[] = {"program", "policy"};
  EXPECT_SAYS(settings_of(2, word), "'policy' is no setting: write --NAME VALUE");
}

TEST(Session, RefusesBatchesThatDoNotFit) {
  Session session(build, options());
  const Data data(32);
  FeedBatch bad = data.batch();
  bad.feeds.pop_back();
  EXPECT_SAYS(session.train(bad), "nothing is fed to 'labels': a step needs x, labels");
  bad = data.batch();
  bad.feeds[0].elements = 6;
  EXPECT_SAYS(session.train(bad), "'x' is fed 6 elements");
  bad = data.batch();
  bad.feeds[0] = feed_of("x", data.labels);
  EXPECT_SAYS(session.train(bad), "'x' takes fp32, and is fed int32");
  EXPECT_SAYS(session.train(Data(31).batch()), "31");
  EXPECT_SAYS(session.evaluate(Data(31).batch()), "31");
  bad = data.batch();
  std::vector<int32_t> labels = data.labels;
  labels[3] = 3;
  bad.feeds[1] = feed_of("labels", labels);
  EXPECT_SAYS(session.train(bad), "3");
  // None of them was a step, and the next one is.
  EXPECT_EQ(session.step(), 0u);
  session.train(data.batch());
  EXPECT_EQ(session.step(), 1u);
  EXPECT_SAYS(session.keep_resident(Mode::training, "x", {}), "before the first step");
  Session fresh(build, options());
  EXPECT_SAYS(fresh.keep_resident(Mode::training, "x", {}), "no node 'x' of the network reads resident data");
}

TEST(Session, RefusesNetworksThatCannotBeTrained) {
  const auto made = [](BuildFunction function) { Session session(std::move(function), options()); };
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                input(b, "x", {s.examples, 2});
                return Network{};
              }),
              "the build function returned no loss");
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                const TensorId x = input(b, "x", {s.examples, 2});
                linear(b, "fc", x, {.out = 2});
                return Network{.loss = linear(b, "fc", x, {.out = 2})};
              }),
              "fc");
  int calls = 0;
  EXPECT_SAYS(made([&](Builder& b, const BatchShape& s) {
                const TensorId x = input(b, "x", {s.examples, kInputs});
                const TensorId y = linear(b, "fc", x, {.out = 3 + calls++});
                return Network{.loss = cross_entropy(b, "loss", y, indices(b, "labels", {s.examples}))};
              }),
              "different graphs");
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                return Network{.loss = linear(b, "fc", TensorId{}, {.out = s.examples})};
              }),
              "builder");
  EXPECT_SAYS(
      made([](Builder& b, const BatchShape& s) {
        return Network{.loss = linear(b, "fc", indices(b, "x", {s.examples, 2}), {.out = 2})};
      }),
      "operand 1 must be real numbers that have a format, from `input` or an operator, and 'x.out' is not");
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                const TensorId x = input(b, "x", {s.examples, 2});
                return Network{.loss = cross_entropy(b, "loss", x, input(b, "labels", {s.examples}))};
              }),
              "operand 2 must be int32, from `indices` or `take`, and 'labels.out' is not");
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                const TensorId x = input(b, "x", {s.examples, 2});
                const TensorId y = linear(b, "fc", x, {.out = 2});
                return Network{.loss = mse(b, "loss", y, y)};
              }),
              "a target must not depend on weights");
  EXPECT_SAYS(made([](Builder& b, const BatchShape& s) {
                return Network{.loss = activation(b, "swish", "act", input(b, "x", {s.examples, 2}))};
              }),
              "there is no activation 'swish'; there are relu, leaky_relu");
}

TEST(Session, NoticesABatchThatChangesDuringAStep) {
  Session session(build, options({{"grad_accum", "4"}}));
  Data data(32);
  int pieces = 0;
  const auto change = [&](const Outputs&) {
    if (++pieces == 2) data.x[5] += 1;
  };
  EXPECT_SAYS(session.train(data.batch(), change), "the feed 'x' changed while the step ran");
  // The list of feeds may change.
  FeedBatch batch = data.batch();
  session.train(batch, [&](const Outputs&) { batch.feeds[1].elements = 3; });
  // Each of its bytes counts.
  for (size_t byte = 0; byte < data.labels.size() * 4; ++byte) {
    FeedBatch fine = data.batch();
    auto* bytes = reinterpret_cast<uint8_t*>(data.labels.data());
    bool first = true;
    const uint8_t before = bytes[byte];
    EXPECT_SAYS(session.evaluate(fine,
                                 [&](const Outputs&) {
                                   if (first) bytes[byte] ^= 1;
                                   first = false;
                                 }),
                "the feed 'labels' changed while the step ran");
    bytes[byte] = before;
  }
}

// Rows of an array on the device, by their numbers, train as the same rows that are fed do.
TEST(Session, ResidentRowsAreWhatFedOnesAre) {
  constexpr int64_t kRows = 40, kWide = 3, kBatch = 8;
  const auto network = [](bool resident) {
    return [resident](Builder& b, const BatchShape& shape) {
      const int64_t n = shape.examples, wide = kWide;
      const TensorId rows = resident ? indices(b, "rows", {n}) : TensorId{};
      TensorId x = resident ? take(b, "words", rows, kRows, {&wide, 1}) : indices(b, "words", {n, kWide});
      x = flatten(b, "flat", embedding(b, "table", x, 10, 4));
      const TensorId labels = resident ? take(b, "labels", rows, kRows) : indices(b, "labels", {n});
      return Network{.loss = cross_entropy(b, "loss", linear(b, "fc", x, {.out = 5}), labels)};
    };
  };
  std::vector<int32_t> words, labels;
  for (int32_t i = 0; i < kRows * kWide; ++i) words.push_back(i * 7 % 10);
  for (int32_t i = 0; i < kRows; ++i) labels.push_back(i * 3 % 5);
  const auto bytes_of = [](const std::vector<int32_t>& values) {
    return std::span(reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4);
  };
  Session fed(network(false), options({{"policy", "size:0.5"}}, kBatch));
  Session kept(network(true), options({{"policy", "size:0.5"}}, kBatch));
  EXPECT_SAYS(Session(network(true), options({}, kBatch)).train({{kBatch}, {feed_of("rows", labels)}}),
              "'words' reads resident data in training, and none is kept for that");
  for (const Mode mode : {Mode::training, Mode::inference}) {
    kept.keep_resident(mode, "words", bytes_of(words));
    kept.keep_resident(mode, "labels", bytes_of(labels));
  }
  EXPECT_SAYS(kept.keep_resident(Mode::training, "labels", bytes_of(labels)),
              "'labels' has its data for training already");
  EXPECT_SAYS(kept.keep_resident(Mode::training, "words", bytes_of(labels)),
              "'words' reads 480 bytes of resident data, got 160");
  const size_t planned = kept.memory().planned_peak;
  std::vector<int32_t> rows(kBatch), words_now, labels_now;
  for (int32_t step = 0; step < 10; ++step) {
    words_now.clear();
    labels_now.clear();
    for (int32_t i = 0; i < kBatch; ++i) {
      const auto row = static_cast<size_t>((step * 11 + i * 3) % kRows);
      rows[static_cast<size_t>(i)] = static_cast<int32_t>(row);
      words_now.insert(words_now.end(), words.begin() + static_cast<long>(row) * kWide,
                       words.begin() + static_cast<long>(row + 1) * kWide);
      labels_now.push_back(labels[row]);
    }
    const StepResult a = fed.train({{kBatch}, {feed_of("words", words_now), feed_of("labels", labels_now)}});
    const StepResult b = kept.train({{kBatch}, {feed_of("rows", rows)}});
    EXPECT_EQ(a.loss, b.loss);
  }
  for (const std::string& name : fed.weights()) EXPECT_EQ(fed.weight(name), kept.weight(name)) << name;
  EXPECT_EQ(kept.memory().measured_peak, planned);
  EXPECT_EQ(kept.memory().resident, 2 * 4 * (words.size() + labels.size()));
  rows[0] = kRows;
  EXPECT_SAYS(kept.train({{kBatch}, {feed_of("rows", rows)}}), "40");
}

TEST(Session, ReadersMustNotCallBackAndMayThrow) {
  for (const char* fused : {"false", "true"}) {
    Session session(build, options({{"grad_accum", "2"}, {"fused_backward", fused}})),
        other(build, options({{"grad_accum", "2"}, {"fused_backward", fused}}));
    const Data data(32);
    EXPECT_SAYS(session.train(data.batch(), [&](const Outputs&) { session.evaluate(data.batch()); }),
                "a reader of outputs must not call the session");
    EXPECT_SAYS(session.evaluate(data.batch(), [&](const Outputs&) { session.save("none"); }),
                "a reader of outputs must not call the session");
    EXPECT_THROW(session.train(data.batch(), [](const Outputs&) { throw std::runtime_error("mine"); }),
                 std::runtime_error);
    // The steps were done, and counted.
    other.train(data.batch());
    other.train(data.batch());
    EXPECT_EQ(session.step(), 2u);
    EXPECT_EQ(session.weight("fc1.weight"), other.weight("fc1.weight"));
  }
}

// A batch norm's running statistics move in forward: a batch that is refused must not get so far.
TEST(Session, ARefusedBatchChangesNothing) {
  const auto normed = [](Builder& b, const BatchShape& shape) {
    TensorId x =
        batch_norm(b, "norm", linear(b, "fc1", input(b, "x", {shape.examples, kInputs}), {.out = 8}));
    x = linear(b, "fc2", x, {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples}))};
  };
  Session session(normed, options({{"grad_accum", "2"}}));
  const Data data(32);
  session.train(data.batch());
  const auto all = [&] {
    std::vector<std::vector<float>> values;
    for (const std::string& name : session.weights()) values.push_back(session.weight(name));
    return values;
  };
  const auto before = all();
  for (const int64_t examples : {1, 16, 31, 48, 64})
    EXPECT_SAYS(session.train(Data(examples).batch()), "training is not planned for a batch of");
  FeedBatch empty = data.batch();
  for (const int64_t examples : {0, -32}) {
    empty.shape.examples = examples;
    EXPECT_SAYS(session.train(empty), "a batch must have at least 1 example");
    EXPECT_SAYS(session.evaluate(empty), "a batch must have at least 1 example");
  }
  Data wrong(32);
  wrong.labels[31] = 3;
  EXPECT_SAYS(session.train(wrong.batch()),
              "element 31 of 'labels' is 3, and 'loss' takes numbers from 0 to 2");
  wrong.labels[31] = -1;
  EXPECT_SAYS(session.train(wrong.batch()), "element 31 of 'labels' is -1");
  EXPECT_EQ(all(), before);
  EXPECT_EQ(session.step(), 1u);
  SessionOptions larger = options();
  larger.training = {{64}};
  EXPECT_SAYS(Session(normed, larger), "SessionOptions::batch, the largest, has 32");
}

TEST(Session, SumsOfTheLossHaveItsWeights) {
  const auto made = [](bool weighted, bool weighted_sum) {
    return [weighted, weighted_sum](Builder& b, const BatchShape& s) {
      Network network;
      const TensorId y = linear(b, "fc", input(b, "x", {s.examples, 2}), {.out = 2});
      network.loss = mse(b, "loss", y, target(b, "y", {s.examples, 2}));
      const TensorId weights = target(b, "w", {s.examples});
      if (weighted) network.weights = weights;
      network.loss_sum = loss_sum(b, "sum", network.loss, weighted_sum ? weights : TensorId{});
      return network;
    };
  };
  Session fine(made(true, true), options());
  EXPECT_SAYS(Session(made(true, false), options()),
              "sums the terms without weights, but the loss has weights");
  EXPECT_SAYS(Session(made(false, true), options()), "sums the terms with weights, but the loss has none");
  EXPECT_SAYS(Session(
                  [](Builder& b, const BatchShape& s) {
                    const TensorId y = linear(b, "fc", input(b, "x", {s.examples, 2}), {.out = 2});
                    return Network{.loss = loss_sum(b, "sum", y)};
                  },
                  options()),
              "is a sum: return its terms, one for each example");
  EXPECT_SAYS(Session(
                  [](Builder& b, const BatchShape& s) {
                    const TensorId y = linear(b, "fc", input(b, "x", {s.examples, 2}), {.out = 2});
                    const TensorId loss = mse(b, "loss", y, target(b, "y", {s.examples, 2}));
                    const TensorId other = mse(b, "other", y, target(b, "z", {s.examples, 2}));
                    return Network{.loss = loss, .loss_sum = loss_sum(b, "sum", other)};
                  },
                  options()),
              "'sum.sums' sums 'other.out', but the loss is 'loss.out'");
  std::vector<float> x(64), w(32, 1);
  w[3] = std::numeric_limits<float>::infinity();
  EXPECT_SAYS(fine.train({{32}, {feed_of("x", x), feed_of("y", x), feed_of("w", w)}}),
              "their sum must be above 0 and finite");
}

TEST(Session, NamesAndShapesAreChecked) {
  const auto made = [](const std::string& name, const Shape& shape) {
    Session session(
        [&](Builder& b, const BatchShape&) {
          return Network{.loss = linear(b, name, input(b, "x", shape), {.out = 1})};
        },
        options());
  };
  for (const char* name : {"", "a b", "a\nb", "a;b", "a@1", "__metadata__"})
    EXPECT_SAYS(made(name, {32, 2}), "is no name");
  EXPECT_SAYS(made("fc", Shape()), "a shape has 1 to 4 extents, got 0");
  EXPECT_EQ(Shape().back(), 1);
}

TEST(Session, CanBeMoved) {
  Session session(build, options());
  session.train(Data(32).batch());
  Session moved = std::move(session);
  moved.train(Data(32).batch());
  EXPECT_EQ(moved.step(), 2u);
  EXPECT_SAYS(session.step(), "this session was moved from");  // NOLINT(bugprone-use-after-move)
  EXPECT_SAYS(session.train(Data(32).batch()), "this session was moved from");
  EXPECT_EQ(std::string(version()).find("0."), 0u);
}

}  // namespace
}  // namespace ulp
