#include "ulp/graph/ops/conv.h"

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace {

int64_t extent_after(int64_t extent, int64_t kernel, int64_t stride, int64_t padding) {
  if (extent + 2 * padding < kernel) {
    fail("shape", "a kernel of {} does not fit in {} with a padding of {}", kernel, extent, padding);
  }
  return (extent + 2 * padding - kernel) / stride + 1;
}

std::vector<Output> conv_shape(const Attrs& attrs, std::span<const Shape> in) {
  const Shape &x = in[0], &weight = in[1];
  if (x.rank() != 4 || weight.rank() != 4)
    fail("shape", "images and weights must have four axes, got {} and {}", shape_text(x), shape_text(weight));
  const int64_t groups = attrs.integer("groups");
  if (x.c() % groups != 0 || weight[0] % groups != 0 || weight[3] != x.c() / groups) {
    fail("shape", "{} channels, {} groups and a weight of {} do not go together", x.c(), groups,
         shape_text(weight));
  }
  const int64_t h = extent_after(x.h(), weight[1], attrs.integer("stride_h"), attrs.integer("padding_h"));
  const int64_t w = extent_after(x.w(), weight[2], attrs.integer("stride_w"), attrs.integer("padding_w"));
  return {{"out", Shape::image(x.n(), weight[0], h, w)}};
}

void conv_backward(Gradients& gradients, const Node& node) {
  const TensorId dout = gradients.of(node.out[0]);
  if (node.in.size() > 2) gradients.emit(kChannelSum, node, {dout}, {gradients.part(node.in[2])});
  if (gradients.wanted(node.in[1])) {
    gradients.emit(kConv2dGradWeight, node, {node.in[0], dout}, {gradients.part(node.in[1])}, node.attrs);
  }
  if (gradients.wanted(node.in[0])) {
    gradients.emit(kConv2dGradInput, node, {dout, node.in[1]}, {gradients.part(node.in[0])}, node.attrs);
  }
}

}  // namespace

const OpDef kConv2d{"conv2d", Form::general, conv_shape, conv_backward, true};
const OpDef kConv2dGradInput{"conv2d_grad_input"};
const OpDef kConv2dGradWeight{"conv2d_grad_weight"};
const OpDef kChannelSum{"channel_sum", Form::reduction};

TensorId conv2d(Builder& b, const std::string& name, TensorId x, const ConvOptions& o) {
  const Shape shape = b.shape(x);  // a copy: adding tensors moves them
  if (shape.rank() != 4) fail("graph", "{}: a convolution reads images, got {}", name, shape_text(shape));
  if (o.out <= 0 || o.kernel <= 0 || o.stride <= 0 || o.padding < 0 || o.groups <= 0 ||
      shape.c() % o.groups != 0 || o.out % o.groups != 0) {
    fail("graph",
         "{}: {} channels to {} with kernel {}, stride {}, padding {} and {} groups is no convolution", name,
         shape.c(), o.out, o.kernel, o.stride, o.padding, o.groups);
  }
  const auto fan_out = static_cast<double>(o.kernel * o.kernel * o.out);
  std::vector<TensorId> in{
      x, b.weight(name + ".weight", {o.out, o.kernel, o.kernel, shape.c() / o.groups},
                  o.init.value_or(Init::normal(static_cast<float>(std::sqrt(2 / fan_out)))))};
  if (o.bias) {
    const auto fan_in = static_cast<double>(o.kernel * o.kernel * shape.c() / o.groups);
    in.push_back(b.weight(name + ".bias", {o.out}, Init::uniform(static_cast<float>(1 / std::sqrt(fan_in)))));
  }
  const auto stride = static_cast<double>(o.stride), padding = static_cast<double>(o.padding);
  return nodes(b).add_one(kConv2d, name, std::move(in),
                          {{"stride_h", stride},
                           {"stride_w", stride},
                           {"padding_h", padding},
                           {"padding_w", padding},
                           {"groups", static_cast<double>(o.groups)}});
}

}  // namespace ulp
