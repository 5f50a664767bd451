#include "ulp/run/metric_line.h"

#include "ulp/io/metrics.h"

namespace ulp {

void name_metric(Json& line, const Metric& metric) {
  if (metric.name == kUnnamedMetric) return;
  line["metric"] = metric.name;
  line["higher_is_better"] = metric.higher_is_better;
  if (metric.share) line["share"] = true;
}

}  // namespace ulp
