// Range events of a run by tensor and time, and what the doctor says of single tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulp/report/doctor_words.h"
#include "ulp/report/run_record.h"

namespace ulp {
namespace {

constexpr size_t kFewestColumns = 24;

std::string percent(double share) { return fmt::format("{:.3g}%", 100 * share); }

std::string end_of(const Trouble& trouble) {
  if (trouble.promoted) {
    return fmt::format("It was promoted to {} at step {}.", trouble.promoted->to, trouble.promoted->step);
  }
  return trouble.ended ? fmt::format("It has not since step {}.", trouble.last)
                       : fmt::format("Step {} still has it.", trouble.last);
}

std::string sentence_of(const Trouble& trouble) {
  const std::string worst =
      trouble.worst > 0 && trouble.worst_step != trouble.since
          ? fmt::format(" It was worst at step {}, with {}.", trouble.worst_step, percent(trouble.worst))
          : "";
  switch (trouble.what) {
    case Trouble::What::overflow:
      return fmt::format("Overflowed first at step {}: {} of its {} elements{}.{} {}", trouble.since,
                         percent(trouble.first.overflow), trouble.elements,
                         trouble.largest ? fmt::format(" were beyond {:.4g}, the largest number of {}",
                                                       *trouble.largest, trouble.format)
                                         : "",
                         worst, end_of(trouble));
    case Trouble::What::flush:
      return fmt::format("Flushed to zero first at step {}: {} of its {} elements{}.{} {}", trouble.since,
                         percent(trouble.first.underflow), trouble.elements,
                         trouble.smallest
                             ? fmt::format(" were below what {} holds, whose smallest number is {:.4g}",
                                           trouble.format, *trouble.smallest)
                             : "",
                         worst, end_of(trouble));
    case Trouble::What::nan:
      return fmt::format("Has a NaN since step {}. {}", trouble.since, end_of(trouble));
  }
  return "";
}

void add_words(std::map<std::string, std::string>& words, const std::string& tensor,
               const std::string& text) {
  std::string& all = words[tensor];
  if (all.find(text) == all.npos) all += all.empty() ? text : " " + text;
}

}  // namespace

HeatMap heat_of(const RangeHistory& history, const ReadBudget& budget) {
  HeatMap map;
  map.tensors = history.tensors;
  const size_t tensors = history.tensors.size(), records = history.records.size();
  if (tensors == 0 || records == 0) return map;
  const size_t most = std::clamp(budget.heat_cells / tensors, std::min(kFewestColumns, budget.heat_columns),
                                 budget.heat_columns);
  const size_t each = (records + most - 1) / most, columns = (records + each - 1) / each;
  map.overflow.resize(tensors * columns);
  map.underflow.resize(tensors * columns);
  map.amax.resize(tensors * columns);
  for (size_t i = 0; i < records; ++i) {
    const RangeRecord& record = history.records[i];
    const size_t column = i / each;
    if (i % each == 0) map.step.push_back(0);
    map.step.back() = record.step;
    for (size_t t = 0; t < tensors; ++t) {
      const TensorRange& range = record.tensors[t];
      const size_t at = t * columns + column;
      map.overflow[at] = std::max(map.overflow[at], range.overflow);
      map.underflow[at] = std::max(map.underflow[at], range.underflow);
      if (std::isnan(range.amax)) map.amax[at] = range.amax;
      if (!std::isnan(map.amax[at])) map.amax[at] = std::max(map.amax[at], range.amax);
    }
  }
  return map;
}

std::map<std::string, std::string> words_of(const Diagnosis& diagnosis) {
  std::map<std::string, std::string> words;
  for (const auto* trouble : {&diagnosis.subject, &diagnosis.overflow, &diagnosis.flush, &diagnosis.nan}) {
    if (*trouble) add_words(words, (*trouble)->name, sentence_of(**trouble));
  }
  const auto add_ranked = [&](const std::vector<Ranked>& all, std::string_view what) {
    for (const Ranked& one : all) {
      if (words.contains(one.name)) continue;
      add_words(words, one.name,
                fmt::format("{} in {}: {} of it on average, {} at worst, at step {}.", what, one.format,
                            percent(one.mean), percent(one.worst), one.worst_step));
    }
  };
  add_ranked(diagnosis.overflows, "Overflowed");
  add_ranked(diagnosis.flushes, "Was flushed to zero");
  for (const Near& near : diagnosis.nearest) {
    if (words.contains(near.name) || !near.at.exponent) continue;
    add_words(
        words, near.name,
        fmt::format("Never overflowed in {}; came nearest at step {}, with a largest magnitude of {:.4g}, "
                    "2^{:.1f} of the largest number.",
                    near.format, near.at.step, near.at.amax, *near.at.exponent));
  }
  return words;
}

}  // namespace ulp
