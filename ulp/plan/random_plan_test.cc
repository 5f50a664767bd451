// Random graphs on random backends: every plan goes through the simulator. Seeds are fixed, so a
// failure comes back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/made_up_backend.h"
#include "tests/support/made_up_graph.h"
#include "tests/support/plan_simulator.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_plan.h"

namespace ulp {
namespace {

using harness::BackendTraits;
using harness::draw_backend;
using harness::draw_formats;
using harness::draw_options;
using harness::MadeUpPlan;
using harness::Random;

// What the plans did, so that a test cannot pass because nothing happened.
struct Seen {
  int overlapped = 0, early = 0, together = 0, merged = 0, taken_over = 0, inlined = 0,
      prepared_overlapped = 0;
};

void count(const Plan& plan, Seen& seen) {
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const PlanStep& step = plan.steps()[i];
    seen.overlapped += step.live_until > 0;
    seen.together += step.preparation != nullptr;
    seen.early += step.preparation != nullptr && step.prepares.front() > static_cast<int>(i);
    seen.merged += step.merged;
    seen.inlined += !step.inlined.empty();
    seen.prepared_overlapped += step.live_until > 0 && step.prepared;
    if (step.roots.size() > 1 || step.kernel->in_place == false) continue;
    const Node& node = plan.graph()[step.roots[0]];
    const TensorPlace& out = plan.place(node.out[0]);
    for (const TensorId in : node.in) {
      const TensorPlace& p = plan.place(in);
      seen.taken_over +=
          p.home == Home::step && out.home == Home::step && p.offset == out.offset && p.base != out.base;
    }
  }
}

void expect_sound(const Plan& plan, int micro_batches) {
  EXPECT_EQ(harness::faults_of(plan), "");
  const Phase last = micro_batches > 1 ? Phase::backward : Phase::update;
  EXPECT_EQ(text_of(harness::simulate(plan, last)), "");
}

void expect_same(const Plan& a, const Plan& b) {
  ASSERT_EQ(a.steps().size(), b.steps().size());
  EXPECT_EQ(a.step_bytes(), b.step_bytes());
  EXPECT_EQ(a.peak_step(), b.peak_step());
  for (size_t i = 0; i < a.graph().tensor_count(); ++i) {
    const TensorPlace &p = a.place(TensorId{static_cast<int32_t>(i)}),
                      &q = b.place(TensorId{static_cast<int32_t>(i)});
    EXPECT_TRUE(p.home == q.home && p.offset == q.offset && p.first == q.first && p.last == q.last);
  }
  for (size_t i = 0; i < a.steps().size(); ++i) {
    const PlanStep &p = a.steps()[i], &q = b.steps()[i];
    EXPECT_TRUE(p.roots == q.roots && p.inlined == q.inlined && p.workspace == q.workspace &&
                p.prepared == q.prepared && p.prepares == q.prepares && p.live_until == q.live_until &&
                p.merged == q.merged);
  }
}

// Of a plan in which nothing is done beside, ahead or at once.
size_t least_bytes(const Graph& graph, BackendTraits traits, PlanOptions options,
                   const std::vector<TensorFormat>& formats) {
  traits.prepares = false;
  options.overlap = options.merge = false;
  return MadeUpPlan(graph, traits, options, formats)->step_bytes();
}

void try_graph(Random& random, const Graph& graph, std::vector<TensorFormat> formats, Seen& seen,
               int micro_batches = 0) {
  const BackendTraits traits = draw_backend(random);
  PlanOptions options = draw_options(random, graph);
  if (micro_batches > 0) options.micro_batches = micro_batches;
  const MadeUpPlan plan(graph, traits, options, formats);
  expect_sound(*plan, options.micro_batches);
  expect_same(*plan, *MadeUpPlan(graph, traits, options, formats));
  const auto least = static_cast<double>(least_bytes(graph, traits, options, formats));
  EXPECT_LE(static_cast<double>(plan->step_bytes()), (options.tight ? 1 : 1.02) * least);
  count(*plan, seen);
}

TEST(RandomPlan, MadeUpGraphsAreSound) {
  Seen seen;
  for (uint64_t seed = 0; seed < 6000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed + 100000);
    const Graph graph = harness::random_made_up_graph(seed);
    std::vector<TensorFormat> formats = draw_formats(random, graph);
    try_graph(random, graph, std::move(formats), seen);
  }
  EXPECT_GE(seen.overlapped, 500);
  EXPECT_GE(seen.early, 50);
  EXPECT_GE(seen.together, 100);
  EXPECT_GE(seen.merged, 300);
  EXPECT_GE(seen.taken_over, 500);
  EXPECT_GE(seen.inlined, 300);
  EXPECT_GE(seen.prepared_overlapped, 20);
}

TEST(RandomPlan, TrainingGraphsAreSound) {
  Seen seen;
  for (uint64_t seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    harness::GraphOptions graphs;
    graphs.micro_batches = random.one_in(3) ? 2 : 1;
    graphs.clip_norm = random.one_in(3) ? 0.5 : 0;
    const harness::TrainingGraph made = harness::random_graph(random, graphs);
    std::vector<TensorFormat> formats = draw_formats(random, made.net.graph);
    try_graph(random, made.net.graph, std::move(formats), seen, made.micro_batches);
  }
  EXPECT_GE(seen.overlapped, 500);
  EXPECT_GE(seen.merged, 100);
  EXPECT_GE(seen.taken_over, 300);
}

}  // namespace
}  // namespace ulp
