// Kernels that do one example (an image, a row) after another: a plain function on decoded numbers, run in parallel
// over the batch. Each thread decodes a few examples at a time into a buffer of its own that stays in its cache, or
// reads them in place, and encodes what comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/kernel.h"

namespace ulp {

// Named "cpu".
std::span<const KernelDef> example_kernels();

namespace example {

// What a function sees: `count` examples from `first` on; pointers to the first of them, or to the whole of tensors
// that all examples share. Real numbers are fp32, int32 and bytes are as they are.
struct Call {
  const Graph& graph;
  const Node& node;
  size_t first, count;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;

  const float* in(size_t i) const { return static_cast<const float*>(inputs[i]); }
  const int32_t* indices(size_t i) const { return static_cast<const int32_t*>(inputs[i]); }
  const uint8_t* bytes(size_t i) const { return static_cast<const uint8_t*>(inputs[i]); }
  float* out(size_t i = 0) const { return static_cast<float*>(outputs[i]); }
  uint8_t* out_bytes(size_t i) const { return static_cast<uint8_t*>(outputs[i]); }
  const Shape& in_shape(size_t i) const { return graph[node.in[i]].shape; }
  const Shape& out_shape(size_t i = 0) const { return graph[node.out[i]].shape; }
};

using Function = void (*)(const Call& call);

enum class Unit : uint8_t {
  image,  // the first axis counts examples
  row,    // all but the last axis of the first input do
  index,  // elements of the second input do
};

// What an example is, which inputs all examples share (bit i: input i).
struct Rule {
  Unit unit;
  uint32_t shared = 0;
  bool silent = false;  // writing reports no range events
  size_t units(const Problem& problem) const;
};

std::string why_not(const Problem& problem);
std::unique_ptr<Task> make_task(const Problem& problem, Function function, const Rule& rule);

template <Function function, Unit unit, uint32_t shared = 0>
constexpr KernelDef kernel(std::string_view op) {
  return {op, "cpu", why_not, [](const Problem& problem) {
            return make_task(problem, function, Rule{unit, shared});
          }};
}

// The kernels of each file.
std::span<const KernelDef> pool_kernels();
std::span<const KernelDef> loss_kernels();
std::span<const KernelDef> norm_kernels();
std::span<const KernelDef> move_kernels();

}  // namespace example
}  // namespace ulp
