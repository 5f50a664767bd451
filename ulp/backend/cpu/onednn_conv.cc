// Convolutions: images stay NHWC, the weight's layout is the primitive's choice.
#include "ulp/backend/cpu/onednn_task.h"

namespace ulp::onednn {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward;
using GradInput = dnnl::convolution_backward_data;
using GradWeight = dnnl::convolution_backward_weights;

struct Conv {
  Shape x, weight, out;  // of one image, and (out,kernel_h,kernel_w,c/groups)
  memory::dims strides, padding;
  int64_t groups;
  bool bias;

  Desc images(const Shape& shape, int64_t n) const {
    return {{n, shape.c(), shape.h(), shape.w()}, memory::data_type::f32, memory::format_tag::nhwc};
  }
  memory::dims weight_dims() const {
    const int64_t o = weight[0], h = weight[1], w = weight[2], i = weight[3];
    if (groups == 1) return {o, i, h, w};
    return {groups, o / groups, i, h, w};
  }
  Desc plain() const {
    const int64_t o = weight[0], h = weight[1], w = weight[2], i = weight[3];
    if (groups == 1) return dense(weight_dims(), {h * w * i, 1, w * i, i});
    return dense(weight_dims(), {o / groups * h * w * i, h * w * i, 1, w * i, i});
  }
  Desc weights(const Desc* layout) const {
    return layout != nullptr ? *layout : Desc(weight_dims(), memory::data_type::f32, memory::format_tag::any);
  }
  Desc bias_desc() const {
    return bias ? Desc({weight[0]}, memory::data_type::f32, memory::format_tag::x) : Desc();
  }
  // Backward primitives need the forward one as a hint.
  Forward::primitive_desc forward(int64_t n, const Desc* layout) const {
    const auto desc =
        bias ? Forward::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                             images(x, n), weights(layout), bias_desc(), images(out, n), strides, padding,
                             padding)
             : Forward::desc(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                             images(x, n), weights(layout), images(out, n), strides, padding, padding);
    return {desc, attributes(), engine()};
  }
};

// From the tensors' shapes; an image shape loses its batch.
Conv make_conv(const Node& node, const Shape& x, const Shape& weight, const Shape& out, bool bias) {
  const Attrs& a = node.attrs;
  return {x,
          weight,
          out,
          {a.integer("stride_h"), a.integer("stride_w")},
          {a.integer("padding_h"), a.integer("padding_w")},
          a.integer("groups"),
          bias};
}

// oneDNN 2.6's 1x1 weight gradient gathers the pixels of a strided convolution as if channels came
// in multiples of 16, even if there are fewer, and with several threads writes up to a kilobyte
// past the scratchpad it asked for.
bool writes_past_scratchpad(const Conv& conv, std::string_view implementation) {
  const bool strided = conv.strides[0] > 1 || conv.strides[1] > 1;
  return strided && conv.weight[3] % 16 != 0 && implementation.starts_with("jit_1x1");
}

size_t unit(const Shape& image) { return image.elements() / static_cast<size_t>(image.n()); }

}  // namespace

OnednnProduct describe_conv(const Problem& problem) {
  const Node& node = problem.root();
  const Conv conv = make_conv(node, problem.shape(node.in[0]), problem.shape(node.in[1]),
                              problem.shape(node.out[0]), node.in.size() > 2);
  OnednnProduct p;
  p.units = conv.x.n();
  p.in = {{node.in[0], unit(conv.x), DNNL_ARG_SRC}};
  p.out = {node.out[0], unit(conv.out), DNNL_ARG_DST};
  p.weight = node.in[1];
  if (conv.bias) p.bias = node.in[2];
  p.plain = conv.plain();
  p.offer = [conv](int64_t n, const Desc* layout) {
    const auto pd = conv.forward(n, layout);
    return Offer{{pd.src_desc()},
                 pd.dst_desc(),
                 pd.weights_desc(),
                 conv.bias_desc(),
                 pd.scratchpad_desc().get_size(),
                 pd.impl_info_str(),
                 [pd] { return dnnl::primitive(Forward(pd)); }};
  };
  return p;
}

OnednnProduct describe_conv_grad_input(const Problem& problem) {
  const Node& node = problem.root();
  const Conv conv = make_conv(node, problem.shape(node.out[0]), problem.shape(node.in[1]),
                              problem.shape(node.in[0]), false);
  OnednnProduct p;
  p.units = conv.x.n();
  p.in = {{node.in[0], unit(conv.out), DNNL_ARG_DIFF_DST}};
  p.out = {node.out[0], unit(conv.x), DNNL_ARG_DIFF_SRC};
  p.weight = node.in[1];
  p.plain = conv.plain();
  p.offer = [conv](int64_t n, const Desc* layout) {
    const GradInput::desc desc(dnnl::algorithm::convolution_direct, conv.images(conv.x, n),
                               conv.weights(layout), conv.images(conv.out, n), conv.strides, conv.padding,
                               conv.padding);
    const GradInput::primitive_desc pd(desc, attributes(), engine(), conv.forward(n, nullptr));
    return Offer{{pd.diff_dst_desc()},
                 pd.diff_src_desc(),
                 pd.weights_desc(),
                 {},
                 pd.scratchpad_desc().get_size(),
                 pd.impl_info_str(),
                 [pd] { return dnnl::primitive(GradInput(pd)); }};
  };
  return p;
}

OnednnProduct describe_conv_grad_weight(const Problem& problem) {
  const Node& node = problem.root();
  const Conv conv = make_conv(node, problem.shape(node.in[0]), problem.shape(node.out[0]),
                              problem.shape(node.in[1]), false);
  OnednnProduct p;
  p.units = conv.x.n();
  p.in = {{node.in[0], unit(conv.x), DNNL_ARG_SRC}, {node.in[1], unit(conv.out), DNNL_ARG_DIFF_DST}};
  p.out = {node.out[0], 0, DNNL_ARG_DIFF_WEIGHTS};
  p.plain = conv.plain();
  p.offer = [conv](int64_t n, const Desc* layout) {
    const GradWeight::desc desc(dnnl::algorithm::convolution_direct, conv.images(conv.x, n),
                                conv.weights(layout), conv.images(conv.out, n), conv.strides, conv.padding,
                                conv.padding);
    // Must live as long as another implementation may be requested: the iterator reads it again.
    const auto hint = conv.forward(n, nullptr);
    GradWeight::primitive_desc pd(desc, attributes(), engine(), hint);
    while (writes_past_scratchpad(conv, pd.impl_info_str())) {
      if (!pd.next_impl())
        throw dnnl::error(dnnl_unimplemented, "only an implementation that writes past its scratchpad");
    }
    return Offer{{pd.src_desc(), pd.diff_dst_desc()},
                 pd.diff_weights_desc(),
                 pd.diff_weights_desc(),
                 {},
                 pd.scratchpad_desc().get_size(),
                 pd.impl_info_str(),
                 [pd] { return dnnl::primitive(GradWeight(pd)); }};
  };
  return p;
}

}  // namespace ulp::onednn
