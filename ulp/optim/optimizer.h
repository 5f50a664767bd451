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

  // Throws Error for numbers that make no optimizer, once they are rounded to fp32, and for
  // momentum that Adam would ignore. Does not look at other numbers that the kind does not use.
  void check() const;

  bool operator==(const OptimizerConfig&) const = default;
};

using Optimizer = Optimizers::Variant;

// Throws Error where check() does.
Optimizer make_optimizer(const OptimizerConfig& config);

// "momentum", "exp_avg" and "exp_avg_sq", or "sum"; none for SGD without momentum.
std::span<const OptimizerState> optimizer_states(const Optimizer& optimizer);

// Whether a gradient of 0 leaves the weight and its state as they are, whatever they are: SGD without
// momentum, and Adagrad, both without weight decay.
bool rests_without_gradient(const OptimizerConfig& config);

// The configuration for a machine that has only the format's numbers: every scalar becomes the
// nearest one. A fraction that would become 1 becomes the number below 1. A positive number that
// would become 0 becomes the smallest one. These two change what the optimizer does; `changed` gets
// a line for each.
OptimizerConfig representable(const OptimizerConfig& config, const FloatFormat& format,
                              std::vector<std::string>* changed = nullptr);

// The scalars of one step. `updates` counts the updates before it; a skipped step does not count.
// `lr` is the rate of this step (schedule.h). Adam's bias corrections are computed in double
// without libm, so they are the same on every machine. A narrow `arithmetic` rounds rates and
// corrections to its numbers, and rounds each product of a power of beta.
UpdateScalars update_scalars(const OptimizerConfig& config, uint64_t updates, double lr,
                             double grad_scale = 1,
                             double clip_value = std::numeric_limits<double>::infinity(),
                             const std::optional<FloatFormat>& arithmetic = {});

}  // namespace ulp
