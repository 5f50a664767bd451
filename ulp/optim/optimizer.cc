#include "ulp/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

struct KindName {
  std::string_view name;
  OptimizerKind kind;
};

constexpr KindName kKindNames[] = {{"sgd", OptimizerKind::sgd},
                                   {"adam", OptimizerKind::adam},
                                   {"adamw", OptimizerKind::adamw},
                                   {"adagrad", OptimizerKind::adagrad}};

constexpr OptimizerState kSgdStates[] = {{"momentum"}};
constexpr OptimizerState kAdamStates[] = {{"exp_avg"}, {"exp_avg_sq", true}};
constexpr OptimizerState kAdagradStates[] = {{"sum", true}};

// Steps use fp32: a number that is 0, 1 or infinity there is one.
float narrowed(double x) { return static_cast<float>(x); }

void check_positive(std::string_view what, double x) {
  if (!(narrowed(x) > 0 && std::isfinite(narrowed(x)))) {
    fail("optimizer", "{} is {}; it must be a positive finite number in fp32", what, x);
  }
}

void check_fraction(std::string_view what, double x) {
  if (!(x >= 0 && narrowed(x) < 1)) fail("optimizer", "{} is {}; it must be at least 0 and below 1", what, x);
}

// beta^count, by squaring.
double power(double beta, uint64_t count) {
  double result = 1;
  for (double square = beta; count != 0; count >>= 1, square *= square) {
    if ((count & 1) != 0) result *= square;
  }
  return result;
}

AdamMoments make_moments(const OptimizerConfig& c) {
  return {.beta1 = narrowed(c.beta1),
          .rest1 = narrowed(1 - c.beta1),
          .beta2 = narrowed(c.beta2),
          .rest2 = narrowed(1 - c.beta2),
          .eps = narrowed(c.eps)};
}

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  for (const KindName& row : kKindNames) {
    if (row.name == name) return row.kind;
  }
  fail("optimizer", "unknown optimizer '{}'; known: sgd, adam, adamw, adagrad", name);
}

std::string_view optimizer_name(OptimizerKind kind) {
  for (const KindName& row : kKindNames) {
    if (row.kind == kind) return row.name;
  }
  return "?";
}

void OptimizerConfig::check() const {
  check_positive("learning rate", lr);
  if (!(weight_decay >= 0 && std::isfinite(narrowed(weight_decay)))) {
    fail("optimizer", "weight decay is {}; it must be 0 or a positive finite number", weight_decay);
  }
  check_fraction("momentum", momentum);
  if (kind == OptimizerKind::sgd) {
    if (nesterov && narrowed(momentum) == 0) {
      fail("optimizer", "Nesterov's look ahead needs momentum; give a momentum above 0, such as 0.9");
    }
    return;
  }
  if (momentum != 0 || nesterov) {
    fail("optimizer", "{} has no {}{}", optimizer_name(kind), nesterov ? "Nesterov's look ahead" : "momentum",
         kind == OptimizerKind::adagrad ? "" : "; its moments are set by beta1 and beta2");
  }
  check_positive("eps", eps);
  if (kind == OptimizerKind::adagrad) return;
  check_fraction("beta1", beta1);
  check_fraction("beta2", beta2);
}

Optimizer make_optimizer(const OptimizerConfig& config) {
  config.check();
  const float decay = narrowed(config.weight_decay);
  switch (config.kind) {
    case OptimizerKind::sgd:
      return Sgd{.momentum = narrowed(config.momentum), .weight_decay = decay, .nesterov = config.nesterov};
    case OptimizerKind::adam:
      return Adam{.moments = make_moments(config), .weight_decay = decay};
    case OptimizerKind::adamw:
      return AdamW{.moments = make_moments(config), .weight_decay = decay};
    case OptimizerKind::adagrad:
      return Adagrad{.weight_decay = decay, .eps = narrowed(config.eps)};
  }
  fail("optimizer", "unknown kind {} of optimizer", static_cast<int>(config.kind));
}

std::span<const OptimizerState> optimizer_states(const Optimizer& optimizer) {
  if (const Sgd* sgd = std::get_if<Sgd>(&optimizer)) {
    return std::span(kSgdStates).first(static_cast<size_t>(sgd->states()));
  }
  if (std::holds_alternative<Adagrad>(optimizer)) return kAdagradStates;
  return kAdamStates;
}

OptimizerConfig representable(const OptimizerConfig& config, const FloatFormat& format,
                              std::vector<std::string>* changed) {
  const Nearest near = make_nearest(format);
  const auto note = [&](std::string_view what, double from, double to, std::string_view instead) {
    if (changed == nullptr) return;
    changed->push_back(fmt::format("{} is {}, which would be {} in {}: {} is used", what, from, instead,
                                   format_name(format), to));
  };
  // Of the format's numbers below 1 the largest, above 0 the smallest.
  const double below_one = 1 - std::ldexp(1.0, -format.man - 1),
               smallest = std::ldexp(1.0, format.emin() - format.man);
  const auto settle = [&](std::string_view what, double x, bool fraction) -> double {
    const double nearest = near(narrowed(x));
    if (fraction && nearest >= 1) {
      note(what, x, below_one, "1");
      return below_one;
    }
    if (narrowed(x) != 0 && nearest == 0) {
      note(what, x, smallest, "0");
      return smallest;
    }
    return nearest;
  };
  OptimizerConfig made = config;
  made.momentum = settle("momentum", config.momentum, true);
  made.weight_decay = settle("weight_decay", config.weight_decay, false);
  if (config.kind == OptimizerKind::sgd) return made;
  made.eps = settle("eps", config.eps, false);
  if (config.kind == OptimizerKind::adagrad) return made;
  made.beta1 = settle("beta1", config.beta1, true);
  made.beta2 = settle("beta2", config.beta2, true);
  return made;
}

namespace {

// beta^count where every product is rounded. It ends at 0, or where rounding takes it no further.
float narrow_power(const Nearest& near, float beta, uint64_t count) {
  float power = 1;
  for (uint64_t i = 0; i < count; ++i) {
    const float next = near(power * beta);
    if (next == power) break;
    power = next;
  }
  return power;
}

}  // namespace

UpdateScalars update_scalars(const OptimizerConfig& config, uint64_t updates, double lr, double grad_scale,
                             double clip_value, const std::optional<FloatFormat>& arithmetic) {
  if (!(narrowed(clip_value) > 0)) {
    fail("optimizer", "gradients are clipped to {}; the limit must be above 0, infinity for none",
         clip_value);
  }
  const uint64_t t = updates + 1;
  UpdateScalars made = {.lr = narrowed(lr),
                        .grad_scale = narrowed(grad_scale),
                        .clip_value = narrowed(clip_value),
                        .adam_rate = narrowed(lr / (1 - power(config.beta1, t))),
                        .adam_root = narrowed(1 / std::sqrt(1 - power(config.beta2, t)))};
  if (arithmetic) {
    const Nearest near = make_nearest(*arithmetic);
    made.lr = near(made.lr);
    made.rest1 = near(1 - narrow_power(near, narrowed(config.beta1), t));
    made.rest2 = near(1 - narrow_power(near, narrowed(config.beta2), t));
    made.decay_rate = near(made.lr * narrowed(config.weight_decay));
  }
  return made;
}

}  // namespace ulp
