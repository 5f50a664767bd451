#include "ulp/graph/ops/pool.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace {

// An index is one byte.
constexpr int64_t kMaxWindow = 256;

Shape pooled(const Attrs& attrs, const Shape& x) {
  if (x.rank() != 4) fail("shape", "pooling reads images, got {}", shape_text(x));
  const int64_t kh = attrs.integer("kernel_h"), kw = attrs.integer("kernel_w");
  const int64_t ph = attrs.integer("padding_h"), pw = attrs.integer("padding_w");
  if (x.h() + 2 * ph < kh || x.w() + 2 * pw < kw) {
    fail("shape", "a window of {}x{} does not fit in {}x{}", kh, kw, x.h(), x.w());
  }
  return Shape::image(x.n(), x.c(), (x.h() + 2 * ph - kh) / attrs.integer("stride_h") + 1,
                      (x.w() + 2 * pw - kw) / attrs.integer("stride_w") + 1);
}

std::vector<Output> max_pool_shape(const Attrs& attrs, std::span<const Shape> in) {
  const Shape shape = pooled(attrs, in[0]);
  return {{"out", shape}, {"index", shape, Kind::saved, Element::byte}};
}

void max_pool_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kMaxPoolGrad, node, {gradients.of(node.out[0]), node.out[1]}, {gradients.part(node.in[0])},
                 node.attrs);
}

std::vector<Output> avg_pool_shape(const Attrs& attrs, std::span<const Shape> in) {
  return {{"out", pooled(attrs, in[0])}};
}

template <const OpDef& Grad>
void spread(Gradients& gradients, const Node& node) {
  gradients.emit(Grad, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])}, node.attrs);
}

std::vector<Output> global_average_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() != 4) fail("shape", "pooling reads images, got {}", shape_text(in[0]));
  return {{"out", {in[0].n(), in[0].c()}}};
}

Attrs pool_attrs(const std::string& name, const PoolOptions& o) {
  if (o.kernel <= 0 || o.stride < 0 || o.padding < 0 || 2 * o.padding > o.kernel ||
      o.kernel * o.kernel > kMaxWindow) {
    fail("graph",
         "{}: kernel {}, stride {} and padding {} are no window (kernel 1 to 16, padding at most half of it)",
         name, o.kernel, o.stride, o.padding);
  }
  const auto kernel = static_cast<double>(o.kernel),
             stride = static_cast<double>(o.stride == 0 ? o.kernel : o.stride),
             padding = static_cast<double>(o.padding);
  return {{"kernel_h", kernel}, {"kernel_w", kernel},   {"stride_h", stride},
          {"stride_w", stride}, {"padding_h", padding}, {"padding_w", padding}};
}

}  // namespace

const OpDef kMaxPoolGrad{"max_pool_grad"};
const OpDef kMaxPool{"max_pool", Form::general, max_pool_shape, max_pool_backward};
const OpDef kAvgPoolGrad{"avg_pool_grad"};
const OpDef kAvgPool{"avg_pool", Form::general, avg_pool_shape, spread<kAvgPoolGrad>};
const OpDef kGlobalAverageGrad{"global_average_grad"};
const OpDef kGlobalAverage{"global_average", Form::general, global_average_shape, spread<kGlobalAverageGrad>};

TensorId max_pool(Builder& b, const std::string& name, TensorId x, const PoolOptions& options) {
  return nodes(b).add_one(kMaxPool, name, {x}, pool_attrs(name, options));
}

TensorId avg_pool(Builder& b, const std::string& name, TensorId x, const PoolOptions& options) {
  return nodes(b).add_one(kAvgPool, name, {x}, pool_attrs(name, options));
}

TensorId global_average(Builder& b, const std::string& name, TensorId x) {
  return nodes(b).add_one(kGlobalAverage, name, {x});
}

}  // namespace ulp
