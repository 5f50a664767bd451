// Matrix products, linear layers, dot products of vectors, embeddings.
#include <algorithm>
#include <array>
#include <set>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/backend/ref/sum.h"
#include "ulp/base/error.h"

namespace ulp::ref {
namespace {

// One matrix in memory, read with or without exchanging its axes.
struct Matrix {
  const float* data;
  int64_t width;  // elements of a stored row
  bool transposed;
  float at(int64_t row, int64_t column) const {
    return transposed ? data[column * width + row] : data[row * width + column];
  }
};

// out (m, n) = a (m, k) b (k, n) + bias (n)
template <typename Sum>
void multiply(const Call& call, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
              const float* bias, float* out) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Sum sum(call);
      for (int64_t l = 0; l < k; ++l) sum.add(a.at(i, l), b.at(l, j));
      if (bias != nullptr) sum.add(bias[j]);
      out[i * n + j] = sum.result();
    }
  }
}

template <typename Sum>
void linear(const Call& call) {
  const auto rows = static_cast<int64_t>(call.in_shape(0).rows());
  const int64_t in = call.in_shape(0).back(), out = call.out_shape().back();
  multiply<Sum>(call, rows, out, in, {call.in(0), in, false}, {call.in(1), in, true},
                call.inputs.size() > 2 ? call.in(2) : nullptr, call.out());
}

template <typename Sum>
void linear_grad_input(const Call& call) {
  const auto rows = static_cast<int64_t>(call.in_shape(0).rows());
  const int64_t out = call.in_shape(0).back(), in = call.in_shape(1)[1];
  multiply<Sum>(call, rows, in, out, {call.in(0), out, false}, {call.in(1), in, false}, nullptr, call.out());
}

template <typename Sum>
void linear_grad_weight(const Call& call) {
  const auto rows = static_cast<int64_t>(call.in_shape(0).rows());
  const int64_t in = call.in_shape(0).back(), out = call.in_shape(1).back();
  multiply<Sum>(call, out, in, rows, {call.in(1), out, true}, {call.in(0), in, false}, nullptr, call.out());
}

template <typename Sum>
void matmul(const Call& call) {
  const bool ta = call.integer("transpose_a") != 0, tb = call.integer("transpose_b") != 0;
  const Shape &a = call.in_shape(0), &b = call.in_shape(1), &out = call.out_shape();
  const int rank = out.rank();
  const int64_t m = out[rank - 2], n = out[rank - 1], k = a[rank - (ta ? 2 : 1)];
  const int64_t count = static_cast<int64_t>(out.elements()) / (m * n);
  for (int64_t i = 0; i < count; ++i) {
    multiply<Sum>(call, m, n, k, {call.in(0) + i * m * k, a.back(), ta},
                  {call.in(1) + i * k * n, b.back(), tb}, nullptr, call.out() + i * m * n);
  }
}

// Where the pair of two vectors stands among those of an example.
int64_t pair_at(int64_t i, int64_t j) { return i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i; }

template <typename Sum>
void dot_interaction(const Call& call) {
  const Shape& x = call.in_shape(0);
  const int64_t n = x[1], width = x[2], pairs = call.out_shape().back();
  for (int64_t b = 0; b < x[0]; ++b) {
    const float* vectors = call.in(0) + b * n * width;
    for (int64_t i = 1; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        Sum sum(call);
        for (int64_t k = 0; k < width; ++k) sum.add(vectors[i * width + k], vectors[j * width + k]);
        call.out()[b * pairs + pair_at(i, j)] = sum.result();
      }
    }
  }
}

// Over the other vectors, in their order.
template <typename Sum>
void dot_interaction_grad(const Call& call) {
  const Shape& x = call.in_shape(1);
  const int64_t n = x[1], width = x[2], pairs = call.in_shape(0).back();
  for (int64_t b = 0; b < x[0]; ++b) {
    const float *dout = call.in(0) + b * pairs, *vectors = call.in(1) + b * n * width;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < width; ++k) {
        Sum sum(call);
        for (int64_t j = 0; j < n; ++j) {
          if (j != i) sum.add(dout[pair_at(i, j)], vectors[j * width + k]);
        }
        call.out()[(b * n + i) * width + k] = sum.result();
      }
    }
  }
}

void check_indices(const Call& call, size_t input, int64_t rows) {
  const int32_t* indices = call.indices(input);
  for (size_t i = 0; i < call.in_shape(input).elements(); ++i) {
    if (indices[i] < 0 || indices[i] >= rows) {
      fail("backend", "{}: index {} (number {}) is outside the table, which has rows 0 to {}", call.node.name,
           indices[i], i, rows - 1);
    }
  }
}

void embedding(const Call& call) {
  const int64_t rows = call.in_shape(0)[0], width = call.in_shape(0)[1];
  check_indices(call, 1, rows);
  const auto count = static_cast<int64_t>(call.in_shape(1).elements());
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(call.in(0) + call.indices(1)[i] * width, width, call.out() + i * width);
  }
}

// Row by row of the table, over all places that name it.
void embedding_grad(const Call& call) {
  constexpr int64_t kColumns = 64;  // added up at a time
  const int64_t rows = call.out_shape()[0], width = call.out_shape()[1];
  check_indices(call, 1, rows);
  const auto count = static_cast<int64_t>(call.in_shape(1).elements());
  const int32_t* indices = call.indices(1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < width; begin += kColumns) {
      const int64_t columns = std::min(kColumns, width - begin);
      std::array<double, kColumns> sum{};
      for (int64_t i = 0; i < count; ++i) {
        if (indices[i] != row) continue;
        for (int64_t c = 0; c < columns; ++c)
          sum[static_cast<size_t>(c)] += call.in(0)[i * width + begin + c];
      }
      for (int64_t c = 0; c < columns; ++c) {
        call.out()[row * width + begin + c] = rounded(sum[static_cast<size_t>(c)]);
      }
    }
  }
}

// The same of the rows that occur, one after the other.
void embedding_grad_rows(const Call& call) {
  const int64_t table_rows = call.integer("table_rows");
  const int64_t rows = call.out_shape()[0], width = call.out_shape()[1];
  check_indices(call, 1, table_rows);
  const auto count = static_cast<int64_t>(call.in_shape(1).elements());
  const int32_t* indices = call.indices(1);
  const std::set<int32_t> named(indices, indices + count);
  int32_t* const numbers = call.out_int32(1);
  std::fill_n(call.out(), rows * width, 0.0f);
  std::fill_n(numbers, rows, -1);
  std::copy(named.begin(), named.end(), numbers);
  for (int64_t row = 0; row < static_cast<int64_t>(named.size()); ++row) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i)
        sum += indices[i] == numbers[row] ? call.in(0)[i * width + c] : 0.0f;
      call.out()[row * width + c] = rounded(sum);
    }
  }
}

}  // namespace

std::span<const KernelDef> matmul_kernels() {
  static constexpr KernelDef kKernels[] = {
      reference_kernel<by_accumulator<linear<WideSum>, linear<NarrowSum>>>("linear"),
      reference_kernel<by_accumulator<linear_grad_input<WideSum>, linear_grad_input<NarrowSum>>>(
          "linear_grad_input"),
      reference_kernel<by_accumulator<linear_grad_weight<WideSum>, linear_grad_weight<NarrowSum>>>(
          "linear_grad_weight"),
      reference_kernel<by_accumulator<matmul<WideSum>, matmul<NarrowSum>>>("matmul"),
      reference_kernel<by_accumulator<dot_interaction<WideSum>, dot_interaction<NarrowSum>>>(
          "dot_interaction"),
      reference_kernel<by_accumulator<dot_interaction_grad<WideSum>, dot_interaction_grad<NarrowSum>>>(
          "dot_interaction_grad"),
      reference_kernel<embedding>("embedding"),
      reference_kernel<embedding_grad>("embedding_grad"),
      reference_kernel<embedding_grad_rows>("embedding_grad_rows"),
  };
  return kKernels;
}

}  // namespace ulp::ref
