// Batch norms and activations in the formats that models train in, which have kernels of their own, against the reference: the same stored
// bytes and the same range events, and sums that are near.
#include "ulp/backend/cuda/channelwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ulp/backend/emulated/pipeline_sample.h"
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

enum class Numbers { ordinary, wide, special };

// Numbers as training has them; few vanish and none overflows.
std::vector<float> ordinary(size_t n, uint32_t seed) {
  std::vector<float> made = values(n, seed, false);
  for (size_t i = 0; i < n; ++i) made[i] = std::ldexp(made[i], -4);
  return made;
}

void check_trained(const std::string& pattern, const Shape& shape, const Trained& trained, Numbers numbers,
                   Overflow overflow) {
  SCOPED_TRACE(pattern + " " + shape_text(shape) + " " + trained.forward + " " +
               std::to_string(static_cast<int>(numbers)) + (overflow == Overflow::infinity ? " inf" : ""));
  const Sample sample(pattern, shape);
  const bool backward =
      pattern.find("_grad") != std::string::npos || pattern.find("_sums") != std::string::npos;
  std::vector<TensorFormat> formats;
  for (const TensorInfo& tensor : sample.graph.tensors()) {
    TensorFormat format{parse_storage("fp32"), {}};
    if (tensor.kind == Kind::activation)
      format.storage = parse_storage(backward ? trained.grad : trained.forward);
    if (tensor.kind == Kind::weight && *trained.weight != 0) format.operand = parse_storage(trained.weight);
    formats.push_back(format);
  }
  // Of backward's inputs the first ones are gradients.
  const size_t grads = !backward ? 0 : pattern.find("sum(") != std::string::npos ? 2 : 1;
  for (size_t i = grads; i < sample.leaves.size(); ++i)
    formats[static_cast<size_t>(sample.leaves[i].index)].storage = parse_storage(trained.forward);

  const std::vector<NodeId> inlined(sample.nodes.begin(), sample.nodes.end() - 1);
  const Node& root = sample.graph[sample.nodes.back()];
  Bench apart(sample, formats, Round::nearest_even, overflow),
      fused(sample, formats, Round::nearest_even, overflow);
  for (Bench* bench : {&apart, &fused}) {
    fill(*bench, sample, numbers == Numbers::special);
    uint32_t seed = 1;
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

TEST(Channelwise, GivesTheReferencesBits) {
  const Trained kFormats[] = {{"bf16", "bf16"},
                              {"fp(4,3,4)", "fp(5,2,0)", "fp(4,3,4)"},
                              {"fp(4,3,-3)", "fp(5,2,0)"},
                              {"fp(5,2,0)", "fp(5,2,0)", "bf16"},
                              {"e4m3", "e5m2"},
                              {"e5m2", "e5m2"}};
  for (const char* pattern : kTrained) {
    for (const Trained& trained : kFormats) {
      check_trained(pattern, {37, 24}, trained, Numbers::ordinary, Overflow::saturate);
      check_trained(pattern, {5, 136}, trained, Numbers::wide, Overflow::saturate);
      for (const Overflow overflow : {Overflow::saturate, Overflow::infinity})
        check_trained(pattern, {19, 64}, trained, Numbers::special, overflow);
      if (HasFatalFailure()) return;
    }
    // Several blocks, and more than a thread takes at once.
    check_trained(pattern, {2700, 16}, kFormats[1], Numbers::ordinary, Overflow::saturate);
    check_trained(pattern, {300, 416}, kFormats[0], Numbers::ordinary, Overflow::saturate);
    if (HasFatalFailure()) return;
  }
  // Reductions by blocks of several widths, with rows to join.
  for (const char* pattern :
       {"batch_stats(x)", "batch_norm_sums(x,x)", "batch_norm_sums(relu_grad(x,x),x)"}) {
    for (const Shape& shape : {Shape{1100, 88}, Shape{900, 128}, Shape{1100, 56}, Shape{3000, 8}}) {
      check_trained(pattern, shape, kFormats[1], Numbers::ordinary, Overflow::saturate);
      check_trained(pattern, shape, kFormats[0], Numbers::ordinary, Overflow::saturate);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ulp::cuda
