#include "ulp/lab/least_squares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/device.h"
#include "ulp/base/error.h"
#include "ulp/lab/chart.h"
#include "ulp/lab/table.h"
#include "ulp/numeric/nearest.h"
#include "ulp/numeric/scalar.h"
#include "ulp/runtime/init.h"

namespace ulp {
namespace {

using Rule = UpdateRule::Kind;

// No random word serves twice: each use has a tensor number of its own under a seed that nothing
// else has.
constexpr uint64_t kLeastSquaresSeed = 0x7371756172657321u;
enum Stream : uint32_t { kTruth, kInputs, kNoise, kOrder, kRounding };

RoundKey stream_key(uint64_t seed, Stream stream, int64_t step = 0) {
  return {seed ^ kLeastSquaresSeed, static_cast<uint32_t>(step), stream, 0};
}

// The weights under an update rule: what is stored, and what products read of it.
class StoredWeights {
 public:
  StoredWeights(const UpdateRule& rule, const FloatFormat& format, size_t count)
      : rule_(rule), near_(make_nearest(format)), spec_(make_spec(format, Overflow::saturate)) {
    if (rule.kind != Rule::master) {
      const Storage storage = stored_weight(rule, Plain{format});
      if (const Split* split = std::get_if<Split>(&storage))
        wide_ = make_wide_spec(*split, Overflow::saturate);
    }
    operand_.assign(count, 0.0f);
    stored_ = operand_;
    compensation_ = operand_;
  }

  std::span<const float> operand() const { return operand_; }

  // Takes `decrease` off weight j. False where nothing that is stored has changed.
  bool update(size_t j, float decrease, const RoundKey& key) {
    const float before = stored_[j], compensation = compensation_[j];
    const float sum = direct_update(before, decrease);
    switch (rule_.kind) {
      case Rule::master:
        stored_[j] = sum;
        break;
      case Rule::plain:
        stored_[j] = near_(sum);
        break;
      case Rule::stochastic:
        stored_[j] = stochastic(sum, key, j);
        break;
      case Rule::kahan:
      case Rule::stochastic_kahan: {
        const Compensated next = rule_.kind == Rule::kahan
                                     ? kahan_update(before, decrease, compensation, near_, near_)
                                     : kahan_update(before, decrease, compensation, near_,
                                                    [&](float x) { return stochastic(x, key, j); });
        stored_[j] = next.weight;
        compensation_[j] = next.compensation;
        break;
      }
      case Rule::extra:
      case Rule::extra_stochastic: {
        const uint32_t code = encode_scalar(wide_, Round::nearest_even, float_bits(sum), 0).code;
        const SplitCode split =
            split_code(wide_, rule_.extra, rule_.kind == Rule::extra_stochastic, code, random_word(key, j));
        stored_[j] = bits_float(decode_scalar(wide_, code));
        operand_[j] = bits_float(decode_scalar(spec_, split.high));
        return stored_[j] != before;
      }
    }
    operand_[j] = stored_[j];
    return stored_[j] != before || compensation_[j] != compensation;
  }

 private:
  float stochastic(float x, const RoundKey& key, size_t j) const {
    const uint32_t code = encode_scalar(spec_, Round::stochastic, float_bits(x), random_word(key, j)).code;
    return bits_float(decode_scalar(spec_, code));
  }

  UpdateRule rule_;
  Nearest near_;
  CodecSpec spec_;
  CodecSpec wide_ = {};  // of the weight with its extra bits
  std::vector<float> operand_, stored_, compensation_;
};

// Adds up what a window is the mean of.
struct WindowSum {
  double loss = 0, excess = 0;
  UpdateCounts counts;
  int64_t steps = 0;

  void add(double step_loss, double step_excess, const UpdateCounts& step_counts) {
    loss += step_loss;
    excess += step_excess;
    counts.merge(step_counts);
    ++steps;
  }
  LossWindow mean(int64_t end) const {
    const auto count = static_cast<double>(steps);
    return {end, loss / count, excess / count, counts};
  }
};

// The loss of a step's example and the excess, of the weights and not of what the variant makes of
// them: in double.
std::pair<double, double> losses(std::span<const float> weights, std::span<const float> truth,
                                 std::span<const float> input, float label) {
  double residual = -static_cast<double>(label), distance = 0;
  for (size_t j = 0; j < weights.size(); ++j) {
    residual += static_cast<double>(input[j]) * static_cast<double>(weights[j]);
    const double off = static_cast<double>(weights[j]) - static_cast<double>(truth[j]);
    distance += off * off;
  }
  return {residual * residual / 2, distance / 2};
}

// Ten steps, then each window a quarter of what came before it. What would be left over at the end
// joins the last.
int64_t window_after(int64_t end, int64_t steps) {
  const int64_t next = end == 0 ? 10 : end + end / 4;
  return next + next / 4 > steps ? steps : next;
}

float dot(std::span<const float> a, std::span<const float> b) {
  float sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

double median(std::vector<double> values) {
  // NaN cannot be sorted. It stands for a run that has diverged, which is worse than any other.
  for (double& value : values) value = std::isnan(value) ? HUGE_VAL : value;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

template <typename Value>
double median_of(std::span<const LeastSquaresRun> runs, const Value& value) {
  std::vector<double> values;
  for (const LeastSquaresRun& run : runs) values.push_back(value(run));
  return median(std::move(values));
}

// The ratio of two results; "-" if a run has diverged.
std::string ratio_text(double value, double base) {
  const double ratio = value / base;
  return std::isfinite(ratio) ? fmt::format("{:.4g}", ratio) : "-";
}

}  // namespace

void LeastSquaresSetup::check() const {
  constexpr int64_t kMostNumbers = 100'000'000, kMostSteps = 1'000'000'000;
  if (dimensions < 1 || examples < 1 || dimensions > kMostNumbers / examples) {
    fail("lab", "{} examples of {} dimensions: both must be at least 1, and their product at most {}",
         examples, dimensions, kMostNumbers);
  }
  if (steps < 1 || steps > kMostSteps) fail("lab", "{} steps: there can be 1 to {}", steps, kMostSteps);
  if (!(lr > 0) || !std::isfinite(lr)) fail("lab", "the learning rate must be above 0, not {}", lr);
  if (!(noise >= 0) || !std::isfinite(noise))
    fail("lab", "the noise of labels must be at least 0, not {}", noise);
}

LeastSquaresProblem make_least_squares_problem(const LeastSquaresSetup& setup, uint64_t seed) {
  setup.check();
  const auto dimensions = static_cast<size_t>(setup.dimensions),
             examples = static_cast<size_t>(setup.examples);
  LeastSquaresProblem problem;
  problem.truth.resize(dimensions);
  problem.inputs.resize(examples * dimensions);
  problem.labels.resize(examples);
  for (size_t j = 0; j < dimensions; ++j) {
    const uint32_t word = random_word(stream_key(seed, kTruth), j);
    problem.truth[j] = 100.0f * (static_cast<float>(word >> 8) * 0x1p-24f);
  }
  fill_initial(Init::normal(1), seed ^ kLeastSquaresSeed, kInputs, problem.inputs);
  std::vector<float> noise(examples);
  fill_initial(Init::normal(static_cast<float>(setup.noise)), seed ^ kLeastSquaresSeed, kNoise, noise);
  for (size_t i = 0; i < examples; ++i) {
    double label = static_cast<double>(noise[i]);
    for (size_t j = 0; j < dimensions; ++j) {
      label +=
          static_cast<double>(problem.inputs[i * dimensions + j]) * static_cast<double>(problem.truth[j]);
    }
    problem.labels[i] = static_cast<float>(label);
  }
  return problem;
}

std::vector<LeastSquaresVariant> least_squares_variants(const FloatFormat& format) {
  if (format.bits() > 16) {
    fail("lab", "{} has {} bits: name a format of at most 16, such as bf16", format_name(format),
         format.bits());
  }
  std::vector<LeastSquaresVariant> variants = {{"fp32", {Rule::master, 0}, false},
                                               {"weights", {Rule::plain, 0}, false},
                                               {"forward/backward", {Rule::master, 0}, true},
                                               {"all nearest", {Rule::plain, 0}, true},
                                               {"stochastic", {Rule::stochastic, 0}, true},
                                               {"kahan", {Rule::kahan, 0}, true}};
  for (const LeastSquaresVariant& variant : variants) {
    if (variant.rule.kind != Rule::master) stored_weight(variant.rule, Plain{format});
  }
  try {
    const LeastSquaresVariant extra{"extra:8", {Rule::extra, 8}, true};
    stored_weight(extra.rule, Plain{format});
    variants.push_back(extra);
  } catch (const Error&) {
    // Extra bits go beside high parts of 8 and 16 bits alone.
  }
  return variants;
}

double LossWindow::cancelled() const {
  return counts.updates == 0 ? 0
                             : static_cast<double>(counts.cancelled) / static_cast<double>(counts.updates);
}

LeastSquaresRun run_least_squares(const LeastSquaresSetup& setup, const LeastSquaresVariant& variant,
                                  uint64_t seed) {
  const LeastSquaresProblem problem = make_least_squares_problem(setup, seed);
  const auto dimensions = static_cast<size_t>(setup.dimensions);
  const Nearest near = make_nearest(setup.format);
  const auto compute = [&](float x) { return variant.narrow_compute ? near(x) : x; };
  const auto lr = static_cast<float>(setup.lr);
  StoredWeights weights(variant.rule, setup.format, dimensions);

  LeastSquaresRun run;
  WindowSum window, last;
  int64_t window_end = window_after(0, setup.steps);
  const int64_t last_begin = setup.steps - std::max<int64_t>(setup.steps / 4, 1);
  for (int64_t step = 0; step < setup.steps; ++step) {
    const uint32_t word = random_word(stream_key(seed, kOrder), static_cast<uint64_t>(step));
    const auto example = static_cast<size_t>(uint64_t{word} * problem.labels.size() >> 32);
    const std::span<const float> input = std::span(problem.inputs).subspan(example * dimensions, dimensions);
    const float label = problem.labels[example];
    const auto [loss, excess] = losses(weights.operand(), problem.truth, input, label);

    const float activation = compute(dot(input, weights.operand()) - label);
    const float activation_grad = compute(activation);
    const RoundKey key = stream_key(seed, kRounding, step);
    UpdateCounts counts;
    for (size_t j = 0; j < dimensions; ++j) {
      const float decrease = lr * compute(activation_grad * input[j]);
      const bool changed = weights.update(j, decrease, key);
      if (decrease == 0) continue;
      ++counts.updates;
      if (!changed) ++counts.cancelled;
    }

    window.add(loss, excess, counts);
    if (step >= last_begin) last.add(loss, excess, counts);
    if (step + 1 == window_end) {
      run.curve.push_back(window.mean(window_end));
      window = {};
      window_end = window_after(window_end, setup.steps);
    }
  }
  run.last = last.mean(setup.steps);
  return run;
}

std::vector<LeastSquaresResult> measure_least_squares(const LeastSquaresSetup& setup, int64_t seeds) {
  constexpr int64_t kMostSeeds = 1000;
  if (seeds < 1 || seeds > kMostSeeds) fail("lab", "{} seeds: there can be 1 to {}", seeds, kMostSeeds);
  setup.check();
  std::vector<LeastSquaresResult> results;
  for (const LeastSquaresVariant& variant : least_squares_variants(setup.format)) {
    results.push_back({variant, {}});
    for (int64_t seed = 0; seed < seeds; ++seed) {
      results.back().runs.push_back(run_least_squares(setup, variant, static_cast<uint64_t>(seed)));
    }
  }
  return results;
}

double median_rounding_excess(const LeastSquaresSetup& setup, int64_t seeds) {
  const Nearest near = make_nearest(setup.format);
  std::vector<double> values;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    double distance = 0;
    for (const float w : make_least_squares_problem(setup, static_cast<uint64_t>(seed)).truth) {
      const double off = static_cast<double>(near(w)) - static_cast<double>(w);
      distance += off * off;
    }
    values.push_back(distance / 2);
  }
  return median(std::move(values));
}

double median_loss(const LeastSquaresResult& result) {
  return median_of(result.runs, [](const LeastSquaresRun& run) { return run.last.loss; });
}
double median_excess(const LeastSquaresResult& result) {
  return median_of(result.runs, [](const LeastSquaresRun& run) { return run.last.excess; });
}
double median_cancelled(const LeastSquaresResult& result) {
  return median_of(result.runs, [](const LeastSquaresRun& run) { return run.last.cancelled(); });
}

std::string least_squares_table(std::span<const LeastSquaresResult> results) {
  TextTable table;
  table.columns = {{"variant", true}, {"final loss"}, {"times fp32"},
                   {"excess"},        {"times fp32"}, {"cancelled"}};
  for (const LeastSquaresResult& result : results) {
    const double loss = median_loss(result), excess = median_excess(result);
    table.rows.push_back({result.variant.name, fmt::format("{:.4g}", loss),
                          ratio_text(loss, median_loss(results[0])), fmt::format("{:.4g}", excess),
                          ratio_text(excess, median_excess(results[0])),
                          fmt::format("{:.2f}%", 100 * median_cancelled(result))});
  }
  return table.markdown();
}

std::string least_squares_csv(std::span<const LeastSquaresResult> results) {
  TextTable table;
  table.columns = {{"variant"}, {"seed"}, {"step"}, {"loss"}, {"excess"}, {"updates"}, {"cancelled"}};
  for (const LeastSquaresResult& result : results) {
    for (size_t seed = 0; seed < result.runs.size(); ++seed) {
      for (const LossWindow& window : result.runs[seed].curve) {
        table.rows.push_back({result.variant.name, std::to_string(seed), std::to_string(window.end),
                              fmt::format("{:.6g}", window.loss), fmt::format("{:.6g}", window.excess),
                              std::to_string(window.counts.updates),
                              std::to_string(window.counts.cancelled)});
      }
    }
  }
  return table.csv();
}

std::string least_squares_svg(const LeastSquaresSetup& setup, std::span<const LeastSquaresResult> results) {
  constexpr const char* kColors[] = {"#000000", "#d55e00", "#009e73", "#e69f00",
                                     "#0072b2", "#cc79a7", "#56b4e9"};
  Panel loss, cancelled;
  loss.title = fmt::format("{}: training loss, smoothed", format_name(setup.format));
  loss.x_label = "steps";
  loss.y_label = "loss";
  loss.log_x = loss.log_y = true;
  cancelled.title = "updates cancelled by rounding";
  cancelled.x_label = "steps";
  cancelled.y_label = "% of updates";
  cancelled.log_x = true;
  for (size_t i = 0; i < results.size(); ++i) {
    const LeastSquaresResult& result = results[i];
    Series losses_line{result.variant.name, kColors[i % std::size(kColors)], {}, true, 0};
    // Lines that others lie upon are known by their dots.
    if (result.variant.name == "fp32" || result.variant.name == "kahan") losses_line.dot = 5;
    Series share_line = losses_line;
    for (size_t at = 0; at < result.runs[0].curve.size(); ++at) {
      const auto end = static_cast<double>(result.runs[0].curve[at].end);
      const auto figure = [&](auto value) {
        return median_of(result.runs, [&](const LeastSquaresRun& run) { return value(run.curve[at]); });
      };
      losses_line.points.emplace_back(end, figure([](const LossWindow& w) { return w.loss; }));
      share_line.points.emplace_back(end, 100 * figure([](const LossWindow& w) { return w.cancelled(); }));
    }
    loss.series.push_back(std::move(losses_line));
    cancelled.series.push_back(std::move(share_line));
  }
  return svg_chart(std::vector{loss, cancelled});
}

}  // namespace ulp
