#include "ulp/lab/score.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ulp/tasks/task.h"

namespace ulp {

std::string Score::word() const { return name == kUnnamedMetric ? "accuracy" : name; }

std::string Score::title() const { return percent() ? name + " %" : name; }

std::string Score::number(double value) const {
  if (std::isnan(value)) return "nan";  // whose sign fmt would show
  if (percent()) return fmt::format("{:.2f}", 100 * value);
  return std::abs(value) < 1e4 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

std::string Score::text(double value) const { return number(value) + (percent() ? "%" : ""); }

double Score::cost(double value) const {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  if (!higher_is_better) return value;
  return share ? 1 - value : -value;
}

double Score::value(double cost) const {
  if (!higher_is_better) return cost;
  return share ? 1 - cost : -cost;
}

Score score_of(const Metric& metric) {
  return {std::string(metric.name), metric.higher_is_better, metric.share};
}

}  // namespace ulp
