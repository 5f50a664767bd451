// Which optimizer, with which hyperparameters: what the command line and checkpoints say, checked,
// and turned into the mathematics of one of list.h and the scalars of each step.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/optim/list.h"
#include "ulp/optim/update.h"

namespace ulp {

// Names of the command line. Throws an Error for others.
OptimizerKind parse_optimizer(std::string_view name);
std::string_view optimizer_name(OptimizerKind kind);
const OptimizerTraits& optimizer_traits(OptimizerKind kind);
// "sgd, adam, adamw, adagrad, lion".
std::string optimizer_names();

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::sgd;
  double lr = 0.1;  // the base rate, which a schedule multiplies
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;

  // Throws Error for numbers that make no optimizer, judged as the fp32 numbers that they become,
  // and for momentum that Adam would ignore. What a kind does not use and cannot be mistaken about
  // is not looked at.
  void check() const;

  bool operator==(const OptimizerConfig&) const = default;
};

using Optimizer = Optimizers::Variant;

// Throws Error where check() does.
Optimizer make_optimizer(const OptimizerConfig& config);

// "momentum", "exp_avg" and "exp_avg_sq", or "sum"; none for SGD without momentum.
std::span<const OptimizerState> optimizer_states(const Optimizer& optimizer);

// The configuration of a machine that has no numbers but the format's: every scalar is the nearest
// one there is. A fraction that would become 1 is the one below it, a positive number that would
// become 0 the smallest. `changed` gets a line for those two, which change what the optimizer does
// and not only how exactly.
OptimizerConfig representable(const OptimizerConfig& config, const FloatFormat& format,
                              std::vector<std::string>* changed = nullptr);

// The scalars of one step. `updates` is how many were made before it: 0 at the first, and a step
// that was skipped because its gradients had overflowed does not count. `lr` is the rate of this
// step (schedule.h). The corrections of Adam's moments are worked out in double, without libm: the
// same on every machine. With a narrow `arithmetic` rates and corrections are among its numbers,
// and powers of beta are products that are rounded one by one.
UpdateScalars update_scalars(const OptimizerConfig& config, uint64_t updates, double lr,
                             double grad_scale = 1,
                             double clip_value = std::numeric_limits<double>::infinity(),
                             const std::optional<FloatFormat>& arithmetic = {});

}  // namespace ulp
