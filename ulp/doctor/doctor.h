// The overflow doctor: which tensor of a run left the range of its format first, how it came to
// that, and what would help at what cost. It reads what the run left in its folder (config.toml,
// ranges.bin, metrics.jsonl), never its data, and changes nothing.
//
// Three parts that know little of one another: diagnose() is a pure function of the records,
// find_remedies() (ulp/doctor/remedies.h) weighs formats with a planner that it is given, and the
// texts print both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/run/ranges.h"

namespace ulp {

// Steps after this one store the tensor as `to`.
struct PromoteEvent {
  uint64_t step = 0;
  std::string tensor, from, to;
  double overflow_ratio = 0;
};

struct DoctorHistory {
  RangeHistory ranges;
  std::vector<PromoteEvent> promotions;  // by step

  // What a tensor was stored as in a step.
  std::string format_at(size_t tensor, uint64_t step) const;
};

// Largest and smallest magnitude of a storage; none where it adapts to the tensor.
std::optional<float> largest_of(const std::string& storage);
std::optional<float> smallest_of(const std::string& storage);

// A tensor in a step.
struct RangePoint {
  uint64_t step = 0;
  float amax = 0;
  // log2 of amax over the largest number; none for no or NaN amax, or no largest number.
  std::optional<double> exponent;
  double overflow = 0, underflow = 0;
};

// Something that happened to a tensor: when first, and what became of it.
struct Trouble {
  enum class What : uint8_t { overflow, flush, nan };
  What what = What::overflow;
  size_t tensor = 0;  // in the history
  std::string name;
  Kind kind = Kind::activation;
  uint64_t elements = 0;
  uint64_t since = 0;  // the first step of it
  RangePoint first;    // that step
  std::string format;  // as it was stored then
  std::optional<float> largest, smallest;
  double worst = 0;                   // share of its elements, over all steps, and when
  uint64_t worst_step = 0, last = 0;  // and the last step that has it
  std::optional<PromoteEvent> promoted;
  bool ended = false;              // by promotion, or by itself a while ago
  std::vector<RangePoint> before;  // up to kBefore recorded steps, and the step itself
};

// A tensor's share over the whole run.
struct Ranked {
  std::string name, format;  // as it was at the worst step
  double mean = 0, worst = 0;
  uint64_t worst_step = 0;
  std::vector<double>
      over_time;  // the worst of each of kColumns parts of the run; -1 where nothing was recorded
};

// How near a tensor came to the largest number of its format.
struct Near {
  std::string name, format;
  RangePoint at;  // the nearest
};

enum class Condition : uint8_t {
  empty,    // nothing was recorded
  healthy,  // nothing left its range
  slight,   // a little overflow, below kSerious
  settled,  // there was more, and it is over
  forward_overflow,
  gradient_overflow,
  flushed,
  not_finite,  // the loss
};
std::string_view condition_name(Condition condition);

struct Diagnosis {
  // A share that matters: where the precision-assignment paper promotes.
  static constexpr double kSerious = 0.01;
  static constexpr size_t kBefore = 8, kRanked = 5, kColumns = 24;
  // In powers of two from one step to the next: not how tensors grow.
  static constexpr double kLeap = 10;
  // In a row, at the end: the loss scale does not help any more.
  static constexpr uint64_t kManySkips = 10;

  Condition condition = Condition::empty;
  std::string sentence;
  uint64_t first_step = 0, last_step = 0;  // of the records
  size_t records = 0, tensors = 0, promoted = 0;
  // The first at all, in a step the one that runs first. Gradients that overflowed in a step which
  // was skipped do not count: that is how a loss scale finds its place. Unless it never does.
  std::optional<Trouble> overflow, flush, nan;
  // What the sentence is about: one of those, or the first that was serious.
  std::optional<Trouble> subject;
  std::optional<uint64_t> loss_not_finite;  // the first step
  double loss_not_finite_value = 0;
  uint64_t skipped = 0;  // steps; and how many of them in a row at the end
  uint64_t skipped_at_end = 0;
  double first_scale = 1, last_scale = 1;
  std::vector<Ranked> overflows, flushes;  // worst first; flushes of gradients alone
  // Those that have not overflowed, the nearest to it first.
  std::vector<Near> nearest;
};

// The trouble that a diagnosis is about, or else the first one; nullptr for a run that is well.
const Trouble* main_trouble(const Diagnosis& diagnosis);

// Diagnoses the run as it stood after `until` steps.
Diagnosis diagnose(const DoctorHistory& history, uint64_t until = UINT64_MAX);

// The range of a tensor in the last recorded steps up to `until`: that step and kBefore before it.
std::vector<RangePoint> range_points(const DoctorHistory& history, size_t tensor, uint64_t until);

// The tensors of a history in the order a step writes them: forward operator by operator, weights
// before what they feed, then gradients in the order of backward.
std::vector<size_t> running_order(const std::vector<RangedTensor>& tensors);

}  // namespace ulp
