// The least-squares experiment against what theory says of it, and theorem 1 of "Revisiting
// BFloat16 training": the part that holds, the part that does not, and what remains of it.
#include "ulp/lab/least_squares.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "ulp/base/error.h"
#include "ulp/base/philox.h"
#include "ulp/lab/chart.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

constexpr uint64_t kSeeds = 6;

double unit_at(const FloatFormat& format, double x) {
  return std::ldexp(1.0, std::max(std::ilogb(x), format.emin()) - format.man);
}

// Nearest-even from double, once, without the library. No overflow.
double to_nearest(const FloatFormat& format, double x) {
  if (x == 0) return x;
  const double unit = unit_at(format, x);
  return std::nearbyint(x / unit) * unit;
}

LeastSquaresSetup setup_of(const char* format, double lr, double noise = 0.5) {
  LeastSquaresSetup setup;
  setup.format = parse_format(format);
  setup.lr = lr;
  setup.noise = noise;
  setup.steps = lr < 0.005 ? 40000 : 20000;  // the time to converge is a few times 1 / lr
  return setup;
}

using Runs = std::map<std::string, LeastSquaresRun>;
Runs runs_of(const LeastSquaresSetup& setup, uint64_t seed) {
  Runs runs;
  for (const LeastSquaresVariant& variant : least_squares_variants(setup.format)) {
    runs[variant.name] = run_least_squares(setup, variant, seed);
  }
  return runs;
}

// What is expected of the excess |w - w*|^2 / 2 in the end.
struct Expected {
  // Weights that are exact but read rounded take turns between the two numbers around w*, so that
  // the mean is right: the variance is f (1 - f) unit^2 where w* lies at f between them.
  double taking_turns = 0;
  // Stochastic rounding moves a weight by a whole unit with probability |update| / unit. In balance
  // the mean square of those moves, unit * |update|, is what the drift lr * (w - w*) takes back,
  // whatever lr is. With E|x| = sqrt(2 / pi) and a residual of variance noise^2 + 2 S that gives S
  // = sum of units / (2 pi) * sqrt(noise^2 + 2 S).
  double random_walk = 0;
};
Expected expected_of(const LeastSquaresSetup& setup, uint64_t seed) {
  Expected expected;
  double units = 0;
  for (const float w : make_least_squares_problem(setup, seed).truth) {
    const double unit = unit_at(setup.format, w), f = w / unit - std::floor(w / unit);
    expected.taking_turns += f * (1 - f) * unit * unit / 2;
    units += unit;
  }
  const double c = units / (2 * std::numbers::pi);
  expected.random_walk = c * (c + std::sqrt(c * c + setup.noise * setup.noise));
  return expected;
}

TEST(LeastSquares, ProblemHasItsLaws) {
  LeastSquaresSetup setup;
  setup.dimensions = 100;
  const LeastSquaresProblem problem = make_least_squares_problem(setup, 3);
  double mean = 0, inputs = 0, squares = 0, noise = 0;
  for (const float w : problem.truth) {
    EXPECT_GE(w, 0);
    EXPECT_LT(w, 100);
    mean += w / 100;
  }
  EXPECT_NEAR(mean, 50, 4 * 2.9);  // standard errors
  for (size_t i = 0; i < 1000; ++i) {
    double residual = problem.labels[i];
    for (size_t j = 0; j < 100; ++j) {
      const double x = problem.inputs[100 * i + j];
      inputs += x / 1e5;
      squares += x * x / 1e5;
      residual -= x * problem.truth[j];
    }
    noise += residual * residual / 1000;
  }
  EXPECT_NEAR(inputs, 0, 4 * 0.0032);
  EXPECT_NEAR(squares, 1, 4 * 0.0045);
  EXPECT_NEAR(noise, 0.25, 4 * 0.0112);
}

// Two steps on one example, by hand.
TEST(LeastSquares, FirstUpdateRoundsWhatTheVariantSays) {
  LeastSquaresSetup setup = setup_of("e8m3", 0.01);
  setup.steps = 2;
  setup.examples = 1;
  const auto q = [&](float x) { return static_cast<float>(to_nearest(setup.format, x)); };
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const LeastSquaresProblem problem = make_least_squares_problem(setup, seed);
    const double y = problem.labels[0];
    Runs runs = runs_of(setup, seed);
    std::vector<double> losses;
    for (const auto& [name, narrow_compute, narrow_weight] : {std::tuple("fp32", false, false),
                                                              {"weights", false, true},
                                                              {"forward/backward", true, false},
                                                              {"all nearest", true, true}}) {
      double residual = -y;
      for (const float x : problem.inputs) {
        const float a = narrow_compute ? q(-problem.labels[0]) : -problem.labels[0];
        const float w = -0.01f * (narrow_compute ? q(a * x) : a * x);
        residual += static_cast<double>(x) * static_cast<double>(narrow_weight ? q(w) : w);
      }
      const double loss = (y * y + residual * residual) / 4;
      ASSERT_EQ(runs[name].curve.size(), 1u);
      EXPECT_NEAR(runs[name].curve[0].loss, loss, 1e-12 * loss) << name;
      losses.push_back(loss);
    }
    std::sort(losses.begin(), losses.end());
    EXPECT_EQ(std::unique(losses.begin(), losses.end()), losses.end());
  }
}

// Figure 2 of the paper, and why.
TEST(LeastSquares, NearestWeightUpdatesSaturateAndNothingElseDoes) {
  struct Case {
    const char* format;
    double lr, least_ratio;  // of the excess with rounded weight updates to that of fp32
  };
  // At 0.01 the noise of labels makes updates that half a unit of fp16 does not always swallow; at
  // 0.001 it does.
  for (const Case& c : {Case{"bf16", 0.01, 100},
                        {"e8m5", 0.01, 1000},
                        {"bf16", 0.001, 1e4},
                        {"fp16", 0.001, 1000},
                        {"e8m5", 0.001, 1e5}}) {
    const LeastSquaresSetup setup = setup_of(c.format, c.lr);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("{} at {}, seed {}", c.format, c.lr, seed));
      Runs runs = runs_of(setup, seed);
      const double fp32 = runs["fp32"].last.excess;
      for (const char* name : {"weights", "all nearest"}) {
        EXPECT_GT(runs[name].last.excess, c.least_ratio * fp32) << name;
        // Not all: a weight that belongs near 0 has fine units and keeps moving, such as 0.78 in
        // seed 0.
        EXPECT_GT(runs[name].last.cancelled(), 0.85) << name;
      }
      EXPECT_LT(runs["fp32"].last.cancelled(), 0.05);
      EXPECT_NEAR(runs["forward/backward"].last.excess, fp32, 0.02 * fp32);
      EXPECT_NE(runs["forward/backward"].last.excess, fp32);
    }
  }
}

TEST(LeastSquares, OtherRulesSettleAtWhatTheFormatCanHold) {
  for (const char* format : {"bf16", "fp16", "e8m5"}) {
    const LeastSquaresSetup setup = setup_of(format, 0.01);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", format, seed));
      Runs runs = runs_of(setup, seed);
      const Expected expected = expected_of(setup, seed);
      // SGD's own: lr noise^2 d / (2 (2 - lr (d + 2))), and noise^2 d / 2n for having seen n
      // examples alone.
      const double fp32 = runs["fp32"].last.excess;
      EXPECT_NEAR(fp32, 0.00665 + 0.00125, 0.4 * 0.0079);
      const double turns = expected.taking_turns + fp32, walk = expected.random_walk;
      EXPECT_NEAR(runs["kahan"].last.excess, turns, 0.3 * turns);
      EXPECT_NEAR(runs["stochastic"].last.excess, walk, 0.4 * walk);
      if (runs.contains("extra:8")) {
        EXPECT_NEAR(runs["extra:8"].last.excess, turns, 0.3 * turns);
      }
    }
  }
  EXPECT_EQ(least_squares_variants(parse_format("bf16")).back().name, "extra:8");
  EXPECT_EQ(least_squares_variants(parse_format("e8m5")).back().name, "kahan");
}

TEST(LeastSquares, SmallerRatesAreWorseForNearestAlone) {
  for (const char* format : {"bf16", "fp16", "e8m5"}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", format, seed));
      Runs fast = runs_of(setup_of(format, 0.01), seed), slow = runs_of(setup_of(format, 0.001), seed);
      EXPECT_GT(slow["all nearest"].last.excess, 20 * fast["all nearest"].last.excess);
      EXPECT_LT(slow["stochastic"].last.excess, 2 * fast["stochastic"].last.excess);
      EXPECT_LT(slow["kahan"].last.excess, 2 * fast["kahan"].last.excess);
      EXPECT_GT(slow["all nearest"].last.excess, 100 * slow["stochastic"].last.excess);
      EXPECT_GT(slow["stochastic"].last.excess, slow["kahan"].last.excess);
    }
  }
}

// Theorem 2: with exact weight updates, rounded activations and gradients still lead to w* itself.
TEST(LeastSquares, WithoutNoiseRoundedGradientsReachTheOptimum) {
  for (const char* format : {"bf16", "fp16", "e8m5", "e8m3"}) {
    const LeastSquaresSetup setup = setup_of(format, 0.01, 0);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", format, seed));
      Runs runs = runs_of(setup, seed);
      EXPECT_LT(runs["forward/backward"].last.excess, 1e-8);
      EXPECT_GT(runs["weights"].last.excess, 1e6 * runs["fp32"].last.excess);
    }
  }
}

TEST(LeastSquares, RunsRepeatAndCoverEveryStep) {
  LeastSquaresSetup setup;
  for (const int64_t steps : {1, 9, 10, 12, 13, 1000, 1234}) {
    setup.steps = steps;
    const std::vector<LeastSquaresResult> results = measure_least_squares(setup, 2);
    EXPECT_EQ(least_squares_csv(results), least_squares_csv(measure_least_squares(setup, 2)));
    for (const LeastSquaresResult& result : results) {
      int64_t before = 0;
      uint64_t updates = 0;
      for (const LossWindow& window : result.runs[1].curve) {
        EXPECT_GT(window.end, before);
        before = window.end;
        updates += window.counts.updates;
      }
      EXPECT_EQ(before, steps);
      EXPECT_EQ(updates, static_cast<uint64_t>(10 * steps)) << result.variant.name;
      EXPECT_NE(result.runs[0].last.loss, result.runs[1].last.loss);
    }
    const std::string svg = least_squares_svg(setup, results);
    EXPECT_NE(svg.find(">kahan<"), svg.npos);
    EXPECT_EQ(svg.find(">-0<"), svg.npos);
    EXPECT_NE(least_squares_table(results).find("| forward/backward |"), std::string::npos);
  }
}

// Steps lie on a logarithmic axis, where 0 and what is below it have no place.
TEST(LeastSquares, ChartsMayHaveLogarithmicSteps) {
  Panel panel{"", "", "", {{"s", "red", {{0, 3}, {-1, 4}, {10, 0}, {1000, 5}, {100000, 5}}}}};
  panel.log_x = true;
  const std::string svg = svg_chart(std::vector{panel});
  const auto count = [&](std::string_view part) {
    int found = 0;
    for (size_t at = svg.find(part); at != svg.npos; at = svg.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("h0"), 3 + 1);  // and the legend's
  EXPECT_EQ(count(">10<") + count(">100<") + count(">10000<"), 3);
  EXPECT_EQ(count(">0<"), 1);  // of the other axis
  EXPECT_EQ(count(">-0<"), 0);
}

TEST(LeastSquares, RefusesWhatCannotBeRun) {
  const auto refused = [](auto change) {
    LeastSquaresSetup setup;
    change(setup);
    EXPECT_THROW(measure_least_squares(setup, 1), Error);
  };
  refused([](LeastSquaresSetup& s) { s.steps = 0; });
  refused([](LeastSquaresSetup& s) { s.dimensions = 0; });
  refused([](LeastSquaresSetup& s) { s.examples = -1; });
  refused([](LeastSquaresSetup& s) { s.examples = s.dimensions = int64_t{1} << 40; });
  refused([](LeastSquaresSetup& s) { s.lr = 0; });
  refused([](LeastSquaresSetup& s) { s.lr = std::nan(""); });
  refused([](LeastSquaresSetup& s) { s.noise = -1; });
  refused([](LeastSquaresSetup& s) { s.format = parse_format("fp32"); });
  EXPECT_THROW(measure_least_squares({}, 0), Error);
}

// Theorem 1.

double norm(std::span<const double> v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

// A regression that some w* fits perfectly, and weights of the format not far from it.
struct Exact {
  FloatFormat format;
  std::vector<std::vector<double>> inputs;  // fp32 numbers, as are w* and lr
  std::vector<double> truth, weights;
  double lr, rate;  // rate: lr L

  // Half the smaller of the gaps beside a number is at least this part of it.
  double epsilon() const { return std::ldexp(1.0, -format.man - 2); }
  double least() const {
    double least = HUGE_VAL;
    for (const double w : truth) least = std::min(least, std::abs(w));
    return least;
  }
  double radius() const { return epsilon() / (rate + epsilon()) * least(); }
  double distance() const {
    std::vector<double> off;
    for (size_t j = 0; j < truth.size(); ++j) off.push_back(weights[j] - truth[j]);
    return norm(off);
  }

  // The weights after a step on example i.
  std::vector<double> stepped(size_t i) const {
    double residual = 0;
    for (size_t j = 0; j < truth.size(); ++j) residual += inputs[i][j] * (weights[j] - truth[j]);
    std::vector<double> next;
    for (size_t j = 0; j < truth.size(); ++j) {
      next.push_back(to_nearest(format, weights[j] - lr * (residual * inputs[i][j])));
    }
    return next;
  }
  bool all_cancelled() const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (stepped(i) != weights) return false;
    }
    return true;
  }

  // The same as a program computes it, in fp32 from an fp32 label.
  bool all_cancelled_in_fp32() const {
    const Nearest near = make_nearest(format);
    for (const std::vector<double>& input : inputs) {
      double label = 0;
      float activation = 0;
      for (size_t j = 0; j < truth.size(); ++j) {
        label += input[j] * truth[j];
        activation += static_cast<float>(input[j]) * static_cast<float>(weights[j]);
      }
      activation -= static_cast<float>(label);
      for (size_t j = 0; j < truth.size(); ++j) {
        const auto w = static_cast<float>(weights[j]);
        if (near(w - static_cast<float>(lr) * (activation * static_cast<float>(input[j]))) != w) return false;
      }
    }
    return true;
  }
  // By how much an update in fp32 can differ: d + 6 roundings, each at most 2^-24 of |x| (|w| +
  // |w*|), and that of the sum.
  double fp32_error() const {
    double most = 0;
    for (const std::vector<double>& input : inputs) {
      double terms = 0, largest = 0;
      for (size_t j = 0; j < truth.size(); ++j) {
        terms += std::abs(input[j]) * (std::abs(weights[j]) + std::abs(truth[j]));
        largest = std::max(largest, std::abs(input[j]));
      }
      most = std::max(most, lr * largest * 1.01 * static_cast<double>(truth.size() + 6) * 0x1p-24 * terms);
    }
    return most + 0x1p-23 * norm(weights);
  }
};

class Draw {
 public:
  explicit Draw(uint32_t seed) : seed_(seed) {}
  double uniform(double low, double high) {
    const PhiloxWords words = philox({{at_++, 0, 0, 0}}, {{seed_, 0x7468656Fu}});
    return low + (high - low) * (static_cast<double>(words.word[0]) + 0.5) * 0x1p-32;
  }
  int whole(int low, int high) { return static_cast<int>(std::floor(uniform(low, high + 1))); }

 private:
  uint32_t seed_, at_ = 0;
};

Exact random_exact(const FloatFormat& format, uint32_t seed, int most_units) {
  Draw draw(seed);
  Exact exact{format, {}, {}, {}, 0, 0};
  const auto fp32 = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  const int dimensions = draw.whole(1, 5), examples = draw.whole(1, 6);
  const double scale = std::ldexp(1.0, draw.whole(-2, 4));
  double most = 0;
  for (int i = 0; i < examples; ++i) {
    std::vector<double> input(static_cast<size_t>(dimensions));
    for (double& x : input) x = fp32(draw.uniform(-2, 2));
    most = std::max(most, norm(input));
    exact.inputs.push_back(std::move(input));
  }
  exact.lr = fp32(std::exp2(draw.uniform(-8, 0)) / (most * most));
  exact.rate = exact.lr * most * most;
  const bool representable = draw.whole(0, 2) == 0;
  for (int j = 0; j < dimensions; ++j) {
    const double w = fp32((draw.whole(0, 1) == 0 ? scale : -scale) * draw.uniform(1, 2.5));
    exact.truth.push_back(representable ? to_nearest(format, w) : w);
    const double moved = exact.truth.back() + draw.whole(-most_units, most_units) * unit_at(format, w);
    exact.weights.push_back(to_nearest(format, moved));
  }
  return exact;
}

constexpr const char* kTheoremFormats[] = {"bf16", "fp16", "e8m5", "e8m3", "e5m2", "fp(6,9,0)"};

TEST(Theorem1, EveryUpdateIsCancelledInsideTheRadius) {
  for (const char* name : kTheoremFormats) {
    SCOPED_TRACE(name);
    int inside = 0, inside_fp32 = 0, outside = 0, outside_moved = 0;
    for (uint32_t seed = 0; seed < 20000; ++seed) {
      const Exact exact = random_exact(parse_format(name), seed, 1 + static_cast<int>(seed % 4));
      const double distance = exact.distance(), radius = exact.radius();
      if (exact.rate > 1 || distance == 0 || distance > 4 * radius) continue;
      if (distance > radius) {
        ++outside;
        outside_moved += exact.all_cancelled() ? 0 : 1;
        continue;
      }
      ++inside;
      ASSERT_TRUE(exact.all_cancelled()) << "seed " << seed;
      // Room for the errors of fp32, in the theorem's own inequality.
      if ((exact.rate + exact.epsilon()) * distance + exact.fp32_error() > exact.epsilon() * exact.least())
        continue;
      ++inside_fp32;
      ASSERT_TRUE(exact.all_cancelled_in_fp32()) << "seed " << seed;
    }
    EXPECT_GT(inside, 1000);
    EXPECT_GT(inside_fp32, 1000);
    EXPECT_GT(outside_moved, 100);
    EXPECT_LT(outside_moved, outside);  // the radius is sufficient, not necessary
  }
}

// In one dimension the gaps are at most twice what the radius allows for, so four times as far away
// nothing is cancelled.
TEST(Theorem1, RadiusIsSharpUpToAFactorInOneDimension) {
  for (const char* name : {"bf16", "fp16", "e8m5"}) {
    SCOPED_TRACE(name);
    int moved = 0;
    for (uint32_t seed = 0; seed < 20000; ++seed) {
      const Exact exact = random_exact(parse_format(name), seed, 12);
      if (exact.truth.size() > 1 || exact.inputs.size() > 1 || exact.rate > 1 || exact.rate < 0.125) continue;
      if (exact.distance() <= 4 * exact.radius()) continue;
      ++moved;
      ASSERT_FALSE(exact.all_cancelled()) << "seed " << seed;
    }
    EXPECT_GT(moved, 100);
  }
}

// One dimension and x = 1, so that L = 1.
Exact line(double truth, double weight, double lr) {
  return {parse_format("bf16"), {{1}}, {truth}, {weight}, lr, lr};
}

// The paper has |u - v| >= epsilon |u| for neighbours: the whole gap, 2^-8 in bf16. Half a gap is
// what cancels.
TEST(Theorem1, NeedsHalfThePapersEpsilon) {
  const Exact exact = line(2, 2 - 0x1p-7, 0.9);
  const double paper = 2 * exact.epsilon();
  EXPECT_LE(exact.distance(), paper / (exact.rate + paper) * 2);
  EXPECT_EQ(exact.stepped(0)[0], 2);
  EXPECT_GT(exact.distance(), exact.radius());
}

TEST(Theorem1, PrintedLowerBoundOverManyStepsIsFalse) {
  Exact exact = line(1, 1 + 0x1p-6, 0.6);
  // The ball is not entered but by the last step, with the paper's epsilon as little as with half
  // of it.
  const double paper = 2 * exact.epsilon(), paper_radius = paper / (exact.rate + paper);
  EXPECT_NEAR(exact.radius() * (1 - exact.rate), 0.001298, 1e-6);  // the bound
  EXPECT_NEAR(paper_radius * (1 - exact.rate), 0.002587, 1e-6);
  EXPECT_GT(exact.distance(), paper_radius);
  exact.weights = exact.stepped(0);
  EXPECT_EQ(exact.weights[0], 1 + 0x1p-7);
  EXPECT_GT(exact.distance(), paper_radius);
  exact.weights = exact.stepped(0);
  EXPECT_EQ(exact.distance(), 0);
}

// A step outside the ball ends at v with |v - w*| >= (1 - rate) radius; rounding then moves it by
// at most 2 epsilon |v| <= 2 epsilon (|w*| + |v - w*|). Inside the ball nothing moves.
TEST(Theorem1, LowerBoundHoldsLessTheErrorOfRounding) {
  for (const char* name : kTheoremFormats) {
    SCOPED_TRACE(name);
    int meaningful = 0, printed_broken = 0;
    for (uint32_t seed = 0; seed < 4000; ++seed) {
      Exact exact = random_exact(parse_format(name), seed, 1 << seed % 6);
      if (exact.rate > 1 || exact.distance() <= exact.radius()) continue;
      const double start = exact.distance(), printed = (1 - exact.rate) * exact.radius();
      const double corrected = (1 - 2 * exact.epsilon()) * printed - 2 * exact.epsilon() * norm(exact.truth);
      double nearest = start;
      for (size_t step = 0; step < 300; ++step) {
        exact.weights = exact.stepped(step % exact.inputs.size());
        nearest = std::min(nearest, exact.distance());
      }
      printed_broken += nearest < std::min(printed, start) ? 1 : 0;
      if (corrected <= 0) continue;
      ++meaningful;
      ASSERT_GE(nearest, corrected) << "seed " << seed;
    }
    EXPECT_GT(meaningful, 100);
    EXPECT_GT(printed_broken, 20);
  }
}

}  // namespace
}  // namespace ulp
