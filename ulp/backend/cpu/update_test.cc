// Optimizer steps and norms against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ulp/backend/cpu/rig.h"
#include "ulp/backend/cpu/update.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

// Parameters of several sizes with their gradients and the nodes that change them.
struct Parameters {
  Graph graph;
  std::vector<TensorId> weights, grads;
  std::vector<NodeId> updates;
  NodeId norm;

  Parameters(const OptimizerConfig& config, double max_norm) {
    for (const int64_t n : {1, 7, 4096, 8192, 8193, 40000, 3}) {
      TensorInfo info;
      info.name = fmt::format("w{}", weights.size());
      info.shape = {n};
      info.kind = Kind::weight;
      weights.push_back(graph.add_tensor(info));
      info.name = fmt::format("w{}.grad", grads.size());
      info.kind = Kind::weight_grad;
      grads.push_back(graph.add_tensor(info));
      graph.edit(weights.back()).grad = grads.back();
    }
    add_updates(graph, update_attrs(config), state_names(make_optimizer(config)), max_norm);
    for (size_t i = 0; i < graph.node_count(); ++i) {
      const NodeId id{static_cast<int32_t>(i)};
      (graph[id].op == &kUpdate ? updates.emplace_back() : norm) = id;
    }
  }

  void fill(Rig& rig) const {
    uint32_t seed = 1;
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      std::vector<float> values = test_values(graph[id].elements(), seed++, 0.5f);
      if (graph[id].kind == Kind::optimizer) {
        for (float& v : values) v = std::abs(v);
      }
      rig.set(id, values);
    }
    rig.state.seed = 5;
    rig.state.step = 9;
  }
};

std::vector<OptimizerConfig> optimizers() {
  OptimizerConfig plain, momentum, nesterov, adam, adamw;
  momentum.momentum = nesterov.momentum = 0.9;
  momentum.weight_decay = adam.weight_decay = adamw.weight_decay = 0.01;
  nesterov.nesterov = true;
  adam.kind = OptimizerKind::adam;
  adamw.kind = OptimizerKind::adamw;
  return {plain, momentum, nesterov, adam, adamw};
}

TEST(Update, GivesTheReferencesBits) {
  struct Formats {
    const char *weight, *grad, *state;
    Round round;
  };
  for (const OptimizerConfig& config : optimizers()) {
    const Parameters p(config, 0.25);
    for (const Formats& f : std::vector<Formats>{{"fp32", "fp32", "fp32", Round::nearest_even},
                                                 {"bf16", "fp(4,3,4)", "fp16", Round::stochastic},
                                                 {"e8m5", "fp(6,9,0)", "e8m5", Round::nearest_even},
                                                 {"bf16+8", "s2fp8", "fp32", Round::nearest_even},
                                                 {"fp32", "bf16", "scaled(e4m3)", Round::nearest_even}}) {
      std::vector<TensorFormat> formats;
      for (const TensorInfo& info : p.graph.tensors()) {
        TensorFormat format{parse_storage(info.kind == Kind::weight        ? f.weight
                                          : info.kind == Kind::weight_grad ? f.grad
                                          : info.kind == Kind::optimizer   ? f.state
                                                                           : "fp32"),
                            {}};
        if (info.kind == Kind::weight) format.operand = parse_storage("fp(4,3,4)");
        formats.push_back(format);
      }
      for (const int threads : {1, 2}) {
        set_thread_count(threads);
        Rig expected(p.graph, formats, 1 << 20, f.round), rig(p.graph, formats, 1 << 20, f.round);
        for (Rig* each : {&expected, &rig}) {
          p.fill(*each);
          each->state.update = update_scalars(config, 3, 0.1, 0.5, 0.3);
        }
        expected.run(p.norm, find_kernel(reference_kernels(), "grad_norm", "reference"));
        rig.run(p.norm, find_kernel(update_kernels(), "grad_norm", "cpu"));
        const TensorId norm = p.graph[p.norm].out[0];
        for (size_t i = 0; i < 2; ++i)
          EXPECT_NEAR(rig.get(norm)[i], expected.get(norm)[i], 1e-6 * expected.get(norm)[i]);
        rig.set(norm, expected.get(norm));
        expected.run(p.updates, find_kernel(reference_kernels(), "update", "reference"));
        rig.run(p.updates, find_kernel(update_kernels(), "update", "cpu"));
        for (size_t i = 0; i < p.graph.tensor_count(); ++i) {
          const TensorId id{static_cast<int32_t>(i)};
          EXPECT_EQ(rig.bytes(id), expected.bytes(id)) << p.graph[id].name << " " << f.weight;
          if (id == norm) continue;
          EXPECT_EQ(rig.stats(id), expected.stats(id)) << p.graph[id].name << " " << f.weight;
        }
      }
    }
  }
}

TEST(Update, NormIsTheSameOnAnyThreads) {
  const Parameters p({}, 1);
  std::vector<std::vector<uint8_t>> seen;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    Rig rig(p.graph, {});
    p.fill(rig);
    rig.run(p.norm, find_kernel(update_kernels(), "grad_norm", "cpu"));
    seen.push_back(rig.bytes(p.graph[p.norm].out[0]));
    EXPECT_EQ(seen.back(), seen.front());
  }
  set_thread_count(2);
}

}  // namespace
}  // namespace ulp
