// What tasks make of state before their turn: for many at once, early where there is room, and
// never from a state that is not yet what the task would find.
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

const Shape kShape = {16};
const Traits kPrepared{.workspace = 64, .prepared = 640};

// Names that begin with p are prepared; `peak` has room for everything.
BackendTraits preparing(std::vector<std::pair<std::string, Traits>> list = {}) {
  BackendTraits traits;
  traits.prepares = true;
  list.emplace_back("peak", Traits{.workspace = 1 << 20});
  traits.of = [by_name = harness::traits_by_name(std::move(list))](const Problem& problem) {
    const std::string& name = problem.root().name;
    return name[0] == 'p' && name != "peak" ? kPrepared : by_name(problem);
  };
  return traits;
}

TEST(Prepare, OnceForAllOfAPhase) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape);
  TensorId last = g.any("start", {}, kShape);
  for (int i = 0; i < 3; ++i) last = g.any(fmt::format("p{}", i), {last, w}, kShape);
  g.phase = Phase::backward;
  for (int i = 3; i < 5; ++i) last = g.any(fmt::format("p{}", i), {last, w}, kShape);
  g.any("peak", {last}, kShape);
  const MadeUpPlan plan(g.graph, preparing());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->steps()[1].prepares, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(plan->steps()[4].prepares, (std::vector<int>{4, 5}));
  BackendTraits alone = preparing();
  alone.prepares = false;
  const MadeUpPlan apart(g.graph, alone);
  EXPECT_EQ(faults_of(*apart), "");
  for (const PlanStep& step : apart->steps()) EXPECT_FALSE(step.prepared || step.preparation != nullptr);
}

// One alone prepares for itself.
TEST(Prepare, NotForOneAlone) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), x = g.any("start", {}, kShape);
  g.any("peak", {g.any("p", {x, w}, kShape)}, kShape);
  const MadeUpPlan plan(g.graph, preparing());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(plan->steps()[1].prepared.has_value());
}

// Where some step runs beside others, preparing can too: it begins as soon as there is room, in the phase.
TEST(Prepare, BeginsEarlyWhereStepsRunBeside) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), x = g.any("start", {}, kShape);
  g.phase = Phase::backward;
  const TensorId a = g.any("a", {x}, kShape), side = g.any("side", {a}, kShape), b = g.any("b", {a}, kShape),
                 p = g.any("p0", {b, w}, kShape), q = g.any("p1", {p, w}, kShape);
  g.any("peak", {q, side}, kShape);
  const MadeUpPlan plan(g.graph, preparing({{"side", {.side_stream = true}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->steps()[1].prepares, (std::vector<int>{4, 5}));
}

TEST(Prepare, NotBeforeTheStateIsWritten) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), x = g.any("start", {}, kShape), side = g.any("side", {x}, kShape),
                 p0 = g.any("p0", {x, w}, kShape);
  g.write(harness::kMadeUp, "writes", {p0}, {w});
  const TensorId a = g.any("a", {p0}, kShape), p1 = g.any("p1", {a, w}, kShape),
                 p2 = g.any("p2", {p1, w}, kShape);
  g.any("peak", {p2, side}, kShape);
  const MadeUpPlan plan(g.graph, preparing({{"side", {.side_stream = true}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(plan->steps()[2].prepared.has_value());
  EXPECT_EQ(plan->steps()[4].prepares, (std::vector<int>{5, 6}));
}

// The state is read by a node that is computed inside the one that is prepared for.
TEST(Prepare, NotBeforeTheStateOfAnInlinedNodeIsWritten) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), v = g.state("v", kShape), x = g.any("start", {}, kShape),
                 p0 = g.any("p0", {x, v}, kShape);
  g.write(harness::kMadeUp, "writes", {p0}, {w});
  const TensorId inlined = g.map("m", {p0, w}), p1 = g.map("p1", {inlined, v}),
                 p2 = g.any("p2", {p1, v}, kShape);
  g.any("peak", {p2}, kShape);
  BackendTraits traits = preparing();
  traits.fuses = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->place(inlined).home, Home::nowhere);
}

// A step that writes a state may run on beside others: nothing is made of that state before its end.
TEST(Prepare, NotWhileAStepBesideWritesTheState) {
  for (const bool early : {false, true}) {
    GraphMaker g;
    const TensorId v = g.state("v", kShape), w = g.state("w", kShape), x = g.any("start", {}, kShape);
    g.write(harness::kMadeUp, "side", {x}, {w});
    const TensorId a = g.any("a", {x}, kShape),
                   first = early ? g.any("b", {a}, kShape) : g.any("p0", {a, v}, kShape),
                   b = g.any("c", {first}, kShape), p1 = g.any("p1", {b, w}, kShape),
                   p2 = g.any("p2", {p1, w}, kShape);
    g.any("peak", {p2}, kShape);
    const MadeUpPlan plan(g.graph, preparing({{"side", {.side_stream = true}}}));
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_EQ(plan->steps()[1].live_until, 5);
    EXPECT_EQ(plan->steps()[5].prepares, (std::vector<int>{5, 6}));
  }
}

// Near the peak each prepares for itself, and a tight plan takes no more than if all did.
TEST(Prepare, TakesHardlyMoreMemory) {
  for (const bool tight : {false, true}) {
    GraphMaker g;
    const TensorId w = g.state("w", kShape);
    TensorId last = g.any("start", {}, kShape);
    for (int i = 0; i < 4; ++i) last = g.any(fmt::format("p{}", i), {last, w}, kShape);
    PlanOptions options;
    options.tight = tight;
    const MadeUpPlan plan(g.graph, preparing(), options);
    EXPECT_EQ(faults_of(*plan), "");
    BackendTraits alone = preparing();
    alone.prepares = false;
    EXPECT_LE(plan->step_bytes(), MadeUpPlan(g.graph, alone, options)->step_bytes());
  }
}

// Sizes that are no multiple of the alignment, and all of the workspace prepared.
TEST(Prepare, OddSizes) {
  for (const size_t prepared : {1, 63, 64, 65}) {
    for (const size_t workspace : {0, 1, 64, 100}) {
      GraphMaker g;
      const TensorId w = g.state("w", kShape), x = g.any("start", {}, {1}), a = g.any("a", {x, w}, {1}),
                     b = g.any("b", {a, w}, {3});
      g.any("peak", {b}, {1});
      const Traits traits{.workspace = workspace, .prepared = prepared};
      const MadeUpPlan plan(g.graph, preparing({{"a", traits}, {"b", traits}}));
      EXPECT_EQ(faults_of(*plan), "");
      EXPECT_EQ(plan->steps()[1].prepares, (std::vector<int>{1, 2}));
    }
  }
}

}  // namespace
}  // namespace ulp
