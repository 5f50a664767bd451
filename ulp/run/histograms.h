// How chosen tensors are spread over exponents as a run goes on, in a file of its own
// (histograms.jsonl in the run's folder), one JSON object a line. It is kept as metrics are: one
// write a line, and cut back when a run is resumed.
//
// A line with the event "histogram" counts the elements of a tensor by floor(log2 |x|), before they
// are rounded; counts[0] is of the exponent `lowest`. `of` is "x", or "y" for what S2FP8 makes of
// them. A line with the event "shift" has what S2FP8 found: mu, the mean of log2 |x|, m, the
// largest, and alpha and beta, which it computes from these. Of several micro-batches they are the
// last one's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/io/metrics.h"
#include "ulp/session/engine.h"

namespace ulp {

class HistogramFile {
 public:
  // `names` as --histograms takes them. Lines after `step` are cut off. Throws an Error for a name
  // that no tensor has.
  HistogramFile(const std::string& path, std::string_view names, uint64_t every, const Engine& engine,
                uint64_t step);

  // Whether the step is recorded: the first, and every `every`-th.
  bool wants(uint64_t step) const { return step == 1 || step % every_ == 0; }
  std::vector<TensorId> tensors() const { return ids_; }
  // After a step that was recorded (Engine::record_next). `assignment`: the one that it ran with.
  void write(uint64_t step, const StepRecording& recording, const Assignment& assignment);

 private:
  struct Named {
    std::string name;
    Kind kind;
  };

  std::vector<Named> named_;
  std::vector<TensorId> ids_;
  uint64_t every_;
  MetricsFile file_;
};

}  // namespace ulp
