// An elementwise result lies where an operand lay that nothing reads any more, and nowhere else.
#include <gtest/gtest.h>

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

const Shape kShape = {5, 33};

BackendTraits all_in_place() {
  BackendTraits traits;
  traits.of = [](const Problem&) { return harness::Traits{.in_place = true}; };
  return traits;
}

bool one_place(const Plan& plan, TensorId a, TensorId b) {
  const TensorPlace &p = plan.place(a), &q = plan.place(b);
  return p.home == Home::step && q.home == Home::step && p.offset == q.offset;
}

TEST(InPlace, TakesOverWhatDies) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x}), z = g.map("z", {y});
  g.any("end", {z}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(one_place(*plan, x, y));
  EXPECT_TRUE(one_place(*plan, y, z));
  EXPECT_EQ(plan->step_bytes(), plan->place(x).bytes + 64);
}

TEST(InPlace, OnlyWithKernelsThatCan) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x});
  g.any("end", {y}, {1});
  const MadeUpPlan plan(g.graph, {});
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
}

// Only an elementwise operator reads each element before it writes it, whatever its kernel says.
TEST(InPlace, OnlyElementwise) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.any("y", {x}, kShape);
  g.any("end", {y}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
}

TEST(InPlace, NotWhatIsReadLater) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x});
  g.any("end", {y, x}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
}

TEST(InPlace, NotWhatAViewOfItIsReadLater) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), flat = g.view("flat", x, {165}), y = g.map("y", {x});
  g.any("end", {y, flat}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
  EXPECT_TRUE(one_place(*plan, x, flat));
}

// One of two that die is enough, and it is the first that fits.
TEST(InPlace, TakesOneOfSeveral) {
  GraphMaker g;
  const TensorId channel = g.any("channel", {}, {33}), a = g.any("a", {}, kShape), b = g.any("b", {}, kShape),
                 y = g.map("y", {a, channel, b, a});
  g.any("end", {y}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(one_place(*plan, a, y));
  EXPECT_FALSE(one_place(*plan, b, y));
}

TEST(InPlace, OnlySameStorageAndPlainReals) {
  for (const char* storage : {"bf16", "s2fp8", "scaled(e4m3)"}) {
    for (const bool same : {true, false}) {
      GraphMaker g;
      const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x});
      g.any("end", {y}, {1});
      std::vector<TensorFormat> formats(g.graph.tensor_count(), {parse_storage(storage), {}});
      if (!same) formats[1].storage = parse_storage("fp(5,10,0)");  // as wide as bf16
      const MadeUpPlan plan(g.graph, all_in_place(), {}, formats);
      EXPECT_EQ(faults_of(*plan), "");
      EXPECT_EQ(one_place(*plan, x, y), same && storage == std::string("bf16")) << storage;
    }
  }
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape, Kind::saved, Element::byte), y = g.map("y", {x});
  g.any("end", {y}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
}

TEST(InPlace, NeverAResult) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), y = g.map("y", {x});
  g.any("end", {y}, {1});
  PlanOptions options;
  options.results = {x};
  const MadeUpPlan plan(g.graph, all_in_place(), options);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, x, y));
}

// The last step's operand dies there as far as steps go, but is read after it.
TEST(InPlace, NeverAResultInTheLastStep) {
  for (const bool viewed : {false, true}) {
    GraphMaker g;
    const TensorId x = g.any("x", {}, kShape), flat = g.view("flat", x, {165}), y = g.map("y", {x});
    PlanOptions options;
    options.results = {viewed ? flat : x, y};
    const MadeUpPlan plan(g.graph, all_in_place(), options);
    EXPECT_EQ(faults_of(*plan), "");
    EXPECT_FALSE(one_place(*plan, x, y));
  }
}

// What only an inlined node reads is read in that step as well.
TEST(InPlace, TakesOverWhatAnInlinedNodeReads) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), inside = g.map("inside", {x}), y = g.map("y", {inside});
  g.any("end", {y}, {1});
  BackendTraits traits = all_in_place();
  traits.fuses = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_EQ(plan->place(inside).home, Home::nowhere);
  EXPECT_TRUE(one_place(*plan, x, y));
}

// A step of several nodes takes over nothing: it would have to be the right one's.
TEST(InPlace, NotInStepsOfSeveralNodes) {
  GraphMaker g;
  const TensorId a = g.any("a", {}, kShape), b = g.any("b", {}, kShape);
  g.phase = Phase::backward;
  const TensorId da = g.copy("da", a, Kind::weight_grad), db = g.copy("db", b, Kind::weight_grad);
  g.any("end", {da, db}, {1});
  BackendTraits traits = all_in_place();
  traits.merges = true;
  const MadeUpPlan plan(g.graph, traits);
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_FALSE(one_place(*plan, a, da));
  EXPECT_FALSE(one_place(*plan, b, db));
}

// A sum that is added to may begin where an operand lay, and stays.
TEST(InPlace, BeginsASum) {
  GraphMaker g;
  const TensorId x = g.any("x", {}, kShape), other = g.any("other", {}, kShape);
  g.phase = Phase::backward;
  const TensorId sum = g.copy("sum", x, Kind::grad_sum);
  g.write(harness::kMadeUpMap, "more", {other}, {sum}, true);
  g.any("end", {sum}, {1});
  const MadeUpPlan plan(g.graph, all_in_place());
  EXPECT_EQ(faults_of(*plan), "");
  EXPECT_TRUE(one_place(*plan, x, sum));
  EXPECT_FALSE(one_place(*plan, other, sum));
  PlanOptions options;
  options.micro_batches = 2;
  const MadeUpPlan outlives(g.graph, all_in_place(), options);
  EXPECT_EQ(faults_of(*outlives), "");
  EXPECT_EQ(outlives->place(sum).home, Home::state);
  EXPECT_EQ(outlives->sum_bytes(), outlives->state_bytes());
}

}  // namespace
}  // namespace ulp
