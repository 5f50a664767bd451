// The document that the page is made from (web/src/data.ts says what is in it), from the folders of
// runs.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ulp/report/found_run.h"
#include "ulp/report/other_records.h"
#include "ulp/report/run_plan.h"
#include "ulp/report/run_record.h"

namespace ulp {

struct Report {
  std::string title;
  bool live = false;  // it is served, and asked for again
  std::vector<RunRecord> runs;
  std::vector<BenchRecord> benches;
  std::vector<LeastSquaresRecord> least_squares;
  std::vector<std::string> notes;
};

// How many of all runs are read.
using ReportProgress = std::function<void(size_t done, size_t all)>;

// Everything that was found, read and labelled. Never throws for what is in the files.
Report read_report(const FoundFiles& found, const ReportProgress& progress = {});

// JSON, in ASCII but for text of the runs: names that are no UTF-8 have U+FFFD there. Makes the plans
// that the book does not have yet.
std::string document_of(const Report& report, PlanBook& book, const ReportProgress& progress = {});

}  // namespace ulp
