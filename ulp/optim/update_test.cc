// The mathematics of the optimizers: against textbooks in double over many steps, in closed form
// over few, on gradients that are no numbers, and bit by bit in loops that the compiler makes
// vector code of.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "tests/support/optimizers.h"
#include "ulp/base/philox.h"
#include "ulp/numeric/nearest.h"
#include "ulp/numeric/split.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/rule.h"

namespace ulp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using enum OptimizerKind;

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// Any optimizer, one element at a time.
float step_of(const Optimizer& optimizer, const UpdateScalars& s, float weight, float grad, float* state) {
  return std::visit([&](const auto& o) { return master_step(o, s, weight, grad, state); }, optimizer);
}
float step_of(const OptimizerConfig& c, const UpdateScalars& s, float weight, float grad, float* state) {
  return step_of(make_optimizer(c), s, weight, grad, state);
}

// Uniform in (-1, 1), the same on every machine.
double uniform(uint32_t stream, uint32_t i) {
  const uint32_t word = philox({{i, stream, 0, 0}}, {{7, 11}}).word[0];
  return (static_cast<double>(word) + 0.5) * 0x1p-31 - 1;
}

// The optimizers as their papers and PyTorch's documentation write them, in double.
struct Textbook {
  double w, m = 0, v = 0;
  double beta1_power = 1, beta2_power = 1;

  void step(const OptimizerConfig& c, double lr, double g) {
    if (c.kind != adamw) g += c.weight_decay * w;
    if (c.kind == sgd) {
      m = c.momentum * m + g;
      w -= lr * (c.nesterov ? g + c.momentum * m : m);
      return;
    }
    if (c.kind == adamw) w -= lr * c.weight_decay * w;
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * g * g;
    beta1_power *= c.beta1;
    beta2_power *= c.beta2;
    const double first = m / (1 - beta1_power), second = v / (1 - beta2_power);
    w -= lr * first / (std::sqrt(second) + c.eps);
  }
};

const OptimizerConfig kConfigs[] = {
    {.kind = sgd, .lr = 0.05},
    {.kind = sgd, .lr = 0.05, .weight_decay = 0.01},
    {.kind = sgd, .lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4},
    {.kind = sgd, .lr = 0.01, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4},
    {.kind = adam, .lr = 1e-3},
    {.kind = adam, .lr = 1e-3, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6},
    {.kind = adamw, .lr = 1e-3, .weight_decay = 0.1},
    {.kind = adamw, .lr = 1e-2, .weight_decay = 0.01, .beta1 = 0, .beta2 = 0.9, .eps = 1e-3},
};

TEST(Update, ThousandStepsFollowTheTextbook) {
  constexpr int kSteps = 1000;
  constexpr double kScale = 1.0 / 64, kClip = 0.8;  // one gradient in five is cut
  for (const OptimizerConfig& c : kConfigs) {
    const Optimizer optimizer = make_optimizer(c);
    double worst = 0;
    for (uint32_t element = 0; element < 16; ++element) {
      float w = static_cast<float>(uniform(1000, element)), state[2] = {0, 0};
      Textbook book{.w = w};
      // Sizes from 1 down to 1e-7; clipping is tried on the large ones.
      const double size = std::pow(10.0, -static_cast<double>(element % 8));
      for (uint32_t step = 0; step < kSteps; ++step) {
        const double lr = c.lr * (1 - 0.5 * step / kSteps);
        const float raw = static_cast<float>(size * uniform(element, step) / kScale);
        const UpdateScalars s = update_scalars(c, step, lr, kScale, kClip);
        w = step_of(optimizer, s, w, raw, state);
        book.step(c, lr, std::clamp(static_cast<double>(raw) * kScale, -kClip, kClip));
      }
      // Each step rounds the weight by at most 2^-24 of it, and its own change, whose sum is a few
      // units, by some times 2^-24.
      worst = std::fmax(worst, std::fabs(w - book.w));
    }
    EXPECT_LT(worst, kSteps * 0x1p-24) << optimizer_name(c.kind) << " " << c.lr << " " << c.weight_decay;
    EXPECT_GT(worst, 0);
  }
}

TEST(Update, SgdInClosedForm) {
  // Numbers that fp32 holds exactly.
  const UpdateScalars s = update_scalars({}, 0, 0.5);
  float none[1] = {0};
  EXPECT_EQ(master_step(Sgd{}, s, 1.0f, 0.25f, none), 0.875f);
  none[0] = 0;
  EXPECT_EQ((master_step(Sgd{.weight_decay = 0.5f}, s, 1.0f, 0.25f, none)), 0.625f);
  // The first step is that of plain descent; a constant gradient then gives sums of powers.
  const Sgd heavy{.momentum = 0.5f};
  float m[1] = {0};
  float w = 0;
  const float expected[] = {-0.5f, -1.25f, -2.125f, -3.0625f};
  for (const float e : expected) EXPECT_EQ(w = master_step(heavy, s, w, 1.0f, m), e);
  EXPECT_EQ(m[0], 1.875f);
  // Nesterov: g + momentum * m with the new m.
  const Sgd ahead{.momentum = 0.5f, .nesterov = true};
  m[0] = 0;
  EXPECT_EQ(master_step(ahead, s, 0.0f, 1.0f, m), -0.75f);
  EXPECT_EQ(m[0], 1.0f);
  EXPECT_EQ(master_step(ahead, s, -0.75f, 1.0f, m), -0.75f - 0.5f * (1.0f + 0.5f * 1.5f));
}

TEST(Update, DecreaseIsWhatStepTakesOff) {
  for (const OptimizerConfig& c : kConfigs) {
    std::visit(
        [&](const auto& o) {
          float a[2] = {0, 0}, b[2] = {0, 0}, w = 0.3f;
          for (uint32_t step = 0; step < 20; ++step) {
            const UpdateScalars s = update_scalars(c, step, c.lr);
            const float g = static_cast<float>(uniform(5, step));
            const float off = o.decrease(s, w, g, a), next = master_step(o, s, w, g, b);
            EXPECT_EQ(bits_of(next), bits_of(w - off));
            EXPECT_EQ(bits_of(a[0]), bits_of(b[0]));
            EXPECT_EQ(bits_of(a[1]), bits_of(b[1]));
            // Without momentum nobody keeps the state.
            if (o.states() == 0) a[0] = b[0] = 0;
            w = next;
          }
        },
        make_optimizer(c));
  }
}

TEST(Update, AdamsFirstStepIsTheRateWhateverTheGradientsSize) {
  for (const auto kind : {adam, adamw}) {
    const OptimizerConfig c{.kind = kind, .lr = 0.01, .eps = 1e-30};
    for (const float g : {1e-12f, 1e-3f, 1.0f, 1e10f}) {
      for (const float sign : {1.0f, -1.0f}) {
        float state[2] = {0, 0};
        EXPECT_NEAR(step_of(c, update_scalars(c, 0, c.lr), 0.0f, sign * g, state), -sign * 0.01f, 1e-8) << g;
        EXPECT_FLOAT_EQ(state[0], sign * 0.1f * g);
        EXPECT_FLOAT_EQ(state[1], 0.001f * (g * g));
      }
    }
  }
}

TEST(Update, EpsIsOutsideTheRoot) {
  // A first step of lr * g / (|g| + eps), with eps as large as g: half the rate.
  const OptimizerConfig c{.kind = adam, .lr = 0.01, .eps = 1e-3};
  float state[2] = {0, 0};
  EXPECT_NEAR(step_of(c, update_scalars(c, 0, c.lr), 0.0f, 1e-3f, state), -0.005f, 1e-8);
}

TEST(Update, AdamwDecaysBesideTheGradientAdamThroughIt) {
  const OptimizerConfig w{.kind = adamw, .lr = 0.5, .weight_decay = 0.25};
  float state[2] = {0, 0};
  EXPECT_EQ(step_of(w, update_scalars(w, 0, w.lr), 8.0f, 0.0f, state), 7.0f);  // 8 (1 - 1/8)
  EXPECT_EQ(state[0], 0.0f);
  EXPECT_EQ(state[1], 0.0f);
  // Adam sees a gradient of 2, and the first step is the rate.
  const OptimizerConfig l2{.kind = adam, .lr = 0.5, .weight_decay = 0.25};
  EXPECT_NEAR(step_of(l2, update_scalars(l2, 0, l2.lr), 8.0f, 0.0f, state), 7.5f, 1e-5);
  EXPECT_FLOAT_EQ(state[0], 0.2f);
  EXPECT_FLOAT_EQ(state[1], 0.004f);
}

TEST(Update, GradientsAreScaledThenCutThenDecayed) {
  const UpdateScalars s = update_scalars({}, 0, 1, 0.5, 1.5);
  EXPECT_EQ(treat_gradient(s, 2.0f, Wide{}), 1.0f);
  EXPECT_EQ(treat_gradient(s, -2.5f, Wide{}), -1.25f);
  EXPECT_EQ(treat_gradient(s, 4.0f, Wide{}), 1.5f);
  EXPECT_EQ(treat_gradient(s, -kInf, Wide{}), -1.5f);
  EXPECT_EQ(treat_gradient(update_scalars({}, 0, 1), -kInf, Wide{}), -kInf);
  float none[1] = {0};
  // The decay of 2 comes on top of the 1.5 that are left.
  EXPECT_EQ((master_step(Sgd{.weight_decay = 0.5f}, s, 4.0f, 100.0f, none)), 0.5f);
}

TEST(Update, NanInAnyPlaceGivesTheOneNan) {
  const float other_nan = std::bit_cast<float>(0xFFABCDEFu);
  for (const OptimizerConfig& c : kConfigs) {
    for (const double clip : {1.0, static_cast<double>(kInf)}) {
      const UpdateScalars s = update_scalars(c, 3, c.lr, 1, clip);
      const auto states = static_cast<int>(optimizer_states(make_optimizer(c)).size());
      for (const float nan : {kNan, -kNan, other_nan}) {
        float state[2] = {0, 0};
        EXPECT_EQ(bits_of(step_of(c, s, 1.0f, nan, state)), kNanBits);
        for (int i = 0; i < states; ++i) EXPECT_EQ(bits_of(state[i]), kNanBits);
        float again[2] = {0, 0};
        EXPECT_EQ(bits_of(step_of(c, s, nan, 1.0f, again)), kNanBits);
        for (int i = 0; i < states; ++i) {
          float one[2] = {0, 0};
          one[i] = nan;
          EXPECT_EQ(bits_of(step_of(c, s, 1.0f, 1.0f, one)), kNanBits);
          EXPECT_EQ(bits_of(one[i]), kNanBits);
        }
      }
      // An overflowed gradient that is not cut leaves no finite weight unnoticed: infinity or NaN.
      float state[2] = {0, 0};
      const float after = step_of(c, s, 1.0f, kInf, state);
      EXPECT_EQ(std::isfinite(after), clip == 1.0) << optimizer_name(c.kind);
    }
  }
}

// A loop over arrays, which the compiler may vectorise, against a call for each element that it may
// not.
struct Arrays {
  std::vector<float> weight, grad, first, second;

  explicit Arrays(size_t n) : weight(n), grad(n), first(n), second(n) {
    const float odd[] = {0.0f, -0.0f, kInf, -kInf, kNan, 0x1p-149f, -0x1p-126f, 3e38f, -3e38f, 1e-30f};
    for (uint32_t i = 0; i < n; ++i) {
      weight[i] = i % 31 == 0 ? odd[i / 31 % 10] : static_cast<float>(uniform(1, i));
      grad[i] = i % 29 == 0 ? odd[i / 29 % 10] : static_cast<float>(uniform(2, i) * uniform(3, i));
      first[i] = i % 37 == 0 ? odd[i / 37 % 10] : static_cast<float>(uniform(4, i));
      second[i] =
          i % 41 == 0 ? std::fabs(odd[i / 41 % 10]) : static_cast<float>(uniform(5, i) * uniform(5, i));
    }
  }
};

template <typename O>
void step_all(const O& optimizer, const UpdateScalars& scalars, Arrays& a) {
  const O o = optimizer;
  const UpdateScalars s = scalars;
  float* __restrict weight = a.weight.data();
  float* __restrict first = a.first.data();
  float* __restrict second = a.second.data();
  const float* __restrict grad = a.grad.data();
  const size_t n = a.weight.size();
  for (size_t i = 0; i < n; ++i) {
    float state[2] = {first[i], second[i]};
    weight[i] = master_step(o, s, weight[i], grad[i], state);
    first[i] = state[0];
    second[i] = state[1];
  }
}

template <typename O>
[[gnu::noinline]] float step_one(const O& o, const UpdateScalars& s, float weight, float grad, float* state) {
  return master_step(o, s, weight, grad, state);
}

TEST(Update, LoopsGiveTheRecordedBits) {
  constexpr size_t kCount = 4099;  // not a multiple of any vector
  // The same on every machine that keeps IEEE's operations apart.
  const uint32_t recorded[] = {0x8658C680u, 0xC4286BA1u, 0x4377EB7Au, 0x145CED09u,
                               0x7D7D3891u, 0x2B77037Au, 0xBD24F2CBu, 0x79BF086Eu};
  for (size_t k = 0; k < std::size(kConfigs); ++k) {
    std::visit(
        [&](const auto& o) {
          Arrays loop(kCount), one(kCount);
          uint32_t sum = 0x811C9DC5u;
          for (uint32_t step = 0; step < 3; ++step) {
            const UpdateScalars s = update_scalars(kConfigs[k], step, kConfigs[k].lr, 1.5, 0.4);
            step_all(o, s, loop);
            for (size_t i = 0; i < kCount; ++i) {
              float state[2] = {one.first[i], one.second[i]};
              one.weight[i] = step_one(o, s, one.weight[i], one.grad[i], state);
              one.first[i] = state[0];
              one.second[i] = state[1];
              const uint32_t now[] = {bits_of(one.weight[i]), bits_of(one.first[i]), bits_of(one.second[i])};
              const uint32_t then[] = {bits_of(loop.weight[i]), bits_of(loop.first[i]),
                                       bits_of(loop.second[i])};
              for (int j = 0; j < 3; ++j) {
                ASSERT_EQ(now[j], then[j]) << "configuration " << k << ", step " << step << ", element " << i;
                // SGD leaves the second state alone, and a NaN of the input there is as it was.
                sum = (sum ^ now[j]) * 0x01000193u;
              }
            }
          }
          EXPECT_EQ(sum, recorded[k]) << "configuration " << k;
        },
        make_optimizer(kConfigs[k]));
  }
}

TEST(Update, AdagradFollowsTheTextbook) {
  for (const double decay : {0.0, 0.01}) {
    const OptimizerConfig c{.kind = adagrad, .lr = 0.05, .weight_decay = decay, .eps = 1e-10};
    const Optimizer optimizer = make_optimizer(c);
    double worst = 0;
    for (uint32_t element = 0; element < 16; ++element) {
      float w = static_cast<float>(uniform(1000, element)), state[2] = {0, 0};
      double book = w, sum = 0;
      const double size = std::pow(10.0, -static_cast<double>(element % 8));
      for (uint32_t step = 0; step < 1000; ++step) {
        const auto g = static_cast<float>(size * uniform(element, step));
        w = step_of(optimizer, update_scalars(c, step, c.lr), w, g, state);
        const double decayed = g + decay * book;
        sum += decayed * decayed;
        book -= c.lr * decayed / (std::sqrt(sum) + c.eps);
      }
      worst = std::fmax(worst, std::fabs(w - book));
      EXPECT_NEAR(state[0], sum, 1e-4 * sum);
    }
    // As above: a thousand roundings of the weight and of its changes, the first of which are as
    // large as the rate.
    EXPECT_LT(worst, 1000 * 0x1p-24) << decay;
    EXPECT_GT(worst, 0);
  }
  // The first step is the rate, whatever the gradient's size, and the sum is the square.
  float state[1] = {0};
  const OptimizerConfig c{.kind = adagrad, .lr = 0.5};
  EXPECT_EQ(step_of(c, update_scalars(c, 0, c.lr), 1.0f, -4.0f, state), 1.5f);
  EXPECT_EQ(state[0], 16.0f);
}

TEST(Update, LionFollowsTheTextbook) {
  for (const double decay : {0.0, 0.1}) {
    const OptimizerConfig c{
        .kind = OptimizerKind::lion, .lr = 0.01, .weight_decay = decay, .beta1 = 0.9, .beta2 = 0.99};
    const Optimizer optimizer = make_optimizer(c);
    double worst = 0;
    for (uint32_t element = 0; element < 16; ++element) {
      float w = static_cast<float>(uniform(1000, element)), state[2] = {0, 0};
      double book = w, momentum = 0;
      const double size = std::pow(10.0, -static_cast<double>(element % 8));
      for (uint32_t step = 0; step < 1000; ++step) {
        const auto g = static_cast<float>(size * uniform(element, step));
        w = step_of(optimizer, update_scalars(c, step, c.lr), w, g, state);
        const double mixed = c.beta1 * momentum + (1 - c.beta1) * g;
        momentum = c.beta2 * momentum + (1 - c.beta2) * g;
        book -= c.lr * ((mixed > 0) - (mixed < 0)) + c.lr * decay * book;
      }
      worst = std::fmax(worst, std::fabs(w - book));
      EXPECT_NEAR(state[0], momentum, 1e-5 * size);
    }
    // A thousand roundings of weights below 8: less than one step in the wrong direction.
    EXPECT_LT(worst, 1000 * 0x1p-21) << decay;
    EXPECT_GT(worst, 0);
  }
  // A step has the size of the rate whatever the gradient; without one nothing moves; NaN is seen.
  const OptimizerConfig c{.kind = OptimizerKind::lion, .lr = 0.5, .beta1 = 0.5, .beta2 = 0.5};
  for (const float g : {1e-30f, 3.0f, 1e30f}) {
    float state[1] = {0};
    EXPECT_EQ(step_of(c, update_scalars(c, 0, c.lr), 1.0f, g, state), 0.5f);
    EXPECT_EQ(state[0], 0.5f * g);
  }
  float state[1] = {0};
  EXPECT_EQ(step_of(c, update_scalars(c, 0, c.lr), 1.0f, 0.0f, state), 1.0f);
  EXPECT_TRUE(std::isnan(step_of(c, update_scalars(c, 0, c.lr), 1.0f, std::nanf(""), state)));
}

// The compiler's half precision, each operation rounded to it.
using Half = _Float16;
Half plus(Half a, Half b) { return static_cast<Half>(a + b); }
Half minus(Half a, Half b) { return static_cast<Half>(a - b); }
Half times(Half a, Half b) { return static_cast<Half>(a * b); }
Half over(Half a, Half b) { return static_cast<Half>(a / b); }
Half root(Half a) { return static_cast<Half>(std::sqrt(static_cast<float>(a))); }
Half half(double x) { return static_cast<Half>(static_cast<float>(x)); }

// Algorithms 2 and 4 of the BF16 paper but for the last subtraction, on fp16.
TEST(Update, NarrowArithmeticRoundsEveryOperation) {
  const FloatFormat fp16 = parse_format("fp16");
  const Nearest near = make_nearest(fp16);
  const OptimizerConfig configs[] = {
      {.kind = sgd, .lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4},
      {.kind = adamw, .lr = 1e-2, .weight_decay = 0.1, .beta2 = 0.997, .eps = 1e-5}};
  for (const OptimizerConfig& given : configs) {
    const OptimizerConfig c = representable(given, fp16);
    const Optimizer optimizer = make_optimizer(c);
    for (uint32_t element = 0; element < 32; ++element) {
      Half w = half(uniform(7, element)), m = 0, v = 0, c1 = 1, c2 = 1;
      float state[2] = {0, 0};
      for (uint32_t step = 0; step < 300; ++step) {
        // Down to gradients whose squares are subnormal or nothing in fp16.
        const Half g = half(uniform(element, step) * std::pow(4.0, -static_cast<double>(element % 6)));
        const UpdateScalars s =
            update_scalars(c, step, c.lr, 1, std::numeric_limits<double>::infinity(), fp16);
        const float off = std::visit(
            [&](const auto& o) {
              return o.decrease(s, static_cast<float>(w), static_cast<float>(g), state, near);
            },
            optimizer);
        const Half lr = half(c.lr), d = half(c.weight_decay);
        Half expected;
        if (c.kind == sgd) {
          m = plus(times(half(c.momentum), m), plus(g, times(d, w)));
          expected = times(lr, m);
        } else {
          const Half b1 = half(c.beta1), b2 = half(c.beta2);
          m = plus(times(b1, m), times(minus(1, b1), g));
          v = plus(times(b2, v), times(minus(1, b2), times(g, g)));
          c1 = times(c1, b1);
          c2 = times(c2, b2);
          const Half first = over(m, minus(1, c1)), second = root(over(v, minus(1, c2)));
          expected = plus(over(times(lr, first), plus(second, half(c.eps))), times(times(lr, d), w));
          ASSERT_EQ(state[1], static_cast<float>(v)) << element << " " << step;
        }
        ASSERT_EQ(state[0], static_cast<float>(m)) << element << " " << step;
        ASSERT_EQ(bits_of(off), bits_of(static_cast<float>(expected))) << element << " " << step;
        w = minus(w, expected);
      }
    }
  }
}

// bf16 and 16 extra bits are fp32: whatever the optimizer, ten thousand steps end at the same bits.
// And a high part that was rounded at random is put right by its extra bit: the weight is the one
// without.
TEST(Update, ExtraBitsFollowTheirMaster) {
  constexpr size_t kCount = 37;
  std::vector<OptimizerConfig> configs(std::begin(kConfigs), std::end(kConfigs));
  for (const NamedOptimizer& form : optimizer_forms()) configs.push_back(form.config);
  for (const OptimizerConfig& c : configs) {
    const Optimizer optimizer = make_optimizer(c);
    struct Kept {
      Split split;
      std::vector<uint8_t> high;
      std::vector<uint32_t> side;
      std::vector<float> weight;
      std::vector<std::array<float, 2>> state;
    };
    const FloatFormat bf16 = parse_format("bf16");
    std::vector<Kept> kept;
    for (const auto& [extra, stochastic] : {std::pair{16, false}, {16, true}, {8, false}, {8, true}}) {
      kept.push_back({make_split(bf16, extra, stochastic), {}, {}, {}, {}});
      kept.back().high.resize(2 * kCount);
      kept.back().side.resize(split_words(kept.back().split, kCount));
      for (uint32_t i = 0; i < kCount; ++i) {
        // Numbers that bf16+8 has.
        kept.back().weight.push_back(static_cast<float>(std::round(uniform(77, i) * 0x1p14) * 0x1p-14));
      }
      kept.back().state.resize(kCount);
    }
    std::vector<float> master = kept[0].weight;
    std::vector<std::array<float, 2>> state(kCount);
    for (uint32_t step = 0; step < 10000; ++step) {
      const UpdateScalars s = update_scalars(c, step, c.lr);
      const auto advance = [&](std::vector<float>& weight, std::vector<std::array<float, 2>>& states) {
        for (uint32_t i = 0; i < kCount; ++i) {
          const auto g = static_cast<float>(uniform(i, step) * 0.1);
          weight[i] = step_of(optimizer, s, weight[i], g, states[i].data());
          if (optimizer_states(optimizer).empty()) states[i] = {};
        }
      };
      advance(master, state);
      for (Kept& one : kept) {
        advance(one.weight, one.state);
        split_encode(one.split, Overflow::saturate, {5, step, 3, 0}, one.weight, one.high, one.side);
        split_decode(one.split, one.high, one.side, one.weight);
      }
      ASSERT_EQ(kept[0].weight, master) << optimizer_name(c.kind) << " step " << step;
      ASSERT_EQ(kept[1].weight, master) << optimizer_name(c.kind) << " step " << step;
      ASSERT_EQ(kept[3].weight, kept[2].weight) << optimizer_name(c.kind) << " step " << step;
    }
    EXPECT_NE(kept[2].weight, master);
    EXPECT_NE(kept[0].high, kept[1].high);
  }
}

}  // namespace
}  // namespace ulp
