// Everything that was found, read.
#include "ulp/report/document.h"

#include <exception>

#include "ulp/base/error.h"

namespace ulp {
namespace {

// Runs for which remedies are planned.
constexpr size_t kMostTreated = 24;

}  // namespace

Report read_report(const FoundFiles& found, const ReportProgress& progress) {
  Report report;
  report.title = found.title;
  report.notes = found.notes;
  ReadBudget budget = budget_for(found.runs.size());
  const HeldLocks locks;
  size_t treated = 0;
  for (const FoundRun& run : found.runs) {
    if (progress) progress(report.runs.size(), found.runs.size());
    budget.remedies = treated < kMostTreated;
    report.runs.push_back(read_run(run, budget, locks));
    treated += report.runs.back().treated ? 1 : 0;
  }
  for (const FoundFile& file : found.benches) {
    for (BenchRecord& bench : read_benches(file, report.notes)) report.benches.push_back(std::move(bench));
  }
  for (const FoundFile& file : found.least_squares)
    report.least_squares.push_back(read_least_squares(file, report.notes));
  label_groups(report.runs);
  return report;
}

}  // namespace ulp
