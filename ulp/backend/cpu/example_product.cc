// Dot products of an example's vectors, and sums in which an operand is repeated.
#include <algorithm>
#include <array>

#include "ulp/backend/cpu/example.h"
#include "ulp/backend/cpu/pairs.h"
#include "ulp/backend/elementwise.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp::example {
namespace {

void dot_interaction(const Call& call) {
  const auto n = static_cast<size_t>(call.in_shape(0)[1]), width = static_cast<size_t>(call.in_shape(0)[2]);
  for (size_t b = 0; b < call.count; ++b)
    pairs::multiply(call.in(0) + b * n * width, n, width, call.out() + b * (n * (n - 1) / 2));
}

void dot_interaction_grad(const Call& call) {
  const auto n = static_cast<size_t>(call.in_shape(1)[1]), width = static_cast<size_t>(call.in_shape(1)[2]);
  for (size_t b = 0; b < call.count; ++b) {
    pairs::gradient(call.in(0) + b * (n * (n - 1) / 2), call.in(1) + b * n * width, n, width,
                    call.out() + b * n * width);
  }
}

// Where a row of the larger tensor, all but its last axis, begins in the smaller one.
size_t begin_of(const Repetition& r, size_t row) {
  size_t begin = 0;
  for (size_t axis = Shape::kMaxRank - 1; axis-- > 0;) {
    const auto extent = static_cast<size_t>(r.extent[axis]);
    begin += row % extent * static_cast<size_t>(r.stride[axis]);
    row /= extent;
  }
  return begin;
}

void broadcast_add(const Call& call) {
  const Repetition a = repetition(call.in_shape(0), call.out_shape()),
                   b = repetition(call.in_shape(1), call.out_shape());
  const auto width = static_cast<size_t>(call.out_shape().back());
  const auto step_a = static_cast<size_t>(a.stride.back()), step_b = static_cast<size_t>(b.stride.back());
  for (size_t row = 0; row < call.count; ++row) {
    const float *left = call.in(0) + begin_of(a, call.first + row),
                *right = call.in(1) + begin_of(b, call.first + row);
    float* out = call.out() + row * width;
    for (size_t i = 0; i < width; ++i)
      out[i] = elementwise::Add::forward(left[i * step_a], right[i * step_b]);
  }
}

// The larger tensor's rows that belong to one of the result are added up some columns at a time.
void broadcast_sum(const Call& call) {
  constexpr size_t kColumns = 64;
  const Shape &in = call.in_shape(0), &out = call.out_shape();
  const Repetition r = repetition(out, in), self = repetition(in, in);
  const auto wide = static_cast<size_t>(in.back()), width = static_cast<size_t>(out.back());
  // By axis before the last: how often it is repeated, and how often not.
  std::array<size_t, Shape::kMaxRank - 1> repeats{}, own{};
  for (size_t axis = 0; axis < repeats.size(); ++axis) {
    const auto extent = static_cast<size_t>(r.extent[axis]);
    repeats[axis] = r.stride[axis] == 0 ? extent : 1;
    own[axis] = extent / repeats[axis];
  }
  const auto stride = [&](size_t axis) { return static_cast<size_t>(self.stride[axis]); };
  for (size_t row = 0; row < call.count; ++row) {
    size_t begin = 0;
    for (size_t axis = own.size(), left = call.first + row; axis-- > 0; left /= own[axis])
      begin += left % own[axis] * stride(axis);
    const float* first = call.in(0) + begin;
    for (size_t column = 0; column < width; column += kColumns) {
      const size_t columns = std::min(kColumns, width - column);
      std::array<double, kColumns> sums{};
      for (size_t i = 0; i < repeats[0]; ++i) {
        for (size_t j = 0; j < repeats[1]; ++j) {
          for (size_t k = 0; k < repeats[2]; ++k) {
            const float* from = first + i * stride(0) + j * stride(1) + k * stride(2);
            if (width == wide) {
              for (size_t c = 0; c < columns; ++c) sums[c] += from[column + c];
            } else {
              for (size_t c = 0; c < wide; ++c) sums[0] += from[c];
            }
          }
        }
      }
      for (size_t c = 0; c < columns; ++c)
        call.out()[row * width + column + c] = settle_nan(static_cast<float>(sums[c]));
    }
  }
}

std::string declines_accumulator(const Problem& problem) {
  return problem.plan.options.accumulator ? "it accumulates in fp32" : why_not(problem);
}

template <Function function>
constexpr KernelDef product(std::string_view op) {
  return {op, "pairs", declines_accumulator,
          [](const Problem& problem) { return make_task(problem, function, {Item::image}); }};
}

}  // namespace

std::span<const KernelDef> product_kernels() {
  static constexpr KernelDef kernels[] = {
      product<dot_interaction>("dot_interaction"),
      product<dot_interaction_grad>("dot_interaction_grad"),
      kernel<broadcast_add, Item::result, 0b11>("broadcast_add"),
      kernel<broadcast_sum, Item::result, 0b1>("broadcast_sum"),
  };
  return kernels;
}

}  // namespace ulp::example
