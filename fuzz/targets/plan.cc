// Plans of random graphs on random backends: the bytes are what is drawn. Each plan is replayed by
// the simulator, and made a second time it is the same.
#include "fuzz/fuzz.h"
#include "tests/support/made_up_graph.h"
#include "tests/support/plan_simulator.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_plan.h"

namespace ulp::fuzz {
namespace {

using harness::MadeUpPlan;

void try_graph(harness::Random& random, const Graph& graph, int micro_batches) {
  const std::vector<TensorFormat> formats = harness::draw_formats(random, graph);
  const harness::BackendTraits backend = harness::draw_backend(random);
  PlanOptions options = harness::draw_options(random, graph);
  if (micro_batches > 0) options.micro_batches = micro_batches;
  const MadeUpPlan plan(graph, backend, options, formats), again(graph, backend, options, formats);
  const std::string faults = harness::faults_of(*plan);
  expect(faults.empty(), faults);
  const Phase last = options.micro_batches > 1 ? Phase::backward : Phase::update;
  const std::string others = text_of(harness::simulate(*plan, last));
  expect(others.empty(), others);
  expect(plan->step_bytes() == again->step_bytes() && plan->steps().size() == again->steps().size(),
         "the same plan is another one when it is made again");
}

}  // namespace

void try_input(std::string_view input) {
  Cutter cutter(input);
  const uint8_t how = cutter.byte();
  harness::Random random(as_bytes(cutter.rest()));
  if (how % 4 != 0) return try_graph(random, harness::random_made_up_graph(random), 0);
  const harness::TrainingGraph made = harness::random_graph(
      random, {.micro_batches = 1 + how / 4 % 2, .clip_norm = how / 8 % 2 == 1 ? 0.5 : 0.0});
  try_graph(random, made.net.graph, made.micro_batches);
}

}  // namespace ulp::fuzz
