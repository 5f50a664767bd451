// The first training step of a run, held to the reference tensor by tensor: its graph with updates,
// its formats, its weights as they start, its first batch, its loss scale and learning rate. Nodes
// one by one, forward, loss, backward and updates; what later nodes read, gradients too, are the
// reference's results.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/conformance_bench.h"
#include "ulp/run/config.h"

namespace ulp::conformance {

struct StepReport {
  std::string policy;
  double loss_scale = 0;
  // Means over the batch: the reference's, and the engine's on the CPU in the same step.
  double loss = 0, engine_loss = 0;
  size_t nodes = 0;
  std::map<Checked, Tally> tallies;

  Tally total() const;
  // A table with a line for each kernel of each operator.
  std::string text() const;
};

// What is wrong goes to GoogleTest, and after too much of it the rest is left out. Throws an Error
// for a configuration that cannot be followed. Its device counts for nothing: the step is made up
// on the CPU.
StepReport check_first_step(const RunConfig& config, const Backend& backend);

}  // namespace ulp::conformance
