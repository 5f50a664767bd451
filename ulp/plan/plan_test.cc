// What is stored, how long and where; what is computed inside others; and what a plan says of its memory.
#include "ulp/plan/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/made_up_backend.h"
#include "tests/support/made_up_graph.h"
#include "tests/support/plan_simulator.h"
#include "ulp/base/error.h"
#include "ulp/graph/ops/norm.h"
#include "ulp/graph/ops/update.h"

namespace ulp {
namespace {

using harness::BackendTraits;
using harness::faults_of;
using harness::GraphMaker;
using harness::MadeUpPlan;
using harness::Traits;

const Shape kShape = {5, 33};

BackendTraits fusing() {
  BackendTraits traits;
  traits.fuses = true;
  return traits;
}

std::vector<std::string> order_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const PlanStep& step : plan.steps()) {
    for (const NodeId id : step.roots) names.push_back(plan.graph()[id].name);
  }
  return names;
}

TEST(Plan, TensorsLiveFromTheirWriterToTheirLastReader) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.any("y", {x}, kShape), z = g.any("z", {y}, kShape),
                 unread = g.any("unread", {z}, kShape);
  g.any("end", {x, z}, {1});
  const MadeUpPlan plan(g.graph, {});
  EXPECT_EQ(faults_of(*plan), "");
  const auto life = [&](TensorId id) { return std::pair(plan->place(id).first, plan->place(id).last); };
  EXPECT_EQ(life(x), std::pair(0, 4));
  EXPECT_EQ(life(y), std::pair(1, 2));
  EXPECT_EQ(life(z), std::pair(2, 4));
  EXPECT_EQ(life(unread), std::pair(3, 3));
  EXPECT_EQ(plan->step_bytes(), 3 * plan->place(x).bytes);
  EXPECT_EQ(plan->step_bytes(), plan->step_bytes_bound());
}

TEST(Plan, ResultsAreKeptToTheEnd) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), flat = g.view("flat", x, {165}), y = g.map("y", {x}),
                 z = g.map("z", {y});
  g.any("end", {z}, {1});
  PlanOptions options;
  options.results = {flat, y};
  const MadeUpPlan plan(g.graph, fusing(), options);
  EXPECT_EQ(faults_of(*plan), "");
  for (const TensorId id : {x, flat, y}) {
    EXPECT_EQ(plan->place(id).home, Home::step);
    EXPECT_EQ(plan->place(id).last, static_cast<int>(plan->steps().size()) - 1);
  }
}

// Tensors of one element, or one byte, or a size around the alignment.
TEST(Plan, OddSizesAreAligned) {
  GraphMaker g;
  std::vector<TensorId> all;
  for (int64_t n : {1, 2, 15, 16, 17, 63, 64, 65}) {
    all.push_back(g.any(fmt::format("byte{}", n), all, {n}, Kind::saved, Element::byte));
    all.push_back(g.any(fmt::format("real{}", n), all, {n}));
  }
  BackendTraits traits;
  traits.of = [](const Problem& problem) {
    return Traits{.workspace = problem.graph()[problem.root().out[0]].elements()};
  };
  for (const char* storage : {"fp32", "fp(2,1,0)", "s2fp8"}) {
    const std::vector<TensorFormat> formats(g.graph.tensor_count(), {parse_storage(storage), {}});
    const MadeUpPlan plan(g.graph, traits, {}, formats);
    EXPECT_EQ(faults_of(*plan), "") << storage;
    EXPECT_EQ(plan->step_bytes() % 64, 0u);
  }
}

TEST(Plan, WorkspacesLieApartFromWhatIsAlive) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.any("y", {x}, kShape);
  g.any("end", {y}, {1});
  BackendTraits traits;
  traits.of = harness::traits_by_name({{"y", {.workspace = 1000}}});
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->step_bytes(), 2 * plan->place(x).bytes + 1024);
  EXPECT_EQ(plan->peak_step(), 1);
  EXPECT_EQ(plan->bytes().workspace, 1024u);
}

TEST(Plan, InlinesChainsWhereKernelsTakeThem) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), a = g.map("a", {x}), b = g.map("b", {a}), c = g.map("c", {b});
  g.any("end", {c}, {1});
  const MadeUpPlan plan(g.graph, fusing());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(order_of(*plan), (std::vector<std::string>{"x", "c", "end"}));
  PlanOptions options;
  options.fuse = false;
  const MadeUpPlan apart(g.graph, fusing(), options);
  EXPECT_EQ(faults_of(*apart), "");
  EXPECT_EQ(apart->steps().size(), 5u);
  // A kernel that takes no inlined nodes gets them stored; others still get theirs.
  BackendTraits declines = fusing();
  declines.of = harness::traits_by_name({{"c", {.takes_inlined = false}}});
  const MadeUpPlan stored(g.graph, declines);
  EXPECT_EQ(faults_of(*stored), "");
  EXPECT_EQ(order_of(*stored), (std::vector<std::string>{"x", "a", "b", "c", "end"}));
}

// What only moves codes sees no values, so it reports no range that a later task could read.
TEST(Plan, ARangeIsReadOnlyOfWhatReportsOne) {
  const auto plan_with = [](const OpDef& op) {
    GraphMaker g;
    const TensorId x = g.any("x", {}, kShape), y = g.state("y", kShape, Kind::activation);
    g.write(op, "writes", {x}, {y});
    g.any("end", {y}, {1});
    BackendTraits traits;
    traits.of = harness::traits_by_name({{"end", {.reads_range = {y}}}});
    EXPECT_EQ(faults_of(*MadeUpPlan(g.graph, traits)), "");
  };
  EXPECT_NO_THROW(plan_with(harness::kMadeUp));
  EXPECT_NO_THROW(plan_with(harness::kMadeUpMap));
  EXPECT_THROW(plan_with(harness::kMadeUpMove), std::logic_error);
  EXPECT_THROW(plan_with(harness::kMadeUpCopies), std::logic_error);
}

TEST(Plan, SaysWhichNodeNoKernelTakes) {
  GraphMaker g;
  g.any("end", {g.any("odd", {}, kShape)}, {1});
  BackendTraits traits;
  traits.of = harness::traits_by_name({{"odd", {.declines = true}}});
  try {
    const MadeUpPlan plan(g.graph, traits);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("odd"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("it declines"), std::string::npos);
  }
}

// A node that reads a state runs before what writes it, also where it could be computed inside a later one.
TEST(Plan, InlinedNodesReadTheStateThatTheyShould) {
  GraphMaker g;
  const TensorId s = g.state("s", kShape, Kind::statistic), x = g.any("x", {}, kShape),
                 a = g.map("a", {x, s});
  g.write(harness::kMadeUp, "writes", {x}, {s});
  g.any("end", {g.map("b", {a})}, {1});
  const MadeUpPlan plan(g.graph, fusing());
  EXPECT_EQ(faults_of(*plan), "");
}

// Copies of gradients come many to a task. What one of them would compute inside must not be lost.
TEST(Plan, StepsOfSeveralNodesComputeAllThatTheyRead) {
  for (const bool takes : {true, false}) {
    GraphMaker g;
    const TensorId x = g.any("x", {}, kShape);
    g.phase = Phase::backward;
    const TensorId u = g.any("u", {x}, kShape), v = g.any("v", {x}, kShape), a = g.map("a", {u}),
                   b = g.map("b", {v}), da = g.copy("da", a, Kind::weight_grad),
                   db = g.copy("db", b, Kind::weight_grad);
    g.phase = Phase::finish;
    g.any("end", {da, db}, {1});
    BackendTraits traits = fusing();
    traits.merges = true;
    traits.of = [&](const Problem&) { return Traits{.takes_inlined = takes}; };
    std::vector<TensorFormat> formats(g.graph.tensor_count(), {parse_storage("fp32"), {}});
    for (const TensorId id : {a, b}) formats[static_cast<size_t>(id.index)].storage = parse_storage("bf16");
    const MadeUpPlan plan(g.graph, traits, {}, formats);
    EXPECT_EQ(faults_of(*plan), "");
  }
}

TEST(Plan, RunningStatisticsAndUpdatesComeManyToATask) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape);
  std::vector<TensorId> weights;
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    weights.push_back(g.state("w" + name, kShape));
    const TensorId mean = g.columns("mean" + name, x);
    g.write(kBatchTrack, "track" + name, {mean}, {g.state("s" + name, {33}, Kind::statistic)});
  }
  g.phase = Phase::backward;
  std::vector<TensorId> grads;
  for (int i = 0; i < 3; ++i) grads.push_back(g.any(fmt::format("g{}", i), {x}, kShape, Kind::weight_grad));
  g.phase = Phase::update;
  for (size_t i = 0; i < 3; ++i) g.write(kUpdate, fmt::format("u{}", i), {grads[i]}, {weights[i]});
  BackendTraits traits;
  traits.merges = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(order_of(*plan), (std::vector<std::string>{"x", "mean0", "mean1", "mean2", "track0", "track1",
                                                       "track2", "g0", "g1", "g2", "u0", "u1", "u2"}));
  EXPECT_EQ(plan->steps().size(), 9u);
  // With fused backward every gradient dies in its update.
  PlanOptions options;
  options.fused_backward = true;
  const MadeUpPlan early(g.graph, traits, options);
  EXPECT_EQ(faults_of(*early), "");
  EXPECT_LT(early->step_bytes(), plan->step_bytes());
  const std::vector<std::string> order = order_of(*early);
  EXPECT_LT(std::find(order.begin(), order.end(), "u0"), std::find(order.begin(), order.end(), "g1"));
}

// An update waits for what still reads the weight.
TEST(Plan, FusedBackwardKeepsWhatIsStillRead) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), x = g.any("x", {w}, kShape);
  g.phase = Phase::backward;
  const TensorId grad = g.any("grad", {x}, kShape, Kind::weight_grad), a = g.any("a", {x, w}, kShape);
  g.any("b", {a}, kShape);
  g.phase = Phase::update;
  g.write(kUpdate, "update", {grad}, {w});
  PlanOptions options;
  options.fused_backward = true;
  const MadeUpPlan plan(g.graph, {}, options);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(order_of(*plan), (std::vector<std::string>{"x", "grad", "a", "update", "b"}));
}

// Sums over micro-batches outlive a run, and the finished gradient in the same format is the sum.
TEST(Plan, SumsOverMicroBatchesAreState) {
  GraphMaker g;
  const TensorId w = g.state("w", kShape), x = g.any("x", {w}, kShape);
  g.phase = Phase::backward;
  const TensorId sum = g.any("sum", {x}, kShape, Kind::grad_sum);
  g.write(harness::kMadeUp, "more", {x}, {sum}, true);
  g.phase = Phase::finish;
  const TensorId grad = g.copy("grad", sum, Kind::weight_grad);
  g.phase = Phase::update;
  g.write(kUpdate, "update", {grad}, {w});
  for (const int micro_batches : {1, 2}) {
    PlanOptions options;
    options.micro_batches = micro_batches;
    const MadeUpPlan plan(g.graph, fusing(), options);
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_EQ(text_of(harness::simulate(*plan, Phase::backward)), "");
    EXPECT_EQ(plan->place(sum).home, micro_batches > 1 ? Home::state : Home::step);
    EXPECT_EQ(plan->place(grad).home, plan->place(sum).home);
    EXPECT_EQ(plan->sum_bytes(), micro_batches > 1 ? plan->place(sum).bytes : 0u);
  }
}

TEST(Plan, OfNothing) {
  const Graph graph;
  BackendTraits traits;
  traits.pairs = traits.prepares = true;
  const MadeUpPlan plan(graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->step_bytes(), 0u);
}

}  // namespace
}  // namespace ulp
