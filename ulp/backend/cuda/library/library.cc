#include "ulp/backend/cuda/library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ulp/backend/conv_node.h"
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

// A stored matrix, or one for each item.
struct Factor {
  TensorId id;
  int64_t rows, columns;
  std::optional<ConvExtents32> window = {};
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

// Products by cuBLASLt: `shape` says what is multiplied for a number of items.
template <typename ShapeOf>
LibraryProduct by_matmul(const UnitChoice& unit, int64_t items, const Matrix& a, const Matrix& b,
                         const Matrix& out, const ShapeOf& shape) {
  LibraryProduct product;
  product.items = items;
  product.unit = unit;
  product.a = a;
  product.b = b;
  product.out = out;
  product.find = [=, u = unit.unit](int64_t count, Written written, size_t limit, std::string* why_not) {
    return LibraryPlan{nullptr, MatmulPlan::find(shape(count), u, written, limit, why_not)};
  };
  return product;
}

// (items * a.rows, k) times a whole matrix, (n,k) transposed or (k,n). Columns where both are zero
// padding are multiplied too.
LibraryProduct by_rows(const UnitChoice& unit, int64_t items, const Factor& a, const Factor& b,
                       bool transpose_b, TensorId out) {
  const int64_t lda = a.width(unit.unit), ldb = b.width(unit.unit);
  const int64_t n = transpose_b ? b.rows : ldb, ldc = transpose_b ? round_up(n, 4) : ldb;
  const int64_t k = transpose_b ? lda : b.rows;
  const Matrix made{.id = out,
                    .rows = number(a.rows),
                    .channels = number(transpose_b ? b.rows : b.columns),
                    .padded = number(ldc)};
  return by_matmul(unit, items, a.matrix(unit.unit, false), b.matrix(unit.unit, true), made,
                   [=, rows = a.rows](int64_t count) {
                     MatmulShape shape = matmul_shape(count * rows, n, k, false, transpose_b);
                     shape.lda = lda;
                     shape.ldb = ldb;
                     shape.ldc = ldc;
                     return shape;
                   });
}

// The transpose of (items * rows, m) times (items * rows, n), summed over the items.
LibraryProduct by_sums(const UnitChoice& unit, int64_t items, const Factor& a, const Factor& b,
                       TensorId out) {
  const int64_t m = a.width(unit.unit), n = b.width(unit.unit);
  const Matrix made{.id = out,
                    .whole = true,
                    .rows = number(a.columns),
                    .channels = number(b.columns),
                    .padded = number(n),
                    .more = number(m - a.columns)};
  return by_matmul(
      unit, items, a.matrix(unit.unit, false), b.matrix(unit.unit, false), made,
      [=, rows = a.rows](int64_t count) { return matmul_shape(m, n, count * rows, true, false); });
}

// One matrix product per item.
LibraryProduct by_matrices(const UnitChoice& unit, int64_t items, const Factor& a, const Factor& b,
                           bool transpose_a, bool transpose_b, TensorId out) {
  const int64_t lda = a.width(unit.unit), ldb = b.width(unit.unit);
  const int64_t m = transpose_a ? a.columns : a.rows, n = transpose_b ? b.rows : ldb;
  const int64_t k = transpose_a ? a.rows : transpose_b ? lda : b.rows;
  const int64_t ldc = round_up(n, 4);
  const Matrix made{.id = out,
                    .rows = number(m),
                    .channels = number(transpose_b ? b.rows : b.columns),
                    .padded = number(ldc)};
  return by_matmul(unit, items, a.matrix(unit.unit, false), b.matrix(unit.unit, false), made,
                   [=, stride_a = a.rows * lda, stride_b = b.rows * ldb](int64_t count) {
                     MatmulShape shape = matmul_shape(m, n, k, transpose_a, transpose_b, count);
                     shape.lda = lda;
                     shape.ldb = ldb;
                     shape.ldc = ldc;
                     shape.stride_a = stride_a;
                     shape.stride_b = stride_b;
                     shape.stride_c = m * ldc;
                     return shape;
                   });
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

ConvExtents extents(const Problem& problem) { return conv_extents(problem.graph(), problem.root()); }

// Pixels of an image, and elements of a window.
int64_t pixels(const ConvExtents& conv) { return conv.h * conv.w; }
int64_t out_pixels(const ConvExtents& conv) { return conv.out_h * conv.out_w; }
int64_t depth(const ConvExtents& conv) { return conv.taps() * (conv.c / conv.groups); }

// Images as rows of a matrix: in place, or by im2col. None if neither applies.
std::optional<Factor> image_rows(const Problem& problem, const ConvExtents& conv, TensorId x) {
  if (conv.is_pointwise()) return Factor{x, pixels(conv), conv.c};
  // Windows overlap, so an operand that is rounded when read would be rounded, and counted, many
  // times.
  if (conv.groups != 1 || depth(conv) > kSmallWindow || read_format(problem, x).operand) return std::nullopt;
  return Factor{x, out_pixels(conv), depth(conv), conv.as<uint32_t>(), kGroup};
}

constexpr std::string_view kNoMatrix = "no matrix product: neither 1x1 nor a window of few elements";

LibraryProduct conv_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const ConvExtents conv = extents(problem);
  const std::optional<Factor> rows = image_rows(problem, conv, node.in[0]);
  if (!rows) return declined(std::string(kNoMatrix));
  // Both are padded alike.
  const Factor weight{node.in[1], conv.out_c, depth(conv), {}, rows->multiple};
  LibraryProduct product = by_rows(unit, conv.n, *rows, weight, true, node.out[0]);
  if (node.in.size() > 2) product.bias = node.in[2];
  return product;
}

LibraryProduct conv_grad_input_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const ConvExtents conv = extents(problem);
  if (!conv.is_pointwise()) return declined("no matrix product: not 1x1");
  return by_rows(unit, conv.n, {node.in[0], pixels(conv), conv.out_c}, {node.in[1], conv.out_c, depth(conv)},
                 false, node.out[0]);
}

LibraryProduct conv_grad_weight_as_matrix(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const ConvExtents conv = extents(problem);
  const std::optional<Factor> rows = image_rows(problem, conv, node.in[0]);
  if (!rows) return declined(std::string(kNoMatrix));
  return by_sums(unit, conv.n, {node.in[1], out_pixels(conv), conv.out_c}, *rows, node.out[0]);
}

// For cuDNN: which tensors are the product's a, b and result.
LibraryProduct convolve(const Problem& problem, const UnitChoice& unit) {
  const Node& node = problem.root();
  const ConvKind kind = conv_kind(node);
  const bool forward = kind == ConvKind::forward, grad_input = kind == ConvKind::grad_input;
  const ConvTensors tensors = conv_tensors(node);
  const ConvExtents conv = extents(problem);
  const int64_t g = granule(unit.unit), c = conv.c, k = conv.out_c;
  if (conv.groups > 1 && (conv.groups == c || conv.groups == k))
    return declined("convolutions of single channels have kernels of their own");
  if (conv.groups > 1 && (c / conv.groups % g != 0 || k / conv.groups % g != 0)) {
    return declined(fmt::format("{} and {} channels of a group are not multiples of {}", c / conv.groups,
                                k / conv.groups, g));
  }
  const int64_t padded_c = round_up(c, g), padded_k = round_up(k, g);
  const Matrix x{
      .id = tensors.x, .rows = number(pixels(conv)), .channels = number(c), .padded = number(padded_c)};
  const Matrix out{
      .id = tensors.out, .rows = number(out_pixels(conv)), .channels = number(k), .padded = number(padded_k)};
  const Matrix weight{.id = tensors.weight,
                      .whole = true,
                      .rows = number(k * conv.taps()),
                      .channels = number(c / conv.groups),
                      .padded = number(padded_c / conv.groups),
                      .more = number((padded_k - k) * conv.taps())};
  LibraryProduct product;
  product.items = conv.n;
  product.unit = unit;
  product.a = grad_input ? out : x;
  product.b = kind == ConvKind::grad_weight ? out : weight;
  product.out = forward ? out : grad_input ? x : weight;
  if (forward && node.in.size() > 2) product.bias = node.in[2];
  product.find = [=, u = unit.unit](int64_t count, Written written, size_t limit, std::string* why_not) {
    ConvExtents shape = conv;
    shape.n = count;
    shape.c = padded_c;
    shape.out_c = padded_k;
    return LibraryPlan{ConvPlan::find(kind, shape, u, {written}, limit, why_not), nullptr};
  };
  return product;
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
      kernel<convolve>("conv2d", "cudnn"),
      kernel<convolve>("conv2d_grad_input", "cudnn"),
      kernel<convolve>("conv2d_grad_weight", "cudnn"),
      kernel<linear>("linear", "cublaslt"),
      kernel<linear_grad_input>("linear_grad_input", "cublaslt"),
      kernel<linear_grad_weight>("linear_grad_weight", "cublaslt"),
      kernel<matmul>("matmul", "cublaslt"),
  };
}

}  // namespace ulp::cuda
