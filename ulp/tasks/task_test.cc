#include "ulp/tasks/task.h"

#include <fmt/format.h>
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

TEST(RocArea, WorkedOutByHand) {
  RocArea area;
  EXPECT_EQ(area.value(), 0.5);
  for (const float score : {3.0f, 1.0f, 2.0f}) area.add(score, true);
  EXPECT_EQ(area.value(), 0.5);
  for (const float score : {2.0f, 0.0f}) area.add(score, false);
  // 3 is above both, 1 above one, 2 above one and level with the other: 4.5 of 6.
  EXPECT_EQ(area.value(), 0.75);
  RocArea other;
  other.add(std::numeric_limits<float>::infinity(), false);
  area.merge(other);
  EXPECT_EQ(area.value(), 4.5 / 9);
  other.add(std::numeric_limits<float>::quiet_NaN(), true);
  area.merge(other);
  EXPECT_TRUE(std::isnan(area.value()));
}

// The area of the test rows of a task, in any cut; steps of training have no scores.
TEST(Meter, AreaOfClicks) {
  TaskOptions options;
  options.task = "clicks";
  options.model = "dlrm";
  options.batch = 8;
  const std::unique_ptr<LearningTask> task = sketch_task(options, {.input = "30"}, {.train = 20, .test = 44});
  ASSERT_EQ(task->metrics().size(), 1u);
  const std::vector<Scored> all = scored(203, 9);
  std::vector<float> clicked, scores;
  for (const Scored& one : all) {
    clicked.push_back(one.kind ? 1.0f : 0.0f);
    scores.push_back(one.score);
  }
  const FeedBatch batch{{static_cast<int64_t>(all.size())}, {feed_of("clicked", clicked)}};
  std::mt19937 random(2);
  for (int trial = 0; trial < 20; ++trial) {
    const std::unique_ptr<Meter> meter = task->meter();
    for (size_t at = 0; at < scores.size();) {
      const size_t count = std::min<size_t>(scores.size() - at, 1 + random() % 40);
      const auto from = scores.begin() + static_cast<ptrdiff_t>(at);
      meter->add(outputs_of("score.out", {from, from + static_cast<ptrdiff_t>(count)},
                            static_cast<int64_t>(at), static_cast<int64_t>(count)),
                 batch);
      at += count;
    }
    meter->add(Outputs({}, 0, 8), batch);
    EXPECT_NEAR(meter->values().at(0), area_of(all), 1e-12);
    const std::unique_ptr<Meter> again = task->meter();
    again->restore(meter->save());
    EXPECT_EQ(again->values(), meter->values());
    again->merge(*task->meter());
    EXPECT_EQ(again->save(), meter->save());
  }
}

// A parameter for each table, and numbers of the paper's layers.
TEST(Task, ClicksAreLearnedFromATableForEachKindOfIds) {
  TaskOptions options;
  options.task = "clicks";
  options.model = "dlrm";
  options.batch = 4;
  const auto weights = [&](const std::string& tables, double width) {
    options.width = width;
    Graph graph;
    Builder b(graph, Mode::training);
    sketch_task(options, {.input = tables})->build()(b, {4});
    size_t count = 0;
    for (const TensorInfo& tensor : graph.tensors())
      count += tensor.kind == Kind::weight && tensor.name.starts_with("table") ? 1 : 0;
    EXPECT_EQ(count, 26u);
    EXPECT_EQ(graph[graph.find("interaction.out")].shape, (Shape{4, 27 * 26 / 2}));
    return graph.parameters();
  };
  constexpr size_t kBottom = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16;
  constexpr size_t kTop = (351 + 16 + 1) * 512 + 513 * 256 + 257;
  EXPECT_EQ(weights("10000", 1), 26u * 10000 * 16 + kBottom + kTop);
  std::string sizes = "7";
  for (int i = 1; i < 26; ++i) sizes += fmt::format("x{}", i);
  EXPECT_EQ(weights(sizes, 1), (7u + 25 * 26 / 2) * 16 + kBottom + kTop);
  EXPECT_LT(weights("10000", 0.5), weights("10000", 1) / 2 + 1000);
  for (const std::string& bad :
       std::vector<std::string>{"x", "10x", "0", "10x20", "-1", "99999999", "1.5", sizes + "x1"})
    EXPECT_SAYS(sketch_task(options, {.input = bad}), "the size of its tables, such as 10000, or 26 sizes");
}

// Batches of made-up rows have the rows of the set, and a subset is of the training rows alone.
TEST(Task, ClicksOfASubset) {
  TaskOptions options;
  options.task = "clicks";
  options.model = "dlrm";
  options.data = "synthetic-clicks:1000:20";
  options.batch = 64;
  options.subset = 100;
  const std::unique_ptr<LearningTask> task = make_task(options);
  EXPECT_EQ(task->examples(Part::train), 100u);
  EXPECT_EQ(task->examples(Part::test), 100u);
  ASSERT_EQ(task->metrics().size(), 2u);
  const double best = task->meter()->values().at(1);
  EXPECT_GT(best, 0.65);
  EXPECT_LT(best, 0.95);
  EXPECT_EQ(task->id().input, "20");
  const std::unique_ptr<BatchStream> stream = task->stream(Part::train), again = task->stream(Part::train);
  EXPECT_EQ(stream->batches(), 2u);
  std::vector<float> first;
  for (int i = 0; i < 4; ++i) {
    const FeedBatch& batch = stream->next();
    EXPECT_EQ(batch.shape.examples, i % 2 == 0 ? 64 : 36);
    EXPECT_EQ(batch.epoch, static_cast<uint32_t>(i / 2));
    const auto* numbers = static_cast<const float*>(batch.find("numbers")->values);
    for (int64_t k = 0; k < 13 * batch.shape.examples; ++k) EXPECT_GE(numbers[k], 0);
    if (i == 3) first.assign(numbers, numbers + 13);
  }
  again->seek(1, 1);
  const auto* numbers = static_cast<const float*>(again->next().find("numbers")->values);
  EXPECT_EQ(std::vector<float>(numbers, numbers + 13), first);
  options.subset = 1001;
  EXPECT_SAYS(make_task(options), "has 1000 training examples, too few for a subset of 1001");
  options.subset = 0;
  options.length = 32;
  EXPECT_SAYS(make_task(options), "clicks have no use for --augment");
  options.length = 64;
  options.model = "ncf";
  EXPECT_SAYS(make_task(options), "clicks are learned by --model dlrm, got 'ncf'");
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
