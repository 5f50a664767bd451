// Where rounding hurts in plain SGD, on a problem whose answer is known: the least-squares
// regression of "Revisiting BFloat16 training" (section 3.1, figure 2). Rounding the weight after
// each update loses every update below half a unit of it, and the loss stays where updates have
// become that small; rounding activations and gradients alone costs little.
//
// A run follows from its setup, its variant and its seed, the same bits on every machine. All
// variants of a seed see the same examples in the same order. Products and sums are fp32, as in a
// unit that accumulates in fp32; what a variant rounds is rounded once, at the end of its
// operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/optim/rule.h"

namespace ulp {

struct LeastSquaresSetup {
  FloatFormat format = parse_format("bf16");
  int64_t dimensions = 10, examples = 1000;
  int64_t steps = 50000;  // of one example each, drawn with replacement
  double lr = 0.01;
  double noise = 0.5;  // standard deviation of the labels around the line

  // Throws an Error, which names the limits, for what cannot be run.
  void check() const;
};

// Examples (x, y) with x normal and y = x w* + noise, and the w* that made them, uniform in [0,
// 100).
struct LeastSquaresProblem {
  std::vector<float> truth;   // w*
  std::vector<float> inputs;  // examples x dimensions
  std::vector<float> labels;
};
LeastSquaresProblem make_least_squares_problem(const LeastSquaresSetup& setup, uint64_t seed);

// A choice of what is rounded to the format. With the rule master, weights are not rounded.
struct LeastSquaresVariant {
  std::string name;
  UpdateRule rule;
  bool narrow_compute = false;  // the activation x w - y, its gradient and the weight's gradient
};

// fp32, weights, forward/backward, all nearest, stochastic, kahan, and extra:8 where the format can
// have extra bits. Throws an Error for a format that weights cannot be stored in.
std::vector<LeastSquaresVariant> least_squares_variants(const FloatFormat& format);

// Means over some steps in a row, of the weights that the step began with and as products read
// them.
struct LossWindow {
  int64_t end = 0;           // steps done after it
  double loss = 0;           // (x w - y)^2 / 2 of the step's example, before its update, in double
  double excess = 0;         // |w - w*|^2 / 2: what fresh inputs would cost without noise
  UpdateCounts counts;       // of single weights
  double cancelled() const;  // share of updates that changed nothing that is stored
};

struct LeastSquaresRun {
  // Ten steps, then each window a quarter longer: the smoothed training loss.
  std::vector<LossWindow> curve;
  LossWindow last;  // the last quarter of all steps: where the loss saturates
};

// Starts from weights of zero. Throws an Error where the setup or the variant cannot be run.
LeastSquaresRun run_least_squares(const LeastSquaresSetup& setup, const LeastSquaresVariant& variant,
                                  uint64_t seed);

// A variant with its runs, seeds from 0 on.
struct LeastSquaresResult {
  LeastSquaresVariant variant;
  std::vector<LeastSquaresRun> runs;
};
std::vector<LeastSquaresResult> measure_least_squares(const LeastSquaresSetup& setup, int64_t seeds);

// The median over seeds of a figure of the last quarter.
double median_loss(const LeastSquaresResult& result);
double median_excess(const LeastSquaresResult& result);
double median_cancelled(const LeastSquaresResult& result);

// The median excess of w* itself, rounded to nearest: no weights of the format have less.
double median_rounding_excess(const LeastSquaresSetup& setup, int64_t seeds);

// For people: medians, with ratios to the first result, which is fp32.
std::string least_squares_table(std::span<const LeastSquaresResult> results);
// A line for each window of each run.
std::string least_squares_csv(std::span<const LeastSquaresResult> results);
// Medians over seeds: the smoothed loss and the share of cancelled updates against steps.
std::string least_squares_svg(const LeastSquaresSetup& setup, std::span<const LeastSquaresResult> results);

}  // namespace ulp
