// The steps of a run in buckets, made in one pass over any number of steps: when there are too many
// buckets, two become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ulp {

// None: was never measured. NaN and infinities are numbers.
using Number = std::optional<double>;

// One step as it stands in metrics.jsonl.
struct StepPoint {
  uint64_t step = 0;  // from 1
  double loss = 0, lr = 0, scale = 1, cancelled = 0;
  bool skipped = false;
};

// A bucket has the steps from k * stride + 1 to (k + 1) * stride, as far as they are there. NaN and
// infinities count in no minimum, maximum or mean, unless a bucket has nothing else: then all three
// are the sum of its losses.
struct Curve {
  uint64_t stride = 1;
  std::vector<uint64_t> step;  // the last of each bucket
  std::vector<double> loss, low, high;
  std::vector<double> lr, scale;  // of that step
  std::vector<double> cancelled;  // mean share; empty: never above 0
  std::vector<uint64_t> skipped;  // how many; empty: none
};

class CurveMaker {
 public:
  // At most so many buckets; at least 2.
  explicit CurveMaker(size_t most) : most_(most) {}

  // Steps must ascend: false for one that does not come after the last, which is left out.
  bool add(const StepPoint& point);
  Curve take() const;

 private:
  struct Bucket {
    uint64_t step = 0, count = 0, finite = 0, skipped = 0;
    double sum = 0, low = 0, high = 0, odd = 0, lr = 0, scale = 1, cancelled = 0;

    void add(const Bucket& later);
  };
  void halve();

  size_t most_;
  uint64_t stride_ = 1;
  std::vector<Bucket> buckets_;
};

}  // namespace ulp
