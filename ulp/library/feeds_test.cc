// What a session is fed, as a user of the library sees it: names and shapes of feeds, bytes, and
// data that stays on the device.
#include <gtest/gtest.h>
#include <ulp/ulp.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp.h"

namespace ulp {
namespace {

template <typename Values>
concept Feedable = requires(Values&& values) {
  feed_of("x", std::forward<Values>(values));
};
// The arrays of temporaries are gone when the step comes.
static_assert(Feedable<std::vector<float>&> && Feedable<const std::vector<int32_t>&>);
static_assert(Feedable<std::span<const uint8_t>> && Feedable<std::array<float, 2>&>);
static_assert(!Feedable<std::vector<float>> && !Feedable<const std::vector<float>>);
static_assert(!Feedable<std::vector<int32_t>> && !Feedable<std::array<float, 2>>);

template <typename T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

SessionOptions options(int64_t examples, Settings settings = {}) {
  settings.insert({{"lr", "0.05"}});
  return {.batch = {examples}, .settings = std::move(settings)};
}

// Several feeds whose names are made where they are used.
TEST(Feeds, KeepTheirNames) {
  constexpr int64_t kSteps = 3;
  const auto build = [](Builder& b, const BatchShape& shape) {
    TensorId h = input(b, "a_start_that_is_longer_than_a_short_string", {shape.examples, 4});
    for (int64_t t = 0; t < kSteps; ++t) {
      b.time_step(t);
      const TensorId x = input(b, "x", {shape.examples, 2});
      h = tanh(b, "h", linear(b, "cell", concat(b, "both", {x, h}), {.out = 4}));
    }
    b.end_time_steps();
    return Network{.loss = mse(b, "loss", h, target(b, "y", {shape.examples, 4}))};
  };
  Session session(build, options(8));
  const std::vector<float> start(32), x(16, 0.5f), y(32, 0.25f);
  FeedBatch batch{{8}, {feed_of("y", y)}};
  batch.feeds.push_back(feed_of(std::string("a_start_that_is_longer_than_") + "a_short_string", start));
  for (int64_t t = 0; t < kSteps; ++t)
    batch.feeds.push_back(feed_of(t == 0 ? "x" : "x@" + std::to_string(t), x));
  const double before = session.train(batch).mean();
  for (int i = 0; i < 50; ++i) session.train(batch);
  EXPECT_LT(session.train(batch).mean(), 0.5 * before);
}

TEST(Feeds, SayThatABatchHasChangedAndNotWhatCameOfIt) {
  const auto table = [](Builder& b, const BatchShape& s) {
    const TensorId rows = indices(b, "rows", {s.examples});
    const TensorId y = linear(b, "fc", embedding(b, "table", rows, 4, 3), {.out = 2});
    return Network{.loss = cross_entropy(b, "loss", y, indices(b, "labels", {s.examples})), .outputs = {y}};
  };
  Session session(table, options(32, {{"grad_accum", "4"}}));
  std::vector<int32_t> rows(32, 1), labels(32, 1);
  const FeedBatch batch{{32}, {feed_of("rows", rows), feed_of("labels", labels)}};
  // In a later piece than the one that has run; without the change it is refused as what it is.
  const auto change = [&](const Outputs&) { rows.back() = 9; };
  EXPECT_SAYS(session.train(batch, change), "the feed 'rows' changed while the step ran");
  EXPECT_SAYS(session.train(batch), "9");
  rows.back() = 1;
  session.train(batch);
}

// What is too large to take off the device in each step is there in evaluation.
TEST(Outputs, AreSmallInTraining) {
  constexpr int64_t kMany = 1025, kFew = 1024;  // numbers: 4 bytes more than kSmallOutput, and no more
  for (const int64_t wide : {kFew, kMany}) {
    Session session(
        [wide](Builder& b, const BatchShape& s) {
          const TensorId y = linear(b, "fc", input(b, "x", {s.examples, 2}), {.out = wide});
          return Network{.loss = mse(b, "loss", y, target(b, "y", {s.examples, wide})), .outputs = {y}};
        },
        options(1));
    const std::vector<float> x(2, 1), y(static_cast<size_t>(wide), 0.5f);
    const FeedBatch batch{{1}, {feed_of("x", x), feed_of("y", y)}};
    size_t trained = 0, evaluated = 0;
    const auto train = [&] {
      session.train(batch, [&](const Outputs& outputs) { trained = outputs["fc.out"].size(); });
    };
    if (wide == kFew) {
      train();
      EXPECT_EQ(trained, static_cast<size_t>(kFew));
    } else {
      EXPECT_SAYS(train(), "fc.out");
    }
    session.evaluate(batch, [&](const Outputs& outputs) { evaluated = outputs["fc.out"].size(); });
    EXPECT_EQ(evaluated, static_cast<size_t>(wide));
  }
}

TEST(Feeds, HaveTheShapesThatTheySay) {
  const auto build = [](Builder& b, const BatchShape& shape) {
    const TensorId x = input(b, "x", {shape.examples, 2, 3});
    const TensorId y = linear(b, "fc", flatten(b, "flat", x), {.out = 2});
    return Network{.loss = mse(b, "loss", y, target(b, "y", {shape.examples, 2}))};
  };
  Session session(build, options(8, {{"grad_accum", "4"}}));
  const std::vector<float> x(48, 1), y(16);
  const auto train = [&](const Shape& of_x, const Shape& of_y) {
    session.train({{8}, {feed_of("x", x, of_x), feed_of("y", y, of_y)}});
  };
  train({8, 2, 3}, {8, 2});
  train({}, {8, 2});
  EXPECT_SAYS(train({8, 3, 2}, {8, 2}), "'x' is fed 8x3x2, and a batch of (8) takes 8x2x3");
  EXPECT_SAYS(train({8, 6}, {8, 2}), "'x' is fed 8x6, and a batch of (8) takes 8x2x3");
  EXPECT_SAYS(train({8, 2, 3}, {2, 8}), "'y' is fed 2x8, and a batch of (8) takes 8x2");
  EXPECT_SAYS(train({2, 2, 3}, {8, 2}), "'x' is fed 48 elements as 2x2x3, which would be 12");
  EXPECT_EQ(session.step(), 2u);
}

// Bytes are what the same numbers in fp32 are.
TEST(Feeds, BytesTrainAsTheirNumbersDo) {
  constexpr int64_t kBatch = 16, kWide = 5;
  const auto network = [](bool as_bytes) {
    return [as_bytes](Builder& b, const BatchShape& shape) {
      const Shape of{shape.examples, kWide};
      const TensorId x =
          as_bytes ? from_bytes(b, "numbers", bytes(b, "x", of), 128, 0x1p-6f) : input(b, "numbers", of);
      const TensorId y = linear(b, "fc2", relu(b, "relu", linear(b, "fc1", x, {.out = 8})), {.out = 1});
      return Network{.loss = mse(b, "loss", y, target(b, "y", {shape.examples, 1}))};
    };
  };
  std::vector<uint8_t> codes;
  std::vector<float> numbers, y(kBatch);
  for (size_t i = 0; i < kBatch * kWide; ++i) {
    codes.push_back(static_cast<uint8_t>(i * 37 % 256));
    numbers.push_back((static_cast<float>(codes.back()) - 128) * 0x1p-6f);
    y[i / kWide] += numbers.back() / 8;
  }
  for (const char* device : {"cpu", "reference"}) {
    const Settings settings{{"policy", "size:0.5"}, {"device", device}, {"grad_accum", "2"}};
    Session given(network(true), options(kBatch, settings)), real(network(false), options(kBatch, settings));
    for (int step = 0; step < 20; ++step) {
      const StepResult a = given.train({{kBatch}, {feed_of("x", codes), feed_of("y", y)}});
      const StepResult b = real.train({{kBatch}, {feed_of("numbers", numbers), feed_of("y", y)}});
      EXPECT_EQ(a.loss, b.loss) << device << step;
    }
    for (const std::string& name : real.weights()) EXPECT_EQ(given.weight(name), real.weight(name)) << name;
    EXPECT_SAYS(given.train({{kBatch}, {feed_of("x", numbers), feed_of("y", y)}}),
                "'x' takes byte, and is fed fp32");
  }
  EXPECT_SAYS(Session(
                  [](Builder& b, const BatchShape& s) {
                    const TensorId x = from_bytes(b, "x", indices(b, "i", {s.examples, 2}));
                    return Network{.loss = linear(b, "fc", x, {.out = 1})};
                  },
                  options(4)),
              "operand 1 must be bytes, from `bytes`");
}

// Ratings on the device are those that are fed.
TEST(Feeds, ResidentTargetsAreWhatFedOnesAre) {
  constexpr int64_t kRows = 30, kBatch = 6;
  const auto network = [](bool resident) {
    return [resident](Builder& b, const BatchShape& shape) {
      const int64_t n = shape.examples;
      const std::array<int64_t, 1> two{2};
      const TensorId rows = indices(b, "rows", {n});
      const TensorId user = take(b, "users", rows, kRows);
      const TensorId y =
          resident ? take_target(b, "ratings", rows, kRows, two) : target(b, "ratings", {n, 2});
      const TensorId x = embedding(b, "table", user, 7, 4);
      return Network{.loss = mse(b, "loss", linear(b, "fc", x, {.out = 2}), y)};
    };
  };
  std::vector<int32_t> users;
  std::vector<float> ratings;
  for (int32_t i = 0; i < kRows; ++i) {
    users.push_back(i * 3 % 7);
    ratings.push_back(static_cast<float>(i % 5) / 4);
    ratings.push_back(static_cast<float>(i % 3));
  }
  Session kept(network(true), options(kBatch)), fed(network(false), options(kBatch));
  for (const Mode mode : {Mode::training, Mode::inference}) {
    kept.keep_resident(mode, "users", bytes_of(users));
    EXPECT_SAYS(kept.keep_resident(mode, "ratings", bytes_of(users)),
                "'ratings' reads 240 bytes of resident data, got 120");
    kept.keep_resident(mode, "ratings", bytes_of(ratings));
    fed.keep_resident(mode, "users", bytes_of(users));
  }
  for (int32_t step = 0; step < 12; ++step) {
    std::vector<int32_t> rows;
    std::vector<float> now;
    for (int32_t i = 0; i < kBatch; ++i) {
      rows.push_back((step * 7 + i * 5) % kRows);
      for (size_t k = 0; k < 2; ++k) now.push_back(ratings[static_cast<size_t>(rows.back()) * 2 + k]);
    }
    const StepResult a = kept.train({{kBatch}, {feed_of("rows", rows)}});
    const StepResult b = fed.train({{kBatch}, {feed_of("rows", rows), feed_of("ratings", now)}});
    EXPECT_EQ(a.loss, b.loss);
  }
  for (const std::string& name : fed.weights()) EXPECT_EQ(kept.weight(name), fed.weight(name)) << name;
  // Weights of the loss are added up on the host, which must have them.
  EXPECT_SAYS(Session(
                  [](Builder& b, const BatchShape& s) {
                    const TensorId rows = indices(b, "rows", {s.examples});
                    const TensorId y = linear(b, "fc", embedding(b, "table", rows, 9, 2), {.out = 1});
                    return Network{.loss = mse(b, "loss", y, target(b, "y", {s.examples, 1})),
                                   .weights = take_target(b, "w", rows, 9)};
                  },
                  options(4)),
              "weights of the loss must be a target of its shape");
}

// Images on the device are normalised as those that are fed were.
TEST(Feeds, ResidentImagesAreNormalised) {
  constexpr int64_t kRows = 10, kBatch = 4, kSide = 3, kChannels = 2;
  const auto images_of = [](bool training) {
    return ImageOptions{.rows = kRows,
                        .height = kSide,
                        .width = kSide,
                        .channels = kChannels,
                        .mean = {0.5f, 0.25f},
                        .deviation = {0.25f, 0.5f},
                        .mirror = training};
  };
  const auto build = [&](Builder& b, const BatchShape& shape) {
    const TensorId rows = indices(b, "rows", {shape.examples});
    const TensorId x = image_batch(b, "images", rows, images_of(b.training()));
    const TensorId y = linear(b, "fc", flatten(b, "flat", x), {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", y, take(b, "labels", rows, kRows)), .outputs = {x}};
  };
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t k = 0; k < kSide * kSide * kChannels; ++k)
      images.push_back(static_cast<uint8_t>((i * 31 + k * 7) % 256));
    labels.push_back(static_cast<int32_t>(i % 3));
  }
  Session session(build, options(kBatch));
  for (const Mode mode : {Mode::training, Mode::inference}) {
    session.keep_resident(mode, "images", images);
    session.keep_resident(mode, "labels", bytes_of(labels));
  }
  const std::vector<int32_t> rows{3, 0, 9, 3};
  FeedBatch batch{{kBatch}, {feed_of("rows", rows)}};
  session.evaluate(batch, [&](const Outputs& outputs) {
    const std::span<const float> made = outputs["images.out"];
    constexpr size_t kEach = kSide * kSide * kChannels;
    ASSERT_EQ(made.size(), kBatch * kEach);
    for (size_t i = 0; i < made.size(); ++i) {
      const float mean = i % 2 == 0 ? 0.5f : 0.25f, deviation = i % 2 == 0 ? 0.25f : 0.5f;
      const auto byte = static_cast<float>(images[static_cast<size_t>(rows[i / kEach]) * kEach + i % kEach]);
      EXPECT_NEAR(made[i], (byte / 255 - mean) / deviation, 1e-5f) << i;
    }
  });
  const double before = session.train(batch).mean();
  for (uint32_t step = 0; step < 60; ++step) {
    batch.epoch = step;
    session.train(batch);
  }
  EXPECT_LT(session.train(batch).mean(), 0.5 * before);
  const auto made = [&](const ImageOptions& wrong) {
    Session refused(
        [&](Builder& b, const BatchShape& shape) {
          const TensorId x = image_batch(b, "images", indices(b, "rows", {shape.examples}), wrong);
          return Network{.loss = linear(b, "fc", flatten(b, "flat", x), {.out = 1})};
        },
        options(kBatch));
  };
  ImageOptions wrong = images_of(true);
  wrong.mean = {0.5f};
  EXPECT_SAYS(made(wrong), "1 means or deviations for 2 channels");
  wrong = images_of(true);
  wrong.deviation[1] = 0;
  EXPECT_SAYS(made(wrong), "means must be finite and deviations above 0, got 0.25 and 0");
  wrong = images_of(true);
  wrong.padding = -1;
  EXPECT_SAYS(made(wrong), "the padding must be from 0 to 32767, got -1");
  wrong = images_of(true);
  wrong.rows = 0;
  EXPECT_SAYS(made(wrong), "must have at least 1 image, got 0");
  wrong = images_of(true);
  wrong.channels = 5;
  wrong.mean = wrong.deviation = {};
  EXPECT_SAYS(made(wrong), "at most 4 channels");
}

// A step that begins with a number that no operator takes would move running statistics first.
TEST(Feeds, ResidentNumbersAreWithinTheirLimits) {
  constexpr int64_t kRows = 6;
  const auto build = [](Builder& b, const BatchShape& shape) {
    const TensorId rows = indices(b, "rows", {shape.examples});
    const TensorId x = batch_norm(b, "norm", input(b, "x", {shape.examples, 4}));
    return Network{
        .loss = cross_entropy(b, "loss", linear(b, "fc", x, {.out = 3}), take(b, "labels", rows, kRows))};
  };
  for (const int32_t wrong : {3, -1, 1 << 30}) {
    Session session(build, options(2));
    std::vector<int32_t> labels{0, 1, 2, 0, wrong, 1};
    for (const Mode mode : {Mode::training, Mode::inference}) {
      EXPECT_SAYS(session.keep_resident(mode, "labels", bytes_of(labels)),
                  "element 4 of the data that is kept for 'labels' is " + std::to_string(wrong) +
                      ", and 'loss' takes numbers from 0 to 2");
    }
    // Nothing was kept: the right ones are.
    EXPECT_EQ(session.memory().resident, 0u);
    labels[4] = 2;
    for (const Mode mode : {Mode::training, Mode::inference})
      session.keep_resident(mode, "labels", bytes_of(labels));
    const std::vector<int32_t> rows{4, 5};
    const std::vector<float> x(8, 1);
    session.train({{2}, {feed_of("rows", rows), feed_of("x", x)}});
    EXPECT_EQ(session.step(), 1u);
  }
}

}  // namespace
}  // namespace ulp
