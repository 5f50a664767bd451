// The results of a run, read from its metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ulp/io/metrics.h"
#include "ulp/lab/score.h"

namespace ulp {

struct RunResult {
  uint64_t steps = 0, epochs = 0;                    // completed
  bool done = false;                                 // to the end
  std::string metric = std::string(kUnnamedMetric);  // the task's first
  bool higher_is_better = true, share = true;
  // After the first epoch with the best test value; the second with the same weights computed in
  // fp32. NaN where no epoch ended with a finite loss.
  double best = std::numeric_limits<double>::quiet_NaN(), best_fp32 = best;
  double train_loss = best;  // of the last epoch; NaN where there was none
  double low_ratio = 0;      // mean over the epochs
  uint64_t promotions = 0, skipped = 0;
  size_t peak_bytes = 0;
  double seconds = 0;     // of all epochs
  bool diverged = false;  // a loss was not finite
  bool lost = false;      // that of the last step is not
  std::string why = {};   // of a run that was stopped for it

  Score score() const { return {metric, higher_is_better, share}; }
};

// Reads metrics.jsonl in the folder, as far as it is written; a run without the file has no results.
// Throws an Error for a line that is no line of metrics, except for a last one that is torn.
RunResult read_result(const std::string& folder);
// The same for the text of such a file; `path` is for messages.
RunResult parse_result(std::string_view text, const std::string& path);

// A number of a line of metrics. JSON has no infinities and no NaN; lines have them as text. Throws
// a Json::exception for anything else.
double metric_number(const Json& line, const std::string& key);
// The metric that decides, from the line of an epoch. Lines that name none are of accuracy.
Score epoch_score(const Json& line);

}  // namespace ulp
