#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "ulp/doctor/checkup.h"

namespace ulp {
namespace {

std::string amount(double bytes) {
  constexpr std::array<const char*, 4> units = {"bytes", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

// "1.5 KiB more", "no more".
std::string change(double bytes) {
  if (bytes == 0) return "no more";
  return fmt::format("{} {}", amount(std::abs(bytes)), bytes > 0 ? "more" : "less");
}

std::string percent(double share) {
  if (share == 0) return "0";
  if (share < 1e-4) return "<0.01%";
  return fmt::format("{:.{}f}%", 100 * share, share < 0.1 ? 2 : 1);
}

std::string power(const std::optional<double>& exponent) {
  if (!exponent) return "-";
  if (std::isinf(*exponent)) return "inf";
  return fmt::format("2^{:+.1f}", *exponent);
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// The value of a flag as a shell takes it.
std::string quoted(const std::string& value) {
  constexpr std::string_view harmless =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:=+-_/";
  if (!value.empty() && value.find_first_not_of(harmless) == value.npos) return value;
  std::string text = "'";
  for (const char c : value) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Which of the four levels of the little pictures over time.
char level(double share) {
  if (share < 0) return ' ';
  if (share == 0) return '.';
  return share <= 0.001 ? '-' : share <= 0.01 ? '+' : share <= 0.1 ? '*' : '#';
}

std::string first_line(std::string_view what, const std::optional<Trouble>& trouble) {
  if (!trouble) return fmt::format("{:<18}none\n", what);
  const Trouble& it = *trouble;
  std::string text = fmt::format(
      "{:<18}{} at step {}: {} of its {} elements\n", what, it.name, it.since,
      percent(it.what == Trouble::What::flush ? it.first.underflow : it.first.overflow), it.elements);
  if (it.what == Trouble::What::nan) text = fmt::format("{:<18}{} at step {}\n", what, it.name, it.since);
  text += fmt::format("{:<18}{} in {}, largest magnitude {:.4g}", "", kind_name(it.kind), it.format,
                      it.first.amax);
  if (it.what == Trouble::What::overflow && it.largest)
    text += fmt::format(", largest number {:.4g}", *it.largest);
  if (it.what == Trouble::What::flush && it.smallest)
    text += fmt::format(", smallest number {:.3g}", *it.smallest);
  if (it.promoted) text += fmt::format("; promoted to {} after step {}", it.promoted->to, it.promoted->step);
  return text + "\n";
}

std::string table(const CheckUp& check_up) {
  std::string text = fmt::format("\nHow {} moved\n{:>10}{:>13}{:>18}{:>11}{:>11}\n", check_up.shown, "step",
                                 "amax", "amax / largest", "overflow", "flushed");
  for (const RangePoint& point : check_up.moved) {
    text += fmt::format("{:>10}{:>13.4g}{:>18}{:>11}{:>11}\n", point.step, point.amax, power(point.exponent),
                        percent(point.overflow), percent(point.underflow));
  }
  return text;
}

std::string ranking(std::string_view title, const std::vector<Ranked>& ranked, const Diagnosis& diagnosis) {
  if (ranked.empty()) return "";
  size_t width = 6;
  for (const Ranked& one : ranked) width = std::max(width, one.name.size());
  std::string text =
      fmt::format("\n{}, mean and worst of {} recorded steps\n  {:<{}}  {:<11}{:>8}{:>8}{:>10}  {}\n", title,
                  diagnosis.records, "tensor", width, "format", "mean", "worst", "at step",
                  fmt::format("steps {} to {}", diagnosis.first_step, diagnosis.last_step));
  for (const Ranked& one : ranked) {
    std::string picture;
    for (const double share : one.over_time) picture += level(share);
    text += fmt::format("  {:<{}}  {:<11}{:>8}{:>8}{:>10}  {}\n", one.name, width, one.format,
                        percent(one.mean), percent(one.worst), one.worst_step, picture);
  }
  return text;
}

std::string nearest(const std::vector<Near>& near) {
  if (near.empty()) return "";
  size_t width = 6;
  for (const Near& one : near) width = std::max(width, one.name.size());
  std::string text = fmt::format("\nNearest to overflow\n  {:<{}}  {:<11}{:>11}{:>16}{:>10}\n", "tensor",
                                 width, "format", "amax", "amax / largest", "at step");
  for (const Near& one : near) {
    text += fmt::format("  {:<{}}  {:<11}{:>11.4g}{:>16}{:>10}\n", one.name, width, one.format, one.at.amax,
                        power(one.at.exponent), one.at.step);
  }
  return text;
}

std::string remedies(const CheckUp& check_up) {
  std::string text;
  for (const Treatment& treatment : check_up.treatments) {
    text += fmt::format("\nWhat would keep {} from {} (a step takes {} at its peak)\n", treatment.tensor,
                        treatment.overflow ? "overflowing" : "being flushed to zero",
                        amount(static_cast<double>(check_up.step.peak_bytes)));
    size_t number = 1;
    for (const Remedy& remedy : treatment.remedies) {
      text += fmt::format("  {}. {}\n       {} {}\n       {} for tensors, {} at the peak\n", number++,
                          remedy.text, remedy.option, quoted(remedy.value),
                          change(std::ceil(static_cast<double>(remedy.aggregate_bits) / 8)),
                          change(static_cast<double>(remedy.peak_bytes)));
    }
    for (const RuledOut& not_this : treatment.ruled_out) {
      text += fmt::format("  Not {}: {}\n", not_this.kind, not_this.why);
    }
  }
  if (!check_up.no_remedies.empty()) text += fmt::format("\nNo remedies: {}\n", check_up.no_remedies);
  const auto any = [](const Treatment& treatment) { return !treatment.remedies.empty(); };
  if (std::any_of(check_up.treatments.begin(), check_up.treatments.end(), any)) {
    text += fmt::format("\nApply one to a new run: ulp train --config {} --out NEW FLAG\n",
                        quoted(check_up.folder + "/config.toml"));
  }
  return text;
}

std::string headline(const CheckUp& check_up) {
  const LossHistory& losses = check_up.losses;
  const std::string stopped = losses.diverged.empty() ? "" : capital(losses.diverged) + ".\n";
  if (check_up.narrow) return capital(check_up.diagnosis.sentence) + ".\n" + stopped;
  const std::string wide = wide_sentence(losses);
  return (losses.not_finite == 0 ? "Healthy as far as formats go: " + wide : capital(wide)) + ".\n" + stopped;
}

}  // namespace

std::string wide_sentence(const LossHistory& losses) {
  if (losses.not_finite == 0) return "no tensor of a step was narrow, so nothing was recorded";
  return fmt::format(
      "the loss of {} of {} steps was not finite, first at step {}; no tensor of a step was narrow, so "
      "formats are not "
      "why: look at the learning rate",
      losses.not_finite, losses.steps, losses.first);
}

std::string check_up_text(const CheckUp& check_up) {
  const Diagnosis& found = check_up.diagnosis;
  std::string text = headline(check_up);
  if (!check_up.narrow || found.records == 0) return text;
  text += fmt::format("\n{:<18}{} to {}, {} of them recorded; {} narrow tensors, {} promoted\n", "Steps",
                      found.first_step, found.last_step, found.records, found.tensors, found.promoted);
  std::string scale = fmt::format("{}", found.first_scale);
  if (found.last_scale != found.first_scale) scale += fmt::format(" at first, {} at last", found.last_scale);
  if (found.skipped > 0) scale += fmt::format("; {} steps were skipped", found.skipped);
  text += fmt::format("{:<18}{}\n", "Loss scale", scale);
  text += first_line("First to overflow", found.overflow);
  text += first_line("First flushed", found.flush);
  if (found.nan) text += first_line("First NaN", found.nan);
  if (!check_up.moved.empty()) text += table(check_up);
  text += ranking("Overflow", found.overflows, found);
  text += ranking("Gradients flushed to zero", found.flushes, found);
  if (!found.overflows.empty() || !found.flushes.empty()) {
    text += "  (. none, - up to 0.1%, + up to 1%, * up to 10%, # more)\n";
  }
  if (found.overflows.empty()) text += nearest(found.nearest);
  return text + remedies(check_up);
}

std::string short_check_up_text(const CheckUp& check_up) {
  std::string text = headline(check_up);
  const Trouble* trouble = main_trouble(check_up.diagnosis);
  if (trouble == nullptr) return text;
  text += first_line(trouble->what == Trouble::What::overflow ? "Overflow"
                     : trouble->what == Trouble::What::flush  ? "Flushed to zero"
                                                              : "NaN",
                     *trouble);
  return text + remedies(check_up) + fmt::format("More: ulp doctor {}\n", quoted(check_up.folder));
}

}  // namespace ulp
