// Replays a plan as an abstract machine, without any task: every byte of the step arena knows what lies in it (which version of which
// tensor, whose workspace, what was prepared for whom), and every step must find what the graph says that it reads. What runs
// beside other steps reads and writes at any moment until it is waited for, so whatever it meets until then is a fault.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/plan/plan.h"

namespace ulp::harness {

enum class Fault : uint8_t {
  order,  // a node does not run, or runs where it cannot
  stale,  // bytes that are read are not what should be read: never written, overwritten, or of another version
  outside,     // beyond the arena's end
  misaligned,  // see kMemoryAlignment
  race,        // two things that may happen at one time touch a byte, and one of them writes it
  in_place,    // a task overwrites what it reads, which it may not
  life,        // a tensor is used when the plan says that it does not live, or lies on another that does
  result,      // what is read after the step is not there
  bytes,       // what the plan says of its memory is not what it takes
};

struct PlanFinding {
  Fault fault;
  std::string text;
};

// What a plan says, copied, so that a test may plant an error in it.
struct PlanImage {
  struct Step {
    std::vector<NodeId> roots, inlined;
    Phase phase = Phase::forward;
    bool in_place = false;
    size_t workspace = 0, workspace_bytes = 0;
    std::optional<size_t> prepared;
    size_t prepared_bytes = 0;
    std::vector<int> prepares;
    int live_until = 0;
    bool joins = false, merged = false;  // the first and the second of two that are one task
  };

  explicit PlanImage(const Plan& plan);

  const Graph* graph;
  std::vector<TensorFormat> formats;
  std::vector<Step> steps;
  std::vector<TensorPlace> places;
  std::vector<TensorId> results;
  PlanBytes bytes;
  size_t step_bytes, step_bytes_bound, state_bytes, peak_bytes;
};

// Runs the steps of these phases, and says all that is wrong.
std::vector<PlanFinding> simulate(const PlanImage& image, Phase last = Phase::update);
std::vector<PlanFinding> simulate(const Plan& plan, Phase last = Phase::update);

bool has(const std::vector<PlanFinding>& findings, Fault fault);
// One a line, not too many; "" where there are none.
std::string text_of(const std::vector<PlanFinding>& findings);
// The same of a whole step.
std::string faults_of(const Plan& plan);

}  // namespace ulp::harness
