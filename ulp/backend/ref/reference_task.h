// How an operator becomes a kernel of the reference: a function on plain arrays, and the task
// around it that decodes and encodes. Private to the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/call.h"
#include "ulp/backend/kernel.h"
#include "ulp/numeric/math.h"

namespace ulp::ref {

// What a plain function sees of its node: whole tensors.
struct Call : NodeCall {
  const StepState& state;
  const CodecSpec* accumulator;  // of products; null where they add up in double
};

// The end of a sum or product in double: rounded to fp32 once, with the NaN of elementwise
// operators.
inline float rounded(double x) { return settle_nan(static_cast<float>(x)); }

using Function = void (*)(const Call& call);

// Whether a function starts from nothing or changes what its outputs hold.
enum class Outputs : uint8_t { fresh, in_place };

class ReferenceTask : public Task {
 public:
  ReferenceTask(const Problem& problem, Function function, Outputs outputs);
  void run(const RunContext& context) override;

 private:
  struct Input {
    TensorId id;
    bool real;
    Reader reader;
    size_t space;
  };
  struct Output {
    TensorId id;
    bool real;
    Reader reader;  // of what it holds before, in place
    Writer writer;
    size_t space;
  };

  const Graph& graph_;
  const Node& node_;
  const Function function_;
  const Outputs outputs_;
  const std::optional<CodecSpec> accumulator_;
  std::vector<Input> in_;
  std::vector<Output> out_;
  std::vector<const void*> in_data_;
  std::vector<void*> out_data_;
};

template <Function function, Outputs outputs = Outputs::fresh>
std::unique_ptr<Task> make_reference(const Problem& problem) {
  return std::make_unique<ReferenceTask>(problem, function, outputs);
}

template <Function function, Outputs outputs = Outputs::fresh>
constexpr KernelDef reference_kernel(std::string_view op) {
  return {op, "reference", takes_one_node, make_reference<function, outputs>};
}

// A product, compiled with both kinds of sums.
template <Function wide, Function narrow>
void by_accumulator(const Call& call) {
  (call.accumulator != nullptr ? narrow : wide)(call);
}

// An elementwise operator, whose output may lie over an input.
template <Function function>
constexpr KernelDef reference_elementwise(std::string_view op) {
  return {op, "reference", takes_one_node, make_reference<function, Outputs::fresh>, true};
}

// The kernels of each file.
std::span<const KernelDef> elementwise_kernels();
std::span<const KernelDef> conv_kernels();
std::span<const KernelDef> matmul_kernels();
std::span<const KernelDef> move_kernels();
std::span<const KernelDef> norm_kernels();
std::span<const KernelDef> pool_kernels();
std::span<const KernelDef> loss_kernels();
std::span<const KernelDef> source_kernels();
std::span<const KernelDef> update_kernels();

}  // namespace ulp::ref
