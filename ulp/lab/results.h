// What a run has come to, read from its metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ulp/io/metrics.h"
#include "ulp/lab/score.h"

namespace ulp {

struct RunResult {
  uint64_t steps = 0, epochs = 0;  // completed
  bool done = false;               // to the end
  std::string metric = "acc";      // the task's first
  bool higher_is_better = true;
  // After the first epoch with the best test value; the second with the same weights computed in fp32.
  double best = 0, best_fp32 = 0;
  double train_loss = 0;  // of the last epoch
  double low_ratio = 0;   // mean over the epochs
  uint64_t promotions = 0, skipped = 0;
  size_t peak_bytes = 0;
  double seconds = 0;     // of all epochs
  bool diverged = false;  // a loss was not finite

  Score score() const { return {metric, higher_is_better}; }
};

// From metrics.jsonl in the folder, as far as it is written; a run that has none has come to
// nothing. Throws an Error for a line that is no such thing, but for a last one that is torn.
RunResult read_result(const std::string& folder);
// The same of the file's text; `path` is for messages.
RunResult parse_result(std::string_view text, const std::string& path);

// A number of a line of metrics. JSON has no infinities and no NaN; lines have them as text. Throws
// a Json::exception for anything else.
double metric_number(const Json& line, const std::string& key);
// The metric that decides, from the line of an epoch. Lines that name none are of accuracy.
Score epoch_score(const Json& line);

}  // namespace ulp
