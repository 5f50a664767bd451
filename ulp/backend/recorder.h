// What is recorded of chosen tensors while a step runs on the host, beside their range events: how
// their elements are spread over exponents before they are rounded, and what S2FP8 makes of them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/numeric/s2fp8.h"
#include "ulp/numeric/stats.h"

namespace ulp {

struct TensorRecord {
  ExponentHistogram x;
  ExponentHistogram y = {};                // of S2FP8: the transformed elements, before rounding
  std::optional<S2fp8Stats> shifted = {};  // of S2FP8: of what was written last
  bool empty() const { return x == ExponentHistogram{} && !shifted; }
};

class Recorder {
 public:
  explicit Recorder(size_t tensors) : wanted_(tensors), records_(tensors) {}

  void want(TensorId id) { wanted_[index(id)] = true; }
  bool wants(TensorId id) const { return wanted_[index(id)]; }
  const TensorRecord& of(TensorId id) const { return records_[index(id)]; }

  // Counts elements that are about to be rounded, or that were written in fp32. From any thread.
  void add(TensorId id, std::span<const float> x);
  // Counts what S2FP8 with these statistics makes of a whole tensor, and keeps the statistics.
  void add_shifted(TensorId id, std::span<const float> x, const S2fp8Stats& stats);

 private:
  static size_t index(TensorId id) { return static_cast<size_t>(id.index); }

  std::vector<bool> wanted_;
  std::vector<TensorRecord> records_;
};

}  // namespace ulp
