#include "ulp/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

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

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  std::vector<std::string_view> known;
  size_t found = Optimizers::kCount;
  Optimizers::for_each([&]<typename Op>() {
    if (name == Op::kName) found = known.size();
    known.emplace_back(Op::kName);
  });
  if (found == Optimizers::kCount) {
    fail("optimizer", "unknown optimizer '{}'; {}known: {}", name, nearest_hint(name, known),
         optimizer_names());
  }
  return static_cast<OptimizerKind>(found);
}

std::string_view optimizer_name(OptimizerKind kind) {
  std::string_view name = "?";
  Optimizers::visit(static_cast<size_t>(kind), [&]<typename Op>() { name = Op::kName; });
  return name;
}

const OptimizerTraits& optimizer_traits(OptimizerKind kind) {
  const OptimizerTraits* traits = &Sgd::kTraits;
  Optimizers::visit(static_cast<size_t>(kind), [&]<typename Op>() { traits = &Op::kTraits; });
  return *traits;
}

std::string optimizer_names() {
  std::string names;
  Optimizers::for_each([&]<typename Op>() { names += (names.empty() ? "" : ", ") + std::string(Op::kName); });
  return names;
}

void OptimizerConfig::check() const {
  check_positive("learning rate", lr);
  if (!(weight_decay >= 0 && std::isfinite(narrowed(weight_decay)))) {
    fail("optimizer", "weight decay is {}; it must be 0 or a positive finite number", weight_decay);
  }
  check_fraction("momentum", momentum);
  const OptimizerTraits& traits = optimizer_traits(kind);
  if (traits.momentums && nesterov && narrowed(momentum) == 0) {
    fail("optimizer", "Nesterov's look ahead needs momentum; give a momentum above 0, such as 0.9");
  }
  if (!traits.momentums && (momentum != 0 || nesterov)) {
    fail("optimizer", "{} has no {}{}", optimizer_name(kind), nesterov ? "Nesterov's look ahead" : "momentum",
         traits.moments ? "; its moments are set by beta1 and beta2" : "");
  }
  if (traits.eps > 0) check_positive("eps", eps);
  if (!traits.moments) return;
  check_fraction("beta1", beta1);
  check_fraction("beta2", beta2);
}

Optimizer make_optimizer(const OptimizerConfig& config) {
  config.check();
  Optimizer made;
  Optimizers::visit(static_cast<size_t>(config.kind), [&]<typename Op>() { made = Op::make(config); });
  return made;
}

std::span<const OptimizerState> optimizer_states(const Optimizer& optimizer) {
  return std::visit(
      [](const auto& op) { return std::span(op.kTraits.states).first(static_cast<size_t>(op.states())); },
      optimizer);
}

bool rests_without_gradient(const OptimizerConfig& config) {
  const bool keeps_nothing = config.kind == OptimizerKind::sgd && config.momentum == 0;
  return config.weight_decay == 0 && (keeps_nothing || config.kind == OptimizerKind::adagrad);
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
  const OptimizerTraits& traits = optimizer_traits(config.kind);
  if (traits.eps > 0) made.eps = settle("eps", config.eps, false);
  if (!traits.moments) return made;
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
