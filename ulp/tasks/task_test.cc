#include "ulp/tasks/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/pairs_task.h"
#include "tests/support/temp.h"

namespace ulp {
namespace {

struct Scored {
  float score;
  bool kind;
};

// Some of them equal.
std::vector<Scored> scored(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Scored> all;
  for (size_t i = 0; i < count; ++i) {
    const auto score = static_cast<float>(random() % 17) / 7 - 1;
    all.push_back({score, random() % 3 == 0});
  }
  return all;
}

// From its definition, over all pairs.
double area_of(const std::vector<Scored>& all) {
  double won = 0, pairs = 0;
  for (const Scored& one : all) {
    for (const Scored& zero : all) {
      if (!one.kind || zero.kind) continue;
      ++pairs;
      won += one.score > zero.score ? 1 : one.score == zero.score ? 0.5 : 0;
    }
  }
  return won / pairs;
}

AreaMeter seen(std::span<const Scored> part) {
  AreaMeter meter;
  for (const Scored& one : part) meter.add(one.score, one.kind);
  return meter;
}

TEST(Meter, PiecesInAnyCutAndOrderGiveTheSame) {
  const std::vector<Scored> all = scored(101, 1);
  const double whole = seen(all).values().front();
  EXPECT_NEAR(whole, area_of(all), 1e-12);
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<AreaMeter> pieces;
    for (size_t at = 0; at < all.size();) {
      const size_t count = std::min<size_t>(all.size() - at, random() % 40);
      pieces.push_back(seen(std::span(all).subspan(at, count)));
      at += count;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    // One into another, two at a time, until one is left.
    while (pieces.size() > 1) {
      const size_t to = random() % (pieces.size() - 1);
      pieces[to].merge(pieces.back());
      pieces.pop_back();
    }
    EXPECT_EQ(pieces.front().values().front(), whole) << trial;
  }
}

TEST(Meter, GoesOnFromWhatItSaved) {
  const std::vector<Scored> all = scored(60, 2);
  const double whole = seen(all).values().front();
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{31}, size_t{60}}) {
    AreaMeter second;
    second.add(9, true);  // restore forgets it
    second.restore(seen(std::span(all).first(cut)).save());
    for (const Scored& one : std::span(all).subspan(cut)) second.add(one.score, one.kind);
    EXPECT_EQ(second.values().front(), whole) << cut;
  }
  AreaMeter meter = seen(all);
  EXPECT_SAYS(meter.restore({{"ones", "1 2"}}), "has no 'zeros'");
  EXPECT_SAYS(meter.restore({{"ones", "1 2"}, {"zeros", "1 two"}}), "has 'zeros' as '1 two'");
  EXPECT_SAYS(meter.restore({{"ones", "1;2"}, {"zeros", "1"}}), "has 'ones' as '1;2'");
  EXPECT_EQ(meter.values().front(), whole);
  meter.reset();
  EXPECT_EQ(meter.values().front(), 0.5);
}

// The outputs of a batch, as a task's meter sees them.
Outputs outputs_of(const std::string& name, std::vector<float> values, int64_t first, int64_t count) {
  return {{{name, [values = std::move(values)] { return values; }}}, first, count};
}

// Places by counting, over scores with ties, in any cut.
TEST(Meter, PlacesOfTheLeftOutItem) {
  TaskOptions options;
  options.task = "ranking";
  options.model = "ncf";
  options.batch = 8;
  const std::unique_ptr<LearningTask> task =
      sketch_task(options, {.input = "4x30"}, {.train = 20, .test = 44});
  constexpr size_t kEach = 11;  // of a user
  std::mt19937 random(3);
  std::vector<float> scores;
  std::vector<int32_t> items;
  double hits = 0, gain = 0, ties = 0;
  constexpr size_t kRanked = 40;
  for (size_t user = 0; user < kRanked; ++user) {
    std::vector<float> mine;
    for (size_t i = 0; i < kEach; ++i) {
      mine.push_back(static_cast<float>(random() % 9));
      items.push_back(static_cast<int32_t>(i));
    }
    if (user % 8 == 1) std::fill(mine.begin(), mine.end(), 1.0f);          // a network that tells nothing
    if (user % 8 == 2) mine[0] = std::numeric_limits<float>::quiet_NaN();  // or nothing at all
    if (user % 8 == 3) mine[4] = std::numeric_limits<float>::quiet_NaN();
    // Over all orders of the ties; the left-out item never stands behind itself.
    const bool twice = user % 8 == 4;
    if (twice) items[items.size() - 2] = 0;
    size_t first = 1, tied = 0;
    for (size_t i = 1; i < kEach; ++i) {
      if (twice && i == kEach - 2) continue;
      tied += mine[i] == mine[0] ? 1 : 0;
      first += mine[i] == mine[0] || mine[i] < mine[0] ? 0 : 1;
    }
    for (size_t place = first; place <= first + tied; ++place) {
      const auto orders = static_cast<double>(tied + 1);
      hits += place <= 10 ? 1 / orders : 0;
      gain += place <= 10 ? 1 / std::log2(static_cast<double>(place) + 1) / orders : 0;
    }
    ties += static_cast<double>(tied);
    scores.insert(scores.end(), mine.begin(), mine.end());
  }
  ASSERT_GT(hits, 0);
  ASSERT_LT(hits, kRanked);
  const FeedBatch batch{{static_cast<int64_t>(scores.size())}, {feed_of("items", items)}};
  for (int trial = 0; trial < 20; ++trial) {
    const std::unique_ptr<Meter> meter = task->meter();
    for (size_t at = 0; at < scores.size();) {
      const size_t count = std::min<size_t>(scores.size() - at, 1 + random() % 40);
      const auto from = scores.begin() + static_cast<ptrdiff_t>(at);
      meter->add(Outputs({{"score.out",
                           [=] { return std::vector<float>(from, from + static_cast<ptrdiff_t>(count)); }}},
                         static_cast<int64_t>(at), static_cast<int64_t>(count)),
                 batch);
      at += count;
    }
    EXPECT_NEAR(meter->values().at(0), hits / kRanked, 1e-12);
    EXPECT_EQ(meter->values().at(2), ties / kRanked);
    EXPECT_NEAR(meter->values().at(1), gain / kRanked, 1e-12);
    const std::unique_ptr<Meter> again = task->meter();
    again->restore(meter->save());
    EXPECT_EQ(again->values(), meter->values());
    again->merge(*meter);
    EXPECT_NEAR(again->values().at(0), meter->values().at(0), 1e-12);
  }
  // Steps of training have no scores.
  const std::unique_ptr<Meter> none = task->meter();
  none->add(Outputs({}, 0, 8), {});
  EXPECT_TRUE(std::isnan(none->values().at(0)));
}

// Those of the tasks that there are.
TEST(Meter, OfTasksMerge) {
  TaskOptions images;
  images.model = "mlp";
  images.batch = 8;
  TaskOptions text = images;
  text.task = "characters";
  text.model = "charmlp";
  const std::vector<float> weights(16, 0.5f);
  const FeedBatch batch{{16}, {feed_of("weights", weights)}};
  struct Of {
    TaskOptions options;
    std::string output;
    NetworkId id;
  };
  for (const Of& of : {Of{images, "accuracy.sums", {.input = "1x4x4", .classes = 3}},
                       Of{text, "loss_sum.sums", {.input = "8", .classes = 5}}}) {
    const std::unique_ptr<LearningTask> task = sketch_task(of.options, of.id);
    const auto piece = [&](float sum, float right, int64_t first, int64_t count) {
      std::unique_ptr<Meter> meter = task->meter();
      meter->add(outputs_of(of.output, {sum, right}, first, count), batch);
      return meter;
    };
    const std::unique_ptr<Meter> whole = piece(12, 8, 0, 16), first = piece(4, 1, 0, 6),
                                 second = piece(2, 3, 6, 4), third = piece(6, 4, 10, 6);
    third->merge(*first);
    second->merge(*third);
    EXPECT_EQ(second->values(), whole->values()) << of.options.task;
    EXPECT_EQ(second->save(), whole->save()) << of.options.task;
    second->merge(*task->meter());
    EXPECT_EQ(second->save(), whole->save()) << of.options.task;
  }
}

// A task that wants no evaluation in fp32 has no plans for it.
TEST(Task, ChoosesWhetherItIsEvaluatedInFp32) {
  TaskOptions options;
  options.batch = 16;
  const PairsTask task(options);
  EngineOptions engine;
  engine.build = task.build();
  engine.batch = task.batch();
  engine.precision.policy = "size:0.5";
  Engine made(engine);
  plan_task(made, task);
  made.allocate();
  const std::unique_ptr<BatchStream> stream = task.stream(Part::test);
  const FeedBatch& batch = stream->next();
  EXPECT_GT(made.evaluate({}, batch).weight, 0);
  EXPECT_SAYS(made.evaluate_fp32({}, batch), "evaluation in fp32 is not planned for a batch of (16)");
}

}  // namespace
}  // namespace ulp
