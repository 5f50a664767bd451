// Kernels that process one example (an image, a row) after another: a plain function on decoded
// values, run in parallel over the batch. Each thread decodes a few examples at a time into its own
// buffer, which stays in its cache, or reads them in place, and encodes the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/call.h"
#include "ulp/backend/kernel.h"

namespace ulp {

// Named "cpu".
std::span<const KernelDef> example_kernels();

namespace example {

// What a function sees: `count` examples from `first` on; pointers to the first of them, or to the
// whole of tensors that all examples share.
struct Call : NodeCall {
  const PlanContext& plan;
  size_t first, count;
};

using Function = void (*)(const Call& call);

enum class Item : uint8_t {
  image,   // the first axis counts examples
  row,     // all but the last axis of the first input do
  joined,  // rows of concat and split do (ulp/graph/ops/move.h)
  result,  // all but the last axis of the output do
  index,   // elements of the second input do
};

// What an example is, and which inputs all examples share (bit i: input i).
struct Rule {
  Item item;
  uint32_t shared = 0;
  bool silent = false;  // writing reports no range events
  size_t items(const Problem& problem) const;
};

std::string why_not(const Problem& problem);
std::unique_ptr<Task> make_task(const Problem& problem, Function function, const Rule& rule);

template <Function function, Item item, uint32_t shared = 0>
constexpr KernelDef kernel(std::string_view op) {
  return {op, "cpu", why_not, [](const Problem& problem) {
            return make_task(problem, function, Rule{item, shared});
          }};
}

// The kernels of each file.
std::span<const KernelDef> pool_kernels();
std::span<const KernelDef> loss_kernels();
std::span<const KernelDef> norm_kernels();
std::span<const KernelDef> move_kernels();
std::span<const KernelDef> product_kernels();

}  // namespace example
}  // namespace ulp
