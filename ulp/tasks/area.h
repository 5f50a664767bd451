// The area under the ROC curve: the chance that something of kind 1 has a higher score than something
// of kind 0, equal scores counting half. Exact, and the same in whatever order and pieces the scores
// came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/tasks/task.h"

namespace ulp {

class RocArea {
 public:
  void add(float score, bool one) { (one ? ones_ : zeros_).push_back(score); }
  void merge(const RocArea& other);
  // 0.5 where one of the kinds is missing, and NaN where a score is NaN: it stands nowhere.
  double value() const;
  // Every score, as a checkpoint keeps it.
  Meter::State save() const;
  // Throws an Error for a state that save has not made, and changes nothing then.
  void restore(const Meter::State& state);

 private:
  std::vector<float> zeros_, ones_;
};

}  // namespace ulp
