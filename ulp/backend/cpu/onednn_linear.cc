// Linear layers and matrix products. A linear layer is sliced along its rows. A batch of matrix
// products is sliced along the batch; a single one along the rows of its result. If both operands
// have the inner axis first, it is sliced along that axis and summed.
#include "ulp/backend/conv_node.h"
#include "ulp/backend/cpu/onednn_layer.h"

namespace ulp::onednn {
namespace {

using dnnl::memory;

struct Linear {
  using Forward = dnnl::inner_product_forward;
  using GradInput = dnnl::inner_product_backward_data;
  using GradWeight = dnnl::inner_product_backward_weights;
  int64_t rows, in, out;
  bool bias;

  explicit Linear(const Problem& problem) : bias(problem.root().in.size() > 2) {
    const ConvExtents extents = conv_extents(problem.graph(), problem.root());
    rows = extents.w;
    in = extents.c;
    out = extents.out_c;
  }

  int64_t items() const { return rows; }
  size_t x_item() const { return static_cast<size_t>(in); }
  size_t out_item() const { return static_cast<size_t>(out); }

  static Desc matrix(int64_t n, int64_t width) { return dense({n, width}, {width, 1}); }
  Desc plain() const { return matrix(out, in); }
  Desc weights(const Desc* layout) const {
    return layout != nullptr ? *layout : Desc({out, in}, memory::data_type::f32, memory::format_tag::any);
  }
  Desc bias_desc() const { return bias ? dense({out}, {1}) : Desc(); }
  Forward::primitive_desc forward(int64_t n, const Desc* layout) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto desc = bias ? Forward::desc(kind, matrix(n, in), weights(layout), bias_desc(), matrix(n, out))
                           : Forward::desc(kind, matrix(n, in), weights(layout), matrix(n, out));
    return {desc, attributes(), engine()};
  }
  GradInput::primitive_desc grad_input(int64_t n, const Desc* layout) const {
    const GradInput::desc desc(matrix(n, in), weights(layout), matrix(n, out));
    return {desc, attributes(), engine(), forward(n, nullptr)};
  }
  GradWeight::primitive_desc grad_weight(int64_t n, const Desc* layout) const {
    const GradWeight::desc desc(matrix(n, in), weights(layout), matrix(n, out));
    return {desc, attributes(), engine(), forward(n, nullptr)};
  }
};

// One operand of a batch of matrix products.
Desc matrices(int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  return dense({batch, rows, columns},
               transposed ? memory::dims{rows * columns, 1, rows} : memory::dims{rows * columns, columns, 1});
}

}  // namespace

OnednnProduct describe_linear(const Problem& problem) { return describe_forward<Linear>(problem); }
OnednnProduct describe_linear_grad_input(const Problem& problem) {
  return describe_grad_input<Linear>(problem);
}
OnednnProduct describe_linear_grad_weight(const Problem& problem) {
  return describe_grad_weight<Linear>(problem);
}

OnednnProduct describe_matmul(const Problem& problem) {
  const Node& node = problem.root();
  const Shape &a = problem.shape(node.in[0]), &b = problem.shape(node.in[1]),
              &out = problem.shape(node.out[0]);
  const bool ta = node.attrs.integer("transpose_a") != 0, tb = node.attrs.integer("transpose_b") != 0;
  const int64_t m = out[out.rank() - 2], n = out.back(), k = a[a.rank() - (ta ? 2 : 1)];
  const int64_t batch = static_cast<int64_t>(out.elements()) / (m * n);

  enum class Cut { matrices, rows, inner };
  Cut cut = Cut::matrices;
  if (batch == 1 && !ta) cut = Cut::rows;
  if (batch == 1 && ta && !tb) cut = Cut::inner;

  OnednnProduct p;
  const Sliced left{node.in[0], a.elements(), DNNL_ARG_SRC},
      right{node.in[1], b.elements(), DNNL_ARG_WEIGHTS};
  const auto of = [](Sliced operand, int64_t items) {
    operand.item /= static_cast<size_t>(items);
    return operand;
  };
  p.out = {node.out[0], out.elements(), DNNL_ARG_DST};
  switch (cut) {
    case Cut::matrices:
      p.items = batch;
      p.in = {of(left, batch), of(right, batch)};
      p.out = of(p.out, batch);
      break;
    case Cut::rows:
      p.items = m;
      p.in = {of(left, m)};
      p.out = of(p.out, m);
      p.weight = node.in[1];
      p.plain = matrices(1, k, n, tb);
      break;
    case Cut::inner:
      p.items = k;
      p.in = {of(left, k), of(right, k)};
      p.out.item = 0;
      p.plain = matrices(1, m, n, false);
      break;
  }
  // Operands keep the layout they are stored in: these products are of activations, which are read
  // once.
  p.offer = [=](int64_t items, const Desc*) {
    const int64_t batches = cut == Cut::matrices ? items : 1, rows = cut == Cut::rows ? items : m,
                  inner = cut == Cut::inner ? items : k;
    const dnnl::matmul::desc desc(matrices(batches, rows, inner, ta), matrices(batches, inner, n, tb),
                                  matrices(batches, rows, n, false));
    const dnnl::matmul::primitive_desc pd(desc, attributes(), engine());
    Offer offer = make_offer<dnnl::matmul>(pd, {pd.src_desc()}, pd.dst_desc(),
                                           cut == Cut::rows ? pd.weights_desc() : pd.dst_desc());
    if (cut != Cut::rows) offer.in.push_back(pd.weights_desc());
    return offer;
  };
  return p;
}

}  // namespace ulp::onednn
