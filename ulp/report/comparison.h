// Two configurations against each other, each with one run or several that differ in nothing but the
// seed: what they came to, and whether the difference is more than the seeds make.
//
// The rule is that of docs/claims.md. d is the difference of the means of the best epochs. s is the
// standard deviation within the two sides, pooled by degrees of freedom; runs that diverged count in
// the means with what they reached, and not in s. h = 1.7 s sqrt(1/nA + 1/nB) is half the width of the
// interval around d. B is better where all of the interval is on the better side of zero, worse where
// all of it is on the other, and else it is not decided. Without two seeds on a side there is no s and
// nothing is decided.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/report/curve.h"
#include "ulp/report/run_plan.h"
#include "ulp/report/run_record.h"

namespace ulp {

// What several runs came to in one respect.
struct SeedValues {
  std::vector<double> values;  // of the runs that have one, in the order of runs
  size_t count() const { return values.size(); }
  Number mean() const;
  Number least() const;
  Number most() const;
};

struct ComparedSide {
  std::string name;  // as it was named
  std::vector<std::string> runs, seeds;
  SeedValues best;  // test metric of the best epoch
  SeedValues last_loss, train_loss, aggregate_bits, peak_bytes, seconds, low_ratio, promotions;
  std::vector<double> within;  // of `best` those of runs that did not diverge: what s is made of
  size_t diverged = 0, unfinished = 0;
};

enum class Verdict : uint8_t { better, worse, not_decided };
std::string_view verdict_name(Verdict verdict);  // "better", "worse", "not decided"

struct Difference {
  Number d;  // mean of b - mean of a; none: one of them has no value
  Number s, h;
  Verdict verdict = Verdict::not_decided;
};
// Of numbers that are there; `within` as above.
Difference difference_of(std::span<const double> a, std::span<const double> b,
                         std::span<const double> within_a, std::span<const double> within_b,
                         bool higher_is_better);

struct Comparison {
  struct Setting {
    std::string name, a, b;
  };
  std::vector<Setting> settings;  // in which they differ, but for the seed
  Score score;
  ComparedSide a, b;
  Difference difference;
  std::vector<std::string> notes;
};

// What was named, and the runs there.
struct NamedRuns {
  std::string name;
  std::vector<RunRecord> runs;
};

// Throws an Error where a side has no run or runs of several groups (which it lists), where both are the
// same runs, and where what they learned is not the same: task, data or metric.
Comparison compare_runs(const NamedRuns& a, const NamedRuns& b, PlanBook& book);

// How many more seeds each side would need for an interval that does not hold zero, if d and s stay as
// they are; 0: not known, or more than 100.
size_t seeds_to_decide(const Comparison& comparison);

}  // namespace ulp
