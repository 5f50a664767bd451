// Tasks for generic_products.h: what no library supports, and products in narrow accumulators.
#include "ulp/backend/cuda/ops/generic_products.h"

#include <algorithm>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/graph/ops/matmul.h"

namespace ulp::cuda {
namespace {

int64_t rows_of(const Shape& shape) { return static_cast<int64_t>(shape.rows()); }
int64_t elements_of(const Shape& shape) { return static_cast<int64_t>(shape.elements()); }

class ProductTask : public ArrayTask {
 public:
  explicit ProductTask(const Problem& problem) : ArrayTask(problem) {
    if (const std::optional<CodecSpec> spec = accumulator_spec(problem.plan)) {
      rule_ = {true, make_quick(*spec)};
    }
  }

 protected:
  const Shape& in_shape(size_t i) const { return graph()[node().in[i]].shape; }
  const Shape& out_shape() const { return graph()[node().out[0]].shape; }
  const SumRule& rule() const { return rule_; }
  const float* bias(const Arrays& arrays) const { return arrays.in.size() > 2 ? arrays.real(2) : nullptr; }

  // Reserves workspace for the split-K parts of `sums` sums of `terms` terms: as many parts as keep
  // a device busy, but none with few terms.
  void cut(int64_t sums, int64_t terms) {
    constexpr int64_t kBusy = int64_t{1} << 18, kFewest = 64, kMost = 1024;
    if (rule_.narrow) return;
    parts_.count =
        static_cast<uint32_t>(std::clamp<int64_t>(std::min(kBusy / sums, terms / kFewest), 1, kMost));
    if (parts_.count > 1) space_ = book(parts_.count * static_cast<size_t>(sums), sizeof(double));
  }
  Parts parts(const RunContext& context) const {
    return {parts_.count, reinterpret_cast<double*>(context.workspace + space_)};
  }

 private:
  SumRule rule_;
  Parts parts_;
  size_t space_ = 0;
};

class LinearTask : public ProductTask {
 public:
  using ProductTask::ProductTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const int64_t in = in_shape(0).back();
    const GenericProduct product{rows_of(in_shape(0)), out_shape().back(), in, in, 1, 1, in};
    generic_product(product, rule(), {}, arrays.real(0), arrays.real(1), bias(arrays), arrays.result(),
                    context.stream);
  }
};

class LinearGradInputTask : public ProductTask {
 public:
  using ProductTask::ProductTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const int64_t out = in_shape(0).back(), in = in_shape(1)[1];
    const GenericProduct product{rows_of(in_shape(0)), in, out, out, 1, in, 1};
    generic_product(product, rule(), {}, arrays.real(0), arrays.real(1), nullptr, arrays.result(),
                    context.stream);
  }
};

class LinearGradWeightTask : public ProductTask {
 public:
  explicit LinearGradWeightTask(const Problem& problem) : ProductTask(problem) {
    cut(elements_of(out_shape()), rows_of(in_shape(0)));
  }
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const int64_t in = in_shape(0).back(), out = in_shape(1).back();
    const GenericProduct product{out, in, rows_of(in_shape(0)), 1, out, in, 1};
    generic_product(product, rule(), parts(context), arrays.real(1), arrays.real(0), nullptr, arrays.result(),
                    context.stream);
  }
};

class MatmulTask : public ProductTask {
 public:
  using ProductTask::ProductTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const bool ta = node().attrs.integer("transpose_a") != 0, tb = node().attrs.integer("transpose_b") != 0;
    const int rank = out_shape().rank();
    GenericProduct product{};
    product.m = out_shape()[rank - 2];
    product.n = out_shape()[rank - 1];
    product.k = in_shape(0)[rank - (ta ? 2 : 1)];
    product.a_row = ta ? 1 : product.k;
    product.a_column = ta ? product.m : 1;
    product.b_row = tb ? 1 : product.n;
    product.b_column = tb ? product.k : 1;
    product.batch = elements_of(out_shape()) / (product.m * product.n);
    product.a_matrix = product.m * product.k;
    product.b_matrix = product.k * product.n;
    generic_product(product, rule(), {}, arrays.real(0), arrays.real(1), nullptr, arrays.result(),
                    context.stream);
  }
};

class DotInteractionTask : public ProductTask {
 public:
  using ProductTask::ProductTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape& x = in_shape(0);
    generic_dot_interaction({x[0], x[1], x[2]}, rule(), arrays.real(0), arrays.result(), context.stream);
  }
};

class DotInteractionGradTask : public ProductTask {
 public:
  using ProductTask::ProductTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape& x = in_shape(1);
    generic_dot_interaction_grad({x[0], x[1], x[2]}, rule(), arrays.real(0), arrays.real(1), arrays.result(),
                                 context.stream);
  }
};

class ConvTask : public ProductTask {
 public:
  using ProductTask::ProductTask;

 protected:
  ConvExtents conv() const { return conv_extents(graph(), node()); }
};

class ForwardTask : public ConvTask {
 public:
  using ConvTask::ConvTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    generic_conv(conv(), rule(), arrays.real(0), arrays.real(1), bias(arrays), arrays.result(),
                 context.stream);
  }
};

class GradInputTask : public ConvTask {
 public:
  using ConvTask::ConvTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    generic_conv_grad_input(conv(), rule(), arrays.real(0), arrays.real(1), arrays.result(), context.stream);
  }
};

class GradWeightTask : public ConvTask {
 public:
  explicit GradWeightTask(const Problem& problem) : ConvTask(problem) {
    cut(elements_of(out_shape()), rows_of(in_shape(1)));
  }
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    generic_conv_grad_weight(conv(), rule(), parts(context), arrays.real(0), arrays.real(1), arrays.result(),
                             context.stream);
  }
};

class EmbeddingTask : public ArrayTask {
 public:
  using ArrayTask::ArrayTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape& rows = graph()[node().in[0]].shape;
    const GenericTable table{rows[0], rows[1], elements_of(graph()[node().in[1]].shape)};
    generic_embedding(table, arrays.real(0), static_cast<const int32_t*>(arrays.in[1]), arrays.result(),
                      context.stream);
  }
};

class EmbeddingGradTask : public ArrayTask {
 public:
  explicit EmbeddingGradTask(const Problem& problem)
      : ArrayTask(problem),
        places_(elements_of(graph()[node().in[1]].shape)),
        keys_(book(2 * static_cast<size_t>(places_), sizeof(uint64_t))),
        by_rows_(node().op == &kEmbeddingGradRows),
        slots_(book(by_rows_ ? static_cast<size_t>(places_) : 0, sizeof(int32_t))) {}
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape& out = graph()[node().out[0]].shape;
    auto* const keys = reinterpret_cast<uint64_t*>(context.workspace + keys_);
    const auto* const indices = static_cast<const int32_t*>(arrays.in[1]);
    if (!by_rows_) {
      return generic_embedding_grad({out[0], out[1], places_}, arrays.real(0), indices, keys, arrays.result(),
                                    context.stream);
    }
    const NamedRows named{out[0], static_cast<int32_t*>(arrays.out[1]),
                          reinterpret_cast<int32_t*>(context.workspace + slots_)};
    generic_embedding_grad({node().attrs.integer("table_rows"), out[1], places_}, named, arrays.real(0),
                           indices, keys, arrays.result(), context.stream);
  }

 private:
  int64_t places_;
  size_t keys_;
  bool by_rows_;
  size_t slots_;
};

template <typename Made>
constexpr KernelDef plain(std::string_view op) {
  return {op, "generic", takes_one_node, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> generic_product_kernels() {
  static constexpr KernelDef kKernels[] = {
      plain<ForwardTask>("conv2d"),
      plain<GradInputTask>("conv2d_grad_input"),
      plain<GradWeightTask>("conv2d_grad_weight"),
      plain<LinearTask>("linear"),
      plain<LinearGradInputTask>("linear_grad_input"),
      plain<LinearGradWeightTask>("linear_grad_weight"),
      plain<MatmulTask>("matmul"),
      plain<DotInteractionTask>("dot_interaction"),
      plain<DotInteractionGradTask>("dot_interaction_grad"),
      plain<EmbeddingTask>("embedding"),
      plain<EmbeddingGradTask>("embedding_grad"),
      plain<EmbeddingGradTask>("embedding_grad_rows"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
