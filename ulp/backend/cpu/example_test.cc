// Kernels over examples against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/guarded_node.h"
#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

// One node with the tensors that it reads and writes; the values of inputs follow from their
// position.
struct Case {
  Graph graph;
  NodeId node;
  int64_t classes = 0;  // of int32 inputs

  TensorId tensor(const Shape& shape, Kind kind = Kind::activation, Element element = Element::real) {
    TensorInfo info;
    info.name = "t" + std::to_string(graph.tensor_count());
    info.shape = shape;
    info.kind = kind;
    info.element = element;
    return graph.add_tensor(std::move(info));
  }
  TensorId kept(const Shape& shape) { return tensor(shape, Kind::saved); }
  TensorId bytes(const Shape& shape) { return tensor(shape, Kind::saved, Element::byte); }
  TensorId labels(const Shape& shape) { return tensor(shape, Kind::fed, Element::int32); }
  void add(const OpDef& op, std::vector<TensorId> in, std::vector<TensorId> out, Attrs attrs = {}) {
    node = graph.add_node(
        {&op, std::string(op.name), std::move(attrs), std::move(in), std::move(out), Phase::forward, false});
  }
};

std::vector<TensorFormat> formats_of(const Case& c, const char* in, const char* out) {
  std::vector<TensorFormat> formats;
  for (const TensorInfo& info : c.graph.tensors()) {
    const bool is_out = static_cast<bool>(info.producer);
    const bool plain = info.kind == Kind::saved || info.kind == Kind::fed || info.kind == Kind::grad_sum;
    formats.push_back({parse_storage(plain ? "fp32" : is_out ? out : in), {}});
  }
  return formats;
}

void fill(const Case& c, Rig& rig, bool magnitudes, bool odd_values = false) {
  uint32_t seed = 1;
  for (const TensorId id : c.graph[c.node].in) {
    const TensorInfo& info = c.graph[id];
    std::vector<float> values = test_values(info.elements(), seed++, 2);
    if (info.element == Element::int32) {
      std::vector<int32_t> labels;
      for (size_t i = 0; i < values.size(); ++i)
        labels.push_back(static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(c.classes)));
      rig.set_indices(id, labels);
      continue;
    }
    if (info.element == Element::byte) {
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < values.size(); ++i)
        bytes.push_back(static_cast<uint8_t>((i * 5 + i / 7) % static_cast<size_t>(c.classes)));
      rig.set_bytes(id, bytes);
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (odd_values && i % 11 == 3) values[i] = std::numeric_limits<float>::quiet_NaN();
      if (odd_values && i % 13 == 5) values[i] = -0.0f;
      if (odd_values && i % 17 == 6) values[i] = values[i - 1];
      if (magnitudes || info.kind == Kind::saved) values[i] = std::abs(values[i]);
    }
    rig.set(id, values);
  }
}

const KernelDef* reference(const Case& c) {
  return find_kernel(reference_kernels(), c.graph[c.node].op->name, "reference");
}
const KernelDef* cpu(const Case& c) {
  return find_kernel(cpu_backend().kernels, c.graph[c.node].op->name, "cpu");
}

const std::pair<const char*, const char*> kFormats[] = {
    {"fp32", "fp32"},   {"fp(6,9,0)", "fp(6,9,0)"}, {"fp(4,3,4)", "fp(4,3,4)"}, {"e8m5", "e8m5"},
    {"s2fp8", "s2fp8"}, {"fp32", "e8m5"},           {"e8m5", "fp32"},           {"fp(4,3,4)", "bf16"},
    {"bf16", "s2fp8"},  {"scaled(e4m3)", "fp16"}};

enum class Events { same, none };

// Every bit equals the reference's, on one thread and on two.
void expect_same(const Case& c, const std::string& what, Events events = Events::same,
                 bool odd_values = true) {
  for (const auto& [in, out] : kFormats) {
    for (const Round round : {Round::nearest_even, Round::stochastic}) {
      if (round == Round::stochastic && std::string(out).find("s2fp8") != std::string::npos) continue;
      for (const int threads : {1, 2}) {
        set_thread_count(threads);
        const bool odd = odd_values && std::string(in).find('s') == std::string::npos;
        const auto formats = formats_of(c, in, out);
        Rig expected(c.graph, formats, size_t{64} << 20, round),
            rig(c.graph, formats, size_t{64} << 20, round);
        fill(c, expected, false, odd);
        fill(c, rig, false, odd);
        expected.run(c.node, reference(c));
        rig.run(c.node, cpu(c));
        for (const TensorId id : c.graph[c.node].out) {
          const std::string name =
              what + " " + std::string(c.graph[c.node].op->name) + " " + in + " to " + out;
          EXPECT_EQ(rig.bytes(id), expected.bytes(id)) << name;
          if (events == Events::same) {
            EXPECT_EQ(rig.stats(id), expected.stats(id)) << name;
          }
        }
      }
    }
  }
}

// Within `terms` times the bound for fp32 sums.
void expect_near(const Case& c, const std::string& what, double terms, double floor = 0) {
  for (const auto& [in, out] : kFormats) {
    for (const int threads : {1, 2}) {
      set_thread_count(threads);
      Rig exact(c.graph, formats_of(c, in, "fp32")), magnitude(c.graph, formats_of(c, in, "fp32"));
      fill(c, exact, false);
      fill(c, magnitude, true);
      exact.run(c.node, reference(c));
      magnitude.run(c.node, reference(c));
      const auto formats = formats_of(c, in, out);
      Rig rig(c.graph, formats);
      fill(c, rig, false);
      rig.run(c.node, cpu(c));
      for (const TensorId id : c.graph[c.node].out) {
        std::vector<double> bound;
        for (const float m : magnitude.get(id))
          bound.push_back(2 * (terms + 8) * 0x1p-23 * std::max<double>(std::abs(m), floor));
        expect_within(rig.get(id), exact.get(id), bound, formats[static_cast<size_t>(id.index)].storage,
                      what + " " + std::string(c.graph[c.node].op->name) + " " + in + " to " + out);
      }
    }
  }
}

struct PoolShape {
  int64_t n, c, h, w, kernel, stride, padding;
};

const PoolShape kPools[] = {{1, 1, 2, 2, 2, 2, 0}, {3, 64, 8, 8, 2, 2, 0}, {5, 17, 7, 9, 3, 2, 1},
                            {2, 3, 5, 4, 2, 1, 0}, {4, 24, 6, 6, 3, 1, 1}, {2, 58, 4, 6, 2, 3, 1},
                            {7, 5, 3, 3, 3, 3, 0}, {3, 33, 5, 5, 1, 2, 0}};

Attrs pool_attrs(const PoolShape& s) {
  return {{"kernel_h", s.kernel}, {"kernel_w", s.kernel},   {"stride_h", s.stride},
          {"stride_w", s.stride}, {"padding_h", s.padding}, {"padding_w", s.padding}};
}

TEST(Example, Pools) {
  for (const PoolShape& s : kPools) {
    const std::string what = std::to_string(s.n) + "x" + std::to_string(s.c) + "x" + std::to_string(s.h) +
                             "x" + std::to_string(s.w) + " k" + std::to_string(s.kernel) + " s" +
                             std::to_string(s.stride);
    const Shape x = Shape::image(s.n, s.c, s.h, s.w);
    const Shape y = Shape::image(s.n, s.c, (s.h + 2 * s.padding - s.kernel) / s.stride + 1,
                                 (s.w + 2 * s.padding - s.kernel) / s.stride + 1);
    const auto window = static_cast<double>(s.kernel * s.kernel);
    {
      Case c;
      c.add(kMaxPool, {c.tensor(x)}, {c.tensor(y), c.bytes(y)}, pool_attrs(s));
      expect_same(c, what);
    }
    {
      Case c;
      c.classes = s.kernel * s.kernel;
      c.add(kMaxPoolGrad, {c.tensor(y), c.bytes(y)}, {c.tensor(x)}, pool_attrs(s));
      expect_same(c, what);
    }
    {
      Case c;
      c.add(kAvgPool, {c.tensor(x)}, {c.tensor(y)}, pool_attrs(s));
      expect_near(c, what, window);
    }
    {
      Case c;
      c.add(kAvgPoolGrad, {c.tensor(y)}, {c.tensor(x)}, pool_attrs(s));
      expect_near(c, what, window);
    }
    {
      Case c;
      c.add(kGlobalAverage, {c.tensor(x)}, {c.tensor({s.n, s.c})});
      expect_near(c, what, static_cast<double>(s.h * s.w));
    }
    {
      Case c;
      c.add(kGlobalAverageGrad, {c.tensor({s.n, s.c})}, {c.tensor(x)});
      expect_same(c, what, Events::same, false);
    }
  }
}

// Codes that formats allow to be moved report nothing; values that are written report as usual.
TEST(Example, Moves) {
  for (const Shape& rows : {Shape{1}, Shape{7}, Shape{3, 5, 7}, Shape{16, 8}}) {
    for (const auto& widths : std::vector<std::vector<int64_t>>{
             {1, 1}, {3, 2}, {16, 16}, {24, 8, 2}, {58, 58}, {100, 7}, {300, 20}}) {
      const auto shape = [&](int64_t width) {
        std::vector<int64_t> extents;
        for (int i = 0; i < rows.rank(); ++i) extents.push_back(rows[i]);
        extents.push_back(width);
        return Shape(std::span<const int64_t>(extents));
      };
      Case joined, parted;
      std::vector<TensorId> in, out;
      int64_t width = 0;
      for (const int64_t w : widths) {
        in.push_back(joined.tensor(shape(w)));
        width += w;
      }
      joined.add(kConcat, in, {joined.tensor(shape(width))});
      expect_same(joined, shape_text(shape(width)), Events::none, false);
      const TensorId whole = parted.tensor(shape(width));
      for (const int64_t w : widths) out.push_back(parted.tensor(shape(w)));
      parted.add(kSplit, {whole}, out, {{"parts", 2}});
      expect_same(parted, shape_text(shape(width)), Events::none, false);
    }
    for (const auto& [channels, groups] : std::vector<std::pair<int64_t, int64_t>>{{2, 2},
                                                                                   {6, 3},
                                                                                   {64, 2},
                                                                                   {64, 32},
                                                                                   {116, 2},
                                                                                   {116, 58},
                                                                                   {24, 4},
                                                                                   {10, 1},
                                                                                   {10, 10},
                                                                                   {200, 100}}) {
      std::vector<int64_t> extents;
      for (int i = 0; i < rows.rank(); ++i) extents.push_back(rows[i]);
      extents.push_back(channels);
      const Shape shape{std::span<const int64_t>(extents)};
      Case c;
      const TensorId x = c.tensor(shape), y = c.tensor(shape);
      c.add(kChannelShuffle, {x}, {y}, {{"groups", static_cast<double>(groups)}});
      expect_same(c, shape_text(shape) + " groups " + std::to_string(groups));
    }
  }
}

TEST(Example, Rows) {
  for (const auto& [rows, n] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 10}, {33, 7}, {128, 10}, {3, 1000}, {17, 64}}) {
    const Shape x{rows, n};
    const std::string what = shape_text(x);
    for (const OpDef* op : {&kSoftmax, &kLogSoftmax}) {
      Case c;
      c.add(*op, {c.tensor(x)}, {c.tensor(x)});
      expect_near(c, what, 0, op == &kSoftmax ? 0x1p-60 : 1);
    }
    for (const OpDef* op : {&kSoftmaxGrad, &kLogSoftmaxGrad}) {
      Case c;
      c.add(*op, {c.tensor(x), c.tensor(x)}, {c.tensor(x)});
      expect_near(c, what, 0, 4);
    }
    for (const double smoothing : {0.0, 0.1}) {
      const Attrs attrs{{"smoothing", smoothing}};
      for (const OpDef* op : {&kNll, &kCrossEntropy}) {
        Case c;
        c.classes = n;
        c.add(*op, {c.tensor(x), c.labels({rows})}, {c.tensor({rows})}, attrs);
        expect_near(c, what, 0, 1);
      }
      Case c;
      c.classes = n;
      c.add(kNllGrad, {c.tensor({rows}), c.labels({rows})}, {c.tensor(x)}, attrs);
      expect_near(c, what, 0);
      Case d;
      d.classes = n;
      d.add(kCrossEntropyGrad, {d.tensor({rows}), d.tensor(x), d.labels({rows})}, {d.tensor(x)}, attrs);
      expect_near(d, what, 0, 2);
    }
    for (const OpDef* op : {&kMse, &kBceWithLogits}) {
      Case c;
      c.add(*op, {c.tensor(x), c.tensor(x, Kind::fed)}, {c.tensor({rows})});
      expect_near(c, what, 0, 4);
    }
    for (const OpDef* op : {&kMseGrad, &kBceWithLogitsGrad}) {
      Case c;
      c.add(*op, {c.tensor({rows}), c.tensor(x), c.tensor(x, Kind::fed)}, {c.tensor(x)});
      expect_near(c, what, 0, 8.0 / static_cast<double>(n));
    }
    Case norm;
    norm.add(kLayerNorm, {norm.tensor(x), norm.tensor({n}, Kind::weight), norm.tensor({n}, Kind::weight)},
             {norm.tensor(x), norm.kept({rows}), norm.kept({rows})}, {{"epsilon", 1e-5}});
    expect_near(norm, what, 0, 8);
    Case grad;
    grad.add(kLayerNormGrad,
             {grad.tensor(x), grad.tensor(x), grad.tensor({n}, Kind::weight), grad.kept({rows}),
              grad.kept({rows})},
             {grad.tensor(x)}, {{"epsilon", 1e-2}});
    expect_near(grad, what, static_cast<double>(n), 1000);
  }
}

TEST(Example, Embedding) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {10, 16}, {7, 33}}) {
    Case c;
    c.classes = rows;
    c.add(kEmbedding, {c.tensor({rows, width}, Kind::weight), c.labels({5, 9})}, {c.tensor({5, 9, width})});
    expect_same(c, shape_text({rows, width}));
    Rig rig(c.graph, {});
    fill(c, rig, false);
    std::vector<int32_t> wrong(45, 0);
    wrong[44] = static_cast<int32_t>(rows);
    rig.set_indices(c.graph[c.node].in[1], wrong);
    EXPECT_THROW(rig.run(c.node, cpu(c)), Error);
  }
}

TEST(Example, SumsOverRows) {
  for (const auto& [rows, width] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {45, 16}, {7, 33}, {100, 70}}) {
    for (const Kind kind : {Kind::weight_grad, Kind::grad_sum}) {
      const auto terms = static_cast<double>(rows);
      Case table;
      table.classes = 5;
      table.add(kEmbeddingGrad, {table.tensor({rows, width}), table.labels({rows})},
                {table.tensor({5, width}, kind)});
      Case norm;
      norm.add(kLayerNormGradWeight,
               {norm.tensor({rows, width}), norm.tensor({rows, width}), norm.kept({rows}), norm.kept({rows})},
               {norm.tensor({width}, kind), norm.tensor({width}, kind)}, {{"epsilon", 1e-2}});
      expect_near(table, shape_text({rows, width}), terms);
      expect_near(norm, shape_text({rows, width}), terms, 20 * terms);
    }
  }
}

TEST(Example, Transposes) {
  for (const std::vector<int64_t>& extents : std::vector<std::vector<int64_t>>{
           {7, 5}, {33, 40}, {3, 5, 7}, {2, 17, 18}, {2, 3, 4, 5}, {3, 20, 2, 17}}) {
    std::vector<int> axes;
    for (int i = 0; i < static_cast<int>(extents.size()); ++i) axes.push_back(i);
    do {
      static constexpr std::string_view kAxis[] = {"axis0", "axis1", "axis2", "axis3"};
      Case c;
      Attrs attrs;
      std::vector<int64_t> moved;
      for (size_t i = 0; i < axes.size(); ++i) {
        attrs.set(kAxis[i], axes[i]);
        moved.push_back(extents[static_cast<size_t>(axes[i])]);
      }
      const TensorId x = c.tensor(Shape(std::span<const int64_t>(extents)));
      c.add(kTranspose, {x}, {c.tensor(Shape(std::span<const int64_t>(moved)))}, attrs);
      expect_same(c, "transpose");
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

TEST(Example, LabelsMustBeClasses) {
  Case c;
  c.classes = 4;
  c.add(kCrossEntropy, {c.tensor({3, 4}), c.labels({3})}, {c.tensor({3})}, {{"smoothing", 0}});
  Rig rig(c.graph, {});
  fill(c, rig, false);
  rig.set_indices(c.graph[c.node].in[1], std::vector<int32_t>{0, 4, 1});
  EXPECT_THROW(rig.run(c.node, cpu(c)), Error);
}

}  // namespace
}  // namespace ulp
