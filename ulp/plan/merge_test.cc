// Two steps as one task: all that either of them needs is there at once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/made_up_backend.h"
#include "tests/support/made_up_graph.h"
#include "tests/support/plan_simulator.h"

namespace ulp {
namespace {

using harness::BackendTraits;
using harness::faults_of;
using harness::GraphMaker;
using harness::MadeUpPlan;
using harness::Traits;

const Shape kShape = {5, 33};
const Traits kFirst{.begins_pair = true}, kSecond{.ends_pair = true}, kPeak{.workspace = 1 << 20};

BackendTraits merging(std::vector<std::pair<std::string, Traits>> list) {
  list.emplace_back("peak", kPeak);
  BackendTraits traits;
  traits.pairs = true;
  traits.of = harness::traits_by_name(std::move(list));
  return traits;
}

bool is_merged(const MadeUpPlan& plan, size_t first) {
  const bool pair = plan->steps()[first].merged_task != nullptr;
  EXPECT_EQ(pair, plan->steps()[first + 1].merged);
  return pair;
}

TEST(Merge, JoinsTwoSteps) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), sums = g.columns("sums", x), y = g.map("y", {x, sums});
  g.any("end", {y}, {1});
  const BackendTraits traits = merging({{"sums", kFirst}, {"y", kSecond}});
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  // Both halves at the moment of the first.
  EXPECT_EQ(plan->place(x).last, 1);
  EXPECT_EQ(plan->place(y).first, 1);
  PlanOptions options;
  options.merge = false;
  const MadeUpPlan apart(g.graph, traits, options);
  EXPECT_EQ(faults_of(*apart), "");
  EXPECT_FALSE(is_merged(apart, 1));
  EXPECT_EQ(apart->place(x).last, 2);
}

// The range of what the first writes is complete when all of it is written.
TEST(Merge, NotWhereTheSecondReadsARangeOfTheFirst) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), sums = g.columns("sums", x), y = g.map("y", {x, sums});
  g.any("end", {y}, {1});
  for (const TensorId range : {x, sums}) {
    Traits second = kSecond;
    second.reads_range = {range};
    const MadeUpPlan plan(g.graph, merging({{"sums", kFirst}, {"y", second}}));
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_EQ(is_merged(plan, 1), range == x);
  }
}

// The second may write where both read.
TEST(Merge, SecondTakesOverWhatBothRead) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), sums = g.columns("sums", x), y = g.map("y", {x, sums});
  g.any("end", {y}, {1});
  Traits second = kSecond;
  second.in_place = true;
  const MadeUpPlan plan(g.graph, merging({{"sums", kFirst}, {"y", second}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_EQ(plan->place(x).offset, plan->place(y).offset);
}

// Either of them could write where x lies: only the second may, as it still reads x when the first
// has written.
TEST(Merge, NotBothTakeOverOneOperand) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), y = g.map("y", {x}), z = g.map("z", {x});
  g.any("end", {y, z}, {1});
  Traits first = kFirst, second = kSecond;
  first.in_place = second.in_place = true;
  const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", second}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_NE(plan->place(y).offset, plan->place(z).offset);
  EXPECT_NE(plan->place(x).offset, plan->place(y).offset);
}

// The first alone could.
TEST(Merge, FirstDoesNotTakeOverWhatTheSecondReads) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), y = g.map("y", {x});
  const TensorId z = g.any("z", {y, x}, kShape);
  g.any("end", {z}, {1});
  Traits first = kFirst;
  first.in_place = true;
  const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", kSecond}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_NE(plan->place(x).offset, plan->place(y).offset);
}

TEST(Merge, EachTakesOverItsOwn) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), u = g.any("u", {x}, kShape), y = g.map("y", {x}),
                 z = g.map("z", {u, y});
  g.any("end", {y, z}, {1});
  Traits first = kFirst, second = kSecond;
  first.in_place = second.in_place = true;
  const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", second}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 2));
  EXPECT_EQ(plan->place(x).offset, plan->place(y).offset);
  EXPECT_EQ(plan->place(u).offset, plan->place(z).offset);
}

// The second does not overwrite the first's result, though it dies there.
TEST(Merge, SecondDoesNotTakeOverTheFirstsResult) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), y = g.map("y", {x}), z = g.map("z", {y});
  g.any("end", {z, x}, {1});
  Traits first = kFirst, second = kSecond;
  first.in_place = second.in_place = true;
  const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", second}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_NE(plan->place(y).offset, plan->place(z).offset);
}

TEST(Merge, EveryStepIsInOnePair) {
  GraphMaker g;
  TensorId last = g.any("peak", {}, kShape);
  std::vector<std::pair<std::string, Traits>> list;
  for (int i = 0; i < 5; ++i) {
    const std::string name = fmt::format("n{}", i);
    last = g.any(name, {last}, kShape);
    list.push_back({name, {.in_place = true, .begins_pair = true, .ends_pair = true}});
  }
  const MadeUpPlan plan(g.graph, merging(list));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_TRUE(is_merged(plan, 3));
  EXPECT_FALSE(plan->steps()[5].merged);
}

TEST(Merge, NotAcrossPhases) {
  GraphMaker g;
  const TensorId x = g.any("peak", {}, kShape), y = g.map("y", {x});
  g.phase = Phase::backward;
  g.map("z", {y});
  const MadeUpPlan plan(g.graph, merging({{"y", kFirst}, {"z", kSecond}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(is_merged(plan, 1));
}

// A step that may run beside others is in no pair, but runs beside pairs: to the end of one, never
// to its middle.
TEST(Merge, BesideStepsThatRunOn) {
  for (const bool reads_early : {false, true}) {
    GraphMaker g;
    const TensorId x = g.any("peak", {}, kShape), side = g.any("side", {x}, kShape), y = g.map("y", {x}),
                   z = reads_early ? g.map("z", {x, side}) : g.map("z", {x}), u = g.map("u", {y, z});
    g.any("end", {side, u, y, z}, {1});
    Traits beside = kFirst;
    beside.side_stream = beside.ends_pair = true;
    beside.workspace = 65;
    Traits first = kFirst;
    first.pair_workspace = 1000;
    const MadeUpPlan plan(g.graph, merging({{"side", beside}, {"y", first}, {"z", kSecond}, {"u", kSecond}}));
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_FALSE(is_merged(plan, 0));
    EXPECT_FALSE(is_merged(plan, 1));
    EXPECT_TRUE(is_merged(plan, 2));
    EXPECT_EQ(plan->steps()[1].live_until, reads_early ? 0 : 5);
  }
}

TEST(Merge, HasTheWorkspaceOfTheMergedTask) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x}), z = g.map("z", {y});
  g.any("peak", {z}, {1});
  Traits first = kFirst, second = kSecond;
  first.workspace = 100;
  second.workspace = 5000;
  first.pair_workspace = 300;
  const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", second}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_EQ(plan->steps()[1].workspace_bytes(), 300u);
  EXPECT_EQ(plan->steps()[2].workspace_bytes(), 0u);
}

// A pair that would take more than there is room for is two steps; so is one whose task alone is
// too large.
TEST(Merge, TakesHardlyMoreMemory) {
  for (const size_t workspace : {size_t{0}, size_t{100000}}) {
    for (const bool tight : {false, true}) {
      GraphMaker g;
      const TensorId x = g.any("x", {}, {1000}), y = g.any("y", {x}, {1000}), z = g.any("z", {y}, {1000});
      g.any("end", {z}, {1});
      Traits first = kFirst;
      first.pair_workspace = workspace;
      PlanOptions options;
      options.tight = tight;
      const MadeUpPlan plan(g.graph, merging({{"y", first}, {"z", kSecond}}), options);
      EXPECT_EQ(faults_of(*plan), "");
      EXPECT_FALSE(is_merged(plan, 1));
      EXPECT_EQ(plan->step_bytes(), size_t{2 * 4032});
    }
  }
}

// Half of the pairs go where all are too many: those near the peak.
TEST(Merge, KeepsThePairsThatCostLeast) {
  GraphMaker g;
  TensorId last = g.any("start", {}, {16});
  std::vector<std::pair<std::string, Traits>> list;
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("a{}", i);
    const TensorId first = g.any(name, {last}, {16 << i});
    last = g.any(name + "b", {first}, {16});
    list.push_back({name, {.begins_pair = true, .pair_workspace = i == 3 ? 5000u : 64u}});
    list.push_back({name + "b", kSecond});
  }
  g.any("big", {last}, {500});
  BackendTraits traits = merging(list);
  PlanOptions options;
  options.tight = true;
  const MadeUpPlan plan(g.graph, traits, options);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 1));
  EXPECT_TRUE(is_merged(plan, 3));
  EXPECT_FALSE(is_merged(plan, 7));
  options.merge = false;
  EXPECT_LE(plan->step_bytes(), MadeUpPlan(g.graph, traits, options)->step_bytes());
}

// A is_merged task gets nothing that was prepared for its halves: it prepares for itself.
TEST(Merge, NothingIsPreparedForHalves) {
  GraphMaker g;
  const TensorId w = g.state("w", {16}), x = g.any("peak", {}, kShape), a = g.any("a", {x, w}, kShape),
                 y = g.any("y", {a, w}, kShape), z = g.any("z", {y, w}, kShape),
                 b = g.any("b", {z, w}, kShape);
  g.any("end", {b}, {1});
  Traits first{.workspace = 64, .prepared = 640, .begins_pair = true, .pair_workspace = 6400};
  Traits second{.workspace = 64, .prepared = 640, .ends_pair = true}, other{.workspace = 64, .prepared = 640};
  BackendTraits traits = merging({{"a", other}, {"y", first}, {"z", second}, {"b", other}});
  traits.prepares = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(is_merged(plan, 2));
  EXPECT_TRUE(plan->steps()[1].prepared.has_value());
  EXPECT_FALSE(plan->steps()[2].prepared.has_value());
  EXPECT_FALSE(plan->steps()[3].prepared.has_value());
  EXPECT_TRUE(plan->steps()[4].prepared.has_value());
}

}  // namespace
}  // namespace ulp
