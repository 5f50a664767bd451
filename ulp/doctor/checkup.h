// The doctor on a run's folder: reads it, asks for a diagnosis, plans the remedies, and puts all of
// it into words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/doctor/doctor.h"
#include "ulp/doctor/remedies.h"

namespace ulp {

// Losses of a run's steps.
struct LossHistory {
  uint64_t steps = 0, not_finite = 0, first = 0;  // first: the step at which one was not finite
  std::string diverged;                           // why the run was stopped for it; "": it was not
};

struct CheckUp {
  std::string folder;
  bool narrow = true;  // false: every tensor was fp32, nothing was recorded
  LossHistory losses;
  Diagnosis diagnosis;
  // How one tensor moved: what the diagnosis is about or else what was first, up to that step or
  // the one asked for.
  std::string shown;
  std::vector<RangePoint> moved;
  StepBytes step;  // of the run as it started; nothing where there was no need to plan
  std::vector<Treatment> treatments;
  std::string no_remedies;  // why none could be planned
};

// As the run stood after `until` steps. Throws an Error for a folder that holds no run and for
// damaged files.
CheckUp check_up(const std::string& folder, uint64_t until = UINT64_MAX);

// Of a run without a narrow tensor, in one sentence.
std::string wide_sentence(const LossHistory& losses);

// For people, lines that end in newlines: all of it, or what a run that has just failed says.
std::string check_up_text(const CheckUp& check_up);
std::string short_check_up_text(const CheckUp& check_up);

// The short text of a run, for the one who has just seen it fail: what cannot be read is a line of
// it, never an exception.
std::string doctor_report(const std::string& run_folder);

}  // namespace ulp
