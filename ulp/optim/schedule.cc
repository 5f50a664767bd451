#include "ulp/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr uint64_t kMaxWarmupSteps = uint64_t{1} << 53;  // a double counts them

[[noreturn]] void bad_schedule(std::string_view text, std::string_view why) {
  fail("schedule",
       "'{}': {}; forms: constant, step:EVERY:FACTOR, multi-step:E1,E2,..:FACTOR, cosine[:FLOOR], "
       "linear[:FLOOR] (epochs; FACTOR above 0, at most 1; FLOOR at least 0, below 1)",
       text, why);
}

[[noreturn]] void bad_warmup(std::string_view text, std::string_view why) {
  fail("schedule",
       "warm-up '{}': {}; forms: STEPS[:START], EPOCHSe[:START] (START 0 to 1), such as 500, 5e, 5e:0.1",
       text, why);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The whole text as a finite number without a sign, or nothing.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  if (text.empty() || std::string_view("0123456789.").find(text[0]) == std::string_view::npos) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::vector<uint32_t> parse_epochs(std::string_view text, std::string_view list) {
  std::vector<uint32_t> epochs;
  for (const std::string_view part : split(list, ',')) {
    const auto epoch = number<uint32_t>(part);
    if (!epoch || *epoch == 0) bad_schedule(text, fmt::format("'{}' is no number of epochs", part));
    if (!epochs.empty() && *epoch <= epochs.back()) bad_schedule(text, "milestones must ascend");
    epochs.push_back(*epoch);
  }
  return epochs;
}

double parse_factor(std::string_view text, std::string_view part) {
  const auto factor = number<double>(part);
  if (!factor || !(*factor > 0 && *factor <= 1)) bad_schedule(text, fmt::format("'{}' is no factor", part));
  return *factor;
}

double parse_floor(std::string_view text, std::string_view part) {
  const auto floor = number<double>(part);
  if (!floor || !(*floor < 1)) bad_schedule(text, fmt::format("'{}' is no floor", part));
  return *floor;
}

// The factor on the base rate without a warm-up; `progress` goes from 0 to 1 over the steps after
// it.
double factor_of(const Schedule& s, uint64_t epoch, double progress) {
  switch (s.kind) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::step:
      if (s.epochs.size() != 1 || s.epochs[0] == 0) fail("schedule", "step needs EVERY, one number above 0");
      return std::pow(s.factor, static_cast<double>(epoch / s.epochs[0]));
    case ScheduleKind::multi_step: {
      const auto passed = std::upper_bound(s.epochs.begin(), s.epochs.end(), epoch) - s.epochs.begin();
      return std::pow(s.factor, static_cast<double>(passed));
    }
    case ScheduleKind::cosine:
      return s.floor + (1 - s.floor) * (0.5 + 0.5 * std::cos(std::numbers::pi * progress));
    case ScheduleKind::linear:
      return s.floor + (1 - s.floor) * (1 - progress);
  }
  fail("schedule", "unknown kind {} of schedule", static_cast<int>(s.kind));
}

}  // namespace

uint64_t Warmup::steps(uint64_t steps_per_epoch) const {
  const double steps = in_epochs ? length * static_cast<double>(steps_per_epoch) : length;
  if (!(steps >= 0 && steps <= static_cast<double>(kMaxWarmupSteps))) {
    fail("schedule", "a warm-up of {} steps; it must be at least 0 and at most 2^53", steps);
  }
  return static_cast<uint64_t>(std::llround(steps));
}

Schedule parse_schedule(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto want = [&](size_t least, size_t most) {
    if (parts.size() < least + 1) bad_schedule(text, "something is missing");
    if (parts.size() > most + 1) bad_schedule(text, fmt::format("'{}' is too much", parts[most + 1]));
  };
  Schedule s;
  if (parts[0] == "constant") {
    want(0, 0);
  } else if (parts[0] == "step" || parts[0] == "multi-step") {
    want(2, 2);
    s.kind = parts[0] == "step" ? ScheduleKind::step : ScheduleKind::multi_step;
    s.epochs = parse_epochs(text, parts[1]);
    if (s.kind == ScheduleKind::step && s.epochs.size() != 1) bad_schedule(text, "EVERY is one number");
    s.factor = parse_factor(text, parts[2]);
  } else if (parts[0] == "cosine" || parts[0] == "linear") {
    want(0, 1);
    s.kind = parts[0] == "cosine" ? ScheduleKind::cosine : ScheduleKind::linear;
    if (parts.size() == 2) s.floor = parse_floor(text, parts[1]);
  } else {
    bad_schedule(text, "unknown schedule");
  }
  return s;
}

Warmup parse_warmup(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() > 2) bad_warmup(text, fmt::format("'{}' is too much", parts[2]));
  Warmup w;
  std::string_view length = parts[0];
  w.in_epochs = length.ends_with('e');
  if (w.in_epochs) length.remove_suffix(1);
  const auto count = number<double>(length);
  if (!count) bad_warmup(text, fmt::format("'{}' is no number", length));
  w.length = *count;
  if (!w.in_epochs && w.length != std::floor(w.length)) bad_warmup(text, "steps are whole numbers");
  if (w.length > static_cast<double>(kMaxWarmupSteps)) bad_warmup(text, "that is too long");
  if (parts.size() == 2) {
    const auto start = number<double>(parts[1]);
    if (!start || *start > 1) bad_warmup(text, fmt::format("'{}' is no START", parts[1]));
    w.start = *start;
  }
  return w;
}

std::string schedule_text(const Schedule& s) {
  switch (s.kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::step:
    case ScheduleKind::multi_step: {
      std::string text = s.kind == ScheduleKind::step ? "step" : "multi-step";
      char before = ':';
      for (const uint32_t epoch : s.epochs) {
        text += fmt::format("{}{}", before, epoch);
        before = ',';
      }
      return text + fmt::format(":{}", s.factor);
    }
    case ScheduleKind::cosine:
    case ScheduleKind::linear: {
      const std::string_view name = s.kind == ScheduleKind::cosine ? "cosine" : "linear";
      return s.floor == 0 ? std::string(name) : fmt::format("{}:{}", name, s.floor);
    }
  }
  return "?";
}

std::string warmup_text(const Warmup& w) {
  const std::string_view unit = w.in_epochs ? "e" : "";
  return w.start == 0 ? fmt::format("{}{}", w.length, unit) : fmt::format("{}{}:{}", w.length, unit, w.start);
}

double rate(const Schedule& schedule, double base_lr, uint64_t step, uint64_t steps_per_epoch,
            uint64_t total_steps) {
  if (steps_per_epoch == 0) fail("schedule", "an epoch has no steps; it must have at least one");
  const uint64_t warm = schedule.warmup.steps(steps_per_epoch);
  if (step < warm) {
    const double part = static_cast<double>(step + 1) / static_cast<double>(warm + 1);
    return base_lr * (schedule.warmup.start + (1 - schedule.warmup.start) * part);
  }
  const double progress =
      step >= total_steps ? 1 : static_cast<double>(step - warm) / static_cast<double>(total_steps - warm);
  return base_lr * factor_of(schedule, step / steps_per_epoch, progress);
}

}  // namespace ulp
