// What a function that computes a node is given: its tensors as plain arrays, real numbers as fp32,
// int32 and bytes as they are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ulp/graph/graph.h"

namespace ulp {

struct NodeCall {
  const Graph& graph;
  const Node& node;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;

  const float* in(size_t i) const { return static_cast<const float*>(inputs[i]); }
  const int32_t* indices(size_t i) const { return static_cast<const int32_t*>(inputs[i]); }
  const uint8_t* bytes(size_t i) const { return static_cast<const uint8_t*>(inputs[i]); }
  float* out(size_t i = 0) const { return static_cast<float*>(outputs[i]); }
  int32_t* out_int32(size_t i) const { return static_cast<int32_t*>(outputs[i]); }
  uint8_t* out_bytes(size_t i) const { return static_cast<uint8_t*>(outputs[i]); }

  const Shape& in_shape(size_t i) const { return graph[node.in[i]].shape; }
  const Shape& out_shape(size_t i = 0) const { return graph[node.out[i]].shape; }
  size_t elements() const { return out_shape().elements(); }  // of the first output

  double real(std::string_view name) const { return node.attrs.real(name); }
  int64_t integer(std::string_view name) const { return node.attrs.integer(name); }
};

}  // namespace ulp
