// The static training graph: tensors and the nodes that make them, by number, in the order they
// run. A graph knows shapes, names and rules; it holds no data, no formats and no kernels.
//
// A node reads its inputs and writes its outputs. One node writes a tensor, with two exceptions.
// State (weights, running statistics, optimizer state) lives on between steps and is written in
// place. Each use of a parameter writes its gradient sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulp/network.h"  // IWYU pragma: export
#include "ulp/shape.h"

namespace ulp {

struct NodeId {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const NodeId&) const = default;
};

enum class Kind : uint8_t {
  activation,
  activation_grad,
  weight,       // state: lives between steps
  weight_grad,  // complete, as the step reads it
  grad_sum,     // fp32, what all uses and micro-batches of a parameter add to
  statistic,    // state: running mean and variance
  optimizer,    // state
  // fp32 or bytes that forward leaves for backward beside activations: means, pool indices.
  saved,
  fed,  // numbers that a step is given as they are: indices, targets of a loss
};
std::string_view kind_name(Kind kind);

// State outlives a step.
constexpr bool is_state(Kind kind) {
  return kind == Kind::weight || kind == Kind::statistic || kind == Kind::optimizer;
}

constexpr bool is_gradient(Kind kind) { return kind == Kind::activation_grad || kind == Kind::weight_grad; }

std::string_view element_name(Element element);
// Of an element as it is fed and as int32 and bytes are stored; reals are fed in fp32.
constexpr size_t element_bytes(Element element) { return element == Element::byte ? 1 : 4; }

struct TensorInfo {
  std::string name;
  Shape shape;
  Kind kind = Kind::activation;
  Element element = Element::real;
  // It has no format of its own but that tensor's: a view, a part of a gradient, a later time step.
  TensorId format_from = {};
  // It is a later time step of that tensor: for policies and reports the two are one.
  TensorId step_of = {};
  // It has no bytes of its own but that tensor's: the same codes under another shape.
  TensorId alias = {};
  // It is written with the same bits as that tensor: it has its format and its random words.
  TensorId twin = {};
  // A weight's gradient of some of its rows, whose numbers that tensor has. The other rows have
  // none, and are not updated.
  TensorId rows = {};
  Init init = {};  // of state

  NodeId producer = {};  // the first node that writes it
  TensorId grad = {};    // of an activation or weight that wants one
  uint32_t number = 0;   // names its random words; a hash of the name
  size_t elements() const { return shape.elements(); }
};

// What a node is told beside its inputs: numbers by name.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string_view, double>> values)
      : values_(values.begin(), values.end()) {}

  // Throw std::logic_error where there is none: a mistake in the program, not in its input.
  double real(std::string_view name) const;
  int64_t integer(std::string_view name) const { return static_cast<int64_t>(real(name)); }
  bool has(std::string_view name) const;
  void set(std::string_view name, double value);
  std::span<const std::pair<std::string_view, double>> values() const { return values_; }

 private:
  std::vector<std::pair<std::string_view, double>> values_;  // the names are literals
};

enum class Phase : uint8_t {
  forward,
  backward,
  finish,  // once a step, after its last micro-batch: sums become gradients
  // Once it is known that the step counts: computes gradients again that were not kept (repeat.h).
  recompute,
  recompute_finish,
  update,
};

struct OpDef;

struct Node {
  const OpDef* op = nullptr;
  std::string name;
  Attrs attrs;
  std::vector<TensorId> in, out;
  Phase phase = Phase::forward;
  bool adds = false;  // to its outputs, which an earlier node of the step has written
};

class Graph {
 public:
  // Throws an Error if the name exists, or if another name has the same number: then both would get
  // the same random words, which only twins should.
  TensorId add_tensor(TensorInfo info);
  NodeId add_node(Node node);

  const TensorInfo& operator[](TensorId id) const { return tensors_[static_cast<size_t>(id.index)]; }
  const Node& operator[](NodeId id) const { return nodes_[static_cast<size_t>(id.index)]; }
  TensorInfo& edit(TensorId id) { return tensors_[static_cast<size_t>(id.index)]; }

  bool has(TensorId id) const { return id && static_cast<size_t>(id.index) < tensors_.size(); }
  size_t tensor_count() const { return tensors_.size(); }
  size_t node_count() const { return nodes_.size(); }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  std::span<const Node> nodes() const { return nodes_; }

  // None where there is no such name.
  TensorId find(std::string_view name) const;

  // The tensor whose bytes, or whose format, this one has.
  TensorId bytes_of(TensorId id) const;
  TensorId format_of(TensorId id) const;

  // Elements of all weights.
  size_t parameters() const;

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, TensorId> by_name_;
  std::unordered_map<uint32_t, TensorId> by_number_;
};

// The number of a tensor's random words: 32-bit FNV-1a of its name.
uint32_t tensor_number(std::string_view name);

}  // namespace ulp
