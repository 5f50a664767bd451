// Steps that run beside others: until something needs what they write, or changes what they read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
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
constexpr size_t kRoomy = 1 << 20;

// `beside` runs beside others; the step named `peak` has a workspace that leaves room for all that
// others could want.
BackendTraits beside(const std::vector<std::pair<std::string, Traits>>& more = {}) {
  std::vector<std::pair<std::string, Traits>> list = more;
  list.emplace_back("beside", Traits{.side_stream = true, .workspace = 100});
  list.emplace_back("peak", Traits{.workspace = kRoomy});
  BackendTraits traits;
  traits.of = harness::traits_by_name(list);
  return traits;
}

int until(const MadeUpPlan& plan, const std::string& name = "beside") {
  for (const PlanStep& step : plan->steps()) {
    if (plan->graph()[step.roots[0]].name == name) return step.live_until;
  }
  return -1;
}

TEST(Overlap, UntilItIsRead) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), x = g.any("beside", {peak}, kShape),
                 a = g.any("a", {peak}, kShape), b = g.any("b", {a}, kShape);
  g.any("reads", {x, b}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 4);
  PlanOptions options;
  options.overlap = false;
  const MadeUpPlan apart(g.graph, beside(), options);
  EXPECT_EQ(faults_of(*apart), "");
  EXPECT_EQ(until(apart), 0);
}

// What a task reads of a tensor's range is read like its bytes: both ways.
TEST(Overlap, UntilItsRangeIsRead) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), x = g.any("beside", {peak}, kShape),
                 a = g.any("a", {peak}, kShape), b = g.any("b", {a}, kShape), c = g.any("c", {b}, kShape);
  g.any("reads", {x, c}, kShape);
  EXPECT_EQ(until(MadeUpPlan(g.graph, beside())), 5);
  const MadeUpPlan plan(g.graph, beside({{"b", {.reads_range = {x}}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 3);
  const MadeUpPlan also(g.graph, beside({{"b", {.reads_range = {a}}}, {"c", {.reads_range = {peak}}}}));
  EXPECT_EQ(faults_of(*also), "");
  EXPECT_EQ(until(also), 5);
  EXPECT_THROW(MadeUpPlan(g.graph, beside({{"a", {.reads_range = {b}}}})), std::logic_error);
}

// A later step that adds to a range must not do so while it is read.
TEST(Overlap, UntilTheRangeItReadsChanges) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), sum = g.any("sum", {peak}, kShape, Kind::grad_sum),
                 x = g.any("beside", {peak}, kShape), a = g.any("a", {peak}, kShape);
  g.write(harness::kMadeUp, "adds", {a}, {sum}, true);
  const TensorId b = g.any("b", {a}, kShape);
  g.any("reads", {x, b}, kShape);
  EXPECT_EQ(until(MadeUpPlan(g.graph, beside())), 6);
  const MadeUpPlan plan(g.graph,
                        beside({{"beside", {.side_stream = true, .workspace = 100, .reads_range = {sum}}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 4);
}

TEST(Overlap, NotWhereTheNextStepReadsIt) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), x = g.any("beside", {peak}, kShape);
  g.any("reads", {x}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 0);
}

// What it reads stays, though nothing else reads it any more.
TEST(Overlap, KeepsWhatItReads) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), operand = g.any("operand", {peak}, {500}),
                 x = g.any("beside", {operand}, kShape), a = g.any("a", {}, {500}),
                 b = g.any("b", {a}, {500});
  g.any("reads", {x, b}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 5);
  EXPECT_EQ(plan->place(operand).last, 4);
}

TEST(Overlap, UntilAStateThatItReadsIsWritten) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), peak = g.any("peak", {}, kShape),
                 x = g.any("beside", {peak, w}, kShape), a = g.any("a", {peak}, kShape),
                 b = g.any("b", {peak}, kShape);
  g.write(harness::kMadeUp, "writes", {a}, {w});
  g.any("reads", {x, b}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 4);
}

TEST(Overlap, UntilAStateThatItWritesIsRead) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), peak = g.any("peak", {}, kShape);
  g.write(harness::kMadeUp, "beside", {peak}, {w});
  const TensorId a = g.any("a", {peak}, kShape);
  g.any("reads", {w, a}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 3);
}

TEST(Overlap, UntilASumIsAddedTo) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape);
  g.phase = Phase::backward;
  const TensorId sum = g.any("beside", {peak}, kShape, Kind::grad_sum), a = g.any("a", {peak}, kShape);
  g.write(harness::kMadeUp, "adds", {a}, {sum}, true);
  g.any("reads", {sum}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 3);
}

// A result that takes over its operand's bytes ends the step that still reads them; one after the other, too.
TEST(Overlap, UntilAnOperandIsTakenOver) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), operand = g.any("operand", {peak}, {500}),
                 x = g.any("beside", {operand}, kShape), a = g.any("a", {peak}, kShape),
                 y = g.map("takes_over", {operand}), z = g.map("again", {y});
  g.any("reads", {x, z, a}, kShape);
  const MadeUpPlan plan(g.graph, beside({{"takes_over", {.in_place = true}}, {"again", {.in_place = true}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->place(y).offset, plan->place(operand).offset);
  EXPECT_EQ(plan->place(z).offset, plan->place(operand).offset);
  EXPECT_EQ(until(plan), 4);
}

// It overwrites its own operand, beside another step that runs on and reads it.
TEST(Overlap, BesideAndInPlaceAtOnce) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), operand = g.any("operand", {peak}, {500}),
                 x = g.any("beside", {operand}, kShape), a = g.any("a", {peak}, kShape),
                 y = g.map("both", {operand}), b = g.any("b", {a}, kShape), c = g.any("c", {b}, {500});
  g.any("reads", {x, y, b, c}, kShape);
  const MadeUpPlan plan(g.graph, beside({{"both", {.in_place = true, .side_stream = true}}}));
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->place(y).offset, plan->place(operand).offset);
  EXPECT_EQ(until(plan), 4);
  EXPECT_EQ(until(plan, "both"), 7);
}

TEST(Overlap, NoMoreThanSixSteps) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape), x = g.any("beside", {peak}, kShape);
  TensorId last = peak;
  for (int i = 0; i < 10; ++i) last = g.any(fmt::format("a{}", i), {last}, kShape);
  g.any("reads", {x, last}, kShape);
  const MadeUpPlan plan(g.graph, beside());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 1 + 1 + 6);
}

// Forward and backward are run together, everything else may be run by itself.
TEST(Overlap, AcrossPhases) {
  struct Tried {
    Phase from, to;
    int until;
  };
  for (const Tried& tried :
       {Tried{Phase::forward, Phase::backward, 4}, Tried{Phase::backward, Phase::finish, 0},
        Tried{Phase::forward, Phase::finish, 0}, Tried{Phase::finish, Phase::update, 0},
        Tried{Phase::recompute, Phase::update, 0}}) {
    GraphMaker g;
    g.phase = tried.from;
    const TensorId peak = g.any("peak", {}, kShape);
    g.any("beside", {peak}, kShape);
    g.phase = tried.to;
    const TensorId a = g.any("a", {peak}, kShape);
    g.any("b", {a}, kShape);
    const MadeUpPlan plan(g.graph, beside());
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_EQ(until(plan), tried.until);
  }
}

// Several at once, whose workspaces all lie apart.
TEST(Overlap, ManyBesideEachOther) {
  GraphMaker g;
  const TensorId peak = g.any("peak", {}, kShape);
  std::vector<TensorId> all;
  std::vector<std::pair<std::string, Traits>> list;
  for (int i = 0; i < 5; ++i) {
    const std::string name = fmt::format("s{}", i);
    list.emplace_back(name, Traits{.side_stream = true, .workspace = static_cast<size_t>(1 + 63 * i)});
    all.push_back(g.any(name, {peak}, {i + 1}));
  }
  g.any("reads", all, kShape);
  const MadeUpPlan plan(g.graph, beside(list));
  EXPECT_EQ(faults_of(*plan), "");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(until(plan, fmt::format("s{}", i)), 6);
  EXPECT_EQ(until(plan, "s4"), 0);
}

// Without room nothing runs beside; with a little, only where it hardly costs any, and a tight plan
// costs none.
TEST(Overlap, TakesHardlyMoreMemory) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, {1000}), y = g.any("beside", {x}, kShape), a = g.any("a", {}, {1000}),
                 b = g.any("b", {a}, kShape);
  g.any("reads", {y, b}, kShape);
  for (const bool tight : {false, true}) {
    PlanOptions options;
    options.tight = tight;
    const MadeUpPlan plan(g.graph, beside(), options);
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_EQ(until(plan), 0);
    options.overlap = false;
    EXPECT_EQ(plan->step_bytes(), MadeUpPlan(g.graph, beside(), options)->step_bytes());
  }
}

// What is prepared for a step that runs on is read as long as the step runs.
TEST(Overlap, KeepsWhatIsPrepared) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), start = g.any("start", {}, kShape),
                 first = g.any("first", {start, w}, kShape), x = g.any("beside", {start, w}, kShape),
                 a = g.any("a", {first}, {999}), b = g.any("b", {a}, {999}), c = g.any("c", {b}, {999});
  g.any("peak", {x, c}, kShape);
  const Traits prepared{.side_stream = true, .workspace = 64, .prepared = 640};
  BackendTraits traits = beside({{"beside", prepared}, {"first", {.workspace = 64, .prepared = 640}}});
  traits.prepares = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(until(plan), 6);
  EXPECT_TRUE(plan->steps()[2].prepared.has_value());
}

}  // namespace
}  // namespace ulp
