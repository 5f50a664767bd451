// The files that a report reads. The first byte says which one the rest is.
#include "fuzz/fuzz.h"
#include "ulp/report/histogram.h"
#include "ulp/report/metrics_reader.h"
#include "ulp/report/other_records.h"

namespace ulp::fuzz {
namespace {

void try_metrics(const std::string& path, bool complete) {
  constexpr size_t kCurve = 16;
  RunRecord record;
  read_metrics(path, kCurve, complete, record);
  const EpochColumns& epochs = record.epochs;
  expect(epochs.step.size() == epochs.count() && epochs.test.size() == epochs.count(), "columns differ");
  expect(!epochs.best || *epochs.best < epochs.count(), "the best epoch is none of the epochs");
  for (const OtherMetric& metric : epochs.others)
    expect(metric.test.size() == epochs.count(), "a metric has other epochs");
}

void try_histograms(const std::string& path, bool complete) {
  constexpr HistogramBudget kBudget{.numbers = 64, .points = 8, .columns = 4};
  std::vector<std::string> notes;
  const Histograms read = read_histograms(path, kBudget, complete, notes);
  size_t numbers = 0;
  for (const HistogramRecord& one : read.histograms) {
    numbers += one.counts.size();
    expect(one.lowest >= -(1 << 20) && one.lowest <= 1 << 20, "an exponent that no number has");
  }
  expect(numbers <= kBudget.numbers, "more histograms than there is room for");
  for (const ShiftedRecord& one : read.shifted) {
    expect(one.step.size() <= kBudget.columns, "more steps than there is room for");
    expect(one.mu.size() == one.step.size() && one.beta.size() == one.step.size(), "columns differ");
  }
}

}  // namespace

void try_input(std::string_view input) {
  Cutter cutter(input);
  const uint8_t kind = cutter.byte();
  const bool complete = kind / 4 % 2 == 0;
  const FoundFile found{"id", file("report", cutter.rest())};
  std::vector<std::string> notes;
  switch (kind % 4) {
    case 0:
      return try_metrics(found.path, complete);
    case 1:
      return try_histograms(found.path, complete);
    case 2:
      looks_like_bench(found.path);
      read_benches(found, notes);
      return;
    default:
      for (const auto& variant : read_least_squares(found, notes).variants)
        expect(variant.loss.size() == variant.step.size(), "columns differ");
  }
}

}  // namespace ulp::fuzz
