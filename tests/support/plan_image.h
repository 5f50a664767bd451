// What a plan says, as plain numbers, and what can be wrong with them whatever its steps do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulp/plan/plan.h"

namespace ulp::harness {

enum class Fault : uint8_t {
  order,  // a node does not run, or runs where it cannot
  // Bytes that are read are not what should be read: never written, overwritten, or of another
  // version.
  stale,
  outside,     // beyond the arena's end
  misaligned,  // see kMemoryAlignment
  race,        // two things that may happen at one time touch a byte, and one of them writes it
  in_place,    // a task overwrites what it reads, which it may not
  // A tensor is used when the plan says that it does not live, or lies on another that does.
  life,
  result,  // what is read after the step is not there
  bytes,   // what the plan says of its memory is not what it takes
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
    std::vector<TensorId> reads_range;
    int live_until = 0;
    bool merged_task = false, merged = false;  // the first and the second of two that are one task
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

bool has(const std::vector<PlanFinding>& findings, Fault fault);
// One a line, not too many; "" where there are none.
std::string text_of(const std::vector<PlanFinding>& findings);

// Offsets, bytes and sums of bytes. `roots`: by tensor, whose bytes it has.
std::vector<PlanFinding> check_places(const PlanImage& image, std::span<const size_t> roots);

// An operand and the result that takes over its bytes, and the last step at which both are there.
using HandedOver = std::map<std::pair<size_t, size_t>, int>;
// No two things lie on each other while both live, and the most that lives at once is what the plan
// says.
std::vector<PlanFinding> check_lives(const PlanImage& image, std::span<const size_t> roots,
                                     const HandedOver& handed_over);

}  // namespace ulp::harness
