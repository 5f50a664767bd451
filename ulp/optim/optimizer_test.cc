// What configurations are taken and refused, what becomes of them, and the scalars of a step.
#include "ulp/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/optimizers.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string error_of(const OptimizerConfig& config) {
  try {
    config.check();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Optimizer, NamesComeBack) {
  for (const OptimizerKind kind : optimizer_kinds()) EXPECT_EQ(parse_optimizer(optimizer_name(kind)), kind);
  EXPECT_EQ(optimizer_name(static_cast<OptimizerKind>(Optimizers::kCount)), "?");
  EXPECT_THROW(parse_optimizer("Adam"), Error);
  EXPECT_THROW(parse_optimizer(""), Error);
}

TEST(Optimizer, NonsenseIsRefusedByName) {
  using enum OptimizerKind;
  // 1 - 1e-9 is 1 in fp32, 1e-50 is 0 and 1e39 infinity.
  for (const double bad : {0.0, -0.1, kInf, -kInf, kNan, 1e-50, 1e39}) {
    EXPECT_NE(error_of({.lr = bad}).find("learning rate"), std::string::npos) << bad;
    EXPECT_NE(error_of({.kind = adam, .eps = bad}).find("eps"), std::string::npos) << bad;
  }
  for (const double bad : {1.0, 1.5, -0.1, kNan, kInf, 1 - 1e-9}) {
    EXPECT_NE(error_of({.momentum = bad}).find("momentum"), std::string::npos) << bad;
    EXPECT_NE(error_of({.kind = adam, .beta1 = bad}).find("beta1"), std::string::npos) << bad;
    EXPECT_NE(error_of({.kind = adamw, .beta2 = bad}).find("beta2"), std::string::npos) << bad;
  }
  for (const auto kind : {sgd, adam, adamw}) {
    for (const double bad : {-1e-4, kNan, kInf, 1e39}) {
      EXPECT_NE(error_of({.kind = kind, .weight_decay = bad}).find("weight decay"), std::string::npos) << bad;
    }
  }
  EXPECT_NE(error_of({.nesterov = true}).find("needs momentum"), std::string::npos);
  EXPECT_NE(error_of({.kind = adam, .momentum = 0.9}).find("adam has no momentum"), std::string::npos);
  EXPECT_NE(error_of({.kind = adamw, .nesterov = true}).find("adamw has no Nesterov"), std::string::npos);
  EXPECT_THROW(make_optimizer({.lr = -1}), Error);

  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(error_of({.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}), "");
  EXPECT_EQ(error_of({.kind = adam, .beta1 = 0, .beta2 = 0}), "");
}

std::vector<std::string> names(const OptimizerConfig& config) {
  std::vector<std::string> all;
  for (const OptimizerState& state : optimizer_states(make_optimizer(config))) all.emplace_back(state.name);
  return all;
}

TEST(Optimizer, StatesHaveTheNamesOfCheckpoints) {
  EXPECT_EQ(names({}), std::vector<std::string>{});
  EXPECT_EQ(names({.momentum = 0.9}), std::vector<std::string>{"momentum"});
  EXPECT_EQ(names({.kind = OptimizerKind::adam}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names({.kind = OptimizerKind::adamw}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names({.kind = OptimizerKind::adagrad}), std::vector<std::string>{"sum"});
  EXPECT_EQ(names({.kind = OptimizerKind::lion}), std::vector<std::string>{"exp_avg"});
  for (const auto& [name, config] : optimizer_forms()) {
    const Optimizer made = make_optimizer(config);
    const int states = std::visit([](const auto& o) { return o.states(); }, made);
    EXPECT_EQ(optimizer_states(made).size(), static_cast<size_t>(states)) << name;
  }
}

TEST(Optimizer, NumbersBecomeFp32Once) {
  const auto sgd = std::get<Sgd>(make_optimizer({.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}));
  EXPECT_EQ(sgd, (Sgd{.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true}));
  const auto adam = std::get<Adam>(make_optimizer({.kind = OptimizerKind::adam, .weight_decay = 0.01}));
  EXPECT_EQ(adam, (Adam{.weight_decay = 0.01f}));
  // Not 1 - 0.999f, which is 0.00099998713.
  EXPECT_EQ(adam.moments.rest2, 0.001f);
  EXPECT_EQ(std::get<AdamW>(make_optimizer({.kind = OptimizerKind::adamw})), AdamW{});
}

TEST(Optimizer, ScalarsCorrectTheMomentsOfEachStep) {
  const OptimizerConfig config{.kind = OptimizerKind::adam};
  const UpdateScalars first = update_scalars(config, 0, 0.5);
  EXPECT_EQ(first.lr, 0.5f);
  EXPECT_EQ(first.grad_scale, 1.0f);
  EXPECT_EQ(first.clip_value, std::numeric_limits<float>::infinity());
  EXPECT_FLOAT_EQ(first.adam_rate, 5.0f);
  EXPECT_FLOAT_EQ(first.adam_root, static_cast<float>(1 / std::sqrt(0.001)));
  for (const uint64_t updates : {1, 2, 9, 99, 1234, 1000000}) {
    const double t = static_cast<double>(updates + 1);
    const UpdateScalars s = update_scalars(config, updates, 0.001, 0.25, 3);
    EXPECT_FLOAT_EQ(s.adam_rate, static_cast<float>(0.001 / (1 - std::pow(0.9, t)))) << t;
    EXPECT_FLOAT_EQ(s.adam_root, static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, t)))) << t;
    EXPECT_EQ(s.grad_scale, 0.25f);
    EXPECT_EQ(s.clip_value, 3.0f);
  }
  // Without memory there is nothing to correct.
  const UpdateScalars none = update_scalars({.kind = OptimizerKind::adam, .beta1 = 0, .beta2 = 0}, 0, 0.5);
  EXPECT_EQ(none.adam_rate, 0.5f);
  EXPECT_EQ(none.adam_root, 1.0f);
  for (const double bad : {0.0, -1.0, kNan, 1e-50}) {
    EXPECT_THROW(update_scalars(config, 0, 0.1, 1, bad), Error) << bad;
  }
}

TEST(Optimizer, AMachineWithoutOtherNumbersTakesTheNearest) {
  using enum OptimizerKind;
  std::vector<std::string> changed;
  const OptimizerConfig adam_config{.kind = adamw, .lr = 1e-3, .weight_decay = 0.01};
  // 0.999 would be 1 in bf16, and the moments would never forget: the number below it. 1e-8 is
  // there.
  const OptimizerConfig bf16 = representable(adam_config, parse_format("bf16"), &changed);
  EXPECT_EQ(bf16.beta2, 0.99609375);
  EXPECT_EQ(bf16.beta1, 0.8984375);
  EXPECT_EQ(bf16.eps, static_cast<double>(1.0011717677116394e-08f));
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_NE(changed[0].find("beta2"), std::string::npos);
  EXPECT_NE(changed[0].find("0.99609375"), std::string::npos);
  // 1e-8 would be 0 in fp16, and a division by zero: the smallest number. 0.999 is there.
  changed.clear();
  const OptimizerConfig fp16 = representable(adam_config, parse_format("fp16"), &changed);
  EXPECT_EQ(fp16.eps, 0x1p-24);
  EXPECT_EQ(fp16.beta2, 0.9990234375);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_NE(changed[0].find("eps"), std::string::npos);
  // What is there already stays, and nobody needs to be told.
  changed.clear();
  EXPECT_EQ(representable(fp16, parse_format("fp16"), &changed), fp16);
  EXPECT_TRUE(changed.empty());
  const OptimizerConfig momentum =
      representable({.momentum = 0.9999, .weight_decay = 1e-9}, parse_format("fp16"), &changed);
  EXPECT_EQ(momentum.momentum, 1 - 0x1p-11);
  EXPECT_EQ(momentum.weight_decay, 0x1p-24);
  EXPECT_EQ(changed.size(), 2u);
}

TEST(Optimizer, NarrowScalarsAreNumbersOfTheFormat) {
  const FloatFormat bf16 = parse_format("bf16");
  const OptimizerConfig config =
      representable({.kind = OptimizerKind::adamw, .lr = 1e-3, .weight_decay = 0.01}, bf16);
  const auto narrow = [](double x) {  // to bf16, to nearest-even, of numbers that need no care
    const double unit = std::ldexp(1.0, std::ilogb(x) - 7);
    return std::nearbyint(x / unit) * unit;
  };
  double c1 = 1, c2 = 1;
  for (uint64_t updates = 0; updates < 400; ++updates) {
    c1 = narrow(c1 * config.beta1);
    c2 = narrow(c2 * config.beta2);
    const UpdateScalars s = update_scalars(config, updates, 1e-3, 0.25, 0.5, bf16);
    EXPECT_EQ(s.rest1, narrow(1 - c1)) << updates;
    EXPECT_EQ(s.rest2, narrow(1 - c2)) << updates;
    EXPECT_EQ(s.lr, narrow(1e-3));
    EXPECT_EQ(s.decay_rate, narrow(narrow(1e-3) * config.weight_decay));
  }
}

}  // namespace
}  // namespace ulp
