#include "ulp/run/histograms.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/precision/overrides.h"

namespace ulp {
namespace {

// The file as it is to be appended to.
std::string cut_file(const std::string& path, uint64_t step) {
  cut_metrics(path, step, 0);
  return path;
}

Json histogram_line(uint64_t step, const std::string& name, Kind kind, const std::string& format,
                    std::string_view of, const ExponentHistogram& histogram) {
  const auto& bin = histogram.bin;
  const auto filled = [](uint64_t count) { return count > 0; };
  const auto begin = std::find_if(bin.begin(), bin.end(), filled);
  const auto end = std::find_if(bin.rbegin(), bin.rend(), filled).base();
  const bool empty = begin == bin.end();
  return {{"event", "histogram"},
          {"step", step},
          {"tensor", name},
          {"kind", kind_name(kind)},
          {"format", format},
          {"of", of},
          {"lowest", empty ? 0 : ExponentHistogram::kLowest + (begin - bin.begin())},
          {"counts", empty ? Json::array() : Json(std::vector<uint64_t>(begin, end))},
          {"zero", histogram.zero},
          {"infinite", histogram.infinite},
          {"nan", histogram.nan}};
}

// The statistics that are kept are alpha and beta; mu and m follow from them.
Json shift_line(uint64_t step, const std::string& name, Kind kind, const S2fp8Stats& stats) {
  const double alpha = stats.alpha, beta = stats.beta;
  const double mu = -beta / alpha;
  return {{"event", "shift"},        {"step", step}, {"tensor", name},
          {"kind", kind_name(kind)}, {"mu", mu},     {"m", mu + kS2fp8Target / alpha},
          {"alpha", alpha},          {"beta", beta}};
}

}  // namespace

HistogramFile::HistogramFile(const std::string& path, std::string_view names, uint64_t every,
                             const Engine& engine, uint64_t step)
    : every_(every), file_(cut_file(path, step)) {
  const std::span<const CountedTensor> counted = engine.counted();
  std::vector<bool> chosen(counted.size());
  for (const std::string& name : parse_names(names)) {
    for (const size_t i : tensors_named(name, counted)) chosen[i] = true;
  }
  for (size_t i = 0; i < counted.size(); ++i) {
    const TensorId id = engine.graph().find(counted[i].name);
    if (!chosen[i] || !id) continue;
    named_.push_back({counted[i].name, counted[i].kind});
    ids_.push_back(id);
  }
}

void HistogramFile::write(uint64_t step, const StepRecording& recording, const Assignment& assignment) {
  for (size_t i = 0; i < ids_.size(); ++i) {
    const auto& [name, kind] = named_[i];
    const TensorRecord& record = recording.of(ids_[i]);
    if (record.empty()) continue;
    const std::string format = storage_name(assignment.storage_of(name));
    file_.write(histogram_line(step, name, kind, format, "x", record.x));
    if (!record.shifted) continue;
    file_.write(histogram_line(step, name, kind, format, "y", record.y));
    file_.write(shift_line(step, name, kind, *record.shifted));
  }
}

}  // namespace ulp
