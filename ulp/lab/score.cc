#include "ulp/lab/score.h"

#include <fmt/format.h>

#include <cmath>

#include "ulp/tasks/task.h"

namespace ulp {

std::string Score::word() const { return percent() ? "accuracy" : name; }

std::string Score::title() const { return percent() ? name + " %" : name; }

std::string Score::number(double value) const {
  if (std::isnan(value)) return "nan";  // whose sign fmt would show
  if (percent()) return fmt::format("{:.2f}", 100 * value);
  return std::abs(value) < 1e4 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

std::string Score::text(double value) const { return number(value) + (percent() ? "%" : ""); }

Score score_of(const Metric& metric) { return {std::string(metric.name), metric.higher_is_better}; }

}  // namespace ulp
