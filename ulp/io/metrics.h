// What a run measures, as JSON lines: one object a line, in the order of events.
//
// Every line has an "event"; "step" and "epoch" count what is completed, from 1. A process that is
// killed leaves whole lines and at most one torn one at the end, which cut_metrics takes off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ulp/base/json.h"

namespace ulp {

// The metric of lines and checkpoints that name none: accuracy, a share of examples.
inline constexpr std::string_view kUnnamedMetric = "acc";

class MetricsFile {
 public:
  // Makes the file or goes on at its end. One that ends within a line is refused: what is appended
  // would make that line a fault in the middle.
  explicit MetricsFile(const std::string& path);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  // Appends an object as one line, in one write. NaN and infinities in it become the strings "nan",
  // "inf" and "-inf", since JSON has none. On an Error (the disk is full, the file was removed) the
  // file is as it was before.
  void write(const Json& line);

 private:
  std::string path_;
  int fd_;
};

// The object on a line. Nothing where the line is torn or otherwise none.
std::optional<Json> object_on(std::string_view line);

// Takes the file back to where `step` steps and `epochs_done` epochs were completed, for a run that
// resumes there: in their order and byte for byte stay "epoch" lines up to that epoch, and lines of
// every other event that have a "step" up to that step. "done", lines without a step and a torn
// last line go. No file is fine and stays none. Written atomically (ulp/base/file.h). Any other
// line that is not such an object is an Error that gives its number, and the file is untouched.
void cut_metrics(const std::string& path, uint64_t step, uint64_t epochs_done);

}  // namespace ulp
