// metrics.jsonl of a run, line by line, into its record.
#pragma once

#include <string>

#include "ulp/base/json.h"
#include "ulp/report/run_record.h"

namespace ulp {

// What else stands there.
struct MetricsEnd {
  LossHistory losses;
  bool done = false;
};

// Fills steps, epochs, curve, promotions and figures of the record. A damaged line is a note, and what
// follows is read. `complete`: nobody writes the file, so a torn last line is worth a note.
MetricsEnd read_metrics(const std::string& path, size_t curve_budget, bool complete, RunRecord& record);

// A number of a line; JSON has no NaN and no infinities, which are the strings "nan", "inf" and "-inf".
// Throws an Error for anything else.
double number_of(const Json& line, const std::string& key);
// The same where there may be none.
Number number_if_any(const Json& line, const std::string& key);

}  // namespace ulp
