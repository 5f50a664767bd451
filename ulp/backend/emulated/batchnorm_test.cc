// Batch norms and activations in the formats that have kernels of their own, against the reference:
// the same stored bytes and range events, and sums that are close.
#include "ulp/backend/cuda/batchnorm/batchnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/emulated/fused_sample.h"
#include "ulp/backend/ref/reference.h"

namespace ulp::cuda {
namespace {

constexpr const char* kTrained[] = {
    "batch_norm(x)",
    "relu(batch_norm(x))",
    "add(batch_norm(x),x)",
    "add(x,batch_norm(x))",
    "relu(add(batch_norm(x),x))",
    "relu(add(x,batch_norm(x)))",
    "relu(add(batch_norm(x),batch_norm(x)))",
    "relu_grad(x,x)",
    "relu_grad(sum(x,x),x)",
    "batch_norm_grad(x,x)",
    "batch_norm_grad(relu_grad(x,x),x)",
    "batch_stats(x)",
    "batch_norm_sums(x,x)",
    "batch_norm_sums(relu_grad(x,x),x)",
};

struct Trained {
  const char *forward, *grad;
  const char* weight = "";
};

// A pattern with the formats of its inputs and of its nodes' results, in traversal order.
struct Mixed {
  const char* pattern;
  std::vector<const char*> leaves, results;
};

bool is_backward(const std::string& pattern) {
  return pattern.find("_grad") != std::string::npos || pattern.find("_sums") != std::string::npos;
}
Mixed mixed(const std::string& pattern, const char* text, const Trained& trained) {
  const Sample sample(pattern, {1, 8});
  const bool backward = is_backward(pattern);
  // In backward the first inputs are gradients.
  const size_t grads = !backward ? 0 : pattern.find("sum(") != std::string::npos ? 2 : 1;
  Mixed made{text, {}, {}};
  for (size_t i = 0; i < sample.leaves.size(); ++i)
    made.leaves.push_back(i < grads ? trained.grad : trained.forward);
  made.results.assign(sample.nodes.size(), backward ? trained.grad : trained.forward);
  return made;
}

enum class Numbers { ordinary, wide, special, edges };

// Values as in training; few vanish and none overflows.
std::vector<float> ordinary(size_t n, uint32_t seed) {
  std::vector<float> made = values(n, seed, false);
  for (size_t i = 0; i < n; ++i) made[i] = std::ldexp(made[i], -4);
  return made;
}

// From values that vanish in 16 bits to values that overflow there, neighbours of similar
// magnitude; with few bits, so that there are ties among results.
std::vector<float> edges(size_t n, uint32_t seed) {
  std::vector<float> made(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t near = philox({{static_cast<uint32_t>(i / 8), seed, 1, 0}}, {{3, 4}}).word[0] % 84;
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), seed, 0, 0}}, {{3, 4}});
    const float x = std::ldexp(1.0f + static_cast<float>(words.word[0] % 512) / 512,
                               static_cast<int>(near + words.word[1] % 6) - 48);
    made[i] = words.word[2] % 16 == 0 ? 0 : (words.word[2] & 32u) != 0 ? -x : x;
  }
  return made;
}
// Norms that multiply by values with few bits and add little.
void fill_edges(Bench& bench, const Sample& sample) {
  uint32_t seed = 1;
  for (const TensorId id : sample.leaves) bench.set(id, edges(sample.shape.elements(), seed++));
  const auto channels = static_cast<size_t>(sample.shape.back());
  for (const auto* ids : {&sample.weights, &sample.channel_values}) {
    for (const TensorId id : *ids) {
      const std::string& name = sample.graph[id].name;
      std::vector<float> some(channels, 0.0f);
      for (size_t c = 0; c < channels; ++c) {
        if (name.starts_with("variance")) some[c] = 0x1p20f;
        if (name.starts_with("gamma"))
          some[c] = std::ldexp(1.0f + static_cast<float>(c % 4) / 4, 8 + static_cast<int>(c % 5));
      }
      bench.set(id, some);
    }
  }
}

void check_mixed(const Mixed& mix, const Shape& shape, const char* weight, Numbers numbers,
                 Overflow overflow) {
  const std::string pattern = mix.pattern;
  std::string all;
  for (const auto* names : {&mix.leaves, &mix.results}) {
    for (const char* name : *names) all += std::string(" ") + name;
  }
  SCOPED_TRACE(pattern + " " + shape_text(shape) + all + " " + std::to_string(static_cast<int>(numbers)) +
               (overflow == Overflow::infinity ? " inf" : ""));
  const Sample sample(pattern, shape);
  std::vector<TensorFormat> formats;
  for (const TensorInfo& tensor : sample.graph.tensors()) {
    TensorFormat format{parse_storage("fp32"), {}};
    if (tensor.kind == Kind::weight && *weight != 0) format.operand = parse_storage(weight);
    formats.push_back(format);
  }
  for (size_t i = 0; i < sample.leaves.size(); ++i)
    formats[static_cast<size_t>(sample.leaves[i].index)].storage = parse_storage(mix.leaves[i]);
  for (size_t i = 0; i < sample.nodes.size(); ++i) {
    const TensorId out = sample.graph[sample.nodes[i]].out[0];
    if (sample.graph[out].kind == Kind::activation)
      formats[static_cast<size_t>(out.index)].storage = parse_storage(mix.results[i]);
  }

  const std::vector<NodeId> inlined(sample.nodes.begin(), sample.nodes.end() - 1);
  const Node& root = sample.graph[sample.nodes.back()];
  Bench apart(sample, formats, Round::nearest_even, overflow),
      fused(sample, formats, Round::nearest_even, overflow);
  for (Bench* bench : {&apart, &fused}) {
    fill(*bench, sample, numbers == Numbers::special);
    uint32_t seed = 1;
    if (numbers == Numbers::edges) fill_edges(*bench, sample);
    if (numbers == Numbers::ordinary) {
      for (const TensorId id : sample.leaves) bench->set(id, ordinary(shape.elements(), seed++));
    }
  }
  for (const NodeId id : sample.nodes) apart.run({}, {id}, {}, reference_kernels());
  fused.run(inlined, {sample.nodes.back()});
  for (const TensorId out : root.out) {
    const std::vector<uint8_t> made = fused.bytes(out), wanted = apart.bytes(out);
    if (root.op->form != Form::reduction) {
      ASSERT_EQ(made, wanted);
      continue;
    }
    if (numbers != Numbers::ordinary) continue;
    for (size_t c = 0; c < made.size() / 4; ++c) {
      float x, y;
      std::memcpy(&x, made.data() + 4 * c, 4);
      std::memcpy(&y, wanted.data() + 4 * c, 4);
      ASSERT_NEAR(x, y, 1e-5 * std::abs(y) + 1e-4) << c;
    }
  }
  for (size_t i = 0; i < fused.stats.size(); ++i) {
    const TensorInfo& tensor = sample.graph.tensors()[i];
    const EncodeStats &wanted = apart.stats[i], &seen = fused.stats[i];
    ASSERT_EQ(seen.overflow, wanted.overflow) << tensor.name;
    ASSERT_EQ(seen.underflow, wanted.underflow) << tensor.name;
    ASSERT_EQ(seen.nan, wanted.nan) << tensor.name;
    ASSERT_EQ(std::memcmp(&seen.amax, &wanted.amax, sizeof(seen.amax)), 0) << tensor.name;
  }
}

void check_trained(const char* pattern, const Shape& shape, const Trained& trained, Numbers numbers,
                   Overflow overflow) {
  check_mixed(mixed(pattern, pattern, trained), shape, trained.weight, numbers, overflow);
}
void check_all_numbers(const Mixed& mix, const char* weight) {
  check_mixed(mix, {37, 24}, weight, Numbers::ordinary, Overflow::saturate);
  check_mixed(mix, {5, 136}, weight, Numbers::wide, Overflow::saturate);
  check_mixed(mix, {43, 56}, weight, Numbers::edges, Overflow::saturate);
  for (const Overflow overflow : {Overflow::saturate, Overflow::infinity})
    check_mixed(mix, {19, 64}, weight, Numbers::special, overflow);
}

constexpr Trained kWide[] = {{"fp(6,9,0)", "fp(6,9,0)", "fp(6,9,0)"},
                             {"fp(5,10,0)", "fp(6,9,3)", "fp(4,3,4)"},
                             {"fp(7,8,-20)", "fp(4,11,0)"}};

// Mixes of 16 bits (w) and 8 (f in forward, g in backward) that have kernels.
std::vector<Mixed> mixes() {
  constexpr const char *w = "fp(6,9,0)", *f = "fp(4,3,4)", *g = "fp(5,2,0)";
  std::vector<Mixed> made;
  for (const auto& [a, b] : {std::pair{w, f}, {f, w}}) {
    made.push_back({"batch_norm(x)", {a}, {b}});
    made.push_back({"relu(batch_norm(x))", {a}, {b, b}});
    for (const char* norm : {w, f}) {
      made.push_back({"add(batch_norm(x),x)", {a, b}, {norm, a}});
      made.push_back({"add(x,batch_norm(x))", {a, b}, {norm, a}});
      made.push_back({"relu(add(batch_norm(x),x))", {a, b}, {norm, a, a}});
      made.push_back({"relu(add(batch_norm(x),x))", {a, b}, {norm, b, b}});
      made.push_back({"relu(add(x,batch_norm(x)))", {a, b}, {norm, b, b}});
      made.push_back({"relu(add(batch_norm(x),batch_norm(x)))", {a, b}, {norm, b, b, b}});
      made.push_back({"relu(add(batch_norm(x),batch_norm(x)))", {a, b}, {a, norm, a, a}});
    }
  }
  // All of 16 bits, each a different format.
  made.push_back({"relu(batch_norm(x))", {"fp(5,10,0)"}, {w, w}});
  made.push_back({"relu(add(batch_norm(x),x))", {"fp(5,10,0)", "fp(6,9,3)"}, {"fp(7,8,-20)", w, w}});
  made.push_back({"relu_grad(sum(x,x),x)", {"fp(5,10,0)", "fp(7,8,-20)", "fp(4,11,0)"}, {w, w}});
  made.push_back({"relu_grad(x,x)", {g, w}, {g}});
  made.push_back({"relu_grad(x,x)", {w, f}, {w}});
  for (const auto& [out, mask] : {std::pair{g, f}, {w, w}}) {
    made.push_back({"relu_grad(sum(x,x),x)", {g, w, mask}, {out, out}});
    made.push_back({"relu_grad(sum(x,x),x)", {w, g, mask}, {out, out}});
  }
  made.push_back({"batch_norm_grad(x,x)", {w, f}, {g}});
  made.push_back({"batch_norm_grad(x,x)", {w, f}, {w}});
  made.push_back({"batch_norm_grad(x,x)", {g, w}, {g}});
  made.push_back({"batch_norm_grad(x,x)", {g, w}, {w}});
  made.push_back({"batch_norm_sums(x,x)", {w, f}, {w}});
  made.push_back({"batch_norm_sums(x,x)", {g, w}, {g}});
  for (const auto& [mask, kept] : {std::pair{f, w}, {w, f}})
    made.push_back({"batch_norm_sums(relu_grad(x,x),x)", {w, mask, kept}, {w, w}});
  for (const auto& [grad, mask, kept] : {std::tuple{g, w, w}, {g, f, w}, {g, w, f}, {w, f, f}}) {
    made.push_back({"batch_norm_grad(relu_grad(x,x),x)", {grad, mask, kept}, {grad, grad}});
    made.push_back({"batch_norm_sums(relu_grad(x,x),x)", {grad, mask, kept}, {grad, grad}});
  }
  return made;
}

TEST(Batchnorm, GivesTheReferencesBits) {
  const Trained kFormats[] = {{"bf16", "bf16"},
                              {"fp(4,3,4)", "fp(5,2,0)", "fp(4,3,4)"},
                              {"fp(4,3,-3)", "fp(5,2,0)"},
                              {"fp(5,2,0)", "fp(5,2,0)", "bf16"},
                              {"e4m3", "e5m2"},
                              {"e5m2", "e5m2"}};
  for (const char* pattern : kTrained) {
    for (const Trained& trained : kFormats) {
      check_all_numbers(mixed(pattern, pattern, trained), trained.weight);
      if (HasFatalFailure()) return;
    }
    // Several blocks, and more than a thread takes at once.
    check_trained(pattern, {2700, 16}, kFormats[1], Numbers::ordinary, Overflow::saturate);
    check_trained(pattern, {300, 416}, kFormats[0], Numbers::ordinary, Overflow::saturate);
    if (HasFatalFailure()) return;
  }
  // Reductions by blocks of several widths, with rows to combine.
  for (const char* pattern :
       {"batch_stats(x)", "batch_norm_sums(x,x)", "batch_norm_sums(relu_grad(x,x),x)"}) {
    for (const Shape& shape : {Shape{1100, 88}, Shape{900, 128}, Shape{1100, 56}, Shape{3000, 8}}) {
      check_trained(pattern, shape, kFormats[1], Numbers::ordinary, Overflow::saturate);
      check_trained(pattern, shape, kFormats[0], Numbers::ordinary, Overflow::saturate);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Batchnorm, GivesTheReferencesBitsOf16Bits) {
  for (const char* pattern : kTrained) {
    for (const Trained& trained : kWide) {
      check_all_numbers(mixed(pattern, pattern, trained), trained.weight);
      if (HasFatalFailure()) return;
    }
    check_trained(pattern, {2700, 16}, kWide[0], Numbers::ordinary, Overflow::saturate);
    if (HasFatalFailure()) return;
  }
}

TEST(Batchnorm, GivesTheReferencesBitsOfMixes) {
  for (const Mixed& mix : mixes()) {
    check_all_numbers(mix, "fp(6,9,0)");
    check_mixed(mix, {600, 72}, "", Numbers::ordinary, Overflow::saturate);
    if (HasFatalFailure()) return;
  }
}

// Checks that a pattern's kernels are those of batchnorm.h where they should be.
struct Kernel {
  const char* pattern;
  bool (*quick)(const FusedCall&, Stream);
};
constexpr Kernel kKernels[] = {
    {"batch_norm(x)", quick_norm},
    {"relu(batch_norm(x))", quick_relu_norm},
    {"add(batch_norm(x),x)", quick_norm_add},
    {"add(x,batch_norm(x))", quick_add_norm},
    {"relu(add(batch_norm(x),x))", quick_relu_norm_add},
    {"relu(add(x,batch_norm(x)))", quick_relu_add_norm},
    {"relu(add(batch_norm(x),batch_norm(x)))", quick_relu_norm_norm},
    {"relu_grad(x,x)", quick_relu_grad},
    {"relu_grad(sum(x,x),x)", quick_relu_grad_sum},
    {"batch_norm_grad(x,x)", quick_norm_grad},
    {"batch_norm_grad(relu_grad(x,x),x)", quick_norm_relu_grad},
    {"batch_stats(x)", quick_stats},
    {"batch_norm_sums(x,x)", quick_norm_sums},
    {"batch_norm_sums(relu_grad(x,x),x)", quick_norm_relu_sums},
};

bool takes(const Mixed& mix) {
  constexpr uint64_t kElements = 64, kChannels = 8;
  const std::string pattern = mix.pattern;
  const Sample sample(pattern, {kElements / kChannels, kChannels});
  std::vector<uint64_t> memory(partial_floats(kElements, kChannels) + 1024);
  auto* data = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  const auto view = [&](const char* name, uint64_t elements) {
    ReadView made;
    made.stored = stored_view(parse_storage(name), Overflow::saturate, elements);
    made.stored.codes = data;
    return made;
  };
  const auto rounder = [&](size_t i) {
    Rounder made = make_rounder(false, view(mix.results[i], kElements).stored.codec, Round::nearest_even, 0);
    const std::string_view op = sample.graph[sample.nodes[i]].op->name;
    made.exact = op == "relu" || op == "relu_grad";
    return made;
  };
  const StepState state;
  FusedCall call;
  call.state = &state;
  call.elements = kElements;
  call.channels = kChannels;
  for (const char* name : mix.leaves) call.leaf[call.leaves++] = make_leaf(view(name, kElements));
  for (size_t i = 0; i < sample.nodes.size(); ++i) call.stage[call.stages++].rounder = rounder(i);
  for (ReadView& one : call.view) one = view("fp32", kChannels);
  call.rounder = rounder(sample.nodes.size() - 1);
  const bool reduces = sample.graph[sample.nodes.back()].op->form == Form::reduction;
  for (WriteView& out : call.out)
    out.stored = view(reduces ? "fp32" : mix.results.back(), reduces ? kChannels : kElements).stored;
  call.partial = reinterpret_cast<float*>(data + 2048);
  for (const Kernel& kernel : kKernels) {
    if (pattern == kernel.pattern) return kernel.quick(call, {});
  }
  return false;
}

TEST(Batchnorm, HasKernelsOf16BitsAndOfMixes) {
  for (const char* pattern : kTrained) {
    for (const Trained& trained : kWide) {
      EXPECT_TRUE(takes(mixed(pattern, pattern, trained))) << pattern << trained.forward;
    }
    EXPECT_FALSE(takes(mixed(pattern, pattern, {"fp16", "fp16"}))) << pattern;
  }
  for (const Mixed& mix : mixes()) {
    EXPECT_TRUE(takes(mix)) << mix.pattern << " " << mix.leaves[0] << " " << mix.results[0];
  }
  // Neither an input nor a result with codes that the other's kernel would misread as its own.
  EXPECT_FALSE(takes({"relu(batch_norm(x))", {"fp(6,9,0)"}, {"fp(6,9,0)", "fp(5,10,0)"}}));
  EXPECT_FALSE(takes({"relu_grad(sum(x,x),x)", {"bf16", "fp(6,9,0)", "bf16"}, {"bf16", "bf16"}}));
}

}  // namespace
}  // namespace ulp::cuda
