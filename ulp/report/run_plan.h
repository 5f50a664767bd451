// The plan of a run's training step, made again from its configuration without its data: what each
// tensor takes, and where it lies when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/plan/plan.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/candidates.h"
#include "ulp/report/other_records.h"
#include "ulp/report/run_record.h"

namespace ulp {

// A tensor's place: bytes [offset, offset + bytes) of the arena during steps first..last. What is
// kept between steps lies below the arena. No two blocks overlap.
struct PlannedBlock {
  std::string name;
  std::string_view use;  // a member of PlanBytes
  std::string format;
  int64_t offset = 0;
  uint64_t bytes = 0;
  int first = 0, last = 0;
};

struct PlannedStep {
  std::string node;
  std::string_view op, kernel, phase;
  size_t more = 0;  // nodes that run as one with it
};

// A node of the forward graph.
struct PlannedNode {
  std::string name;
  std::string_view op;
  std::vector<std::string> out;      // tensors
  std::vector<size_t> in;            // nodes
  std::vector<std::string> weights;  // parameters that it reads
};

struct PlanDetail {
  std::vector<PlannedStep> steps;
  std::vector<PlannedBlock> blocks;
  std::vector<PlannedNode> nodes;
};
PlanDetail detail_of(const Plan& plan, uint64_t snapshot_bytes = 0);

struct PlannedTensor {
  std::string name;
  std::string_view op;
  Kind kind = Kind::activation;
  size_t elements = 0;
  double bits = 0;  // of an element
  std::string format;
  int group = 0;
  bool low = false;
};

struct RunPlan {
  std::string problem;  // why there is none; "": there is
  std::string model, device, note;
  uint64_t state_bytes = 0, arena_bytes = 0;  // state: a snapshot too
  uint64_t peak_bytes() const { return state_bytes + arena_bytes; }
  int peak_step = 0;
  uint64_t aggregate_bits = 0;
  double low_ratio = 0;
  PlanBytes use;
  std::vector<PlannedTensor> tensors;  // counted ones
  std::optional<PlanDetail> detail;

  Score score;                   // of the task
  uint64_t steps_per_epoch = 0;  // 0: unknown

  // Bits after these promotions.
  uint64_t aggregate_bits_after(std::span<const PromoteEvent> promotions) const;
  std::vector<CountedTensor> counted;
  Assignment assignment;

  bool detail_wanted = false;  // when it was made
  int64_t tried_at = 0;        // RunRecord::changed then
};

// Plans that were made, by all that decides them: runs that differ in their seed share one.
class PlanBook {
 public:
  // Stays where it is. With `detail` the plan has one, unless it is too large.
  const RunPlan& plan_of(const RunRecord& run, bool detail);

  // Of a benchmark's step: what its line says, or else what is planned from what it says of the
  // network, if that plan takes as many bytes as the benchmark planned: then nothing was different.
  Number aggregate_bits_of(const BenchRecord& bench);

 private:
  std::map<std::string, RunPlan> plans_;
  std::map<std::string, Number> benches_;  // by what their lines say
};

}  // namespace ulp
