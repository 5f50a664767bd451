#include "ulp/doctor/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/numeric/storage.h"
#include "ulp/precision/candidates.h"

namespace ulp {
namespace {

// Room for a tensor to grow, beyond the largest magnitude that was measured.
constexpr double kMargin = 2;

// The largest k with number * 2^k <= limit; both above 0.
int power_below(double number, double limit) {
  int k = static_cast<int>(std::floor(std::log2(limit / number)));
  while (std::ldexp(number, k) > limit) --k;
  while (std::ldexp(number, k + 1) <= limit) ++k;
  return k;
}

class Adviser {
 public:
  Adviser(const DoctorHistory& history, const Diagnosis& diagnosis, const RunConfig& config,
          const StepPlanner& plan)
      : history_(history), diagnosis_(diagnosis), config_(config), plan_(plan), now_(plan({})) {}

  Treatment treat(const Trouble& trouble);

 private:
  const RangedTensor& tensor() const { return history_.ranges.tensors[trouble_->tensor]; }
  bool overflow() const { return trouble_->what == Trouble::What::overflow; }
  // What a new run would start with.
  const std::string& format() const { return tensor().format; }

  // The largest magnitude while the run was well, and if `unscaled` what it would have been at a
  // loss scale of 1. Steps that were skipped say nothing about gradients, but where there are no
  // others.
  std::optional<double> measured(size_t i, bool unscaled = false) const;

  void promote();
  void promote_all();
  void shift_bias();
  void s2fp8();
  void loss_scale();

  void offer(const char* kind, std::string text, std::span<const FormatOverride> formats);
  void offer(const char* kind, std::string text, const std::string& format) {
    const FormatOverride one{tensor().name, parse_storage(format)};
    offer(kind, std::move(text), {&one, 1});
  }
  void rule_out(const char* kind, std::string why) { treatment_.ruled_out.push_back({kind, std::move(why)}); }
  std::string with_own_formats(std::span<const FormatOverride> formats) const;

  const DoctorHistory& history_;
  const Diagnosis& diagnosis_;
  const RunConfig& config_;
  const StepPlanner& plan_;
  const StepBytes now_;
  const Trouble* trouble_ = nullptr;
  std::optional<double> amax_;
  Treatment treatment_;
};

std::optional<double> Adviser::measured(size_t i, bool unscaled) const {
  std::optional<double> most, of_skipped;
  for (const RangeRecord& record : history_.ranges.records) {
    if (record.step > diagnosis_.last_step || !std::isfinite(record.loss)) break;
    const double amax = static_cast<double>(record.tensors[i].amax) / (unscaled ? record.scale : 1);
    if (!std::isfinite(amax) || amax == 0) continue;
    const bool counts = !record.skipped || !is_gradient(history_.ranges.tensors[i].kind);
    std::optional<double>& best = counts ? most : of_skipped;
    best = std::max(best.value_or(0), amax);
  }
  return most ? most : of_skipped;
}

// The whole value of --formats: a flag replaces what the run's configuration has.
std::string Adviser::with_own_formats(std::span<const FormatOverride> formats) const {
  std::string text;
  const auto add = [&](const FormatOverride& one) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", one.name, storage_name(one.storage));
  };
  for (const FormatOverride& own : parse_overrides(config_.formats)) {
    if (std::none_of(formats.begin(), formats.end(), [&](auto& other) { return other.name == own.name; }))
      add(own);
  }
  for (const FormatOverride& one : formats) add(one);
  return text;
}

void Adviser::offer(const char* kind, std::string text, std::span<const FormatOverride> formats) {
  try {
    const StepBytes then = plan_(formats);
    Remedy remedy{kind, std::move(text), "--formats", with_own_formats(formats), 0, 0};
    remedy.aggregate_bits =
        static_cast<int64_t>(then.aggregate_bits) - static_cast<int64_t>(now_.aggregate_bits);
    remedy.peak_bytes = static_cast<int64_t>(then.peak_bytes) - static_cast<int64_t>(now_.peak_bytes);
    treatment_.remedies.push_back(std::move(remedy));
  } catch (const Error& error) {
    rule_out(kind, error.what());
  }
}

void Adviser::promote() {
  const std::string high = tensor().high == format() ? "fp32" : tensor().high;
  if (high == format()) return rule_out("promote", "it is fp32 already");
  const std::optional<float> largest = largest_of(high), smallest = smallest_of(high);
  if (overflow() && largest && amax_ && *amax_ > *largest) {
    return rule_out("promote",
                    fmt::format("{} ends at {:.4g}, and it reached {:.4g}", high, *largest, *amax_));
  }
  if (!overflow() && smallest && trouble_->smallest && *smallest >= *trouble_->smallest) {
    return rule_out("promote", fmt::format("{} has no smaller numbers than {}", high, format()));
  }
  std::string text = fmt::format("store it as {}", high);
  if (overflow() && largest) text += fmt::format(", whose largest number is {:.4g}", *largest);
  if (!overflow() && smallest) text += fmt::format(", whose smallest number is {:.4g}", *smallest);
  offer("promote", std::move(text), high);
}

void Adviser::promote_all() {
  if (!overflow() || is_gradient(trouble_->kind)) return;
  if (promotion_of(config_) || tensor().high == format()) return;
  std::vector<FormatOverride> formats;
  for (size_t i = 0; i < history_.ranges.tensors.size(); ++i) {
    const RangedTensor& other = history_.ranges.tensors[i];
    const auto too_much = [&](const RangeRecord& record) {
      return record.step <= diagnosis_.last_step && record.tensors[i].overflow > Diagnosis::kSerious;
    };
    const auto& records = history_.ranges.records;
    if (is_gradient(other.kind) || other.high == other.format ||
        std::none_of(records.begin(), records.end(), too_much))
      continue;
    formats.push_back({other.name, parse_storage(other.high)});
  }
  if (formats.empty()) return rule_out("promote_all", "it overflows by less than promotion looks at");
  const size_t before = treatment_.remedies.size();
  offer("promote_all",
        fmt::format("let training promote what overflows by more than 1%: so far {} {}, and what is hidden "
                    "behind, at more cost",
                    formats.size(), formats.size() == 1 ? "tensor" : "tensors"),
        formats);
  if (treatment_.remedies.size() == before) return;
  treatment_.remedies.back().option = "--promote";
  treatment_.remedies.back().value = fmt::format("{}", Diagnosis::kSerious);
}

void Adviser::shift_bias() {
  const Storage storage = parse_storage(format());
  const auto* plain = std::get_if<Plain>(&storage);
  if (plain == nullptr) return rule_out("shift", fmt::format("{} has no bias to shift", format()));
  if (!amax_) return rule_out("shift", "no finite magnitude was measured that it could be fitted to");
  const FloatFormat& old = plain->format;
  // With b = 0 and no special codes. That itself may be no format, so in double.
  const double top = std::ldexp(2 - std::ldexp(1.0, -old.man), 1 << (old.exp - 1));
  const int bias = power_below(kMargin * *amax_, top);  // b divides by 2^b
  FloatFormat shifted{};
  try {
    shifted = make_format(old.exp, old.man, bias, Specials::none);
  } catch (const Error&) {
    return rule_out("shift", fmt::format("fp({},{},{}), which would fit, has numbers that fp32 does not have",
                                         old.exp, old.man, bias));
  }
  const float was = smallest_positive(old), becomes = smallest_positive(shifted);
  if (!overflow() && becomes >= was) {
    return rule_out("shift",
                    fmt::format("its largest magnitudes, up to {:.4g}, leave no room below {} in fp({},{},b)",
                                *amax_, largest(old), old.exp, old.man));
  }
  if (overflow() && largest(shifted) <= largest(old)) {
    return rule_out(
        "shift", fmt::format("{} holds the {:.4g} that it reached in steps which count", format(), *amax_));
  }
  if (trouble_->before.size() > 1) {
    const float before = trouble_->before[trouble_->before.size() - 2].amax;
    if (before > 0 && before < becomes) {
      return rule_out("shift",
                      fmt::format("what holds {:.4g} has nothing as small as the {:.4g} of the step before",
                                  *amax_, before));
    }
  }
  offer("shift",
        fmt::format("shift its range to end at {:.4g} (it reached {:.4g}); its smallest number is then "
                    "{:.3g}, not {:.3g}",
                    largest(shifted), *amax_, becomes, was),
        format_name(shifted));
}

void Adviser::s2fp8() {
  const Storage storage = parse_storage(format()), adaptive = S2fp8{};
  if (storage == adaptive) return;
  if (element_bits(adaptive) > element_bits(storage)) {
    return rule_out("s2fp8", fmt::format("it takes more bits than {}", format()));
  }
  offer("s2fp8", "store it as s2fp8, whose range follows the tensor in every step", "s2fp8");
}

void Adviser::loss_scale() {
  if (!is_gradient(trouble_->kind)) return;
  const std::optional<LossScale> chosen = loss_scale_of(config_);
  // Without a choice the scale is dynamic or there is none, which stays at 1.
  const auto& records = history_.ranges.records;
  const bool scaled =
      std::any_of(records.begin(), records.end(), [](const RangeRecord& r) { return r.scale != 1; });
  const bool dynamic = chosen ? chosen->adapts() : scaled;
  if (overflow() && dynamic) return rule_out("loss_scale", "a dynamic scale becomes smaller by itself");
  // The one that leaves every gradient its margin, as far as they are known: behind a gradient that
  // was cut off or flushed, others are not what they would be.
  double limit = std::numeric_limits<double>::infinity();
  std::string tightest;
  bool known = !overflow();
  for (size_t i = 0; i < history_.ranges.tensors.size(); ++i) {
    const RangedTensor& other = history_.ranges.tensors[i];
    const std::optional<float> largest = largest_of(other.format);
    if (!is_gradient(other.kind) || !largest) continue;
    const std::optional<double> amax = measured(i, true);
    known = known && amax;
    if (!amax || *largest / (kMargin * *amax) >= limit) continue;
    limit = *largest / (kMargin * *amax);
    tightest = other.name;
  }
  if (tightest.empty()) return rule_out("loss_scale", "no finite gradient was measured");
  const double now = diagnosis_.last_scale;
  const double scale = std::min(std::ldexp(1.0, power_below(1, limit)), LossScaler::kHighest);
  const std::string who = tightest == tensor().name ? "it" : tightest;
  if (scale < LossScaler::kLowest) {
    return rule_out("loss_scale",
                    fmt::format("the one that would fit {}, {}, is below what can be", who, scale));
  }
  if (overflow() ? scale >= now : scale <= now) {
    return rule_out("loss_scale",
                    fmt::format("{} is what leaves {} room to double, and it was {}", scale, who, now));
  }
  treatment_.remedies.push_back(
      {"loss_scale",
       fmt::format("scale the loss by {} instead of {}, which leaves {} room to double{}", scale, now, who,
                   known ? "" : ", and let it adapt"),
       "--loss-scale", fmt::format("{}{}", known ? "" : "dynamic:", scale), 0, 0});
}

Treatment Adviser::treat(const Trouble& trouble) {
  trouble_ = &trouble;
  treatment_ = {trouble.name, overflow(), {}, {}};
  amax_ = measured(trouble.tensor);
  // The step itself may be the one that spoilt the loss.
  if (overflow() && std::isfinite(trouble.first.amax))
    amax_ = std::max<double>(amax_.value_or(0), trouble.first.amax);
  if (overflow() && std::isinf(trouble.first.amax)) {
    rule_out("formats", "what was written to it was infinite already: look at what it is computed from");
    loss_scale();
    return std::move(treatment_);
  }
  loss_scale();
  if (overflow() && !treatment_.remedies.empty()) {
    // With more room here the next gradient would be the one that does not fit.
    rule_out("formats", "gradients behind it are as large: the scale is what they have in common");
    return std::move(treatment_);
  }
  promote();
  promote_all();
  shift_bias();
  s2fp8();
  return std::move(treatment_);
}

}  // namespace

std::vector<Trouble> patients(const Diagnosis& diagnosis) {
  std::vector<Trouble> ill;
  for (const auto& [what, first] : {std::pair{Trouble::What::overflow, &diagnosis.overflow},
                                    std::pair{Trouble::What::flush, &diagnosis.flush}}) {
    const std::optional<Trouble>& subject = diagnosis.subject;
    const std::optional<Trouble>& one = subject && subject->what == what ? subject : *first;
    if (one && !one->ended) ill.push_back(*one);
  }
  return ill;
}

std::vector<Treatment> find_remedies(const DoctorHistory& history, const Diagnosis& diagnosis,
                                     const RunConfig& config, const StepPlanner& plan) {
  const std::vector<Trouble> ill = patients(diagnosis);
  std::vector<Treatment> treatments;
  if (ill.empty()) return treatments;
  Adviser adviser(history, diagnosis, config, plan);
  for (const Trouble& trouble : ill) treatments.push_back(adviser.treat(trouble));
  return treatments;
}

}  // namespace ulp
