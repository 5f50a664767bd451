// Convolutions: images stay NHWC, the weight's layout is the primitive's choice.
#include "ulp/backend/conv_node.h"
#include "ulp/backend/cpu/onednn_layer.h"

namespace ulp::onednn {
namespace {

using dnnl::memory;

Desc nhwc(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::nhwc}; }

struct Conv : ConvExtents {
  using Forward = dnnl::convolution_forward;
  using GradInput = dnnl::convolution_backward_data;
  using GradWeight = dnnl::convolution_backward_weights;
  bool bias;

  explicit Conv(const Problem& problem)
      : ConvExtents(conv_extents(problem.graph(), problem.root())), bias(problem.root().in.size() > 2) {}

  int64_t items() const { return n; }
  size_t x_item() const { return static_cast<size_t>(h * w * c); }
  size_t out_item() const { return static_cast<size_t>(out_h * out_w * out_c); }

  Desc images(int64_t count) const { return nhwc({count, c, h, w}); }
  Desc results(int64_t count) const { return nhwc({count, out_c, out_h, out_w}); }
  memory::dims weight_dims() const {
    const int64_t i = c / groups;
    if (groups == 1) return {out_c, i, kernel_h, kernel_w};
    return {groups, out_c / groups, i, kernel_h, kernel_w};
  }
  Desc plain() const {
    const int64_t i = c / groups, filter = taps() * i;
    if (groups == 1) return dense(weight_dims(), {filter, 1, kernel_w * i, i});
    return dense(weight_dims(), {out_c / groups * filter, filter, 1, kernel_w * i, i});
  }
  Desc weights(const Desc* layout) const {
    return layout != nullptr ? *layout : Desc(weight_dims(), memory::data_type::f32, memory::format_tag::any);
  }
  Desc bias_desc() const {
    return bias ? Desc({out_c}, memory::data_type::f32, memory::format_tag::x) : Desc();
  }
  memory::dims strides() const { return {stride_h, stride_w}; }
  memory::dims padding() const { return {padding_h, padding_w}; }

  Forward::primitive_desc forward(int64_t count, const Desc* layout) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc = bias ? Forward::desc(kind, direct, images(count), weights(layout), bias_desc(),
                                           results(count), strides(), padding(), padding())
                           : Forward::desc(kind, direct, images(count), weights(layout), results(count),
                                           strides(), padding(), padding());
    return {desc, attributes(), engine()};
  }
  // Backward primitives need the forward one as a hint.
  GradInput::primitive_desc grad_input(int64_t count, const Desc* layout) const {
    const GradInput::desc desc(dnnl::algorithm::convolution_direct, images(count), weights(layout),
                               results(count), strides(), padding(), padding());
    return {desc, attributes(), engine(), forward(count, nullptr)};
  }
  GradWeight::primitive_desc grad_weight(int64_t count, const Desc* layout) const {
    const GradWeight::desc desc(dnnl::algorithm::convolution_direct, images(count), weights(layout),
                                results(count), strides(), padding(), padding());
    // Must live as long as another implementation may be requested: the iterator reads it again.
    const auto hint = forward(count, nullptr);
    GradWeight::primitive_desc pd(desc, attributes(), engine(), hint);
    while (writes_past_scratchpad(pd.impl_info_str())) {
      if (!pd.next_impl())
        throw dnnl::error(dnnl_unimplemented, "only an implementation that writes past its scratchpad");
    }
    return pd;
  }

  // oneDNN 2.6's 1x1 weight gradient gathers the pixels of a strided convolution as if channels came
  // in multiples of 16, even if there are fewer, and with several threads writes up to a kilobyte
  // past the scratchpad it asked for.
  bool writes_past_scratchpad(std::string_view implementation) const {
    const bool strided = stride_h > 1 || stride_w > 1;
    return strided && c / groups % 16 != 0 && implementation.starts_with("jit_1x1");
  }
};

}  // namespace

OnednnProduct describe_conv(const Problem& problem) { return describe_forward<Conv>(problem); }
OnednnProduct describe_conv_grad_input(const Problem& problem) { return describe_grad_input<Conv>(problem); }
OnednnProduct describe_conv_grad_weight(const Problem& problem) {
  return describe_grad_weight<Conv>(problem);
}

}  // namespace ulp::onednn
