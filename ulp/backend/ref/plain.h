// How an operator becomes a kernel of the reference: a function on plain arrays, and the task around it that decodes
// and encodes. Private to the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/kernel.h"
#include "ulp/numeric/math.h"

namespace ulp::ref {

// What a plain function sees of its node: whole tensors, real numbers as fp32, int32 and bytes as they are.
struct Call {
  const Graph& graph;
  const Node& node;
  const StepState& state;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;

  const float* in(size_t i) const { return static_cast<const float*>(inputs[i]); }
  const int32_t* indices(size_t i) const { return static_cast<const int32_t*>(inputs[i]); }
  const uint8_t* bytes(size_t i) const { return static_cast<const uint8_t*>(inputs[i]); }
  float* out(size_t i = 0) const { return static_cast<float*>(outputs[i]); }
  uint8_t* out_bytes(size_t i) const { return static_cast<uint8_t*>(outputs[i]); }

  const Shape& in_shape(size_t i) const { return graph[node.in[i]].shape; }
  const Shape& out_shape(size_t i = 0) const { return graph[node.out[i]].shape; }
  size_t elements() const { return out_shape().elements(); }  // of the first output

  double real(std::string_view name) const { return node.attrs.real(name); }
  int64_t integer(std::string_view name) const { return node.attrs.integer(name); }
};

// The end of a sum or product in double: rounded to fp32 once, with the NaN of elementwise operators.
inline float rounded(double x) { return settle_nan(static_cast<float>(x)); }

using Function = void (*)(const Call& call);

// Whether a function starts from nothing or changes what its outputs hold.
enum class Outputs : uint8_t { fresh, in_place };

class PlainTask : public Task {
 public:
  PlainTask(const Problem& problem, Function function, Outputs outputs);
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
  std::vector<Input> in_;
  std::vector<Output> out_;
  std::vector<const void*> in_data_;
  std::vector<void*> out_data_;
};

// For why_not.
std::string one_at_a_time(const Problem& problem);

template <Function function, Outputs outputs = Outputs::fresh>
std::unique_ptr<Task> make_plain(const Problem& problem) {
  return std::make_unique<PlainTask>(problem, function, outputs);
}

template <Function function, Outputs outputs = Outputs::fresh>
constexpr KernelDef plain(std::string_view op) {
  return {op, "reference", one_at_a_time, make_plain<function, outputs>};
}

// An elementwise operator, whose output may lie over an input.
template <Function function>
constexpr KernelDef plain_elementwise(std::string_view op) {
  return {op, "reference", one_at_a_time, make_plain<function, Outputs::fresh>, true};
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
