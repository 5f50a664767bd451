#include "ulp/graph/ops/loss.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace {

std::vector<Output> same_shape(const Attrs&, std::span<const Shape> in) { return {{"out", in[0]}}; }

template <const OpDef& Grad>
void from_output(Gradients& gradients, const Node& node) {
  gradients.emit(Grad, node, {gradients.of(node.out[0]), node.out[0]}, {gradients.part(node.in[0])});
}

std::vector<Output> label_loss_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() != 2 || in[1] != Shape{in[0][0]}) {
    fail("shape", "scores of {} and labels of {} do not go together", shape_text(in[0]), shape_text(in[1]));
  }
  return {{"out", in[1]}};
}

std::vector<Output> target_loss_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0] != in[1]) fail("shape", "{} and a target of {} differ", shape_text(in[0]), shape_text(in[1]));
  return {{"out", {in[0][0]}}};
}

void nll_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kNllGrad, node, {gradients.of(node.out[0]), node.in[1]}, {gradients.part(node.in[0])},
                 node.attrs);
}

template <const OpDef& Grad>
void from_inputs(Gradients& gradients, const Node& node) {
  if (gradients.wanted(node.in[1])) fail("graph", "{}: a target must not depend on weights", node.name);
  gradients.emit(Grad, node, {gradients.of(node.out[0]), node.in[0], node.in[1]},
                 {gradients.part(node.in[0])}, node.attrs);
}

std::vector<Output> classify_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() != 2 || in[1] != Shape{in[0][0]} || in[2] != in[1]) {
    fail("shape", "scores of {}, labels of {} and a loss of {} do not go together", shape_text(in[0]),
         shape_text(in[1]), shape_text(in[2]));
  }
  return {{"sums", {2}, Kind::saved}};
}

std::vector<Output> loss_sum_shape(const Attrs&, std::span<const Shape> in) {
  if (in.size() > 1 && in[0] != in[1]) {
    fail("shape", "terms of {} and weights of {} differ", shape_text(in[0]), shape_text(in[1]));
  }
  return {{"sums", {1}, Kind::saved}};
}

Attrs smoothed(const std::string& name, double smoothing) {
  if (!(smoothing >= 0 && smoothing < 1)) {
    fail("graph", "{}: label smoothing must be at least 0 and below 1, got {}", name, smoothing);
  }
  return {{"smoothing", smoothing}};
}

constexpr OperandKind kAgainstLabels[] = {OperandKind::computed, OperandKind::index};
constexpr OperandKind kAgainstTarget[] = {OperandKind::computed, OperandKind::target};

}  // namespace

const OpDef kSoftmaxGrad{"softmax_grad"};
const OpDef kSoftmax{"softmax", Form::general, same_shape, from_output<kSoftmaxGrad>};
const OpDef kLogSoftmaxGrad{"log_softmax_grad"};
const OpDef kLogSoftmax{"log_softmax", Form::general, same_shape, from_output<kLogSoftmaxGrad>};
const OpDef kNllGrad{"nll_grad"};
const OpDef kNll{
    .name = "nll", .infer = label_loss_shape, .backward = nll_backward, .operands = kAgainstLabels};
const OpDef kCrossEntropyGrad{"cross_entropy_grad"};
const OpDef kCrossEntropy{.name = "cross_entropy",
                          .infer = label_loss_shape,
                          .backward = from_inputs<kCrossEntropyGrad>,
                          .operands = kAgainstLabels};
const OpDef kMseGrad{"mse_grad"};
const OpDef kMse{
    .name = "mse", .infer = target_loss_shape, .backward = from_inputs<kMseGrad>, .operands = kAgainstTarget};
const OpDef kBceWithLogitsGrad{"bce_with_logits_grad"};
const OpDef kBceWithLogits{.name = "bce_with_logits",
                           .infer = target_loss_shape,
                           .backward = from_inputs<kBceWithLogitsGrad>,
                           .operands = kAgainstTarget};
const OpDef kClassify{.name = "classify", .infer = classify_shape, .operands = kAgainstLabels};
const OpDef kLossSum{.name = "loss_sum", .infer = loss_sum_shape, .operands = kAgainstTarget};

TensorId softmax(Builder& b, const std::string& name, TensorId x) {
  return nodes(b).add_one(kSoftmax, name, {x});
}

TensorId log_softmax(Builder& b, const std::string& name, TensorId x) {
  return nodes(b).add_one(kLogSoftmax, name, {x});
}

TensorId nll(Builder& b, const std::string& name, TensorId log_probabilities, TensorId labels,
             double smoothing) {
  return nodes(b).add_one(kNll, name, {log_probabilities, labels}, smoothed(name, smoothing));
}

TensorId cross_entropy(Builder& b, const std::string& name, TensorId scores, TensorId labels,
                       double smoothing) {
  return nodes(b).add_one(kCrossEntropy, name, {scores, labels}, smoothed(name, smoothing));
}

TensorId mse(Builder& b, const std::string& name, TensorId x, TensorId target) {
  return nodes(b).add_one(kMse, name, {x, target});
}

TensorId bce_with_logits(Builder& b, const std::string& name, TensorId x, TensorId target) {
  return nodes(b).add_one(kBceWithLogits, name, {x, target});
}

TensorId classify(Builder& b, const std::string& name, TensorId scores, TensorId labels, TensorId loss) {
  return nodes(b).add_one(kClassify, name, {scores, labels, loss});
}

TensorId loss_sum(Builder& b, const std::string& name, TensorId terms, TensorId weights) {
  return nodes(b).add_one(kLossSum, name,
                          weights ? std::vector<TensorId>{terms, weights} : std::vector<TensorId>{terms});
}

}  // namespace ulp
