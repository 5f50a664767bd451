// The metric that runs are judged by, as people read it.
#pragma once

#include <string>

#include "ulp/io/metrics.h"

namespace ulp {

struct Metric;

// How values of a metric are shown and compared. A share, such as accuracy, is shown as percent, any
// other metric as a plain number.
struct Score {
  std::string name = std::string(kUnnamedMetric);
  bool higher_is_better = true;
  bool share = name == kUnnamedMetric;

  bool percent() const { return share; }
  std::string word() const;                // "accuracy", "bpc"
  std::string title() const;               // of a column: "acc %", "bpc"
  std::string number(double value) const;  // below that title: "91.23", "2.1234"
  std::string text(double value) const;    // by itself: "91.23%", "2.1234"
  // How much worse `to` is than `from`, in units of the metric. Below 0 where it is better.
  double drop(double from, double to) const { return higher_is_better ? from - to : to - from; }
  // The cost of a value: less is better. A share costs what it lacks to 1, any other metric of which
  // more is better its negative, and NaN costs infinitely much. `value` is the way back.
  double cost(double value) const;
  double value(double cost) const;

  bool operator==(const Score&) const = default;
};

Score score_of(const Metric& metric);

}  // namespace ulp
