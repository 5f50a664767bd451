// A report for people of the measured choices of groups: a table, a picture and a summary.
#pragma once

#include <span>
#include <string>

#include "ulp/lab/measure.h"

namespace ulp {

// A line for each choice: which groups are low (one digit a group, group 0 first), memory, the
// measure of each seed and their mean (the metric, accuracy as a fraction, or the error in the
// gradient), whether it is on either front, which paths lead through it.
std::string choices_csv(const ParetoResult& result, std::span<const Path> paths);

// Aggregate and planned peak against the measure: all choices, the front, the paths.
std::string choices_svg(const ParetoResult& result, std::span<const Path> paths);

// The front, and how far from it each path is.
std::string summary_text(const ParetoResult& result, std::span<const Path> paths);

}  // namespace ulp
