// Optimizer steps and the norm of gradients through update nodes.
#include "ulp/backend/update.h"

#include <limits>

#include "tests/support/numeric_gradient.h"

namespace ulp::ref {
namespace {

using Values = std::vector<float>;

const OptimizerConfig kMomentum{
    .kind = OptimizerKind::sgd, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
const OptimizerConfig kPlain{.kind = OptimizerKind::sgd};
const OptimizerConfig kAdamConfig{.kind = OptimizerKind::adam, .weight_decay = 0.01};
const OptimizerConfig kAdamWConfig{
    .kind = OptimizerKind::adamw, .weight_decay = 0.1, .beta1 = 0.8, .eps = 1e-6};

// Two weights of different sizes, read once each.
TensorId two_weights(Trial& t) {
  const TensorId y =
      nodes(t.b).add_one(kLinear, "op", {t.input("x", {4, 3}), t.weight("w", {2, 3}), t.weight("bias", {2})});
  return t.distance(y);
}

TEST(Update, AttributesNameTheOptimizer) {
  for (const OptimizerConfig& config : {kMomentum, kPlain, kAdamConfig, kAdamWConfig}) {
    EXPECT_EQ(parameter_update(update_spec(config).attrs).optimizer, config);
  }
}

TEST(Update, MakesTheStepsOfTheOptimizer) {
  for (const OptimizerConfig& config : {kMomentum, kPlain, kAdamConfig, kAdamWConfig}) {
    Trial t;
    differentiate(t.graph, two_weights(t));
    const Optimizer optimizer = make_optimizer(config);
    const std::vector<std::string_view> names = update_spec(config).states;
    add_updates(t.graph, update_spec(config));
    NodeRunner& runner = t.start();
    Values weight = runner.get(t.graph.find("w"));
    std::vector<std::array<float, 2>> states(weight.size());
    for (uint64_t step = 0; step < 3; ++step) {
      runner.state.loss_scale = 8;
      runner.state.update = update_scalars(config, step, 0.05, 1.0 / 8);
      runner.run();
      const Values grad = runner.get(t.graph.find("w.grad"));
      for (size_t i = 0; i < weight.size(); ++i) {
        weight[i] = std::visit(
            [&](const auto& o) {
              return master_step(o, runner.state.update, weight[i], grad[i], states[i].data());
            },
            optimizer);
      }
      EXPECT_EQ(runner.get(t.graph.find("w")), weight) << optimizer_name(config.kind) << " " << step;
      for (size_t k = 0; k < names.size(); ++k) {
        const Values kept = runner.get(t.graph.find("w." + std::string(names[k])));
        for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], states[i][k]);
      }
    }
  }
}

// Neighbouring updates in one task give what each gives alone.
TEST(Update, TakesSeveralRoots) {
  Trial t;
  differentiate(t.graph, two_weights(t));
  add_updates(t.graph, update_spec(kMomentum));
  NodeRunner& runner = t.start();
  runner.state.update.lr = 0.5f;
  runner.run(Phase::forward);
  runner.run(Phase::backward);
  const std::vector<TensorFormat> formats(t.graph.tensor_count(), {parse_storage("fp32"), {}});
  const PlanContext plan{.graph = t.graph, .formats = formats};
  Problem problem{plan};
  for (size_t i = 0; i < t.graph.node_count(); ++i) {
    if (t.graph.nodes()[i].op == &kUpdate) problem.roots.push_back({static_cast<int32_t>(i)});
  }
  ASSERT_EQ(problem.roots.size(), 2u);
  const KernelDef* kernel = KernelChoice().pick(reference_backend(), problem);
  ASSERT_NE(kernel, nullptr);
  const auto task = kernel->make(problem);

  std::map<std::string, Values> memory;
  std::vector<uint8_t*> data(t.graph.tensor_count());
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& tensor = t.graph.tensors()[i];
    if (!is_state(tensor.kind) && tensor.kind != Kind::weight_grad) continue;
    Values& values = memory[tensor.name] = runner.get({static_cast<int32_t>(i)});
    data[i] = reinterpret_cast<uint8_t*>(values.data());
  }
  std::vector<EncodeStats> stats(data.size());
  std::vector<uint8_t> workspace(task->workspace());
  RunContext context;
  context.data = data;
  context.state = &runner.state;
  context.workspace = workspace.data();
  context.stats = stats.data();
  task->run(context);
  runner.run(Phase::update);
  for (const char* name : {"w", "w.momentum", "bias", "bias.momentum"}) {
    EXPECT_EQ(memory[name], runner.get(t.graph.find(name))) << name;
  }
  // Other operators are refused.
  problem.roots = {{0}, {1}};
  std::string reasons;
  EXPECT_EQ(KernelChoice().pick(reference_backend(), problem, &reasons), nullptr);
  EXPECT_NE(reasons.find("one operator at a time"), std::string::npos);
}

TEST(Update, ClipsByTheNormOfAllGradients) {
  for (const double max_norm : {1e-3, 1e3}) {
    Trial t;
    differentiate(t.graph, two_weights(t));
    add_updates(t.graph, update_spec(kPlain), max_norm);
    NodeRunner& runner = t.start();
    const Values before = runner.get(t.graph.find("w"));
    runner.state.loss_scale = 4;
    runner.state.update = update_scalars(kPlain, 0, 1, 1.0 / 4);
    runner.run();
    double squares = 0;
    for (const char* name : {"w.grad", "bias.grad"}) {
      for (const float g : runner.get(t.graph.find(name))) squares += static_cast<double>(g) * g;
    }
    const double norm = std::sqrt(squares) / 4, factor = norm > max_norm ? max_norm / norm : 1;
    const Values out = runner.get(t.graph.find("grad_norm"));
    EXPECT_FLOAT_EQ(out[0], static_cast<float>(norm));
    EXPECT_FLOAT_EQ(out[1], static_cast<float>(factor));
    const Values grad = runner.get(t.graph.find("w.grad")), after = runner.get(t.graph.find("w"));
    for (size_t i = 0; i < grad.size(); ++i) EXPECT_EQ(after[i], before[i] - (0.25f * out[1]) * grad[i]);
  }
}

TEST(Update, NormsThatAreNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(norm_and_factor(nan, 1, 2).factor));
  EXPECT_EQ(norm_and_factor(inf, 1, 2).factor, 0);
  // Too large for fp32, not for the factor.
  EXPECT_EQ(norm_and_factor(1e80, 1, 1e39).factor, 0.1f);
  EXPECT_EQ(norm_and_factor(0, 1, 2).factor, 1);
}

// The step starts from what is stored, not from the operand that layers read, and is rounded into
// its storage.
TEST(Update, StartsFromWhatIsStored) {
  Trial t;
  differentiate(t.graph, two_weights(t));
  add_updates(t.graph, update_spec(kMomentum));
  t.set("w", {1.0078125f, 1.0078125f, 1.0078125f, -1.0078125f, 0.5f, 0.25f});
  std::vector<TensorFormat> formats(t.graph.tensor_count(), {parse_storage("fp32"), {}});
  formats[static_cast<size_t>(t.graph.find("w").index)] = {parse_storage("bf16"), parse_storage("fp(4,3,0)")};
  formats[static_cast<size_t>(t.graph.find("w.momentum").index)] = {parse_storage("bf16"), {}};
  NodeRunner& runner = t.start(formats);
  runner.state.update.lr = 0x1p-3f;
  const Values before = runner.get(t.graph.find("w"));
  ASSERT_EQ(before[0], 1.0078125f);
  runner.run();
  const Values grad = runner.get(t.graph.find("w.grad"));
  Values weight(6), momentum(6);
  const auto sgd = std::get<Sgd>(make_optimizer(kMomentum));
  for (size_t i = 0; i < 6; ++i)
    weight[i] = master_step(sgd, runner.state.update, before[i], grad[i], &momentum[i]);
  const Values new_weight = runner.get(t.graph.find("w")),
               new_momentum = runner.get(t.graph.find("w.momentum"));
  runner.set(t.graph.find("w"), weight);
  runner.set(t.graph.find("w.momentum"), momentum);
  EXPECT_EQ(new_weight, runner.get(t.graph.find("w")));
  EXPECT_EQ(new_momentum, runner.get(t.graph.find("w.momentum")));
}

}  // namespace
}  // namespace ulp::ref
