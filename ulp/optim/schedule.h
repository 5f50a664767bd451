// How the learning rate moves during a run: a value, parsed from text and printed back, and a pure
// function of the step, so that a resumed run goes on exactly. All numbers are counts or factors on
// the base rate.
//
//   constant                  the base rate
//   step:EVERY:FACTOR         times FACTOR after each EVERY epochs
//   multi-step:E1,E2,..:FACTOR   times FACTOR at the start of epochs E1, E2, .., counted from 0
//   cosine[:FLOOR]            half a wave from the base rate to FLOOR times it (0 unless told)
//   linear[:FLOOR]            a straight line between the same
//
// Before any of them there may be a warm-up of W steps: W rates between START times the base rate
// and the base rate, evenly spaced and without the ends, so that no step is wasted on a rate of 0.
// Cosine and linear then use the steps that are left; step and multi-step count epochs from the
// start of the run, and what falls into the warm-up shows after it. As text:
//   STEPS[:START] or EPOCHSe[:START], such as 500, 5e, 0.5e, 5e:0.1; START is 0 unless told
// A trailing e always means epochs; 1e3 is a thousand steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ulp {

struct Warmup {
  double length = 0;  // steps, a whole number; or epochs, which may have a fraction
  bool in_epochs = false;
  double start = 0;  // factor on the base rate, 0 to 1

  // Steps, epochs rounded to the nearest.
  uint64_t steps(uint64_t steps_per_epoch) const;

  bool operator==(const Warmup&) const = default;
};

enum class ScheduleKind : uint8_t { constant, step, multi_step, cosine, linear };

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  std::vector<uint32_t> epochs = {};  // step: EVERY alone; multi-step: the milestones, ascending
  double factor = 1;                  // step, multi-step; above 0, at most 1
  double floor = 0;                   // cosine, linear; at least 0, below 1
  Warmup warmup = {};

  bool operator==(const Schedule&) const = default;
};

// Throw Error, which lists the forms, for other text. parse_schedule leaves the warm-up at none.
Schedule parse_schedule(std::string_view text);
Warmup parse_warmup(std::string_view text);

// Text that parses to the same value again; that of a schedule without its warm-up.
std::string schedule_text(const Schedule& schedule);
std::string warmup_text(const Warmup& warmup);

// The learning rate of step `step`, numbered from 0, of a run of `total_steps`; steps past the end
// have the rate of the end. Throws Error if an epoch has no steps.
double rate(const Schedule& schedule, double base_lr, uint64_t step, uint64_t steps_per_epoch,
            uint64_t total_steps);

}  // namespace ulp
