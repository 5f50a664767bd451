#include "ulp/precision/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

constexpr double kDynamicStart = 65536, kGrowth = 2, kBackOff = 0.5;

[[noreturn]] void refuse(std::string_view text) {
  fail("loss-scale",
       "'{}' is no loss scale: write none, a factor from {} to {}, auto, or dynamic[:INIT[:GROWTH_STEPS]]",
       shown_text(text), LossScaler::kLowest, LossScaler::kHighest);
}

double factor(std::string_view number, std::string_view text) {
  double value = 0;
  const char* end = number.data() + number.size();
  if (std::from_chars(number.data(), end, value).ptr != end || number.empty()) refuse(text);
  if (!(value >= LossScaler::kLowest && value <= LossScaler::kHighest)) refuse(text);
  return value;
}

}  // namespace

LossScale parse_loss_scale(std::string_view text) {
  if (text == "none") return {};
  if (text == "auto") return {LossScale::Kind::automatic, 1, 0};
  if (!text.starts_with("dynamic")) return {LossScale::Kind::fixed, factor(text, text), 0};
  LossScale made{LossScale::Kind::dynamic, kDynamicStart, 0};
  std::string_view rest = text.substr(std::string_view("dynamic").size());
  if (rest.empty()) return made;
  if (rest[0] != ':') refuse(text);
  rest.remove_prefix(1);
  const size_t colon = rest.find(':');
  made.initial = factor(rest.substr(0, colon), text);
  if (colon == std::string_view::npos) return made;
  rest.remove_prefix(colon + 1);
  const char* end = rest.data() + rest.size();
  if (rest.empty() || std::from_chars(rest.data(), end, made.growth_steps).ptr != end ||
      made.growth_steps == 0) {
    refuse(text);
  }
  return made;
}

std::string loss_scale_text(const LossScale& scale) {
  switch (scale.kind) {
    case LossScale::Kind::none:
      return "none";
    case LossScale::Kind::fixed:
      return fmt::format("{}", scale.initial);
    case LossScale::Kind::automatic:
      return "auto";
    case LossScale::Kind::dynamic:
      break;
  }
  if (scale.growth_steps > 0) return fmt::format("dynamic:{}:{}", scale.initial, scale.growth_steps);
  return scale.initial == kDynamicStart ? "dynamic" : fmt::format("dynamic:{}", scale.initial);
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

bool LossScaler::accept(bool overflowed) {
  if (!skips()) return true;
  const bool dynamic = config_.kind == LossScale::Kind::dynamic;
  if (overflowed) {
    if (dynamic) state_.scale = std::max(kLowest, state_.scale * kBackOff);
    state_.good = 0;
    ++state_.skipped;
    return false;
  }
  state_.skipped = 0;
  if (dynamic && ++state_.good == config_.growth_steps) {
    state_.scale = std::min(kHighest, state_.scale * kGrowth);
    state_.good = 0;
  }
  return true;
}

}  // namespace ulp
