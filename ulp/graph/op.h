// What an operator is: a name, a form, a shape rule and a gradient rule. Kernels are elsewhere; an
// operator is one entry in a file of ulp/graph/ops.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp {

class Gradients;

enum class Form : uint8_t {
  general,
  // Element i of the one output from element i of the inputs that have its shape; other inputs have
  // one value for each channel (the last axis), or a single value. Such a node can be computed
  // inside the one that reads it.
  elementwise,
  // One value or a few for each channel, over all rows of inputs of one shape, which may be
  // computed inside.
  reduction,
  // The output is the input's bytes under another shape: nothing runs.
  view,
};

struct Output {
  std::string name;  // "out": the tensor is NODE.out
  Shape shape;
  Kind kind = Kind::activation;
  Element element = Element::real;
};

// What an operand must be.
enum class OperandKind : uint8_t { computed, index, target, byte };

struct OpDef {
  std::string_view name;
  Form form = Form::general;
  // Throws an Error where the shapes do not go together. Null for operators that only reverse mode
  // and the step use, whose outputs are given.
  std::vector<Output> (*infer)(const Attrs& attrs, std::span<const Shape> in) = nullptr;
  // Adds the nodes that compute the gradients of the inputs. Null where none flows through.
  void (*backward)(Gradients& gradients, const Node& node) = nullptr;
  // A matrix product: where a new precision group begins.
  bool anchors = false;
  // Its output has the codes of its first input in another order or shape, and so its format.
  bool moves = false;
  // A kernel may copy codes where the formats of its inputs and outputs agree.
  bool copies = false;
  // Of forward operators: what each operand must be; those beyond the list are computed.
  std::span<const OperandKind> operands = {};

  // Whether every kernel of it reports the range of what it writes. One that copies codes decodes
  // nothing and sees no values.
  constexpr bool reports_range() const { return !moves && !copies; }
};

}  // namespace ulp
