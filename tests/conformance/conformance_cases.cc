// The table: which graphs, of which shapes. Backward operators come with their forward ones,
// through reverse mode.
#include <fmt/format.h>

#include <array>

#include "tests/conformance/conformance.h"
#include "ulp/graph/gradients.h"

namespace ulp::conformance {
namespace {

// Rows of one element, of one channel, of primes, of many channels; more channels than a block has;
// enough elements that two threads share them.
const std::vector<Shape> kAnyShapes = {{1, 1},       {1, 1, 1, 1},   {1000, 1},
                                       {3, 5, 7, 3}, {2, 9, 11, 17}, {1, 3, 3, 130},
                                       {7, 4096},    {2, 4099},      {2, 31, 37, 17}};
const std::vector<Shape> kRowShapes = {{1, 1},   {1, 17},    {5, 3},       {64, 10},
                                       {9, 130}, {2, 3, 17}, {2, 3, 5, 1}, {3, 1000}};
const std::vector<Shape> kImageShapes = {{1, 1, 1, 1},   {2, 1, 1, 17},  {1, 7, 5, 1}, {3, 6, 9, 3},
                                         {2, 11, 8, 17}, {1, 5, 5, 130}, {2, 7, 6, 16}};

constexpr size_t kLarge = 100000;  // elements of all tensors of a case

std::string named(std::string_view op, const Shape& shape) {
  return std::string(op) + " " + shape_text(shape);
}

// ---- elementwise ----

// A value that an operator's attribute may have: `share` of the way from the least to the most.
template <typename Op>
double attribute_between(double share) {
  return Op::kLeast + share * (Op::kMost - Op::kLeast);
}

// Every activation reads x, so that its gradient is a sum of many parts.
void activations(Sketch& s, const Shape& shape) {
  const TensorId x = s.operand(shape), y = s.operand(shape);
  TensorId total = multiply(s.b, "multiply", x, y);
  std::vector<TensorId> all;
  elementwise::Activations::for_each([&]<typename Op>(Op) {
    all.push_back(activation<Op>(s.b, Op::kName, x, attribute_between<Op>(0.01)));
  });
  all.push_back(dropout(s.b, "drop", x, 0.3));
  all.push_back(relu(s.b, "relu_y", y));
  for (size_t i = 0; i < all.size(); ++i) total = add(s.b, "add" + std::to_string(i), total, all[i]);
  s.train(total);
}

void add_elementwise(Cases& cases) {
  for (const Shape& shape : kAnyShapes) {
    add_both(cases, named("activations", shape), [=](Sketch& s) { activations(s, shape); });
  }
  for (const Shape& shape : kAnyShapes) {
    add_both(cases, named("batch_norm", shape),
             [=](Sketch& s) { s.train(batch_norm(s.b, "norm", s.operand(shape))); });
  }
  // Repeated over axes in front, in the middle, at the end; both operands; a single element; parts of
  // more columns, and more rows, than a kernel takes at a time.
  for (const auto& [x, y] : {std::pair<Shape, Shape>{{5, 17}, {17}},
                             {{3, 5, 7, 3}, {5, 1, 3}},
                             {{2, 9, 11, 17}, {2, 1, 1, 1}},
                             {{4, 1, 6}, {1, 5, 6}},
                             {{2, 3, 1, 1}, {5, 70}},
                             {{7, 4096}, {1}},
                             {{1000, 3}, {1, 3}},
                             {{1, 1}, {1}}}) {
    add_both(cases, named("broadcast_add", x) + " and " + shape_text(y), [x = x, y = y](Sketch& s) {
      const TensorId left = s.operand(x);
      s.train(add(s.b, "sum", left, s.operand(y)));
    });
  }
  add_both(cases, "batch_norm of running statistics", [](Sketch& s) {
    Builder inference(s.graph, Mode::inference);
    batch_norm(inference, "norm", s.input({2, 5, 4, 17}));
  });
}

// ---- moves ----

void add_moves(Cases& cases) {
  // Widths of a byte, of a few, of a cache line and of more, in one row; whole groups of eight;
  // many parts.
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{1, 1},
                                             {3, 17, 130},
                                             {1, 2, 4, 16},
                                             {64, 65},
                                             {700, 5},
                                             {8, 24, 40},
                                             std::vector<int64_t>(20, 3)}) {
    add_both(cases, "concat of " + std::to_string(widths.front()) + " and " + std::to_string(widths.back()),
             [=](Sketch& s) {
               std::vector<TensorId> parts;
               for (const int64_t width : widths) parts.push_back(s.operand({3, 5, 7, width}));
               s.train(concat(s.b, "concat", parts));
             });
  }
  cases.push_back({"concat with an input", [](Sketch& s) {
                     const TensorId x = s.operand({5, 3}), y = s.input({5, 17});
                     s.train(concat(s.b, "concat", {x, y}));
                   }});
  for (const auto& [axis, extents] : {std::pair<int, std::vector<int64_t>>{0, {1, 4, 2}},
                                      {1, {3, 1}},
                                      {2, {5, 16, 2}},
                                      {-2, std::vector<int64_t>(20, 2)}}) {
    add_both(cases, "concat along axis " + std::to_string(axis), [axis = axis, extents = extents](Sketch& s) {
      std::vector<TensorId> parts;
      for (const int64_t extent : extents) {
        std::vector<int64_t> shape = {2, 3, 5, 8};
        shape[static_cast<size_t>(axis < 0 ? axis + 4 : axis)] = extent;
        parts.push_back(s.operand(Shape(std::span<const int64_t>(shape))));
      }
      s.train(concat(s.b, "concat", parts, axis));
    });
  }
  for (const auto& [shape, axis] :
       {std::pair<Shape, int>{{6, 5}, 0}, {{2, 9, 5, 7}, 1}, {{5, 3, 17}, -2}, {{2, 3, 6, 8}, 2}}) {
    add_both(cases, named("split", shape) + " along axis " + std::to_string(axis),
             [shape = shape, axis = axis](Sketch& s) {
               const auto out = split(s.b, "split", s.operand(shape), 3, axis);
               s.train(multiply(s.b, "product", out.front(), out.back()));
             });
  }
  for (const auto& [shape, parts] : {std::pair<Shape, int64_t>{{1, 2}, 2},
                                     {{2, 3, 5, 34}, 2},
                                     {{2, 3, 3, 51}, 3},
                                     {{3, 130}, 5},
                                     {{70, 256}, 4},
                                     {{5, 36}, 12}}) {
    add_both(cases, named("split", shape), [shape = shape, parts = parts](Sketch& s) {
      const auto out = split(s.b, "split", s.operand(shape), parts);
      s.train(multiply(s.b, "product", out.front(), out.back()));
    });
  }
  for (const auto& [shape, groups] : {std::pair<Shape, int64_t>{{1, 1}, 1},
                                      {{2, 3, 5, 34}, 2},
                                      {{2, 3, 3, 58}, 29},
                                      {{3, 5, 7, 12}, 3},
                                      {{1, 130}, 10},
                                      {{90, 464}, 2},
                                      {{5, 17}, 17}}) {
    add_both(cases, named("channel_shuffle", shape), [shape = shape, groups = groups](Sketch& s) {
      s.train(channel_shuffle(s.b, "shuffle", s.operand(shape), groups));
    });
  }
  for (const auto& [shape, axes] : {std::pair<Shape, std::vector<int>>{{1, 1}, {1, 0}},
                                    {{17, 33}, {1, 0}},
                                    {{3, 5, 130}, {1, 2, 0}},
                                    {{3, 5, 7}, {0, 2, 1}},
                                    {{2, 17, 3, 9}, {0, 3, 1, 2}},
                                    {{2, 3, 40, 65}, {3, 2, 1, 0}},
                                    {{2, 3, 5, 17}, {1, 0, 2, 3}},
                                    {{2, 3, 5, 7}, {2, 0, 3, 1}}}) {
    add_both(cases, named("transpose", shape), [shape = shape, axes = axes](Sketch& s) {
      s.train(transpose(s.b, "transpose", s.operand(shape), axes));
    });
  }
  add_both(cases, "flatten", [](Sketch& s) { s.train(flatten(s.b, "flat", s.operand({2, 3, 5, 17}))); });
  for (const auto& [rows, width, shape] : {std::tuple<int64_t, int64_t, Shape>{1, 1, {1}},
                                           {50, 17, {6, 9}},
                                           {7, 130, {40}},
                                           {4, 1, {3, 5, 7}},
                                           {300, 3, {7, 130}},
                                           {2, 5, {600}}}) {
    cases.push_back({"embedding of " + std::to_string(rows) + " by " + std::to_string(width),
                     [rows = rows, width = width, shape = shape](Sketch& s) {
                       s.train(embedding(s.b, "table", s.indices(shape, rows), rows, width));
                     }});
  }
  for (const auto& [rows, width, shape] : {std::tuple<int64_t, int64_t, Shape>{1, 8, {1}},
                                           {50, 24, {6, 9}},
                                           {5000, 8, {40}},
                                           {300, 136, {7, 130}},
                                           {2, 8, {600}},
                                           {1000, 16, {5, 300}}}) {
    cases.push_back({"embedding of " + std::to_string(rows) + " by " + std::to_string(width) + ", by rows",
                     [rows = rows, width = width, shape = shape](Sketch& s) {
                       s.by_rows = true;
                       s.train(embedding(s.b, "table", s.indices(shape, rows), rows, width));
                     }});
  }
}

// ---- products ----

void add_products(Cases& cases) {
  struct ConvCase {
    Shape x;
    ConvOptions options;
  };
  const auto conv = [](Shape x, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t groups,
                       bool bias) {
    return ConvCase{x, {out, kernel, stride, padding, groups, bias}};
  };
  const std::vector<ConvCase> convs = {
      conv({1, 1, 1, 1}, 1, 1, 1, 0, 1, false),     conv({2, 1, 1, 17}, 5, 1, 1, 0, 1, true),
      conv({1, 7, 5, 3}, 16, 3, 1, 1, 1, true),     conv({3, 9, 9, 3}, 17, 3, 2, 1, 1, false),
      conv({2, 8, 7, 16}, 32, 1, 2, 0, 1, false),   conv({2, 11, 10, 4}, 6, 2, 3, 0, 1, true),
      conv({2, 6, 6, 17}, 17, 3, 1, 1, 17, false),  conv({2, 5, 6, 24}, 12, 3, 2, 1, 3, true),
      conv({1, 5, 5, 130}, 34, 3, 1, 1, 1, false),  conv({1, 4, 4, 34}, 130, 1, 1, 0, 1, false),
      conv({2, 12, 12, 1}, 6, 5, 1, 2, 1, true),    conv({1, 3, 3, 8}, 4, 7, 1, 3, 1, false),
      conv({4, 1, 9, 5}, 3, 3, 1, 1, 1, true),      conv({2, 9, 9, 32}, 32, 3, 2, 1, 32, true),
      conv({3, 6, 6, 16}, 16, 3, 1, 1, 1, false),   conv({1, 19, 5, 58}, 58, 3, 1, 1, 58, true),
      conv({3, 8, 7, 58}, 58, 3, 2, 1, 58, false),  conv({3, 10, 9, 72}, 72, 3, 1, 1, 72, false),
      conv({1, 1, 1, 8}, 8, 3, 2, 1, 8, false),     conv({2, 7, 6, 24}, 24, 5, 1, 2, 24, true),
      conv({1, 18, 3, 6}, 6, 5, 2, 2, 6, false),    conv({1, 8, 9, 10}, 10, 7, 3, 2, 10, false),
      conv({2, 5, 4, 12}, 12, 3, 1, 0, 12, true),   conv({2, 9, 8, 16}, 32, 3, 2, 1, 1, false),
      conv({2, 5, 6, 48}, 64, 3, 1, 1, 1, false),   conv({3, 7, 6, 8}, 16, 3, 1, 1, 1, false),
      conv({5, 6, 6, 64}, 128, 1, 1, 0, 1, false),  conv({1, 7, 9, 32}, 136, 5, 3, 2, 1, false),
      conv({1, 13, 15, 58}, 58, 1, 1, 0, 1, false), conv({1, 7, 5, 58}, 116, 1, 1, 0, 1, false),
      conv({2, 9, 8, 24}, 58, 1, 1, 0, 1, false),   conv({1, 6, 7, 116}, 116, 1, 1, 0, 1, false),
      conv({3, 13, 11, 4}, 12, 3, 1, 1, 1, false),  conv({2, 9, 7, 72}, 12, 3, 2, 1, 1, false),
  };
  for (const ConvCase& one : convs) {
    const ConvOptions& o = one.options;
    const std::string name = named("conv2d", one.x) + " to " + std::to_string(o.out) + " kernel " +
                             std::to_string(o.kernel) + " stride " + std::to_string(o.stride) + " groups " +
                             std::to_string(o.groups);
    cases.push_back({name, [=](Sketch& s) { s.train(conv2d(s.b, "conv", s.operand(one.x), o)); }});
  }
  // Formats follow from names: by this one the mixture with infinities has codes that convolutions
  // read as they lie.
  cases.push_back({"conv2d of codes", [](Sketch& s) {
                     s.train(conv2d(s.b, "conv39", s.operand({2, 9, 8, 16}), {32, 3, 2, 1, 1, false}));
                   }});
  for (const auto& [shape, out, bias] : {std::tuple<Shape, int64_t, bool>{{1, 1}, 1, false},
                                         {{5, 17}, 3, true},
                                         {{1, 130}, 10, true},
                                         {{33, 64}, 130, false},
                                         {{2, 3, 7}, 5, true},
                                         {{2, 3, 5, 9}, 4, false}}) {
    cases.push_back({named("linear", shape) + " to " + std::to_string(out),
                     [shape = shape, out = out, bias = bias](Sketch& s) {
                       s.train(linear(s.b, "linear", s.operand(shape), {out, bias}));
                     }});
  }
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [lead, m, k, n] :
           {std::tuple<std::vector<int64_t>, int64_t, int64_t, int64_t>{{}, 1, 1, 1},
            {{}, 5, 17, 3},
            {{}, 33, 7, 130},
            {{3}, 17, 1, 5},
            {{2, 3}, 4, 19, 7}}) {
        cases.push_back(
            {"matmul " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                 (ta ? " ta" : "") + (tb ? " tb" : ""),
             [=, lead = lead, m = m, k = k, n = n](Sketch& s) {
               const auto matrix = [&](int64_t rows, int64_t columns, bool exchanged) {
                 std::vector<int64_t> extents = lead;
                 extents.insert(extents.end(), {exchanged ? columns : rows, exchanged ? rows : columns});
                 return s.operand(Shape(std::span<const int64_t>(extents)));
               };
               const TensorId a = matrix(m, k, ta), b = matrix(k, n, tb);
               s.train(matmul(s.b, "matmul", a, b, ta, tb));
             }});
      }
    }
  }
}

// Two vectors, more than a block of them, wider than a block.
void add_interactions(Cases& cases) {
  for (const Shape& shape : {Shape{1, 2, 1}, {3, 27, 16}, {2, 3, 130}, {2, 35, 3}, {5, 33, 65}, {40, 5, 7}}) {
    cases.push_back({named("dot_interaction", shape),
                     [=](Sketch& s) { s.train(dot_interaction(s.b, "pairs", s.operand(shape))); }});
  }
}

// ---- pooling ----

void add_pooling(Cases& cases) {
  for (const Shape& shape : kImageShapes) {
    for (const PoolOptions& o :
         {PoolOptions{1, 1, 0}, {2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 1}, {5, 4, 2}}) {
      if (shape.h() + 2 * o.padding < o.kernel || shape.w() + 2 * o.padding < o.kernel) continue;
      const std::string window =
          " kernel " + std::to_string(o.kernel) + " stride " + std::to_string(o.stride);
      add_both(cases, named("max_pool", shape) + window,
               [=](Sketch& s) { s.train(max_pool(s.b, "pool", s.operand(shape), o)); });
      add_both(cases, named("avg_pool", shape) + window,
               [=](Sketch& s) { s.train(avg_pool(s.b, "pool", s.operand(shape), o)); });
    }
    add_both(cases, named("global_average", shape),
             [=](Sketch& s) { s.train(global_average(s.b, "pool", s.operand(shape))); });
  }
  // One window, the whole image.
  add_both(cases, "avg_pool of images", [](Sketch& s) {
    s.train(avg_pool(s.b, "pool", s.operand({3, 4, 4, 24}), PoolOptions{.kernel = 4, .stride = 4}));
  });
  add_both(cases, "global_average of groups", [](Sketch& s) {
    s.train(global_average(s.b, "pool", s.operand({3, 5, 7, 16})));
  });
}

// ---- softmax, losses, layer norm ----

void add_rows(Cases& cases) {
  for (const Shape& shape : kRowShapes) {
    cases.push_back(
        {named("layer_norm", shape), [=](Sketch& s) { s.train(layer_norm(s.b, "norm", s.operand(shape))); }});
    cases.push_back(
        {named("softmax", shape), [=](Sketch& s) { s.train(softmax(s.b, "softmax", s.operand(shape))); }});
    cases.push_back({named("log_softmax", shape),
                     [=](Sketch& s) { s.train(log_softmax(s.b, "softmax", s.operand(shape))); }});
    cases.push_back({named("bce_with_logits", shape), [=](Sketch& s) {
                       const TensorId x = s.operand(shape);
                       s.train_loss(bce_with_logits(s.b, "bce", x, s.target(shape)));
                     }});
    if (shape.rank() != 2) continue;
    for (const double smoothing : {0.0, 0.1}) {
      // Small scores, and such that a class far below the best one has a probability of 0.
      for (const float scale : {1.0f, 300.0f}) {
        const std::string with = smoothing == 0 ? "" : " smoothed";
        cases.push_back(
            {named("cross_entropy", shape) + with + (scale > 1 ? " of large scores" : ""), [=](Sketch& s) {
               s.scale = scale;
               const TensorId x = s.operand(shape), labels = s.indices({shape[0]}, shape[1]);
               const TensorId loss = cross_entropy(s.b, "loss", x, labels, smoothing);
               classify(s.b, "classify", x, labels, loss);
               s.train_loss(loss);
             }});
        cases.push_back({named("nll", shape) + with + (scale > 1 ? " of large scores" : ""), [=](Sketch& s) {
                           s.scale = scale;
                           const TensorId x = s.operand(shape), labels = s.indices({shape[0]}, shape[1]);
                           s.train_loss(nll(s.b, "loss", log_softmax(s.b, "softmax", x), labels, smoothing));
                         }});
      }
    }
  }
  // Scores beside which the logarithm of their number is nothing. Each stands there twice, so that
  // no row has a class of probability 1.
  for (const double smoothing : {0.0, 0.1}) {
    cases.push_back(
        {smoothing == 0 ? "softmax of huge scores" : "softmax of huge scores smoothed", [=](Sketch& s) {
           s.scale = 1e30f;
           const TensorId x = s.operand({9, 10}), labels = s.indices({9}, 20);
           const TensorId scores = concat(s.b, "twice", {x, x});
           softmax(s.b, "softmax", scores);
           log_softmax(s.b, "log_softmax", scores);
           s.train_loss(cross_entropy(s.b, "loss", scores, labels, smoothing));
         }});
  }
}

// ---- data that comes in, and what is summed of a loss ----

void add_sources(Cases& cases) {
  for (const Shape& shape : kRowShapes) {
    cases.push_back({named("loss_sum", shape), [=](Sketch& s) {
                       const TensorId x = s.operand(shape);
                       loss_sum(s.b, "sum", x);
                       loss_sum(s.b, "weighted", x, s.target(shape));
                     }});
  }
  for (const Shape& shape : kRowShapes) {
    cases.push_back({named("from_bytes", shape), [=](Sketch& s) {
                       from_bytes(s.b, "numbers", bytes(s.b, "bytes", shape), 127.5f, 0x1p-6f);
                     }});
  }
  struct Images {
    int64_t examples, rows, height, width, channels;
    int padding;
    bool mirror;
  };
  // Groups of eight elements within an example, and across examples.
  for (const Images& of : {Images{3, 5, 8, 8, 3, 0, false},
                           {5, 4, 7, 5, 1, 2, true},
                           {2, 9, 6, 4, 4, 3, false},
                           {9, 3, 1, 3, 2, 1, true}}) {
    cases.push_back(
        {fmt::format("image_batch of {} {}x{}x{}", of.examples, of.height, of.width, of.channels),
         [=](Sketch& s) {
           ImageBatchOptions options{
               of.rows, of.height, of.width, of.channels, Augment{0x123456789ABCDEFu, of.padding, of.mirror},
               {}};
           for (size_t c = 0; c < options.normalise.size(); ++c)
             options.normalise[c] = make_normalise(0.4f + 0.1f * static_cast<float>(c), 0.25f);
           image_batch(s.b, "images", s.indices({of.examples}, of.rows), options);
         }});
  }
  for (const std::vector<int64_t>& row : {std::vector<int64_t>{}, {1}, {7}, {3, 5}}) {
    cases.push_back({fmt::format("take rows of {} axes", row.size()), [=](Sketch& s) {
                       take(s.b, "rows", s.indices({6}, 4), 4, row);
                       take_target(s.b, "targets", s.indices({6}, 4), 4, row);
                     }});
  }
}

}  // namespace

void add_both(Cases& cases, const std::string& name, const Build& build) {
  cases.push_back({name, build});
  cases.push_back({name + " specials", [=](Sketch& s) {
                     s.specials = true;
                     build(s);
                   }});
}

std::string Sketch::fresh(std::string_view what) { return std::string(what) + std::to_string(names_++); }

TensorId Sketch::input(const Shape& shape) { return ulp::input(b, fresh("input"), shape); }

TensorId Sketch::operand(const Shape& shape) {
  const std::string name = fresh("operand");
  const TensorId x = ulp::input(b, name + ".input", shape);
  return add(b, name, x, b.weight(name + ".weight", shape, Init::constant(0)));
}

TensorId Sketch::target(const Shape& shape) { return ulp::target(b, fresh("target"), shape); }

TensorId Sketch::indices(const Shape& shape, int64_t limit) {
  const TensorId id = ulp::indices(b, fresh("indices"), shape);
  below[id.index] = limit;
  return id;
}

void Sketch::train(TensorId y, int micro_batches) {
  const Shape shape = b.shape(y);
  train_loss(mse(b, "distance", y, target(shape)), micro_batches);
}

void Sketch::train_loss(TensorId loss, int micro_batches) {
  differentiate(graph, loss,
                {.micro_batches = micro_batches, .by_rows = [&](TensorId, int64_t) { return by_rows; }});
}

const std::vector<Case>& cases() {
  static const Cases all = [] {
    Cases made;
    for (const auto add : {add_elementwise, add_moves, add_products, add_interactions, add_pooling, add_rows,
                           add_sources, add_steps})
      add(made);
    for (Case& one : made) {
      Sketch sketch;
      one.build(sketch);
      size_t elements = 0;
      for (const TensorInfo& tensor : sketch.graph.tensors()) elements += tensor.elements();
      one.large = elements > kLarge;
    }
    return made;
  }();
  return all;
}

}  // namespace ulp::conformance
