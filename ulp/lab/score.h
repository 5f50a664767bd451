// The metric that runs are judged by, as people read it.
#pragma once

#include <string>

#include "ulp/io/metrics.h"

namespace ulp {

struct Metric;

// One that is a share, such as accuracy, is shown as percent. Any other metric is a plain number.
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
  // What a value costs: less is better. Of a share what it lacks to 1, of another metric of which
  // more is better its negative. What is no number costs infinitely much. And back.
  double cost(double value) const;
  double value(double cost) const;

  bool operator==(const Score&) const = default;
};

Score score_of(const Metric& metric);

}  // namespace ulp
