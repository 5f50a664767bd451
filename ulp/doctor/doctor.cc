#include "ulp/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "ulp/numeric/storage.h"

namespace ulp {
namespace {

const FloatFormat* plain_format(const Storage& storage) {
  if (const auto* plain = std::get_if<Plain>(&storage)) return &plain->format;
  if (const auto* split = std::get_if<Split>(&storage)) return &split->high;
  return nullptr;
}

// "conv1" of conv1.out, conv1.weight and their gradients.
std::string_view node_of(std::string_view name) {
  constexpr std::string_view kGrad = ".grad";
  if (name.ends_with(kGrad)) name.remove_suffix(kGrad.size());
  return name.substr(0, name.rfind('.'));
}

std::string percent(double share) {
  if (share > 0 && share < 1e-4) return "less than 0.01%";
  return fmt::format("{:.{}f}%", 100 * share, share < 0.01 ? 2 : share < 0.1 ? 1 : 0);
}

// One pass over the records for each question asked.
class Examination {
 public:
  Examination(const DoctorHistory& history, uint64_t until) : history_(history) {
    for (const RangeRecord& record : history.ranges.records) {
      if (record.step <= until) records_.push_back(&record);
    }
    order_ = running_order(history.ranges.tensors);
    const auto last =
        std::find_if(records_.rbegin(), records_.rend(), [](auto* record) { return !record->skipped; });
    skipped_at_end_ = static_cast<uint64_t>(last - records_.rbegin());
    stuck_ = skipped_at_end_ >= Diagnosis::kManySkips;
    until_ = until;
  }

  Diagnosis run() const;

 private:
  using What = Trouble::What;
  static double share(What what, const TensorRange& range) {
    if (what == What::nan) return std::isnan(range.amax) ? 1 : 0;
    return what == What::overflow ? range.overflow : range.underflow;
  }

  const RangedTensor& tensor(size_t i) const { return history_.ranges.tensors[i]; }
  // Whether a record says something about a tensor, see Diagnosis::overflow.
  bool counts(size_t record, size_t i) const {
    if (!records_[record]->skipped || !is_gradient(tensor(i).kind)) return true;
    return stuck_ && record + skipped_at_end_ >= records_.size();
  }
  // The first that is not over yet, or the first at all; of gradients alone, or from a record on.
  struct Among {
    bool ended = true, forward = true;
    size_t from = 0;
  };
  std::optional<Trouble> first(What what, double beyond, const Among& among) const;
  std::optional<Trouble> first(What what, double beyond) const { return first(what, beyond, Among{}); }
  Trouble trouble(size_t i, size_t record, What what, double beyond) const;
  std::vector<Near> nearest() const;
  std::vector<Ranked> ranking(What what, double beyond, bool gradients_alone) const;
  void judge(Diagnosis& found) const;
  void check_past(Diagnosis& found) const;
  std::string leap(const Trouble& trouble) const;
  std::string not_finite_sentence(const Diagnosis& found) const;
  std::string overflow_sentence(const Trouble& trouble) const;

  // Formats are parsed once, not for every record.
  std::optional<float> largest_at(size_t i, uint64_t step) const {
    const std::string format = history_.format_at(i, step);
    const auto known = largest_.find(format);
    return known != largest_.end() ? known->second
                                   : largest_.emplace(format, largest_of(format)).first->second;
  }

  const DoctorHistory& history_;
  mutable std::map<std::string, std::optional<float>> largest_;
  std::vector<const RangeRecord*> records_;
  std::vector<size_t> order_;
  uint64_t skipped_at_end_ = 0, until_ = 0;
  bool stuck_ = false;
};

Trouble Examination::trouble(size_t i, size_t record, What what, double beyond) const {
  Trouble trouble;
  trouble.what = what;
  trouble.tensor = i;
  trouble.name = tensor(i).name;
  trouble.kind = tensor(i).kind;
  trouble.elements = tensor(i).elements;
  trouble.since = records_[record]->step;
  trouble.before = range_points(history_, i, trouble.since);
  trouble.first = trouble.before.back();
  trouble.format = history_.format_at(i, trouble.since);
  trouble.largest = largest_of(trouble.format);
  trouble.smallest = smallest_of(trouble.format);
  size_t last = record;
  for (size_t r = 0; r < records_.size(); ++r) {
    const double here = counts(r, i) ? share(what, records_[r]->tensors[i]) : 0;
    if (here > trouble.worst) {
      trouble.worst = here;
      trouble.worst_step = records_[r]->step;
    }
    if (here > beyond) last = r;
  }
  trouble.last = records_[last]->step;
  for (const PromoteEvent& event : history_.promotions) {
    if (event.tensor == trouble.name && event.step >= trouble.since && event.step <= until_) {
      trouble.promoted = event;
      break;
    }
  }
  // By itself: not a few quiet steps, but a good part of the run.
  const size_t quiet = std::max(Diagnosis::kBefore, records_.size() / 4);
  trouble.ended =
      (trouble.promoted && trouble.last <= trouble.promoted->step) || last + quiet < records_.size();
  return trouble;
}

std::optional<Trouble> Examination::first(What what, double beyond, const Among& among) const {
  std::vector<bool> known(order_.size());
  for (size_t r = among.from; r < records_.size(); ++r) {
    for (const size_t i : order_) {
      if (known[i] || share(what, records_[r]->tensors[i]) <= beyond || !counts(r, i)) continue;
      if (!among.forward && !is_gradient(tensor(i).kind)) continue;
      known[i] = true;
      Trouble found = trouble(i, r, what, beyond);
      if (among.ended || !found.ended) return found;
    }
  }
  return std::nullopt;
}

std::vector<Ranked> Examination::ranking(What what, double beyond, bool gradients_alone) const {
  std::vector<Ranked> all;
  if (records_.empty()) return all;
  const uint64_t begin = records_.front()->step, steps = records_.back()->step - begin + 1;
  for (const size_t i : order_) {
    if (gradients_alone && !is_gradient(tensor(i).kind)) continue;
    Ranked ranked;
    ranked.name = tensor(i).name;
    ranked.over_time.assign(std::min<uint64_t>(Diagnosis::kColumns, steps), -1);
    for (size_t r = 0; r < records_.size(); ++r) {
      const RangeRecord* record = records_[r];
      const double here = counts(r, i) ? share(what, record->tensors[i]) : 0;
      ranked.mean += here / static_cast<double>(records_.size());
      if (here > ranked.worst) {
        ranked.worst = here;
        ranked.worst_step = record->step;
      }
      double& column = ranked.over_time[(record->step - begin) * ranked.over_time.size() / steps];
      column = std::max(column, here);
    }
    ranked.format = history_.format_at(i, ranked.worst_step);
    if (ranked.worst > beyond) all.push_back(std::move(ranked));
  }
  std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) {
    return std::tie(a.mean, a.worst) > std::tie(b.mean, b.worst);
  });
  return all;
}

std::vector<Near> Examination::nearest() const {
  std::vector<Near> all;
  for (const size_t i : order_) {
    const RangeRecord* best = nullptr;
    double highest = 0, most = 0;  // amax over the largest number
    for (size_t r = 0; r < records_.size(); ++r) {
      if (!counts(r, i)) continue;
      const TensorRange& range = records_[r]->tensors[i];
      most = std::max<double>(most, range.overflow);
      const std::optional<float> largest = largest_at(i, records_[r]->step);
      if (!largest || !(range.amax / *largest > highest)) continue;
      highest = range.amax / *largest;
      best = records_[r];
    }
    if (best == nullptr || most > 0) continue;
    all.push_back(
        {tensor(i).name, history_.format_at(i, best->step), range_points(history_, i, best->step).back()});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Near& a, const Near& b) { return *a.at.exponent > *b.at.exponent; });
  all.resize(std::min(all.size(), Diagnosis::kRanked));
  return all;
}

// A tensor that leaps is not a matter of formats.
std::string Examination::leap(const Trouble& trouble) const {
  if (trouble.before.size() < 2 || trouble.what != What::overflow) return "";
  const RangePoint& before = trouble.before[trouble.before.size() - 2];
  const double grown = std::log2(static_cast<double>(trouble.first.amax) / before.amax);
  if (before.step + 1 != trouble.since || !(grown >= Diagnosis::kLeap) || std::isinf(grown)) return "";
  return fmt::format("; it had grown 2^{:.0f} times in one step: look at the learning rate", grown);
}

std::string Examination::not_finite_sentence(const Diagnosis& found) const {
  std::string text =
      fmt::format("the loss became {} at step {}", found.loss_not_finite_value, *found.loss_not_finite);
  const std::optional<Trouble>& cause = found.subject;
  if (cause && cause->what == What::overflow) {
    text += fmt::format("; {} had overflowed since step {}, up to {} of it in {}", cause->name, cause->since,
                        percent(cause->worst), cause->format);
    text += leap(*cause);
  }
  if (found.nan) {
    return text + fmt::format("; the first NaN was in {} at step {}", found.nan->name, found.nan->since);
  }
  if (cause) return text;
  return text + ", and no narrow tensor overflowed or had a NaN before: look at the learning rate";
}

std::string Examination::overflow_sentence(const Trouble& trouble) const {
  const bool gradient = is_gradient(trouble.kind);
  if (trouble.what == What::nan) {
    return fmt::format("NaN in the gradients since step {}, first in {}; the last {} steps were skipped",
                       trouble.since, trouble.name, skipped_at_end_);
  }
  std::string text =
      fmt::format("{} overflow in {} since step {}: up to {} of it was beyond ",
                  gradient ? "gradient" : "forward", trouble.name, trouble.since, percent(trouble.worst));
  text += trouble.largest ? fmt::format("{:.6g}, the largest number of {}", *trouble.largest, trouble.format)
                          : fmt::format("what {} holds", trouble.format);
  if (gradient) {
    const auto at = std::find_if(records_.begin(), records_.end(),
                                 [&](auto* record) { return record->step == trouble.since; });
    text += fmt::format(", at a loss scale of {}", (*at)->scale);
  }
  text += leap(trouble);
  if (stuck_) text += fmt::format("; the last {} steps were skipped", skipped_at_end_);
  return text;
}

void Examination::judge(Diagnosis& found) const {
  constexpr double kSerious = Diagnosis::kSerious;
  if (records_.empty()) {
    found.sentence = "nothing to say: no step was recorded";
    return;
  }
  const Among ongoing{.ended = false};
  auto serious = first(What::overflow, kSerious, ongoing);
  const auto flushed = first(What::flush, RangeFile::kFlushed, ongoing);
  if (stuck_) {
    // Where steps are skipped for good, any share of a gradient is too much. A forward tensor may
    // be the cause.
    const Among since{.forward = false, .from = records_.size() - skipped_at_end_};
    auto skips = first(What::overflow, 0, since);
    if (!skips) skips = first(What::nan, 0, since);
    if (skips && (!serious || serious->since > skips->since)) serious = std::move(skips);
  }
  if (found.loss_not_finite) {
    found.condition = Condition::not_finite;
    found.subject = first(What::overflow, kSerious);
    for (const auto* otherwise : {&found.overflow, &found.nan}) {
      if (!found.subject || found.subject->since > *found.loss_not_finite) found.subject = *otherwise;
    }
    found.sentence = not_finite_sentence(found);
  } else if (serious) {
    found.condition = is_gradient(serious->kind) ? Condition::gradient_overflow : Condition::forward_overflow;
    found.subject = serious;
    found.sentence = overflow_sentence(*serious);
  } else if (flushed) {
    found.condition = Condition::flushed;
    found.subject = flushed;
    found.sentence = fmt::format("{} to zero in {} since step {}: up to {} of it was below what {} holds",
                                 is_gradient(flushed->kind) ? "gradients flushed" : "flushed", flushed->name,
                                 flushed->since, percent(flushed->worst), flushed->format);
  } else {
    check_past(found);
  }
}

// Nothing is wrong any more, but perhaps was.
void Examination::check_past(Diagnosis& found) const {
  if (const auto over = first(What::overflow, Diagnosis::kSerious)) {
    found.condition = Condition::settled;
    found.subject = over;
    found.sentence =
        over->promoted
            ? fmt::format("healthy again: {} overflowed first, at step {}, and was promoted to {}",
                          over->name, over->since, over->promoted->to)
            : fmt::format("healthy again: {} overflowed first, at step {}, but has not since step {}",
                          over->name, over->since, over->last);
    if (found.promoted > 1)
      found.sentence += fmt::format(" ({} tensors were promoted in all)", found.promoted);
  } else if (const auto flush = first(What::flush, RangeFile::kFlushed)) {
    found.condition = Condition::settled;
    found.subject = flush;
    found.sentence = fmt::format("healthy again: {} flushed to zero at step {}, but has not since step {}",
                                 flush->name, flush->since, flush->last);
  } else if (found.overflow) {
    found.condition = Condition::slight;
    found.subject = found.overflow;
    const std::vector<Ranked>& all = found.overflows;
    const auto most =
        std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.worst < b.worst; });
    found.sentence = fmt::format("healthy: a little overflow, at most {} of {} at step {}",
                                 percent(most->worst), most->name, most->worst_step);
  } else {
    found.condition = Condition::healthy;
    found.sentence = "healthy: nothing overflowed, and no tensor was flushed to zero by more than half";
  }
}

Diagnosis Examination::run() const {
  Diagnosis found;
  found.records = records_.size();
  found.tensors = history_.ranges.tensors.size();
  for (const PromoteEvent& event : history_.promotions) found.promoted += event.step <= until_ ? 1 : 0;
  if (!records_.empty()) {
    found.first_step = records_.front()->step;
    found.last_step = records_.back()->step;
    found.first_scale = records_.front()->scale;
    found.last_scale = records_.back()->scale;
  }
  found.skipped_at_end = skipped_at_end_;
  for (const RangeRecord* record : records_) {
    found.skipped += record->skipped ? 1 : 0;
    if (found.loss_not_finite || std::isfinite(record->loss)) continue;
    found.loss_not_finite = record->step;
    found.loss_not_finite_value = record->loss;
  }
  found.overflow = first(What::overflow, 0);
  found.flush = first(What::flush, RangeFile::kFlushed);
  found.nan = first(What::nan, 0);
  found.overflows = ranking(What::overflow, 0, false);
  found.flushes = ranking(What::flush, RangeFile::kFlushed, true);
  found.nearest = nearest();
  judge(found);
  for (auto* ranked : {&found.overflows, &found.flushes})
    ranked->resize(std::min(ranked->size(), Diagnosis::kRanked));
  return found;
}

}  // namespace

std::string_view condition_name(Condition condition) {
  switch (condition) {
    case Condition::empty:
      return "empty";
    case Condition::healthy:
      return "healthy";
    case Condition::slight:
      return "slight";
    case Condition::settled:
      return "settled";
    case Condition::forward_overflow:
      return "forward_overflow";
    case Condition::gradient_overflow:
      return "gradient_overflow";
    case Condition::flushed:
      return "flushed";
    case Condition::not_finite:
      return "not_finite";
  }
  return "?";
}

std::string DoctorHistory::format_at(size_t tensor, uint64_t step) const {
  std::string format = ranges.tensors[tensor].format;
  for (const PromoteEvent& event : promotions) {
    if (event.step >= step) break;
    if (event.tensor == ranges.tensors[tensor].name) format = event.to;
  }
  return format;
}

std::optional<float> largest_of(const std::string& storage) {
  const Storage parsed = parse_storage(storage);
  const FloatFormat* format = plain_format(parsed);
  return format ? std::optional(largest(*format)) : std::nullopt;
}

std::optional<float> smallest_of(const std::string& storage) {
  const Storage parsed = parse_storage(storage);
  const auto* plain = std::get_if<Plain>(&parsed);
  return plain ? std::optional(smallest_positive(plain->format)) : std::nullopt;
}

std::vector<RangePoint> range_points(const DoctorHistory& history, size_t tensor, uint64_t until) {
  const std::vector<RangeRecord>& records = history.ranges.records;
  const auto end =
      std::find_if(records.begin(), records.end(), [&](auto& record) { return record.step > until; });
  const auto begin = end - std::min<std::ptrdiff_t>(end - records.begin(), Diagnosis::kBefore + 1);
  std::vector<RangePoint> points;
  for (auto record = begin; record != end; ++record) {
    const TensorRange& range = record->tensors[tensor];
    RangePoint point{record->step, range.amax, {}, range.overflow, range.underflow};
    const std::optional<float> largest = largest_of(history.format_at(tensor, record->step));
    if (largest && range.amax > 0) point.exponent = std::log2(static_cast<double>(range.amax) / *largest);
    points.push_back(point);
  }
  return points;
}

std::vector<size_t> running_order(const std::vector<RangedTensor>& tensors) {
  using Place = std::tuple<bool, int64_t, bool, size_t>;
  std::vector<Place> places;
  int64_t layer = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Kind kind = tensors[i].kind;
    // An operator's tensors stand together.
    if (i > 0 && node_of(tensors[i].name) != node_of(tensors[i - 1].name)) ++layer;
    const bool backward = is_gradient(kind);
    places.emplace_back(backward, backward ? -layer : layer,
                        kind == Kind::activation || kind == Kind::weight_grad, i);
  }
  std::sort(places.begin(), places.end());
  std::vector<size_t> order;
  for (const Place& place : places) order.push_back(std::get<3>(place));
  return order;
}

const Trouble* main_trouble(const Diagnosis& diagnosis) {
  for (const auto* one : {&diagnosis.subject, &diagnosis.overflow, &diagnosis.flush, &diagnosis.nan}) {
    if (*one) return &**one;
  }
  return nullptr;
}

Diagnosis diagnose(const DoctorHistory& history, uint64_t until) { return Examination(history, until).run(); }

}  // namespace ulp
