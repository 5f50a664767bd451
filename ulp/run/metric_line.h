// How lines and files name the metric that decides, for readers who do not know the task.
#pragma once

#include "ulp/base/json.h"
#include "ulp/tasks/task.h"

namespace ulp {

// Adds "metric" and "higher_is_better", and "share" for a share. What says nothing of this is of
// kUnnamedMetric.
void name_metric(Json& line, const Metric& metric);

}  // namespace ulp
