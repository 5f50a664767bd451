// Exponent histograms and S2FP8 statistics of chosen tensors over one training step, whatever
// shapes its micro-batches have. Programs are joined by their tensors' places in the graph of the
// largest shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ulp/backend/recorder.h"

namespace ulp {

class StepRecording {
 public:
  // `tensors` of a graph that has `count` of them.
  StepRecording(size_t count, std::span<const TensorId> tensors);

  // A recorder for a program; `slots`: by its tensor, the one in the graph above.
  Recorder begin(std::span<const int32_t> slots) const;
  // Takes over what one micro-batch has recorded. A weight is the same in all of them, and recorded
  // by the first.
  void add(const Recorder& recorder, std::span<const int32_t> slots);

  const TensorRecord& of(TensorId id) const { return records_[static_cast<size_t>(id.index)]; }

 private:
  std::vector<bool> wanted_;
  std::vector<TensorRecord> records_;
};

}  // namespace ulp
