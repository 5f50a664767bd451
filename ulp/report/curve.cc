#include "ulp/report/curve.h"

#include <algorithm>
#include <cmath>

namespace ulp {

void CurveMaker::Bucket::add(const Bucket& later) {
  if (later.finite > 0) {
    low = finite > 0 ? std::min(low, later.low) : later.low;
    high = finite > 0 ? std::max(high, later.high) : later.high;
  }
  step = later.step;
  count += later.count;
  finite += later.finite;
  skipped += later.skipped;
  sum += later.sum;
  odd += later.odd;
  lr = later.lr;
  scale = later.scale;
  cancelled += later.cancelled;
}

bool CurveMaker::add(const StepPoint& point) {
  if (point.step == 0 || (!buckets_.empty() && point.step <= buckets_.back().step)) return false;
  Bucket made;
  made.step = point.step;
  made.count = 1;
  made.skipped = point.skipped ? 1 : 0;
  if (std::isfinite(point.loss)) {
    made.finite = 1;
    made.sum = made.low = made.high = point.loss;
  } else {
    made.odd = point.loss;
  }
  made.lr = point.lr;
  made.scale = point.scale;
  made.cancelled = std::isfinite(point.cancelled) ? point.cancelled : 0;
  if (!buckets_.empty() && (buckets_.back().step - 1) / stride_ == (point.step - 1) / stride_) {
    buckets_.back().add(made);
    return true;
  }
  // A gap in the steps may leave too many buckets even then.
  while (buckets_.size() >= most_) halve();
  if (!buckets_.empty() && (buckets_.back().step - 1) / stride_ == (point.step - 1) / stride_) {
    buckets_.back().add(made);
  } else {
    buckets_.push_back(made);
  }
  return true;
}

void CurveMaker::halve() {
  stride_ *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (kept > 0 && (buckets_[kept - 1].step - 1) / stride_ == (buckets_[i].step - 1) / stride_) {
      buckets_[kept - 1].add(buckets_[i]);
    } else {
      buckets_[kept++] = buckets_[i];
    }
  }
  buckets_.resize(kept);
}

Curve CurveMaker::take() const {
  Curve curve;
  curve.stride = stride_;
  bool cancelled = false, skipped = false;
  for (const Bucket& bucket : buckets_) {
    const bool any = bucket.finite > 0;
    curve.step.push_back(bucket.step);
    curve.loss.push_back(any ? bucket.sum / static_cast<double>(bucket.finite) : bucket.odd);
    curve.low.push_back(any ? bucket.low : bucket.odd);
    curve.high.push_back(any ? bucket.high : bucket.odd);
    curve.lr.push_back(bucket.lr);
    curve.scale.push_back(bucket.scale);
    curve.cancelled.push_back(bucket.cancelled / static_cast<double>(bucket.count));
    curve.skipped.push_back(bucket.skipped);
    cancelled = cancelled || bucket.cancelled > 0;
    skipped = skipped || bucket.skipped > 0;
  }
  if (!cancelled) curve.cancelled.clear();
  if (!skipped) curve.skipped.clear();
  return curve;
}

}  // namespace ulp
