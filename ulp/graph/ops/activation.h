// Activation functions and dropout. All are elementwise. Activations are those of
// elementwise_table.h: a struct there is an operator here and on every backend.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ulp/graph/builder.h"
#include "ulp/graph/op.h"
#include "ulp/graph/ops/elementwise_table.h"

namespace ulp {

// (x) -> out; the gradient is (dout, saved) -> dx, where `saved` is the output or the input, as the
// struct says.
namespace detail {
std::vector<Output> same_shape(const Attrs& attrs, std::span<const Shape> in);
void activation_backward(Gradients& gradients, const Node& node, const OpDef& grad, bool reads_output);
TensorId add_activation(Builder& b, const OpDef& op, const std::string& name, TensorId x,
                        const char* attribute, double value, double least, double most);
}  // namespace detail

template <typename Op>
inline constexpr OpDef kActivationGrad{Op::kGradName, Form::elementwise};
template <typename Op>
inline constexpr OpDef kActivation{Op::kName, Form::elementwise, detail::same_shape,
                                   [](Gradients& gradients, const Node& node) {
                                     detail::activation_backward(gradients, node, kActivationGrad<Op>,
                                                                 Op::kReads == elementwise::Reads::output);
                                   }};

// The attribute of an activation or of its gradient as kernels take it; 0 where it has none.
float activation_attribute(const Node& node);

// (x) -> out, p: element i is 0 where its random word is below floor(p 2^32), else x / (1 - p). The
// words are those of the stream `tensor`, the number of the output, so that the gradient (dout) ->
// dx draws the same ones and no mask is kept.
extern const OpDef kDropout, kDropoutGrad;

// An activation by its struct: activation<elementwise::Silu>(b, "act", x).
template <typename Op>
TensorId activation(Builder& b, const std::string& name, TensorId x, double attribute = 0) {
  return detail::add_activation(b, kActivation<Op>, name, x, Op::kAttribute, attribute, Op::kLeast,
                                Op::kMost);
}

}  // namespace ulp
