// Optimizer steps and sums of squares against the reference, bit by bit.
#include "ulp/backend/cpu/optimizer/update.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/guarded_node.h"
#include "tests/support/optimizers.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops.h"
#include "ulp/optim/rule.h"

namespace ulp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// How parameters are stored and updated.
struct Manner {
  std::string weight = "fp32", state = "fp32", grad = "fp32";
  bool compensated = false, stochastic = false, state_stochastic = false;
  Overflow overflow = Overflow::saturate;
  std::optional<std::string> arithmetic = {};
  std::string second_state = {};  // if it differs

  std::string text() const {
    return fmt::format("{} weights, {} {} states, {} gradients{}{}{}{}{}", weight, state, second_state, grad,
                       compensated ? ", compensated" : "", stochastic ? ", stochastic" : "",
                       state_stochastic ? ", stochastic states" : "",
                       overflow == Overflow::infinity ? ", infinities" : "",
                       arithmetic ? ", arithmetic in " + *arithmetic : "");
  }
};

// rare: special values at both ends of every kEnds elements, in one tensor at a time.
enum class Values : uint8_t { ordinary, special, rare };
constexpr size_t kEnds = 1024;

// Parameters of several sizes with their gradients and the nodes that change them.
struct Parameters {
  Graph graph;
  std::vector<TensorId> weights, grads;
  std::vector<NodeId> updates, squares;
  NodeId norm;

  Parameters(const OptimizerConfig& config, const Manner& manner, double max_norm,
             const std::vector<int64_t>& sizes) {
    for (const int64_t n : sizes) {
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
    const auto choose = [&](TensorId weight) {
      ParameterUpdate update{config, manner.compensated, manner.stochastic, manner.state_stochastic};
      if (weight.index % 4 == 2) {
        update.lr_factor = 0.3;
        update.optimizer.weight_decay = 0.05;
      }
      return update_spec(update);
    };
    add_updates(graph, choose, {.max_norm = max_norm});
    for (size_t i = 0; i < graph.node_count(); ++i) {
      const NodeId id{static_cast<int32_t>(i)};
      if (graph[id].op == &kUpdate) updates.push_back(id);
      if (graph[id].op == &kGradSquares) squares.push_back(id);
      if (graph[id].op == &kGradNorm) norm = id;
    }
  }

  std::vector<TensorFormat> formats(const Manner& manner) const {
    std::vector<TensorFormat> made;
    for (const TensorInfo& info : graph.tensors()) {
      TensorFormat format{parse_storage("fp32"), {}};
      if (info.kind == Kind::weight) format = {parse_storage(manner.weight), parse_storage("fp(4,3,4)")};
      if (info.kind == Kind::weight_grad) format.storage = parse_storage(manner.grad);
      if (info.kind == Kind::optimizer) {
        const bool second = info.name.ends_with("exp_avg_sq") && !manner.second_state.empty();
        const bool compensation = info.name.ends_with("compensation");
        format.storage = parse_storage(compensation ? manner.weight
                                       : second     ? manner.second_state
                                                    : manner.state);
      }
      made.push_back(format);
    }
    return made;
  }

  void fill(Rig& rig, Values values) const {
    const float specials[] = {NAN,       -NAN,     kInf,  -kInf,  0.0f,  -0.0f,     0x1p-149f, -0x1.8p-130f,
                              0x1p-126f, 0x1p-25f, 3e38f, -3e38f, 70000, -65520.0f, 1e-20f};
    uint32_t seed = 1;
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      if (graph[id].element != Element::real || graph[id].kind == Kind::statistic) continue;
      std::vector<float> numbers = test_values(graph[id].elements(), seed++, 0.5f);
      const bool compensation = graph[id].name.ends_with("compensation");
      for (size_t k = 0; k < numbers.size(); ++k) {
        // Some updates are below the resolution of weights, some are zero.
        if (k % 5 == 1) numbers[k] *= graph[id].kind == Kind::weight ? 1.0f : 1e-4f;
        if (k % 11 == 3 && graph[id].kind != Kind::weight) numbers[k] = 0;
        if (compensation) numbers[k] *= 1e-3f;
        if (values == Values::special && (k + seed) % 13 == 5) {
          numbers[k] = specials[(k / 13 + seed) % std::size(specials)];
        }
        const size_t part = k / kEnds, end = (part + seed) % 2 == 0 ? 0 : kEnds - 1;
        if (values == Values::rare && part % 5 == seed % 5 && k % kEnds == end)
          numbers[k] = specials[(part / 5 + 4 * seed) % std::size(specials)];
        if (graph[id].kind == Kind::optimizer && !compensation) numbers[k] = std::abs(numbers[k]);
      }
      rig.set(id, numbers);
    }
    rig.state.seed = 5;
    rig.state.step = 9;
  }
};

// Two steps of the reference and of the kernel on several numbers of threads: everything stored and
// reported.
void compare(const OptimizerConfig& config, const Manner& manner, Values values,
             const std::vector<int64_t>& sizes) {
  const Parameters p(config, manner, 0, sizes);
  const std::vector<TensorFormat> formats = p.formats(manner);
  const auto start = [&](Rig& rig) {
    rig.plan().options.overflow = manner.overflow;
    if (manner.arithmetic) rig.plan().options.arithmetic = parse_format(*manner.arithmetic);
    p.fill(rig, values);
  };
  const auto step = [&](Rig& rig, const KernelDef* kernel, uint32_t number) {
    rig.state.step = 9 + number;
    rig.state.update = update_scalars(config, 3 + number, 0.1, 0.5, 0.3, rig.plan().options.arithmetic);
    rig.run(p.updates, kernel);
  };
  const std::string what = std::string(optimizer_name(config.kind)) + ", " + manner.text();
  set_thread_count(1);
  Rig reference(p.graph, formats);
  start(reference);
  std::vector<std::vector<std::vector<uint8_t>>> bytes(2);
  std::vector<std::vector<EncodeStats>> stats(2);
  std::vector<std::vector<UpdateCounts>> counts(2);
  for (uint32_t number = 0; number < 2; ++number) {
    step(reference, find_kernel(reference_kernels(), "update", "reference"), number);
    for (size_t i = 0; i < p.graph.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      bytes[number].push_back(reference.bytes(id));
      stats[number].push_back(reference.stats(id));
      counts[number].push_back(reference.updates(id));
    }
  }
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    Rig rig(p.graph, formats);
    start(rig);
    for (uint32_t number = 0; number < 2; ++number) {
      step(rig, find_kernel(update_kernels(), "update", "cpu"), number);
      for (size_t i = 0; i < p.graph.tensor_count(); ++i) {
        const TensorId id{static_cast<int32_t>(i)};
        const std::string where = fmt::format("{}, {} ({} elements), step {}, {} threads", what,
                                              p.graph[id].name, p.graph[id].elements(), number, threads);
        ASSERT_TRUE(rig.bytes(id) == bytes[number][i]) << where;
        const EncodeStats &a = rig.stats(id), &b = stats[number][i];
        ASSERT_EQ(a, b) << where
                        << fmt::format(": overflow {} {}, underflow {} {}, NaN {} {}, amax {} {}", a.overflow,
                                       b.overflow, a.underflow, b.underflow, a.nan, b.nan, a.amax, b.amax);
        ASSERT_EQ(rig.updates(id).updates, counts[number][i].updates) << where;
        ASSERT_EQ(rig.updates(id).cancelled, counts[number][i].cancelled) << where;
      }
    }
  }
  set_thread_count(2);
}

const std::vector<int64_t> kSizes = {1, 7, 31, 33, 1024, 4096, 8193, 20000, 3};
const std::vector<int64_t> kSmall = {5, 1, 1300, 2049, 37};

class UpdateKernel : public testing::TestWithParam<NamedOptimizer> {
 protected:
  OptimizerConfig config() const { return GetParam().config; }
};
INSTANTIATE_TEST_SUITE_P(Optimizers, UpdateKernel, testing::ValuesIn(optimizer_forms()),
                         [](const auto& form) {
                           std::string name = form.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// The storages that have specialised loops.
TEST_P(UpdateKernel, GivesTheReferencesBitsOf16BitWeights) {
  for (const char* format : {"fp32", "bf16", "fp16", "e6m9", "bf16+16", "bf16+8", "bf16+8sr", "fp16+8"}) {
    for (const bool compensated : {false, true}) {
      for (const bool stochastic : {false, true}) {
        const bool plain = std::string_view(format).find('+') == std::string_view::npos;
        if ((!plain || std::string_view(format) == "fp32") && (compensated || stochastic)) continue;
        Manner manner{format, "bf16", "bf16", compensated, stochastic};
        compare(config(), manner, Values::ordinary, kSizes);
        for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
          manner.overflow = overflow;
          compare(config(), manner, Values::special, kSmall);
        }
      }
    }
  }
}

// Loops for pieces in range must detect a single special value.
TEST_P(UpdateKernel, GivesTheReferencesBitsAroundSingleSpecials) {
  for (const char* format : {"bf16", "fp16", "bf16+16", "bf16+8", "bf16+8sr", "fp16+8", "fp16+8sr"}) {
    for (const int rule : {0, 1, 2, 3}) {
      const bool plain = std::string_view(format).find('+') == std::string_view::npos;
      if (!plain && rule > 0) continue;
      for (const char* state : {"fp32", "bf16"}) {
        for (const char* grad : {"fp32", "bf16"}) {
          Manner manner{format, state, grad, rule >= 2, rule % 2 == 1};
          if (std::string_view(grad) == "fp32") manner.overflow = Overflow::infinity;
          compare(config(), manner, Values::rare, {25 * kEnds, kEnds + 2});
        }
      }
    }
  }
}

TEST_P(UpdateKernel, GivesTheReferencesBitsOfSplitWeights) {
  for (const char* high : {"bf16", "fp16", "e5m2", "e4m3"}) {
    const int most = std::string_view(high) == "bf16" ? 16 : std::string_view(high) == "fp16" ? 13 : 16;
    for (int extra = 0; extra <= most; ++extra) {
      for (const char* rounding : {"", "sr"}) {
        Manner manner{fmt::format("{}+{}{}", high, extra, rounding), "bf16", "bf16"};
        compare(config(), manner, Values::ordinary, kSmall);
        manner.overflow = Overflow::infinity;
        compare(config(), manner, Values::special, {1, 45, 1027});
      }
    }
  }
}

// Storages without one go through buffers.
TEST_P(UpdateKernel, GivesTheReferencesBitsOfAnyStorage) {
  const std::vector<Manner> manners = {
      {"e8m5", "e8m5", "fp(6,9,0)"},
      {"e8m5", "fp32", "fp32", false, true},
      {"e8m5", "bf16", "s2fp8", true, false},
      {"fp(4,3,4)", "fp16", "e4m3", true, true},
      {"fp(4,3,4)", "fp16", "fp(4,3,4)", false, true, true},
      {"e5m2", "bf16", "fp16", true, false, true},
      {"fp32", "bf16", "fp32"},
      {"fp32", "fp32", "bf16"},
      {"fp32", "bf16", "bf16", false, true, true},
      {"fp32", "fp32", "fp32", true, false},
      {"bf16", "fp32", "bf16", false, true},
      {"bf16", "scaled(e4m3)", "fp16"},
      {"fp16", "scaled(e5m2,nonzero)", "scaled(e4m3)", true, true, true},
      {"bf16+8", "scaled(e5m2)", "s2fp8", false, false, true},
      {"scaled(e4m3)", "scaled(e4m3,nonzero)", "bf16", false, true},
      {"bf16", "bf16", "bf16", false, false, false, Overflow::saturate, {}, "scaled(e5m2,nonzero)"},
      {"bf16+16", "bf16", "bf16", false, false, false, Overflow::saturate, {}, "fp32"},
      {"bf16+16", "fp32", "bf16", false, false, false, Overflow::saturate, {}, "bf16"},
      {"s2fp8", "s2fp8", "s2fp8"},
      {"fp32", "s2fp8", "e4m3"},
      {"e2m13", "e7m8", "fp(3,4,0)", false, true},
      {"e7m8", "bf16", "bf16", true, true},
  };
  for (Manner manner : manners) {
    compare(config(), manner, Values::ordinary, kSizes);
    for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
      manner.overflow = overflow;
      compare(config(), manner, Values::special, kSmall);
    }
  }
}

TEST_P(UpdateKernel, GivesTheReferencesBitsInNarrowArithmetic) {
  for (const char* arithmetic : {"bf16", "fp16", "e8m3"}) {
    for (const char* weight : {"bf16", "fp16", "bf16+8", "e8m3"}) {
      for (const bool compensated : {false, true}) {
        for (const bool stochastic : {false, true}) {
          if (std::string_view(weight) == "bf16+8" && (compensated || stochastic)) continue;
          Manner manner{weight, "bf16", "bf16", compensated, stochastic};
          manner.arithmetic = arithmetic;
          compare(config(), manner, Values::ordinary, kSmall);
          compare(config(), manner, Values::special, kSmall);
        }
      }
    }
  }
}

// A gradient without any update, and one whose updates are all lost.
TEST(Update, CountsUpdatesThatAreLost) {
  Manner manner{"bf16", "fp32", "fp32"};
  const Parameters p({}, manner, 0, {100});
  for (const float grad : {0.0f, 1e-6f, 1.0f}) {
    Rig rig(p.graph, p.formats(manner));
    rig.set(p.weights[0], std::vector<float>(100, 1.0f));
    rig.set(p.grads[0], std::vector<float>(100, grad));
    rig.state.update = update_scalars({}, 0, 0.1);
    rig.run(p.updates, find_kernel(update_kernels(), "update", "cpu"));
    EXPECT_EQ(rig.updates(p.weights[0]), (UpdateCounts{grad == 0 ? 0u : 100u, grad == 1e-6f ? 100u : 0u}));
  }
}

TEST(Update, ClipsByTheNorm) {
  OptimizerConfig config;
  config.momentum = 0.9;
  for (const double max_norm : {0.25, 1e6}) {
    const Manner manner{"bf16", "bf16", "bf16"};
    const Parameters p(config, manner, max_norm, kSizes);
    Rig expected(p.graph, p.formats(manner)), rig(p.graph, p.formats(manner));
    for (Rig* each : {&expected, &rig}) {
      p.fill(*each, Values::ordinary);
      each->state.update = update_scalars(config, 3, 0.1, 0.5);
    }
    expected.run(p.squares, find_kernel(reference_kernels(), "grad_squares", "reference"));
    rig.run(p.squares, find_kernel(update_kernels(), "grad_squares", "cpu"));
    const auto double_of = [](const std::vector<uint8_t>& bytes) {
      double value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    };
    for (const NodeId id : p.squares) {
      const TensorId out = p.graph[id].out[0];
      const double a = double_of(rig.bytes(out)), b = double_of(expected.bytes(out));
      // Both orders of a sum of positive numbers are off by at most n 2^-53 of it.
      EXPECT_NEAR(a, b, static_cast<double>(2 * p.graph[p.graph[id].in[0]].elements()) * 0x1p-53 * b);
      rig.set_bytes(out, expected.bytes(out));
    }
    for (Rig* each : {&expected, &rig})
      each->run(p.norm, find_kernel(reference_kernels(), "grad_norm", "reference"));
    expected.run(p.updates, find_kernel(reference_kernels(), "update", "reference"));
    rig.run(p.updates, find_kernel(update_kernels(), "update", "cpu"));
    for (const TensorId id : p.weights) EXPECT_EQ(rig.bytes(id), expected.bytes(id));
  }
}

// The sum of a tensor depends on its own size alone: not on the number of threads, nor on the
// tensors summed with it.
TEST(Update, SumsOfSquaresAreTheSameOnAnyThreadsAndInAnyCompany) {
  for (const char* grad : {"fp32", "bf16", "e8m5", "s2fp8", "scaled(e4m3)"}) {
    const Manner manner{"fp32", "fp32", grad};
    const Parameters p({}, manner, 1, kSizes);
    std::vector<std::vector<uint8_t>> first;
    for (const int threads : {1, 2, 3}) {
      for (const bool together : {true, false}) {
        set_thread_count(threads);
        Rig rig(p.graph, p.formats(manner));
        p.fill(rig, Values::ordinary);
        const KernelDef* kernel = find_kernel(update_kernels(), "grad_squares", "cpu");
        if (together) rig.run(p.squares, kernel);
        std::vector<std::vector<uint8_t>> sums;
        for (const NodeId id : p.squares) {
          if (!together) rig.run(id, kernel);
          sums.push_back(rig.bytes(p.graph[id].out[0]));
        }
        if (first.empty()) first = sums;
        EXPECT_EQ(sums, first) << grad << ", " << threads << " threads";
      }
    }
  }
  set_thread_count(2);
}

}  // namespace
}  // namespace ulp
