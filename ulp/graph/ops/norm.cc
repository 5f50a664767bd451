#include "ulp/graph/ops/norm.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp {
namespace {

std::vector<Output> stats_shape(const Attrs&, std::span<const Shape> in) {
  return {{"mean", {in[0].back()}, Kind::saved}, {"variance", {in[0].back()}, Kind::saved}};
}

// It writes the running statistics, which are there already.
std::vector<Output> no_output(const Attrs&, std::span<const Shape>) { return {}; }

std::vector<Output> batch_norm_shape(const Attrs&, std::span<const Shape> in) { return {{"out", in[0]}}; }

void batch_norm_backward(Gradients& gradients, const Node& node) {
  const TensorId dout = gradients.of(node.out[0]);
  const TensorId x = node.in[0], gamma = node.in[1], beta = node.in[2], mean = node.in[3],
                 variance = node.in[4];
  const Shape shape = gradients.graph()[x].shape;
  const Shape channels{shape.back()};
  const TensorId sum = gradients.temporary(node, "grad_sum", channels);
  const TensorId product = gradients.temporary(node, "grad_product", channels);
  Attrs attrs = node.attrs;
  attrs.set("rows", static_cast<double>(shape.rows()));
  gradients.emit(kBatchNormSums, node, {dout, x, mean, variance}, {sum, product}, attrs);
  gradients.emit(kCopy, node, {sum}, {gradients.part(beta)});
  gradients.emit(kCopy, node, {product}, {gradients.part(gamma)});
  if (gradients.wanted(x)) {
    gradients.emit(kBatchNormGrad, node, {dout, x, gamma, mean, variance, sum, product}, {gradients.part(x)},
                   attrs);
  }
}

std::vector<Output> layer_norm_shape(const Attrs&, std::span<const Shape> in) {
  const Shape rows{static_cast<int64_t>(in[0].rows())};
  return {{"out", in[0]}, {"mean", rows, Kind::saved}, {"variance", rows, Kind::saved}};
}

void layer_norm_backward(Gradients& gradients, const Node& node) {
  const TensorId dout = gradients.of(node.out[0]);
  const TensorId x = node.in[0], gamma = node.in[1], beta = node.in[2], mean = node.out[1],
                 variance = node.out[2];
  const TensorId dbeta = gradients.part(beta), dgamma = gradients.part(gamma);
  gradients.emit(kLayerNormGradWeight, node, {dout, x, mean, variance}, {dgamma, dbeta}, node.attrs);
  if (gradients.wanted(x)) {
    gradients.emit(kLayerNormGrad, node, {dout, x, gamma, mean, variance}, {gradients.part(x)}, node.attrs);
  }
}

void check(const std::string& name, double epsilon, double momentum) {
  if (!(epsilon > 0) || !(momentum >= 0 && momentum <= 1)) {
    fail("graph", "{}: epsilon must be positive and momentum in [0, 1], got {} and {}", name, epsilon,
         momentum);
  }
}

}  // namespace

const OpDef kBatchStats{"batch_stats", Form::reduction, stats_shape};
const OpDef kBatchTrack{"batch_track", Form::general, no_output};
const OpDef kBatchNorm{"batch_norm", Form::elementwise, batch_norm_shape, batch_norm_backward};
const OpDef kBatchNormSums{"batch_norm_sums", Form::reduction};
const OpDef kBatchNormGrad{"batch_norm_grad", Form::elementwise};
const OpDef kLayerNorm{"layer_norm", Form::general, layer_norm_shape, layer_norm_backward};
const OpDef kLayerNormGrad{"layer_norm_grad"};
const OpDef kLayerNormGradWeight{"layer_norm_grad_weight"};

TensorId batch_norm(Builder& b, const std::string& name, TensorId x, const NormOptions& options) {
  check(name, options.epsilon, options.momentum);
  const Shape shape = b.shape(x);
  const Shape channels{shape.back()};
  const TensorId gamma = b.weight(name + ".weight", channels, Init::constant(1));
  const TensorId beta = b.weight(name + ".bias", channels, Init::constant(0));
  TensorId mean = nodes(b).statistic(name + ".running_mean", channels, 0);
  TensorId variance = nodes(b).statistic(name + ".running_var", channels, 1);
  if (b.training()) {
    const auto batch = nodes(b).add(kBatchStats, name + ".batch", {x});
    nodes(b).graph().add_node({&kBatchTrack,
                               name + ".track",
                               {{"momentum", options.momentum}, {"rows", static_cast<double>(shape.rows())}},
                               batch,
                               {mean, variance},
                               Phase::forward,
                               false});
    mean = batch[0];
    variance = batch[1];
  }
  return nodes(b).add_one(kBatchNorm, name, {x, gamma, beta, mean, variance}, {{"epsilon", options.epsilon}});
}

TensorId layer_norm(Builder& b, const std::string& name, TensorId x, double epsilon) {
  check(name, epsilon, 0);
  const Shape channels{b.shape(x).back()};
  const TensorId gamma = b.weight(name + ".weight", channels, Init::constant(1));
  const TensorId beta = b.weight(name + ".bias", channels, Init::constant(0));
  return nodes(b).add_one(kLayerNorm, name, {x, gamma, beta}, {{"epsilon", epsilon}});
}

}  // namespace ulp
