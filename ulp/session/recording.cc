#include "ulp/session/recording.h"

namespace ulp {

StepRecording::StepRecording(size_t count, std::span<const TensorId> tensors)
    : wanted_(count), records_(count) {
  for (const TensorId id : tensors) wanted_[static_cast<size_t>(id.index)] = true;
}

Recorder StepRecording::begin(std::span<const int32_t> slots) const {
  Recorder recorder(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (wanted_[static_cast<size_t>(slots[i])]) recorder.want(TensorId{static_cast<int32_t>(i)});
  }
  return recorder;
}

void StepRecording::add(const Recorder& recorder, std::span<const int32_t> slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (!recorder.wants(id)) continue;
    const TensorRecord& more = recorder.of(id);
    TensorRecord& record = records_[static_cast<size_t>(slots[i])];
    record.x.merge(more.x);
    record.y.merge(more.y);
    if (more.shifted) record.shifted = more.shifted;
  }
}

}  // namespace ulp
