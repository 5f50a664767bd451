// A network: a function that adds its forward operators (operators.h) to a Builder and names its
// loss. Reverse mode, formats, memory and kernels follow from that.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulp/shape.h"

namespace ulp {
// Not public.
class Graph;
class NodeBuilder;
}  // namespace ulp

#pragma GCC visibility push(default)
namespace ulp {

// A tensor of the graph that is being built.
struct TensorId {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const TensorId&) const = default;
};

// What a source is fed.
enum class Element : uint8_t { real, int32, byte };

// How a weight starts. Random words are those of the seed and the weight's name.
struct Init {
  enum class Law : uint8_t { constant, normal, uniform };
  Law law = Law::constant;
  float value = 0;  // the constant; the standard deviation; half the width of the interval around 0

  static Init constant(float value) { return {Law::constant, value}; }
  static Init normal(float deviation) { return {Law::normal, deviation}; }
  static Init uniform(float bound) { return {Law::uniform, bound}; }
};

enum class Mode : uint8_t { training, inference };

// Adds nodes to a graph. A node NAME writes the tensor NAME.out; names are unique, and the formats
// of single tensors, checkpoints and reports go by them.
class Builder {
 public:
  Builder(Graph& graph, Mode mode) : graph_(graph), mode_(mode) {}

  Shape shape(TensorId id) const;
  // Whether the graph is for training; dropout and batch norm differ.
  bool training() const { return mode_ == Mode::training; }

  // A trained tensor of any name, for operators such as matmul. Layers make their own.
  TensorId weight(const std::string& name, const Shape& shape, Init init);

  // For layers that are unrolled in time. From time_step(t) on a name may come once in each step.
  // Weights of one name are one weight. Tensors of one name are one for policies, promotion and
  // reports: they share a format and are counted together. The node of the first step has the plain
  // name, that of another step t is NAME@t; so a source is fed as NAME, NAME@1 and so on.
  void time_step(int64_t t);
  void end_time_steps() { time_ = -1; }

 private:
  friend class NodeBuilder;  // how Ulp's own operators add nodes
  // The state of this name if an earlier time step has made it.
  TensorId shared_state(const std::string& name, const Shape& shape);

  Graph& graph_;
  Mode mode_;
  int64_t time_ = -1;                     // of the nodes that are added; -1: none
  std::map<std::string, int64_t> first_;  // by name of a node or weight: its first time step
};

// What a graph is built for. `extents` are what else decides its shapes, such as the length of
// sequences; only the build function knows their meaning.
struct BatchShape {
  int64_t examples = 0;
  std::vector<int64_t> extents;

  BatchShape() = default;
  // {32, 5} could be two shapes; {32, {5}} is one.
  template <std::integral A, std::integral B>
  BatchShape(A, B) = delete;
  BatchShape(int64_t count, std::vector<int64_t> others = {}) : examples(count), extents(std::move(others)) {}
  // The same for another number of examples.
  BatchShape of(int64_t count) const { return {count, extents}; }
  auto operator<=>(const BatchShape&) const = default;
};

// What a build function has made. Its sources (input, indices, target, bytes) are what must be fed,
// by the names of their nodes.
struct Network {
  // Terms of the loss: one for each example, position, or whatever is learned from. Training takes
  // the gradient of their mean.
  TensorId loss = {};
  // Of the terms: fp32 numbers of their shape, from a source `target`. The mean is then weighted.
  // None: each term counts 1. A weight of 0 takes a term's gradient away, as for padding; what is
  // fed there must still be finite numbers and valid indices.
  TensorId weights = {};
  // A tensor whose first number is the sum of the (weighted) terms, if the graph has one anyway;
  // else one is added.
  TensorId loss_sum = {};
  // What metrics read. In training those that take more than kSmallOutput bytes in fp32, for one
  // micro-batch, are not kept.
  std::vector<TensorId> outputs = {};
};
inline constexpr size_t kSmallOutput = 4096;

// Adds the forward nodes for a shape. It must be a pure function of the shape and the builder's mode.
using BuildFunction = std::function<Network(Builder& b, const BatchShape& shape)>;

}  // namespace ulp
#pragma GCC visibility pop
