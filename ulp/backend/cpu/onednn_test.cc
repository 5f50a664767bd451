// Products against the reference: many shapes, formats and workspace limits.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/guarded_node.h"
#include "ulp/backend/cpu/onednn.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

TensorId tensor(Graph& graph, const std::string& name, const Shape& shape, Kind kind = Kind::activation) {
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = kind;
  return graph.add_tensor(std::move(info));
}

// One node to compare, and how many products an element of its result sums.
struct Case {
  Graph graph;
  NodeId node;
  double terms = 1;
};

NodeId add_node(Graph& graph, const OpDef& op, std::vector<TensorId> in, std::vector<TensorId> out,
                Attrs attrs, bool adds = false) {
  return graph.add_node(
      {&op, std::string(op.name), std::move(attrs), std::move(in), std::move(out), Phase::forward, adds});
}

struct ConvShape {
  int64_t n, c, h, w, out, kh, kw, stride, padding, groups;
  bool bias;
};

enum class Part { forward, grad_input, grad_weight };

Case conv_case(const ConvShape& s, Part part, Kind result = Kind::weight_grad) {
  Case made;
  const int64_t oh = (s.h + 2 * s.padding - s.kh) / s.stride + 1,
                ow = (s.w + 2 * s.padding - s.kw) / s.stride + 1;
  const Shape x = Shape::image(s.n, s.c, s.h, s.w), y = Shape::image(s.n, s.out, oh, ow);
  const Shape weight{s.out, s.kh, s.kw, s.c / s.groups};
  const Attrs attrs{{"stride_h", s.stride},
                    {"stride_w", s.stride},
                    {"padding_h", s.padding},
                    {"padding_w", s.padding},
                    {"groups", s.groups}};
  Graph& g = made.graph;
  switch (part) {
    case Part::forward: {
      std::vector<TensorId> in{tensor(g, "x", x), tensor(g, "w", weight, Kind::weight)};
      if (s.bias) in.push_back(tensor(g, "b", {s.out}, Kind::weight));
      made.node = add_node(g, kConv2d, in, {tensor(g, "y", y)}, attrs);
      made.terms = static_cast<double>(s.kh * s.kw * s.c / s.groups + 1);
      break;
    }
    case Part::grad_input:
      made.node = add_node(g, kConv2dGradInput, {tensor(g, "dy", y), tensor(g, "w", weight, Kind::weight)},
                           {tensor(g, "dx", x)}, attrs);
      made.terms = static_cast<double>(s.kh * s.kw * s.out / s.groups);
      break;
    case Part::grad_weight:
      made.node = add_node(g, kConv2dGradWeight, {tensor(g, "x", x), tensor(g, "dy", y)},
                           {tensor(g, "dw", weight, result)}, attrs);
      made.terms = static_cast<double>(s.n * oh * ow);
      break;
  }
  return made;
}

struct Formats {
  const char *in, *out;
  const char* operand = "";  // of a weight, whose stored format is `in`
};

std::vector<TensorFormat> formats_of(const Case& c, const Formats& f, bool exact_out) {
  std::vector<TensorFormat> formats;
  const TensorId out = c.graph[c.node].out[0];
  for (size_t i = 0; i < c.graph.tensor_count(); ++i) {
    const TensorInfo& info = c.graph.tensors()[i];
    const bool is_out = out.index == static_cast<int32_t>(i);
    TensorFormat format{parse_storage(is_out ? (exact_out ? "fp32" : f.out) : f.in), {}};
    if (info.kind == Kind::weight && *f.operand != 0) format.operand = parse_storage(f.operand);
    if (info.kind == Kind::grad_sum) format = {parse_storage("fp32"), {}};
    formats.push_back(format);
  }
  return formats;
}

void fill(const Case& c, Rig& rig, bool magnitudes) {
  uint32_t seed = 1;
  for (const TensorId id : c.graph[c.node].in) {
    std::vector<float> values = test_values(c.graph[id].elements(), seed++);
    if (magnitudes) {
      for (float& v : values) v = std::abs(v);
    }
    rig.set(id, values);
  }
}

// Runs the case with the kernel and compares; returns the workspace.
size_t compare(const Case& c, const Formats& f, size_t limit, const std::string& what) {
  const Node& node = c.graph[c.node];
  const TensorId out = node.out[0];
  const KernelDef* reference = find_kernel(reference_kernels(), node.op->name, "reference");
  const KernelDef* kernel = find_kernel(onednn_kernels(), node.op->name, "onednn");

  Rig exact(c.graph, formats_of(c, f, true)), magnitude(c.graph, formats_of(c, f, true));
  fill(c, exact, false);
  fill(c, magnitude, true);
  exact.run(c.node, reference);
  magnitude.run(c.node, reference);
  std::vector<double> bound;
  for (const float m : magnitude.get(out)) bound.push_back(2 * (c.terms + 8) * 0x1p-23 * m);

  const auto formats = formats_of(c, f, false);
  const Storage storage = formats[static_cast<size_t>(out.index)].storage;
  const std::string name = what + " " + std::string(node.op->name) + " " + f.in + " to " + f.out + " limit " +
                           std::to_string(limit);
  Rig rig(c.graph, formats, limit);
  fill(c, rig, false);
  const size_t workspace = rig.run(c.node, kernel);
  std::vector<float> values = rig.get(out);
  expect_within(values, exact.get(out), bound, storage, name);
  if (!is_fp32(storage)) {
    EXPECT_GT(rig.stats(out).amax, 0) << name;
  }
  // Again: the same bits.
  Rig again(c.graph, formats, limit);
  fill(c, again, false);
  again.run(c.node, kernel);
  EXPECT_EQ(again.bytes(out), rig.bytes(out)) << name;
  EXPECT_EQ(again.stats(out), rig.stats(out)) << name;

  if (c.graph[out].kind == Kind::grad_sum) {
    rig.state.micro_batch = 1;
    rig.run(c.node, kernel);
    const std::vector<float> twice = rig.get(out);
    for (size_t i = 0; i < twice.size(); ++i) EXPECT_EQ(twice[i], values[i] + values[i]) << name;
  }
  return workspace;
}

const Formats kFormats[] = {
    {"fp32", "fp32"},           {"fp(6,9,0)", "fp(6,9,0)"},
    {"fp(4,3,4)", "fp(4,3,4)"}, {"e8m5", "e8m5"},
    {"s2fp8", "s2fp8"},         {"fp32", "e8m5"},
    {"fp(4,3,4)", "fp32"},      {"fp32", "fp32", "fp(4,3,4)"},
    {"bf16", "fp16", "e8m5"},   {"s2fp8", "fp32"},
};

const size_t kNoLimit = size_t{64} << 20, kSmall = 20000;

const ConvShape kConvShapes[] = {
    {2, 16, 8, 8, 16, 3, 3, 1, 1, 1, false},
    {3, 3, 9, 7, 16, 3, 3, 1, 1, 1, true},
    {1, 1, 5, 5, 1, 3, 3, 1, 1, 1, false},
    {5, 17, 1, 1, 9, 1, 1, 1, 0, 1, true},
    {4, 8, 10, 6, 12, 1, 1, 3, 0, 1, false},
    {3, 8, 8, 8, 8, 3, 3, 2, 1, 8, false},
    {3, 12, 7, 5, 18, 3, 3, 1, 1, 3, true},
    {7, 5, 6, 6, 7, 5, 3, 2, 2, 1, true},
    {9, 32, 6, 6, 32, 3, 3, 1, 1, 32, false},
    {6, 16, 4, 4, 33, 3, 3, 1, 0, 1, false},
    {5, 6, 3, 3, 4, 3, 3, 1, 0, 2, false},
    // Where a primitive of oneDNN 2.6 would write past its scratchpad.
    {3, 8, 16, 16, 16, 1, 1, 2, 0, 1, false},
    {5, 12, 16, 16, 48, 1, 1, 2, 0, 1, false},
};

std::string text(const ConvShape& s) {
  return std::to_string(s.n) + "x" + std::to_string(s.c) + "x" + std::to_string(s.h) + "x" +
         std::to_string(s.w) + "->" + std::to_string(s.out) + " k" + std::to_string(s.kh) + "x" +
         std::to_string(s.kw) + " g" + std::to_string(s.groups);
}

TEST(Onednn, Convolutions) {
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    for (const ConvShape& shape : kConvShapes) {
      for (const Part part : {Part::forward, Part::grad_input, Part::grad_weight}) {
        const Case c = conv_case(shape, part);
        for (const Formats& f : kFormats) compare(c, f, kNoLimit, text(shape));
      }
    }
  }
  set_thread_count(2);
}

TEST(Onednn, ConvolutionsInSlices) {
  set_thread_count(2);
  for (const ConvShape& shape : kConvShapes) {
    for (const Part part : {Part::forward, Part::grad_input, Part::grad_weight}) {
      const Case c = conv_case(shape, part);
      for (const Formats& f : kFormats) {
        for (const size_t limit : {size_t{1}, kSmall, size_t{60000}}) compare(c, f, limit, text(shape));
      }
    }
  }
}

TEST(Onednn, AddsToASum) {
  for (const ConvShape& shape : kConvShapes) {
    const Case c = conv_case(shape, Part::grad_weight, Kind::grad_sum);
    for (const Formats& f : kFormats) {
      for (const size_t limit : {kNoLimit, kSmall}) compare(c, f, limit, text(shape));
    }
  }
}

// The parts of a step of so many images, which no memory holds: they are planned like others. In
// one primitive oneDNN would divide by zero.
TEST(Onednn, PlansWhatItCannotCountInSlices) {
  const ConvShape many{int64_t{1} << 27, 16, 32, 32, 16, 3, 3, 1, 1, 1, false};
  const ConvShape large{1, 16, 1 << 14, 1 << 14, 16, 3, 3, 1, 1, 1, false};
  for (const Part part : {Part::forward, Part::grad_input, Part::grad_weight}) {
    for (const char* format : {"fp32", "fp(4,3,4)"}) {
      const Case c = conv_case(many, part);
      const std::vector<TensorFormat> formats = formats_of(c, {format, format}, false);
      const PlanContext plan{c.graph, formats, Round::nearest_even, Overflow::saturate, kNoLimit};
      const Problem problem{plan, {}, {c.node}, {}};
      const KernelDef* kernel = find_kernel(onednn_kernels(), c.graph[c.node].op->name, "onednn");
      EXPECT_EQ(kernel->why_not(problem), "");
      EXPECT_GT(kernel->make(problem)->workspace(), 0u);

      const Case one = conv_case(large, part);
      const std::vector<TensorFormat> same = formats_of(one, {format, format}, false);
      const PlanContext other{one.graph, same, Round::nearest_even, Overflow::saturate, kNoLimit};
      EXPECT_EQ(kernel->why_not({other, {}, {one.node}, {}}),
                "an operand has more than 2^31 - 1 elements for one example");
    }
  }
}

TEST(Onednn, KeepsItsWorkspaceSmall) {
  const ConvShape shape{64, 16, 16, 16, 16, 3, 3, 1, 1, 1, false};
  for (const Part part : {Part::forward, Part::grad_input, Part::grad_weight}) {
    const Case c = conv_case(shape, part);
    const size_t limit = size_t{1} << 19;
    EXPECT_LE(compare(c, {"fp(4,3,4)", "fp(4,3,4)"}, limit, text(shape)), limit);
    // In fp32 nothing is copied but the weights; an image or its result would take 1 MiB.
    EXPECT_LE(compare(c, {"fp32", "fp32"}, kNoLimit, text(shape)), limit);
  }
}

TEST(Onednn, Linear) {
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    for (const auto& [rows, in, out] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {4, 16, 32}, {7, 13, 5}, {33, 10, 10}, {40, 64, 10}, {5, 100, 3}, {64, 48, 65}}) {
      for (const Formats& f : kFormats) {
        for (const size_t limit : {kNoLimit, kSmall, size_t{1}}) {
          if (limit == 1 && rows > 10) continue;
          const std::string what =
              std::to_string(rows) + "x" + std::to_string(in) + "->" + std::to_string(out);
          const auto in_terms = static_cast<double>(in + 1), out_terms = static_cast<double>(out);
          Case forward, grad_input, grad_weight, sum;
          Graph* g = &forward.graph;
          forward.node = add_node(*g, kLinear,
                                  {tensor(*g, "x", {rows, in}), tensor(*g, "w", {out, in}, Kind::weight),
                                   tensor(*g, "b", {out}, Kind::weight)},
                                  {tensor(*g, "y", {rows, out})}, {});
          forward.terms = in_terms;
          compare(forward, f, limit, what);
          g = &grad_input.graph;
          grad_input.node = add_node(
              *g, kLinearGradInput, {tensor(*g, "dy", {rows, out}), tensor(*g, "w", {out, in}, Kind::weight)},
              {tensor(*g, "dx", {rows, in})}, {});
          grad_input.terms = out_terms;
          compare(grad_input, f, limit, what);
          for (const Kind kind : {Kind::weight_grad, Kind::grad_sum}) {
            Case c;
            g = &c.graph;
            c.node =
                add_node(*g, kLinearGradWeight, {tensor(*g, "x", {rows, in}), tensor(*g, "dy", {rows, out})},
                         {tensor(*g, "dw", {out, in}, kind)}, {});
            c.terms = static_cast<double>(rows);
            compare(c, f, limit, what);
          }
        }
      }
    }
  }
  set_thread_count(2);
}

TEST(Onednn, Matmul) {
  for (const auto& [batch, m, k, n] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 1, 1}, {1, 9, 17, 5}, {1, 64, 32, 48}, {3, 8, 8, 8}, {6, 5, 7, 3}, {12, 16, 10, 10}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const auto matrix = [&, b = batch](int64_t rows, int64_t columns) {
          return b == 1                ? Shape{rows, columns}
                 : b % 3 == 0 && b > 3 ? Shape{b / 3, 3, rows, columns}
                                       : Shape{b, rows, columns};
        };
        Case c;
        c.node = add_node(c.graph, kMatmul,
                          {tensor(c.graph, "a", ta ? matrix(k, m) : matrix(m, k)),
                           tensor(c.graph, "b", tb ? matrix(n, k) : matrix(k, n))},
                          {tensor(c.graph, "y", matrix(m, n))}, {{"transpose_a", ta}, {"transpose_b", tb}});
        c.terms = static_cast<double>(k);
        const std::string what = std::to_string(batch) + ": " + std::to_string(m) + "x" + std::to_string(k) +
                                 "x" + std::to_string(n) + (ta ? " ta" : "") + (tb ? " tb" : "");
        for (const Formats& f : kFormats) {
          for (const size_t limit : {kNoLimit, size_t{2000}, size_t{1}}) compare(c, f, limit, what);
        }
      }
    }
  }
}

// Neither oneDNN nor anything it loads may flush subnormal numbers to zero, or round products to
// bf16.
TEST(Onednn, KeepsSubnormalsAndAllBits) {
  const Case c = conv_case({2, 16, 4, 4, 16, 1, 1, 1, 0, 1, false}, Part::forward);
  const Node& node = c.graph[c.node];
  const float tiny = 0x1.8p-140f, fine = 1 + 0x1p-23f;
  for (const float value : {tiny, fine}) {
    Rig rig(c.graph, {});
    std::vector<float> x(c.graph[node.in[0]].elements(), 0), w(c.graph[node.in[1]].elements(), 0);
    for (size_t i = 0; i < x.size(); i += 16) x[i] = value;
    for (size_t o = 0; o < 16; ++o) w[o * 16] = 1;
    rig.set(node.in[0], x);
    rig.set(node.in[1], w);
    rig.run(c.node, find_kernel(onednn_kernels(), "conv2d", "onednn"));
    for (const float y : rig.get(node.out[0])) EXPECT_EQ(y, value);
  }
  volatile float small = 0x1p-130f;
  EXPECT_NE(small * 0.5f, 0.0f);
}

}  // namespace
}  // namespace ulp
