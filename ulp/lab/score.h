// The metric that runs are judged by, as people read it.
#pragma once

#include <string>

namespace ulp {

struct Metric;

// Accuracy, "acc", is a share and shown as percent. Any other metric is a plain number.
struct Score {
  std::string name = "acc";
  bool higher_is_better = true;

  bool percent() const { return name == "acc"; }
  std::string word() const;                // "accuracy", "bpc"
  std::string title() const;               // of a column: "acc %", "bpc"
  std::string number(double value) const;  // below that title: "91.23", "2.1234"
  std::string text(double value) const;    // by itself: "91.23%", "2.1234"
  // How much worse `to` is than `from`, in units of the metric. Below 0 where it is better.
  double drop(double from, double to) const { return higher_is_better ? from - to : to - from; }

  bool operator==(const Score&) const = default;
};

Score score_of(const Metric& metric);

}  // namespace ulp
