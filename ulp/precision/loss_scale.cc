#include "ulp/precision/loss_scale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

constexpr double kDynamicStart = 65536, kGrowth = 2, kBackOff = 0.5, kLeast = 1;

// A kind that takes arguments after its name: the fields they fill, in their order.
struct Form {
  std::string_view name, text;    // the text as messages show it
  LossScale start;                // what holds where an argument is left out
  size_t needed;                  // arguments that must be there
  double LossScale::*factors[2];  // before and after the number of steps; null: none
  bool steps;
};

using Kind = LossScale::Kind;
constexpr Form kForms[] = {
    {"constant", "constant:S", {.kind = Kind::constant}, 1, {&LossScale::initial, nullptr}, false},
    {"dynamic",
     "dynamic[:INIT[:GROWTH_STEPS]]",
     {.kind = Kind::dynamic, .initial = kDynamicStart},
     0,
     {&LossScale::initial, nullptr},
     true},
    {"back-off",
     "back-off[:INIT[:GROWTH_STEPS[:LEAST]]]",
     {.kind = Kind::back_off, .initial = kDynamicStart, .least = kLeast},
     0,
     {&LossScale::initial, &LossScale::least},
     true},
    {"exponential",
     "exponential:INIT:STEPS[:FACTOR]",
     {.kind = Kind::exponential},
     2,
     {&LossScale::initial, &LossScale::factor},
     true},
};

[[noreturn]] void refuse(std::string_view text) {
  std::vector<std::string_view> forms;
  for (const Form& form : kForms) forms.push_back(form.text);
  fail("loss-scale", "'{}' is no loss scale: write none, a factor from {} to {}, auto, {}", shown_text(text),
       LossScaler::kLowest, LossScaler::kHighest, fmt::join(forms, ", "));
}

template <typename T>
T number(std::string_view word, std::string_view text) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || rest != end) refuse(text);
  return value;
}

double factor(std::string_view word, std::string_view text) {
  const double value = number<double>(word, text);
  if (!(value >= LossScaler::kLowest && value <= LossScaler::kHighest)) refuse(text);
  return value;
}

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t colon; (colon = text.find(':')) != text.npos; text.remove_prefix(colon + 1))
    words.push_back(text.substr(0, colon));
  words.push_back(text);
  return words;
}

// The arguments of a value, with those that need not be written left out.
std::string arguments_text(const Form& form, const LossScale& scale) {
  std::string all, written;
  size_t count = 0;
  const auto add = [&](const std::string& word, bool usual) {
    all += ":" + word;
    if (++count <= form.needed || !usual) written = all;
  };
  const auto add_factor = [&](double LossScale::*member) {
    if (member != nullptr) add(fmt::format("{}", scale.*member), scale.*member == form.start.*member);
  };
  add_factor(form.factors[0]);
  if (form.steps) add(fmt::format("{}", scale.growth_steps), scale.growth_steps == 0);
  add_factor(form.factors[1]);
  return written;
}

}  // namespace

LossScale parse_loss_scale(std::string_view text) {
  if (text == "none") return {};
  if (text == "auto") return {.kind = Kind::automatic};
  const std::vector<std::string_view> words = split_at_colons(text);
  const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                 [&](const Form& each) { return each.name == words[0]; });
  if (form == std::end(kForms)) return {.kind = Kind::fixed, .initial = factor(text, text)};
  LossScale made = form->start;
  size_t next = 1;
  const auto more = [&] { return next < words.size(); };
  if (more()) made.*form->factors[0] = factor(words[next++], text);
  if (more() && form->steps) {
    made.growth_steps = number<uint64_t>(words[next++], text);
    if (made.growth_steps == 0) refuse(text);
  }
  if (more() && form->factors[1] != nullptr) made.*form->factors[1] = factor(words[next++], text);
  if (more() || next <= form->needed || made.least > made.initial) refuse(text);
  return made;
}

std::string loss_scale_text(const LossScale& scale) {
  for (const Form& form : kForms) {
    if (form.start.kind == scale.kind) return std::string(form.name) + arguments_text(form, scale);
  }
  if (scale.kind == Kind::none) return "none";
  return scale.kind == Kind::automatic ? "auto" : fmt::format("{}", scale.initial);
}

LossScaler::LossScaler(const LossScale& config, uint64_t steps_per_epoch) : config_(config) {
  if (config_.growth_steps == 0) config_.growth_steps = std::max<uint64_t>(steps_per_epoch, 1);
  state_.scale = config_.kind == LossScale::Kind::none ? 1 : config_.initial;
}

double next_trial_scale(double tried, double headroom) {
  // No gradient at all, or none that is finite: the highest, or far down.
  if (headroom > 0x1p60) return LossScaler::kHighest;
  if (!(headroom > 0x1p-60)) return std::max(LossScaler::kLowest, tried / 256);
  const double factor = std::exp2(std::floor(std::log2(headroom / LossScaler::kMargin)));
  return std::clamp(std::exp2(std::floor(std::log2(tried * factor))), LossScaler::kLowest,
                    LossScaler::kHighest);
}

void LossScaler::grow(double factor) {
  if (++state_.good != config_.growth_steps) return;
  state_.scale = std::clamp(state_.scale * factor, kLowest, kHighest);
  state_.good = 0;
}

bool LossScaler::accept(bool overflowed) {
  if (config_.kind == Kind::exponential) grow(config_.factor);
  if (!config_.may_skip()) return true;
  if (overflowed) {
    const bool counts = !skips();
    if (config_.adapts()) state_.scale = std::max({kLowest, config_.least, state_.scale * kBackOff});
    state_.good = 0;
    state_.skipped = counts ? 0 : state_.skipped + 1;
    return counts;
  }
  state_.skipped = 0;
  if (config_.adapts()) grow(kGrowth);
  return true;
}

}  // namespace ulp
