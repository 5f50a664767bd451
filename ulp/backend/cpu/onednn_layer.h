// Convolutions and linear layers as products for oneDNN. A `Layer` has the extents and makes the
// descriptions of its primitives:
//   bool bias; items(), x_item(), out_item(), plain(), bias_desc() as in OnednnProduct;
//   forward(n, layout), grad_input(n, layout), grad_weight(n, layout): primitive descriptions for n
//   items, of the primitives Layer::Forward, Layer::GradInput and Layer::GradWeight.
#pragma once

#include "ulp/backend/cpu/onednn_task.h"

namespace ulp::onednn {

template <typename Primitive>
Offer make_offer(const typename Primitive::primitive_desc& pd, std::vector<Desc> in, const Desc& out,
                 const Desc& weight, const Desc& bias = {}) {
  return {std::move(in), out, weight, bias, pd.scratchpad_desc().get_size(), pd.impl_info_str(), [pd] {
            return dnnl::primitive(Primitive(pd));
          }};
}

template <typename Layer>
OnednnProduct describe_forward(const Problem& problem) {
  const Node& node = problem.root();
  const Layer layer(problem);
  OnednnProduct p;
  p.items = layer.items();
  p.in = {{node.in[0], layer.x_item(), DNNL_ARG_SRC}};
  p.out = {node.out[0], layer.out_item(), DNNL_ARG_DST};
  p.weight = node.in[1];
  if (layer.bias) p.bias = node.in[2];
  p.plain = layer.plain();
  p.offer = [layer](int64_t n, const Desc* layout) {
    const auto pd = layer.forward(n, layout);
    return make_offer<typename Layer::Forward>(pd, {pd.src_desc()}, pd.dst_desc(), pd.weights_desc(),
                                               layer.bias_desc());
  };
  return p;
}

template <typename Layer>
OnednnProduct describe_grad_input(const Problem& problem) {
  const Node& node = problem.root();
  const Layer layer(problem);
  OnednnProduct p;
  p.items = layer.items();
  p.in = {{node.in[0], layer.out_item(), DNNL_ARG_DIFF_DST}};
  p.out = {node.out[0], layer.x_item(), DNNL_ARG_DIFF_SRC};
  p.weight = node.in[1];
  p.plain = layer.plain();
  p.offer = [layer](int64_t n, const Desc* layout) {
    const auto pd = layer.grad_input(n, layout);
    return make_offer<typename Layer::GradInput>(pd, {pd.diff_dst_desc()}, pd.diff_src_desc(),
                                                 pd.weights_desc());
  };
  return p;
}

template <typename Layer>
OnednnProduct describe_grad_weight(const Problem& problem) {
  const Node& node = problem.root();
  const Layer layer(problem);
  OnednnProduct p;
  p.items = layer.items();
  p.in = {{node.in[0], layer.x_item(), DNNL_ARG_SRC}, {node.in[1], layer.out_item(), DNNL_ARG_DIFF_DST}};
  p.out = {node.out[0], 0, DNNL_ARG_DIFF_WEIGHTS};
  p.plain = layer.plain();
  p.offer = [layer](int64_t n, const Desc* layout) {
    const auto pd = layer.grad_weight(n, layout);
    return make_offer<typename Layer::GradWeight>(pd, {pd.src_desc(), pd.diff_dst_desc()},
                                                  pd.diff_weights_desc(), pd.diff_weights_desc());
  };
  return p;
}

}  // namespace ulp::onednn
