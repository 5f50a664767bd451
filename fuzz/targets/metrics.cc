// The metrics of a run: cut back for a run that resumes, and read for tables of runs.
#include "ulp/io/metrics.h"

#include "fuzz/fuzz.h"
#include "ulp/lab/results.h"
#include "ulp/lab/update_costs.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  tried([&] { parse_result(input, "metrics.jsonl"); });
  tried([&] {
    UpdateRun run;
    read_update_run({}, input, "metrics.jsonl", run);
  });
  const std::string path = file("metrics.jsonl", input);
  cut_metrics(path, 3, 1);
  const std::string cut = content(path);
  cut_metrics(path, 3, 1);
  expect(content(path) == cut, "cut twice is not cut once");
  MetricsFile(path).write({{"event", "step"}, {"step", 4}});
}

}  // namespace ulp::fuzz
