#include "ulp/backend/cuda/library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ulp/backend/cuda/library/library_task.h"

namespace ulp::cuda {
namespace {

// Windows with at most this many elements go through im2col and a matrix product: cuDNN would pad
// their few channels.
constexpr int64_t kSmallWindow = 64;

uint64_t number(int64_t extent) { return static_cast<uint64_t>(extent); }

int64_t round_up(int64_t x, int64_t granule) { return (x + granule - 1) / granule * granule; }

// Rows of operands are multiples of 16 bytes, rows of results multiples of four floats.
int64_t granule(Unit unit) { return 16 / static_cast<int64_t>(operand_bytes(unit)); }

LibraryProduct declined(std::string why_not) {
  LibraryProduct product;
  product.why_not = std::move(why_not);
  return product;
}

// ---- matrix products ----

// A stored matrix, or one for each unit.
struct Factor {
  TensorId id;
  int64_t rows, columns;
  std::optional<Window> window = {};
  int64_t multiple = 1;  // row widths are multiples of this power of two

  // Elements of a row in the array.
  int64_t width(Unit unit) const { return round_up(columns, std::max(multiple, granule(unit))); }
  Matrix matrix(Unit unit, bool whole) const {
    return {.id = id,
            .whole = whole,
            .rows = number(rows),
            .channels = number(columns),
            .padded = number(width(unit)),
            .window = window};
  }
};

// (units * a.rows, k) times a whole matrix, (n,k) transposed or (k,n). Columns where both are zero
// padding are multiplied too.
LibraryProduct by_rows(const UnitChoice& unit, int64_t units, const Factor& a, const Factor& b,
                       bool transpose_b, TensorId out) {
  const int64_t lda = a.width(unit.unit), ldb = b.width(unit.unit);
  const int64_t n = transpose_b ? b.rows : ldb, ldc = transpose_b ? round_up(n, 4) : ldb;
  const int64_t k = transpose_b ? lda : b.rows;
  LibraryProduct product;
  product.units = units;
  product.unit = unit;
  product.a = a.matrix(unit.unit, false);
  product.b = b.matrix(unit.unit, true);
  product.out = {.id = out,
                 .rows = number(a.rows),
                 .channels = number(transpose_b ? b.rows : b.columns),
                 .padded = number(ldc)};
  product.find = [=, rows = a.rows, u = unit.unit](int64_t count, Written written, size_t limit,
                                                   std::string* why_not) {
    MatmulShape shape = matmul_shape(count * rows, n, k, false, transpose_b);
    shape.lda = lda;
    shape.ldb = ldb;
    shape.ldc = ldc;
    return Plan{nullptr, MatmulPlan::find(shape, u, written, limit, why_not)};
  };
  return product;
}

// The transpose of (units * rows, m) times (units * rows, n), summed over the units.
LibraryProduct by_sums(const UnitChoice& unit, int64_t units, const Factor& a, const Factor& b,
                       TensorId out) {
  const int64_t m = a.width(unit.unit), n = b.width(unit.unit);
  LibraryProduct product;
  product.units = units;
  product.unit = unit;
  product.a = a.matrix(unit.unit, false);
  product.b = b.matrix(unit.unit, false);
  product.out = {.id = out,
                 .whole = true,
                 .rows = number(a.columns),
                 .channels = number(b.columns),
                 .padded = number(n),
                 .more = number(m - a.columns)};
  product.find = [=, rows = a.rows, u = unit.unit](int64_t count, Written written, size_t limit,
                                                   std::string* why_not) {
    return Plan{nullptr,
                MatmulPlan::find(matmul_shape(m, n, count * rows, true, false), u, written, limit, why_not)};
  };
  return product;
}

// One matrix product per unit.
LibraryProduct by_matrices(const UnitChoice& unit, int64_t units, const Factor& a, const Factor& b,
                           bool transpose_a, bool transpose_b, TensorId out) {
  const int64_t lda = a.width(unit.unit), ldb = b.width(unit.unit);
  const int64_t m = transpose_a ? a.columns : a.rows, n = transpose_b ? b.rows : ldb;
  const int64_t k = transpose_a ? a.rows : transpose_b ? lda : b.rows;
  const int64_t ldc = round_up(n, 4);
  LibraryProduct product;
  product.units = units;
  product.unit = unit;
  product.a = a.matrix(unit.unit, false);
  product.b = b.matrix(unit.unit, false);
  product.out = {.id = out,
                 .rows = number(m),
                 .channels = number(transpose_b ? b.rows : b.columns),
                 .padded = number(ldc)};
  product.find = [=, stride_a = a.rows * lda, stride_b = b.rows * ldb, u = unit.unit](
                     int64_t count, Written written, size_t limit, std::string* why_not) {
    MatmulShape shape = matmul_shape(m, n, k, transpose_a, transpose_b, count);
    shape.lda = lda;
    shape.ldb = ldb;
    shape.ldc = ldc;
    shape.stride_a = stride_a;
    shape.stride_b = stride_b;
    shape.stride_c = m * ldc;
    return Plan{nullptr, MatmulPlan::find(shape, u, written, limit, why_not)};
  };
  return product;
}

int64_t rows_of(const Shape& shape) { return static_cast<int64_t>(shape.rows()); }

LibraryProduct linear(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Shape &x = problem.shape(node.in[0]), &weight = problem.shape(node.in[1]);
  LibraryProduct product = by_rows(unit, rows_of(x), {node.in[0], 1, x.back()},
                                   {node.in[1], weight[0], weight[1]}, true, node.out[0]);
  if (node.in.size() > 2) product.bias = node.in[2];
  return product;
}

LibraryProduct linear_grad_input(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Shape &dout = problem.shape(node.in[0]), &weight = problem.shape(node.in[1]);
  return by_rows(unit, rows_of(dout), {node.in[0], 1, dout.back()}, {node.in[1], weight[0], weight[1]}, false,
                 node.out[0]);
}

LibraryProduct linear_grad_weight(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Shape &x = problem.shape(node.in[0]), &dout = problem.shape(node.in[1]);
  return by_sums(unit, rows_of(x), {node.in[1], 1, dout.back()}, {node.in[0], 1, x.back()}, node.out[0]);
}

// A batch is sliced along the batch; a single product along the rows of its result. If both
// operands have the inner axis first, it is sliced along that axis and summed.
LibraryProduct matmul(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const bool ta = node.attrs.integer("transpose_a") != 0, tb = node.attrs.integer("transpose_b") != 0;
  const Shape &a = problem.shape(node.in[0]), &b = problem.shape(node.in[1]);
  const auto stored = [](TensorId id, const Shape& shape) {
    return Factor{id, shape[shape.rank() - 2], shape.back()};
  };
  const Factor left = stored(node.in[0], a), right = stored(node.in[1], b);
  const int64_t batch = rows_of(a) / left.rows;
  if (batch == 1 && !ta) return by_rows(unit, left.rows, {left.id, 1, left.columns}, right, tb, node.out[0]);
  if (batch == 1 && !tb) {
    return by_sums(unit, left.rows, {left.id, 1, left.columns}, {right.id, 1, right.columns}, node.out[0]);
  }
  return by_matrices(unit, batch, left, right, ta, tb, node.out[0]);
}

// ---- convolutions ----

struct Conv {
  Shape x, weight, out;
  int64_t stride_h, stride_w, padding_h, padding_w, groups;

  Conv(const Problem& problem, TensorId x_id, TensorId weight_id, TensorId out_id)
      : x(problem.shape(x_id)), weight(problem.shape(weight_id)), out(problem.shape(out_id)) {
    const Attrs& attrs = problem.root().attrs;
    stride_h = attrs.integer("stride_h");
    stride_w = attrs.integer("stride_w");
    padding_h = attrs.integer("padding_h");
    padding_w = attrs.integer("padding_w");
    groups = attrs.integer("groups");
  }

  int64_t pixels() const { return x.h() * x.w(); }
  int64_t out_pixels() const { return out.h() * out.w(); }
  int64_t taps() const { return weight[1] * weight[2] * weight[3]; }
  bool pointwise() const {
    return weight[1] == 1 && weight[2] == 1 && stride_h == 1 && stride_w == 1 && padding_h == 0 &&
           padding_w == 0 && groups == 1;
  }
  bool small() const { return groups == 1 && taps() <= kSmallWindow; }
  Window window() const {
    const auto u = [](int64_t extent) { return static_cast<uint32_t>(extent); };
    return {u(x.h()),     u(x.w()),    u(x.c()),    u(out.h()),   u(out.w()),  u(weight[1]),
            u(weight[2]), u(stride_h), u(stride_w), u(padding_h), u(padding_w)};
  }
};

// Images as rows of a matrix: in place, or by im2col. None if neither applies.
std::optional<Factor> image_rows(const Problem& problem, const Conv& conv, TensorId x) {
  if (conv.pointwise()) return Factor{x, conv.pixels(), conv.x.c()};
  // Windows overlap, so an operand that is rounded when read would be rounded, and counted, many
  // times.
  if (!conv.small() || read_format(problem, x).operand) return std::nullopt;
  return Factor{x, conv.out_pixels(), conv.taps(), conv.window(), kGroup};
}

constexpr std::string_view kNoMatrix = "no matrix product: neither 1x1 nor a window of few elements";

LibraryProduct conv_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Conv conv(problem, node.in[0], node.in[1], node.out[0]);
  const std::optional<Factor> rows = image_rows(problem, conv, node.in[0]);
  if (!rows) return declined(std::string(kNoMatrix));
  // Both are padded alike.
  const Factor weight{node.in[1], conv.weight[0], conv.taps(), {}, rows->multiple};
  LibraryProduct product = by_rows(unit, conv.x.n(), *rows, weight, true, node.out[0]);
  if (node.in.size() > 2) product.bias = node.in[2];
  return product;
}

LibraryProduct conv_grad_input_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Conv conv(problem, node.out[0], node.in[1], node.in[0]);
  if (!conv.pointwise()) return declined("no matrix product: not 1x1");
  return by_rows(unit, conv.x.n(), {node.in[0], conv.pixels(), conv.out.c()},
                 {node.in[1], conv.weight[0], conv.taps()}, false, node.out[0]);
}

LibraryProduct conv_grad_weight_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const Conv conv(problem, node.in[0], node.out[0], node.in[1]);
  const std::optional<Factor> rows = image_rows(problem, conv, node.in[0]);
  if (!rows) return declined(std::string(kNoMatrix));
  return by_sums(unit, conv.x.n(), {node.in[1], conv.out_pixels(), conv.out.c()}, *rows, node.out[0]);
}

// For cuDNN: which tensors are x, weight and out of the convolution, and which of them are the
// product's a, b and result.
LibraryProduct convolve(const Problem& problem, const UnitChoice& unit, ConvKind kind) {
  const Node& node = problem.root();
  const bool forward = kind == ConvKind::forward, grad_input = kind == ConvKind::grad_input;
  const TensorId x_id = grad_input ? node.out[0] : node.in[0];
  const TensorId weight_id = kind == ConvKind::grad_weight ? node.out[0] : node.in[1];
  const TensorId out_id = forward ? node.out[0] : grad_input ? node.in[0] : node.in[1];
  const Conv conv(problem, x_id, weight_id, out_id);
  const int64_t g = granule(unit.unit), c = conv.x.c(), k = conv.out.c();
  if (conv.groups > 1 && (conv.groups == c || conv.groups == k))
    return declined("convolutions of single channels have kernels of their own");
  if (conv.groups > 1 && (c / conv.groups % g != 0 || k / conv.groups % g != 0)) {
    return declined(fmt::format("{} and {} channels of a group are not multiples of {}", c / conv.groups,
                                k / conv.groups, g));
  }
  const int64_t padded_c = round_up(c, g), padded_k = round_up(k, g);
  const int64_t kernel_h = conv.weight[1], kernel_w = conv.weight[2], kernel = kernel_h * kernel_w;
  const Matrix x{
      .id = x_id, .rows = number(conv.pixels()), .channels = number(c), .padded = number(padded_c)};
  const Matrix out{
      .id = out_id, .rows = number(conv.out_pixels()), .channels = number(k), .padded = number(padded_k)};
  const Matrix weight{.id = weight_id,
                      .whole = true,
                      .rows = number(k * kernel),
                      .channels = number(conv.weight[3]),
                      .padded = number(padded_c / conv.groups),
                      .more = number((padded_k - k) * kernel)};
  LibraryProduct product;
  product.units = conv.x.n();
  product.unit = unit;
  product.a = grad_input ? out : x;
  product.b = kind == ConvKind::grad_weight ? out : weight;
  product.out = forward ? out : grad_input ? x : weight;
  if (forward && node.in.size() > 2) product.bias = node.in[2];
  product.find = [=, u = unit.unit](int64_t count, Written written, size_t limit, std::string* why_not) {
    const ConvShape shape{count,         conv.x.h(),     conv.x.w(),     padded_c,
                          padded_k,      kernel_h,       kernel_w,       conv.stride_h,
                          conv.stride_w, conv.padding_h, conv.padding_w, conv.groups};
    return Plan{ConvPlan::find(kind, shape, u, {written}, limit, why_not), nullptr};
  };
  return product;
}

template <ConvKind kind>
LibraryProduct convolution(const Problem& problem, const UnitChoice& unit) {
  return convolve(problem, unit, kind);
}

template <Describe describe>
constexpr KernelDef kernel(std::string_view op, std::string_view name) {
  return {op, name, [](const Problem& problem) { return why_not_library(problem, describe); },
          [](const Problem& problem) { return make_library_task(problem, describe); }};
}

}  // namespace

std::vector<KernelDef> library_kernels() {
  return {
      kernel<conv_as_matrix>("conv2d", "cublaslt"),
      kernel<conv_grad_input_as_matrix>("conv2d_grad_input", "cublaslt"),
      kernel<conv_grad_weight_as_matrix>("conv2d_grad_weight", "cublaslt"),
      kernel<convolution<ConvKind::forward>>("conv2d", "cudnn"),
      kernel<convolution<ConvKind::grad_input>>("conv2d_grad_input", "cudnn"),
      kernel<convolution<ConvKind::grad_weight>>("conv2d_grad_weight", "cudnn"),
      kernel<linear>("linear", "cublaslt"),
      kernel<linear_grad_input>("linear_grad_input", "cublaslt"),
      kernel<linear_grad_weight>("linear_grad_weight", "cublaslt"),
      kernel<matmul>("matmul", "cublaslt"),
  };
}

}  // namespace ulp::cuda
