// What all optimizers share: the scalars of one step, what happens to a raw gradient first, and the
// arithmetic. An optimizer sees one element: its weight, its gradient and its states, all as fp32
// numbers. It says what to subtract from the weight. The rule (rule.h) decides how weight and
// states are stored, and how the difference is rounded.
//
// Steps use IEEE operations in fp32 in a fixed order and no fma, so they give the same bits on CPU
// and GPU and in a vectorised loop. A NaN that comes out, in a weight or a state, is the one of
// kNanBits (math.h).
//
// Every operation's result goes through an arithmetic. Wide leaves it in fp32. Nearest (nearest.h)
// rounds it to a format, as a processor for that format alone would.
#pragma once

#include "ulp/base/device.h"

namespace ulp {

// The same for all elements of a step. update_scalars (optimizer.h) works them out in double.
struct UpdateScalars {
  float lr;  // the learning rate of this step
  // Factor on the raw gradient: one over the loss scale, times the factor of clipping by norm. It
  // stays fp32 in narrow arithmetic, whose smallest number may be larger.
  float grad_scale;
  float clip_value;  // then gradients are cut to [-clip_value, clip_value]; infinity: not
  float adam_rate;   // lr / (1 - beta1^t), t the number of the update, from 1
  float adam_root;   // 1 / sqrt(1 - beta2^t): corrects the square root of the second moment
  // For narrow arithmetic, which divides by them as the formulas have it: 1 - beta1^t, 1 - beta2^t;
  // lr * weight decay.
  float rest1 = 1, rest2 = 1, decay_rate = 0;
};

// What an optimizer keeps for each weight, in the order in which it takes them.
struct OptimizerState {
  const char* name = nullptr;  // in checkpoints
  bool squares = false;        // of gradients: never negative, over twice the range, and divided by
};

// What is known of an optimizer without its mathematics: its defaults, and which hyperparameters it
// has.
struct OptimizerTraits {
  double lr, momentum = 0, weight_decay = 0;
  double eps = 0;          // 0: it has none
  bool momentums = false;  // it has momentum, and Nesterov's form of it
  bool moments = false;    // it has beta1 and beta2
  double beta2 = 0;        // 0: it has none
  // For help: what the shares beta1 and beta2 are of. Empty where it has none.
  const char *beta1_help = "", *beta2_help = "";
  bool only_grows = false;  // a state grows by less and less: 8 bits would lose it
  OptimizerState states[2] = {};
};

struct Wide {
  static constexpr bool kNarrow = false;
  ULP_HD constexpr float operator()(float x) const { return x; }
};

// The gradient as an optimizer takes it. A NaN stays one: it fails both comparisons.
template <typename Arithmetic>
ULP_HD constexpr float treat_gradient(const UpdateScalars& s, float grad, const Arithmetic& q) {
  const float g = q(grad * s.grad_scale);
  const float below = g > s.clip_value ? s.clip_value : g;
  return below < -s.clip_value ? -s.clip_value : below;
}

}  // namespace ulp
