// What would keep a tensor of a run within the range of its format: other formats for it, or
// another loss scale, each with what it costs. Costs are planned, not guessed; whoever asks gives
// the planner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ulp/doctor/doctor.h"
#include "ulp/precision/overrides.h"
#include "ulp/run/config.h"

namespace ulp {

// Of a training step: bits of all counted tensors (the papers' aggregate), and what it takes in
// memory at its peak.
struct StepBytes {
  uint64_t aggregate_bits = 0, peak_bytes = 0;
};

// Plans a step as the run started, with these formats over its own. Throws an Error where that
// cannot be.
using StepPlanner = std::function<StepBytes(std::span<const FormatOverride>)>;

struct Remedy {
  std::string kind;  // promote, promote_all, shift, s2fp8, loss_scale
  std::string text;  // what it is, in words
  // Of ulp train: --formats 'conv1.out=bf16', all that the run had among them.
  std::string option, value;
  int64_t aggregate_bits = 0, peak_bytes = 0;  // beyond those of the run
};

struct RuledOut {
  std::string kind, why;
};

struct Treatment {
  std::string tensor;
  bool overflow = true;  // else it was flushed to zero
  std::vector<Remedy> remedies;
  std::vector<RuledOut> ruled_out;
};

// For those that are still ill, of the first to overflow and the first to be flushed: see
// patients().
std::vector<Treatment> find_remedies(const DoctorHistory& history, const Diagnosis& diagnosis,
                                     const RunConfig& config, const StepPlanner& plan);

// The troubles that want a remedy: the overflow that the diagnosis is about or the first, and the
// same for flushing; none where it has ended.
std::vector<Trouble> patients(const Diagnosis& diagnosis);

}  // namespace ulp
