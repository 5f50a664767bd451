// A product is divided into updates of rows of sums by terms in the reference's order
// (narrow_loops.h). Results that belong to an image or a row are computed one after another.
// Results summed over all of them keep their sums while slices of the batch pass by, so threads
// share the sums, not the terms.
#include "ulp/backend/cpu/narrow.h"

#include <algorithm>
#include <array>

#include "ulp/backend/access.h"
#include "ulp/backend/conv_node.h"
#include "ulp/backend/cpu/example.h"
#include "ulp/backend/cpu/narrow_loops.h"
#include "ulp/backend/slices.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace narrow {
namespace {

// Columns of sums that are processed together, and terms whose factors are made contiguous.
constexpr size_t kColumns = 16, kFactors = 256;
// Rows of sums that a thread takes at a time, if threads share the sums.
constexpr size_t kRows = 8;
// Decoded slices of this many bytes are still in the cache when they are read.
constexpr size_t kNear = size_t{8} << 20;

// The extents of `count` images of a convolution, or rows of a linear layer.
BasicConvExtents<size_t> extents(const NodeCall& call, size_t count) {
  auto made = conv_extents(call.graph, call.node).as<size_t>();
  if (call.graph[conv_tensors(call.node).weight].shape.rank() == 4) {
    made.n = count;
  } else {
    made.w = made.out_w = count;
  }
  return made;
}

struct Conv : GroupedConv<size_t> {
  Conv(const NodeCall& call, size_t count) : GroupedConv(extents(call, count)) {}

  size_t tap_at(size_t o, size_t tap) const { return (o * taps() + tap) * group_c; }

  // For each row of outputs, those for which a tap of the kernel reads a pixel: `use(pixel, out,
  // count)` gets the positions of the first pixel and the first output, and how many there are.
  // Pixels are stride_w apart, outputs are contiguous.
  template <typename Use>
  void for_rows(size_t tap, const Use& use) const {
    const size_t ky = tap / kernel_w, kx = tap % kernel_w;
    const size_t first = kx >= padding_w ? 0 : (padding_w - kx + stride_w - 1) / stride_w;
    const size_t end = w + padding_w <= kx ? 0 : std::min(out_w, (w + padding_w - kx - 1) / stride_w + 1);
    if (first >= end) return;
    for (size_t b = 0; b < n; ++b) {
      for (size_t oy = 0; oy < out_h; ++oy) {
        const size_t y = oy * stride_h + ky;
        if (y < padding_h || y >= h + padding_h) continue;
        const size_t x = first * stride_w + kx - padding_w;
        use(((b * h + y - padding_h) * w + x) * c, ((b * out_h + oy) * out_w + first) * out_c, end - first);
      }
    }
  }
};

// A matrix that may be transposed: floats from one term to the next and from one column to the
// next.
struct Factors {
  const float* data;
  size_t term, column;
};

// Calls use(first column, columns, first term, terms, data, stride) for blocks with contiguous
// columns; the terms of a column come in order. Blocks are copied if the matrix has them apart.
template <typename Use>
void for_blocks(const Factors& b, size_t terms, size_t columns, const Use& use) {
  if (b.column == 1) return use(0, columns, 0, terms, b.data, b.term);
  std::array<float, kFactors * kColumns> block;
  for (size_t column = 0; column < columns; column += kColumns) {
    const size_t width = std::min(kColumns, columns - column);
    for (size_t term = 0; term < terms; term += kFactors) {
      const size_t count = std::min(kFactors, terms - term);
      for (size_t k = 0; k < width; ++k) {
        const float* from = b.data + (column + k) * b.column + term * b.term;
        for (size_t i = 0; i < count; ++i) block[i * kColumns + k] = from[i * b.term];
      }
      use(column, width, term, count, block.data(), kColumns);
    }
  }
}

SumRule rule_of(const PlanContext& plan) { return *sum_rule(*accumulator_spec(plan)); }

// ---- one image or row after another ----

void forward(const example::Call& call) {
  const SumRule rule = rule_of(call.plan);
  const Conv d(call, call.count);
  const float *x = call.in(0), *weight = call.in(1);
  float* out = call.out();
  const size_t pixels = d.n * d.out_h * d.out_w;
  std::fill_n(out, pixels * d.out_c, 0.0f);
  for (size_t group = 0; group < d.groups; ++group) {
    const size_t in = group * d.group_c, to = group * d.group_out;
    for (size_t tap = 0; tap < d.taps(); ++tap) {
      for_blocks(
          {weight + d.tap_at(to, tap), 1, d.taps() * d.group_c}, d.group_c, d.group_out,
          [&](size_t column, size_t columns, size_t term, size_t terms, const float* b, size_t stride) {
            d.for_rows(tap, [&](size_t pixel, size_t first, size_t count) {
              add_terms(rule, {out + first + to + column, count, columns, terms, d.out_c,
                               x + pixel + in + term, d.stride_w * d.c, 1, b, stride});
            });
          });
    }
  }
  if (call.inputs.size() < 3) return;
  constexpr float kOne = 1;
  add_terms(rule, {out, pixels, d.out_c, 1, d.out_c, &kOne, 0, 0, call.in(2), 0});
}

void grad_input(const example::Call& call) {
  const SumRule rule = rule_of(call.plan);
  const Conv d(call, call.count);
  const float *dout = call.in(0), *weight = call.in(1);
  float* dx = call.out();
  std::fill_n(dx, d.n * d.h * d.w * d.c, 0.0f);
  for (size_t group = 0; group < d.groups; ++group) {
    const size_t to = group * d.group_c, from = group * d.group_out;
    for (size_t tap = 0; tap < d.taps(); ++tap) {
      d.for_rows(tap, [&](size_t pixel, size_t first, size_t count) {
        add_terms(rule,
                  {dx + pixel + to, count, d.group_c, d.group_out, d.stride_w * d.c, dout + first + from,
                   d.out_c, 1, weight + d.tap_at(from, tap), d.taps() * d.group_c});
      });
    }
  }
}

// Sums of the dot products of vector i with those before it lie side by side.
void dot_interaction(const example::Call& call) {
  const SumRule rule = rule_of(call.plan);
  const auto n = static_cast<size_t>(call.in_shape(0)[1]), width = static_cast<size_t>(call.in_shape(0)[2]);
  const size_t pairs = n * (n - 1) / 2;
  std::fill_n(call.out(), call.count * pairs, 0.0f);
  for (size_t b = 0; b < call.count; ++b) {
    const float* x = call.in(0) + b * n * width;
    float* out = call.out() + b * pairs;
    for (size_t i = 1; i < n; ++i) {
      float* sums = out + i * (i - 1) / 2;
      for_blocks(
          {x, 1, width}, width, i,
          [&](size_t column, size_t columns, size_t term, size_t terms, const float* block, size_t stride) {
            add_terms(rule, {sums + column, 1, columns, terms, 0, x + i * width + term, 0, 1, block, stride});
          });
    }
  }
}

// The gradients of a vector's products with those before it lie side by side, the later ones apart.
void dot_interaction_grad(const example::Call& call) {
  const SumRule rule = rule_of(call.plan);
  const auto n = static_cast<size_t>(call.in_shape(1)[1]), width = static_cast<size_t>(call.in_shape(1)[2]);
  const size_t pairs = n * (n - 1) / 2;
  std::fill_n(call.out(), call.count * n * width, 0.0f);
  for (size_t b = 0; b < call.count; ++b) {
    const float *dout = call.in(0) + b * pairs, *x = call.in(1) + b * n * width;
    for (size_t i = 0; i < n; ++i) {
      float* sums = call.out() + (b * n + i) * width;
      if (i > 0) add_terms(rule, {sums, 1, width, i, 0, dout + i * (i - 1) / 2, 0, 1, x, width});
      for (size_t j = i + 1; j < n; ++j)
        add_terms(rule, {sums, 1, width, 1, 0, dout + j * (j - 1) / 2 + i, 0, 1, x + j * width, width});
    }
  }
}

// ---- over all images or rows ----

// Adds the terms of some images or rows to all sums, on all threads.
using Add = void (*)(const NodeCall& call, const SumRule& rule, size_t count);

void grad_weight(const NodeCall& call, const SumRule& rule, size_t count) {
  const Conv d(call, count);
  const float *x = call.in(0), *dout = call.in(1);
  float* dweight = call.out();
  const size_t blocks = (d.group_out + kRows - 1) / kRows;
  parallel_for(d.groups * blocks * d.taps(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t tap = i % d.taps(), block = i / d.taps() % blocks, group = i / d.taps() / blocks;
      const size_t o = group * d.group_out + block * kRows,
                   rows = std::min(kRows, d.group_out - block * kRows);
      d.for_rows(tap, [&](size_t pixel, size_t first, size_t terms) {
        add_terms(rule, {dweight + d.tap_at(o, tap), rows, d.group_c, terms, d.taps() * d.group_c,
                         dout + first + o, 1, d.out_c, x + pixel + group * d.group_c, d.stride_w * d.c});
      });
    }
  });
}

void matmul(const NodeCall& call, const SumRule& rule, size_t /*count*/) {
  const bool ta = call.integer("transpose_a") != 0, tb = call.integer("transpose_b") != 0;
  const Shape &a = call.in_shape(0), &out = call.out_shape();
  const auto m = static_cast<size_t>(out[out.rank() - 2]), n = static_cast<size_t>(out.back()),
             k = static_cast<size_t>(a[a.rank() - (ta ? 2 : 1)]);
  const size_t blocks = (m + kRows - 1) / kRows;
  parallel_for(out.elements() / (m * n) * blocks, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t matrix = i / blocks, row = i % blocks * kRows, rows = std::min(kRows, m - row);
      const size_t a_row = ta ? 1 : k, a_term = ta ? m : 1;
      const float* left = call.in(0) + matrix * m * k + row * a_row;
      float* sums = call.out() + matrix * m * n + row * n;
      for_blocks(
          {call.in(1) + matrix * k * n, tb ? 1 : n, tb ? k : 1}, k, n,
          [&](size_t column, size_t columns, size_t term, size_t terms, const float* b, size_t stride) {
            add_terms(rule, {sums + column, rows, columns, terms, n, left + term * a_term, a_row, a_term, b,
                             stride});
          });
    }
  });
}

// A result that is summed over `items` images or rows, which are decoded in slices; 1: operands are
// read as a whole.
class SumTask : public Task {
 public:
  SumTask(const Problem& problem, Add add, size_t items)
      : graph_(problem.graph()),
        node_(problem.root()),
        add_(add),
        rule_(rule_of(problem.plan)),
        items_(items),
        writer_(problem, node_, node_.out[0]) {
    BatchSlices slices{.items = static_cast<int64_t>(items_)};
    for (size_t i = 0; i < 2; ++i) {
      in_[i] = Reader(problem, node_.in[i]);
      item_[i] = in_[i].elements() / items_;
      if (in_[i].is_direct() || in_[i].granule() == 0) continue;
      slices.add_decoded(in_[i].granule(), item_[i]);
    }
    slice_ = static_cast<size_t>(slices.slice_within(std::min(problem.plan.options.workspace, kNear)));
    Workspace workspace;
    for (size_t i = 0; i < 2; ++i) {
      space_[i] = workspace.book(in_[i].granule() == 0 ? in_[i].space()
                                                       : std::min(in_[i].space(), slice_ * item_[i]));
    }
    const bool in_place = writer_.may_be_direct() && problem.tensor(node_.out[0]).kind != Kind::grad_sum;
    sums_ = workspace.book(in_place ? 0 : writer_.elements());
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    float* direct = writer_.direct(context);
    float* sums = direct != nullptr ? direct : floats(context, sums_);
    std::fill_n(sums, writer_.elements(), 0.0f);
    std::array<const float*, 2> whole{};
    for (size_t i = 0; i < 2; ++i) {
      if (in_[i].is_direct() || in_[i].granule() == 0)
        whole[i] = in_[i].all(context, floats(context, space_[i]));
    }
    for (size_t first = 0; first < items_; first += slice_) {
      const size_t count = std::min(slice_, items_ - first);
      std::array<const void*, 2> in{};
      for (size_t i = 0; i < 2; ++i) {
        in[i] = whole[i] != nullptr ? whole[i] + first * item_[i] : decode(context, i, first, count);
      }
      const std::array<void*, 1> out = {sums};
      add_({graph_, node_, in, out}, rule_, count);
    }
    if (direct == nullptr) writer_.all(context, sums);
  }

 private:
  const float* decode(const RunContext& context, size_t i, size_t first, size_t count) const {
    float* out = floats(context, space_[i]);
    in_[i].read_on_threads(context, first * item_[i], {out, count * item_[i]});
    return out;
  }

  const Graph& graph_;
  const Node& node_;
  const Add add_;
  const SumRule rule_;
  const size_t items_;
  size_t slice_ = 1;
  std::array<Reader, 2> in_;
  std::array<size_t, 2> item_{}, space_{};
  Writer writer_;
  size_t sums_ = 0;
};

std::string why_not(const Problem& problem) {
  if (!problem.plan.options.accumulator) return "it is for narrow accumulators";
  if (!sum_rule(*accumulator_spec(problem.plan)))
    return "it cannot round to " + format_name(*problem.plan.options.accumulator);
  return takes_one_node(problem);
}

// Unless said, all examples share the weight and the bias.
template <example::Function function, example::Item item, uint32_t shared = 0b110>
constexpr KernelDef by_example(std::string_view op) {
  return {op, "narrow", why_not, [](const Problem& problem) {
            return example::make_task(problem, function, {item, shared});
          }};
}

template <Add add, size_t (*items)(const Problem&)>
constexpr KernelDef by_sum(std::string_view op) {
  return {op, "narrow", why_not, [](const Problem& problem) -> std::unique_ptr<Task> {
            return std::make_unique<SumTask>(problem, add, items(problem));
          }};
}

size_t images(const Problem& problem) { return static_cast<size_t>(problem.shape(problem.root().in[0]).n()); }
size_t rows(const Problem& problem) { return problem.shape(problem.root().in[0]).rows(); }
size_t one(const Problem& /*problem*/) { return 1; }

}  // namespace
}  // namespace narrow

std::span<const KernelDef> narrow_kernels() {
  using namespace narrow;
  static constexpr KernelDef kernels[] = {
      by_example<forward, example::Item::image>("conv2d"),
      by_example<grad_input, example::Item::image>("conv2d_grad_input"),
      by_sum<grad_weight, images>("conv2d_grad_weight"),
      by_example<dot_interaction, example::Item::image, 0>("dot_interaction"),
      by_example<dot_interaction_grad, example::Item::image, 0>("dot_interaction_grad"),
      by_example<forward, example::Item::row>("linear"),
      by_example<grad_input, example::Item::row>("linear_grad_input"),
      by_sum<grad_weight, rows>("linear_grad_weight"),
      by_sum<matmul, one>("matmul"),
  };
  return kernels;
}

}  // namespace ulp
