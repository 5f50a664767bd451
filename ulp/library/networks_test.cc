// Networks that a session takes and that it refuses, as a user of the library sees it; layers
// unrolled in time; what the plan says.
#include <gtest/gtest.h>
#include <ulp/ulp.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/temp.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

Network mlp(Builder& b, const BatchShape& shape) {
  TensorId x = input(b, "x", {shape.examples, 6});
  x = relu(b, "relu", linear(b, "fc1", x, {.out = 16}));
  x = linear(b, "fc2", x, {.out = 3});
  return {.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples}))};
}

TEST(Networks, AllTensorsTogetherAreThoseOfFp32) {
  for (const char* cut : {"1", "2", "8"}) {
    Session session(mlp, {.batch = {32}, .settings = {{"grad_accum", cut}}});
    const std::string plan = session.plan();
    const std::string before = "all tensors together ", between = " of ", after = " in fp32";
    const size_t first = plan.find(before) + before.size(), middle = plan.find(between, first),
                 end = plan.find(after, middle);
    ASSERT_LT(end, plan.size()) << plan;
    EXPECT_EQ(plan.substr(first, middle - first),
              plan.substr(middle + between.size(), end - middle - between.size()))
        << plan;
  }
}

TEST(Networks, RefuseWhatASessionCannotDo) {
  EXPECT_SAYS(Session(mlp, {.batch = {32}, .settings = {{"stop_not_finite", "5"}}}),
              "'stop_not_finite' ends whole runs: a session does the steps that it is called for");
}

TEST(Networks, AreEvaluatedInFp32OnlyIfWanted) {
  SessionOptions options{.batch = {8}, .settings = {{"policy", "size:0.5"}}};
  Session both(mlp, options);
  options.evaluates_fp32 = false;
  Session one(mlp, options);
  const std::vector<float> x(48, 0.5f);
  const std::vector<int32_t> labels(8, 1);
  const FeedBatch batch{{8}, {feed_of("x", x), feed_of("labels", labels)}};
  EXPECT_EQ(one.evaluate(batch).loss, both.evaluate(batch).loss);
  EXPECT_GT(both.evaluate_fp32(batch).loss, 0);
  EXPECT_SAYS(one.evaluate_fp32(batch),
              "evaluation in fp32 is not planned: set SessionOptions::evaluates_fp32");
  EXPECT_LE(one.memory().planned_peak, both.memory().planned_peak);
}

// The largest shape decides the formats, so no other may compute more.
TEST(Networks, TheBatchIsTheLargestShape) {
  const auto build = [](Builder& b, const BatchShape& s) {
    TensorId x = input(b, "x", {s.examples * s.extents.at(0), 6});
    x = linear(b, "fc", x, {.out = 3});
    return Network{.loss = mse(b, "loss", x, target(b, "y", {s.examples * s.extents.at(0), 3}))};
  };
  EXPECT_SAYS(
      Session(build, {.batch = {8, {2}}, .training = {{8, {20}}}}),
      "a training batch of 8, 20 computes 1600 elements and the largest shape (8, 2), which decides the "
      "formats, only 160: the batch of the options must be the largest");
  Session(build, {.batch = {8, {20}}, .training = {{8, {2}}}, .evaluation = {{8, {40}}}});
}

TEST(Networks, AWeightThatTheLossDoesNotDependOnIsNamed) {
  const auto build = [](Builder& b, const BatchShape& s) {
    const TensorId x = input(b, "x", {s.examples, 6});
    linear(b, "aside", x, {.out = 4, .bias = false});
    return Network{.loss = mse(b, "loss", linear(b, "fc", x, {.out = 3}), target(b, "y", {s.examples, 3}))};
  };
  const std::string plan = Session(build, {.batch = {8}}).plan();
  EXPECT_NE(plan.find("batches of 8 examples, policy"), std::string::npos) << plan;
  EXPECT_NE(plan.find("aside.weight is not trained: the loss does not depend on it\n"), std::string::npos)
      << plan;
  EXPECT_EQ(plan.find("fc.weight is not"), std::string::npos) << plan;
}

TEST(Networks, WeightsOfTheLossAreFromZero) {
  const auto build = [](Builder& b, const BatchShape& s) {
    const TensorId x = linear(b, "fc", input(b, "x", {s.examples, 6}), {.out = 3});
    return Network{.loss = mse(b, "loss", x, target(b, "y", {s.examples, 3})),
                   .weights = target(b, "w", {s.examples})};
  };
  Session session(build, {.batch = {4}});
  const std::vector<float> x(24, 0.5f), y(12, 1.0f), good = {0, 1, 2, 0}, bad = {0, 3, -1, 1};
  const auto batch = [&](const std::vector<float>& w) {
    return FeedBatch{{4}, {feed_of("x", x), feed_of("y", y), feed_of("w", w)}};
  };
  EXPECT_SAYS(session.train(batch(bad)),
              "element 2 of 'w', the weights of the loss, is -1: a weight must be from 0");
  EXPECT_EQ(session.train(batch(good)).weight, 3);
}

// Two sessions with threads of their own, used from two threads of the caller, whose number they leave alone.
TEST(Networks, ThreadsAreTheSessionsOwn) {
  const auto losses = [](Session& session) {
    std::vector<double> all;
    const std::vector<float> x(192, 0.5f);
    const std::vector<int32_t> labels(32, 1);
    for (int i = 0; i < 3; ++i)
      all.push_back(session.train({{32}, {feed_of("x", x), feed_of("labels", labels)}}).loss);
    return all;
  };
  const int before = thread_count();
  const auto make = [](const char* threads) {
    return Session(mlp, {.batch = {32}, .settings = {{"threads", threads}}});
  };
  Session one = make("1"), two = make("2"), same = make("2");
  EXPECT_EQ(thread_count(), before);
  const std::vector<double> expected = losses(two);
  EXPECT_EQ(thread_count(), before);
  std::vector<double> found;
  std::thread([&] {
    found = losses(same);
    set_thread_count(1);
  }).join();
  EXPECT_EQ(found, expected);
  losses(one);
  EXPECT_EQ(thread_count(), before);
}

TEST(Networks, WhatIsLoadedIsComparedByTensor) {
  const TempFolder folder;
  const std::string file = folder / "one.safetensors";
  Session(mlp, {.batch = {8}}).save(file);
  const auto wider = [](Builder& b, const BatchShape& shape) {
    TensorId x = input(b, "x", {shape.examples, 6});
    x = relu(b, "relu", linear(b, "fc1", x, {.out = 17}));
    x = linear(b, "fc2", x, {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples}))};
  };
  Session other(wider, {.batch = {8}});
  EXPECT_SAYS(other.load(file), "'fc1.");
  const auto smooth = [](Builder& b, const BatchShape& shape) {
    TensorId x = input(b, "x", {shape.examples, 6});
    x = tanh(b, "relu", linear(b, "fc1", x, {.out = 16}));
    x = linear(b, "fc2", x, {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", x, indices(b, "labels", {shape.examples}))};
  };
  Session third(smooth, {.batch = {8}});
  EXPECT_SAYS(third.load(file), "is of another network: its weights have the names and shapes of this one");
}

// Older builds scaled the loss of S2FP8 gradients by default. What they saved lacks the mark, and is
// refused for that (checkpoint_test).
TEST(Networks, WhatIsSavedSaysThatS2fp8IsUnscaled) {
  const TempFolder folder;
  const auto marked = [&](const Settings& settings) {
    const std::string path = folder / "one.safetensors";
    Session session(mlp, {.batch = {8}, .settings = settings});
    session.save(path);
    session.load(path);
    std::ifstream saved(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(saved), {}).find("; s2fp8 unscaled\"") !=
           std::string::npos;
  };
  EXPECT_TRUE(marked({{"policy", "size:1"}, {"candidates", "s2fp8"}}));
  EXPECT_TRUE(marked({{"policy", "s2fp8"}}));
  EXPECT_FALSE(marked({{"policy", "s2fp8"}, {"loss_scale", "none"}}));
  EXPECT_FALSE(marked({{"policy", "size:1"}}));
}

// A weight belongs to all shapes, so it cannot be of one.
TEST(Networks, WeightsDoNotDependOnTheBatch) {
  const auto build = [](Builder& b, const BatchShape& shape) {
    const TensorId x = linear(b, "fc", input(b, "x", {shape.examples, 2}), {.out = 2});
    const TensorId w = b.weight("each", {shape.examples, 2}, Init::normal(1));
    return Network{.loss = mse(b, "loss", multiply(b, "product", x, w), target(b, "y", {shape.examples, 2}))};
  };
  EXPECT_SAYS(Session(build, {.batch = {8}, .settings = {{"grad_accum", "2"}}}),
              "'each' is 8x2 for a batch of 8 and 4x2 for one of 4: what is kept between steps must not "
              "depend on the batch");
  EXPECT_SAYS(Session(build, {.batch = {8}, .training = {{6}}}),
              "'each' is 8x2 for a batch of 8 and 6x2 for one of 6");
  EXPECT_SAYS(Session(build, {.batch = {8}, .evaluation = {{3}}}),
              "'each' is 8x2 for a batch of 8 and 3x2 for one of 3");
}

// The graph alone may be the same.
TEST(Networks, BuildFunctionsDoNotChangeTheirMind) {
  const auto made = [](auto change) {
    int calls = 0;
    Session session(
        [&](Builder& b, const BatchShape& s) {
          const TensorId y = linear(b, "fc", input(b, "x", {s.examples, 2}), {.out = 2});
          const TensorId one = mse(b, "one", y, target(b, "a", {s.examples, 2})),
                         two = mse(b, "two", y, target(b, "b", {s.examples, 2}));
          const TensorId first = target(b, "first", {s.examples}), second = target(b, "second", {s.examples});
          const TensorId sum = loss_sum(b, "sum", one, first), other = loss_sum(b, "other", one, first);
          Network network{.loss = one, .weights = first, .loss_sum = sum, .outputs = {y}};
          if (++calls > 1) change(network, std::vector<TensorId>{one, two, first, second, sum, other, y});
          return network;
        },
        {.batch = {4}});
  };
  made([](Network&, const std::vector<TensorId>&) {});
  EXPECT_SAYS(made([](Network& n, const std::vector<TensorId>& all) {
                n.loss_sum = {};
                n.loss = all[1];
              }),
              "two different graphs for one batch shape");
  EXPECT_SAYS(made([](Network& n, const std::vector<TensorId>& all) { n.loss_sum = all[5]; }),
              "two different networks for one batch shape");
  EXPECT_SAYS(made([](Network& n, const std::vector<TensorId>& all) { n.loss = all[1]; }),
              "'sum.sums' sums 'one.out', but the loss is 'two.out'");
  EXPECT_SAYS(made([](Network& n, const std::vector<TensorId>& all) { n.outputs.push_back(all[0]); }),
              "two different networks for one batch shape");
  EXPECT_SAYS(made([](Network& n, const std::vector<TensorId>&) { n.outputs.clear(); }),
              "two different networks for one batch shape");
}

// ---- layers unrolled in time ----

constexpr int64_t kBatch = 4, kWide = 3, kState = 8;

// A gated cell. Twelve parts are more than the usual number of outputs of an operator.
Network recurrent(Builder& b, const BatchShape& shape) {
  const int64_t length = shape.extents[0];
  const std::vector<TensorId> x = split(b, "steps", input(b, "x", {shape.examples, kWide * length}), length);
  TensorId state = input(b, "start", {shape.examples, kState});
  for (int64_t t = 0; t < length; ++t) {
    b.time_step(t);
    const TensorId both = concat(b, "both", {x[static_cast<size_t>(t)], state});
    const TensorId gate = sigmoid(b, "gate", linear(b, "gates", both, {.out = kState}));
    const TensorId dropped = dropout(b, "drop", both, 0.1);
    state = multiply(b, "state", gate, tanh(b, "tanh", linear(b, "cell", dropped, {.out = kState})));
  }
  b.end_time_steps();
  const TensorId y = linear(b, "head", state, {.out = 1});
  return {.loss = mse(b, "loss", y, target(b, "y", {shape.examples, 1})), .outputs = {y}};
}

const BatchShape kLonger{kBatch, {12}}, kShorter{kBatch, {5}};

Session recurrent_session(Settings settings) {
  settings.insert({{"optimizer", "adam"}, {"lr", "0.01"}});
  return Session(recurrent, {.batch = kLonger,
                             .training = {kShorter},
                             .evaluation = {kLonger, kShorter},
                             .settings = std::move(settings)});
}

// Sequences whose last number is what is learned, of two lengths in turn.
StepResult recurrent_step(Session& session) {
  const auto step = static_cast<uint32_t>(session.step());
  const BatchShape& shape = step % 3 == 1 ? kShorter : kLonger;
  std::mt19937 random(step % 6);
  const size_t each = static_cast<size_t>(kWide * shape.extents[0]);
  std::vector<float> x(kBatch * each), start(kBatch * kState), y(kBatch);
  for (float& value : x) value = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[(i + 1) * each - 1] / 2;
  return session.train(
      {shape,
       {feed_of("x", x, {kBatch, kWide * shape.extents[0]}), feed_of("start", start), feed_of("y", y)}});
}

TEST(Networks, RecurrentLayersResumeByteForByte) {
  const TempFolder folder;
  for (const Settings& settings :
       std::vector<Settings>{{},
                             {{"policy", "size:0.5"}},
                             {{"policy", "size:1"}, {"lo", "fp(3,2,4)"}, {"update", "stochastic"}},
                             {{"policy", "size:0.5"}, {"update", "extra:8"}, {"fused_backward", "true"}},
                             {{"update", "extra:8"}, {"fused_backward", "true"}, {"grad_accum", "2"}}}) {
    Session whole = recurrent_session(settings);
    while (whole.step() < 20) recurrent_step(whole);
    whole.save(folder / "whole");
    for (const uint64_t killed : {uint64_t{1}, uint64_t{8}, uint64_t{19}}) {
      {
        Session first = recurrent_session(settings);
        while (first.step() < killed) recurrent_step(first);
        first.save(folder / "part");
        recurrent_step(first);  // what is lost
      }
      Session second = recurrent_session(settings);
      second.load(folder / "part");
      EXPECT_EQ(second.step(), killed);
      while (second.step() < 20) recurrent_step(second);
      second.save(folder / "part");
      EXPECT_EQ(content(folder / "part"), content(folder / "whole")) << ::testing::PrintToString(settings);
    }
  }
}

TEST(Networks, RecurrentLayersLearn) {
  for (const Settings& settings :
       std::vector<Settings>{{},
                             {{"policy", "size:0.5"}},
                             {{"policy", "size:0.5"}, {"update", "extra:8"}, {"fused_backward", "true"}}}) {
    Session session = recurrent_session(settings);
    const size_t planned = session.memory().planned_peak;
    double before = 0, after = 0;
    for (int i = 0; i < 6; ++i) before += recurrent_step(session).mean();
    while (session.step() < 594) recurrent_step(session);
    for (int i = 0; i < 6; ++i) after += recurrent_step(session).mean();
    EXPECT_LT(after, 0.3 * before) << ::testing::PrintToString(settings);
    if (session.promotions().empty()) {
      EXPECT_EQ(session.memory().measured_peak, planned);
    }
    for (const TensorReport& tensor : session.tensors())
      EXPECT_EQ(tensor.name.find('@'), std::string::npos) << tensor.name;
  }
}

}  // namespace
}  // namespace ulp
