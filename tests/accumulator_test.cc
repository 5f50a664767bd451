// Narrow accumulators: the reference against loops of this file, closed forms, and the CPU's
// kernels bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/harness.h"
#include "tests/support/node_runner.h"
#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/cpu/narrow_loops.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/builder.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

using Values = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<std::string> kFormats = {"fp16", "bf16",      "e5m2", "e4m3", "fp(6,9,0)",
                                           "tf32", "fp(4,3,4)", "e8m1", "fp32"};

constexpr std::array<float, 6> kSpecials = {kNan, -kNan, kInfinity, -kInfinity, 0.0f, -0.0f};

struct Sums {
  FloatFormat format;
  Overflow overflow = Overflow::saturate;
};

// One term more, with arithmetic in double: sums and products of two fp32 numbers are rounded to
// fp32 as if only once.
float plus(const Sums& sums, float sum, float a, float b) {
  const auto product = static_cast<float>(static_cast<double>(a) * b);
  const auto wide = static_cast<float>(static_cast<double>(sum) + product);
  const Values in = {std::isnan(wide) ? kNan : wide};
  Values out(1);
  std::vector<uint8_t> codes(4);
  encode(sums.format, {Round::nearest_even, sums.format.has_inf() ? sums.overflow : Overflow::saturate, {}},
         in, codes);
  decode(sums.format, codes, out);
  return out[0];
}

// A convolution, or a linear layer: that is one of a single pixel.
struct Layer {
  int64_t n, h, w, c;
  ConvOptions options;
  bool linear = false;
  float scale = 1;        // of all numbers
  bool specials = false;  // among them: NaN, infinities, zeros
};

struct Numbers {
  Values x, weight, bias, out, dout, dx, dweight;
};

// A layer between numbers and a loss, as a graph.
class Trained {
 public:
  explicit Trained(const Layer& layer) : layer_(layer) {
    Builder b(graph_, Mode::training);
    const Shape shape =
        layer.linear ? Shape{layer.n, layer.c} : Shape::image(layer.n, layer.c, layer.h, layer.w);
    const ConvOptions& o = layer.options;
    zero_ = input(b, "zero", shape);
    x_ = add(b, "x", zero_, b.weight("x.weight", shape, Init::constant(0)));
    out_ = layer.linear ? linear(b, "layer", x_, {.out = o.out, .bias = o.bias}) : conv2d(b, "layer", x_, o);
    target_ = target(b, "target", b.shape(out_));
    differentiate(graph_, mse(b, "loss", out_, target_));
  }

  Numbers run(const Backend& backend, const Sums& sums, const KernelChoice& choice = {}) const {
    NodeRunner runner(graph_, {}, backend, choice, {.overflow = sums.overflow, .accumulator = sums.format});
    std::mt19937 random(20261115);
    const auto some = [&](TensorId id) {
      Values values(graph_[id].elements());
      std::uniform_real_distribution<float> any(-1, 1);
      for (float& value : values) {
        value = any(random) * layer_.scale;
        const auto word = static_cast<uint32_t>(random());
        if (layer_.specials && word % 64 < kSpecials.size()) value = kSpecials[word % 64];
      }
      return values;
    };
    const TensorId weight = graph_.find("layer.weight"), bias = graph_.find("layer.bias");
    const Values zero(graph_[zero_].elements()), goal = some(target_);
    runner.feed(zero_, zero.data());
    runner.feed(target_, goal.data());
    runner.set(graph_.find("x.weight"), some(x_));
    runner.set(weight, some(weight));
    if (bias) runner.set(bias, some(bias));
    runner.state.loss_scale = 100;
    runner.run();
    return {runner.get(x_),
            runner.get(weight),
            bias ? runner.get(bias) : Values{},
            runner.get(out_),
            runner.get(graph_[out_].grad),
            runner.get(graph_[x_].grad),
            runner.get(graph_[weight].grad)};
  }

  // The same from the operands, every product met once: its place among the terms of all three sums
  // is the reference's.
  Numbers expected(const Sums& sums, const Numbers& given) const {
    const ConvOptions& o = layer_.options;
    const Shape shape = graph_[out_].shape;
    const int64_t oh = layer_.linear ? 1 : shape.h(), ow = layer_.linear ? 1 : shape.w();
    const int64_t ic = layer_.c / o.groups, group_out = o.out / o.groups;
    Numbers r = given;
    for (Values* made : {&r.out, &r.dx, &r.dweight}) made->assign(made->size(), 0);
    const auto add_to = [&](float& sum, float a, float b) { sum = plus(sums, sum, a, b); };
    for (int64_t ky = 0; ky < o.kernel; ++ky)
      for (int64_t kx = 0; kx < o.kernel; ++kx)
        for (int64_t b = 0; b < layer_.n; ++b)
          for (int64_t oy = 0; oy < oh; ++oy)
            for (int64_t ox = 0; ox < ow; ++ox) {
              const int64_t y = oy * o.stride + ky - o.padding, x = ox * o.stride + kx - o.padding;
              if (y < 0 || y >= layer_.h || x < 0 || x >= layer_.w) continue;
              for (int64_t out = 0; out < o.out; ++out)
                for (int64_t i = 0; i < ic; ++i) {
                  const auto to = static_cast<size_t>(((b * oh + oy) * ow + ox) * o.out + out);
                  const auto from = static_cast<size_t>(((b * layer_.h + y) * layer_.w + x) * layer_.c +
                                                        out / group_out * ic + i);
                  const auto tap = static_cast<size_t>(((out * o.kernel + ky) * o.kernel + kx) * ic + i);
                  add_to(r.out[to], r.x[from], r.weight[tap]);
                  add_to(r.dx[from], r.dout[to], r.weight[tap]);
                  add_to(r.dweight[tap], r.x[from], r.dout[to]);
                }
            }
    for (size_t i = 0; i < r.out.size() && o.bias; ++i) {
      add_to(r.out[i], r.bias[i % static_cast<size_t>(o.out)], 1);
    }
    return r;
  }

  const Graph& graph() const { return graph_; }

 private:
  Layer layer_;
  Graph graph_;
  TensorId zero_, x_, out_, target_;
};

void expect_same(const Values& expected, const Values& values, const std::string& what) {
  ASSERT_EQ(expected.size(), values.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(values[i]))
        << what << ", element " << i << ": " << expected[i] << " and " << values[i];
  }
}

void expect_same(const Numbers& expected, const Numbers& made, const std::string& what) {
  expect_same(expected.out, made.out, what + ": out");
  expect_same(expected.dx, made.dx, what + ": gradient of the input");
  expect_same(expected.dweight, made.dweight, what + ": gradient of the weight");
}

std::string text(const Layer& l) {
  return fmt::format("{}x{}x{}x{}, {} of {}, stride {}, padding {}, {} groups, scale {}", l.n, l.h, l.w, l.c,
                     l.options.out, l.options.kernel, l.options.stride, l.options.padding, l.options.groups,
                     l.scale);
}

const std::vector<Layer> kLayers = {
    {2, 5, 6, 3, {.out = 5, .kernel = 3, .stride = 1, .padding = 1}},
    {2, 7, 6, 4, {.out = 6, .kernel = 3, .stride = 2, .padding = 1, .bias = true}},
    {1, 6, 5, 6, {.out = 4, .kernel = 2, .stride = 1, .padding = 0, .groups = 2, .bias = true}},
    {2, 5, 5, 4, {.out = 4, .kernel = 3, .stride = 1, .padding = 2, .groups = 4}},
    {3, 4, 4, 17, {.out = 3, .kernel = 1, .stride = 2}},
    {2, 5, 4, 3, {.out = 19, .kernel = 5, .stride = 3, .padding = 3}},
    {9, 1, 1, 37, {.out = 21, .bias = true}, true},
    {5, 1, 1, 3, {.out = 1}, true},
    // Past the largest number of most of the formats.
    {2, 5, 6, 3, {.out = 5, .kernel = 3, .stride = 1, .padding = 1, .bias = true}, false, 300},
    {40, 1, 1, 37, {.out = 5, .bias = true}, true, 1e19f},
    // Below the smallest of some.
    {2, 5, 6, 3, {.out = 5, .kernel = 3, .stride = 2, .padding = 1}, false, 0x1p-11f},
    {7, 1, 1, 30, {.out = 8, .bias = true}, true, 1e-21f},
};

TEST(Accumulator, TheReferenceRoundsEverySum) {
  for (const Layer& layer : kLayers) {
    const Trained net(layer);
    for (const std::string& format : kFormats) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
        const Sums sums{parse_format(format), overflow};
        const Numbers made = net.run(reference_backend(), sums);
        expect_same(net.expected(sums, made), made, text(layer) + " in " + format);
      }
    }
  }
}

TEST(Accumulator, MatrixProductsAreSumsOfTheirInnerAxis) {
  constexpr int64_t kBatch = 2, kM = 5, kN = 18, kK = 7;
  std::mt19937 random(5);
  Values a(kBatch * kM * kK), b(kBatch * kK * kN);
  for (Values* values : {&a, &b}) {
    for (float& value : *values) value = std::uniform_real_distribution<float>(-4, 4)(random);
  }
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Graph graph;
      Builder builder(graph, Mode::training);
      const TensorId x = input(builder, "x", ta ? Shape{kBatch, kK, kM} : Shape{kBatch, kM, kK}),
                     y = input(builder, "y", tb ? Shape{kBatch, kN, kK} : Shape{kBatch, kK, kN}),
                     out = matmul(builder, "product", x, y, ta, tb);
      const Sums sums{parse_format("e5m2"), Overflow::infinity};
      Values expected;
      for (int64_t i = 0; i < kBatch * kM * kN; ++i) {
        const int64_t matrix = i / kN / kM, row = i / kN % kM, column = i % kN;
        float sum = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const int64_t at = ta ? k * kM + row : row * kK + k, to = tb ? column * kK + k : k * kN + column;
          sum = plus(sums, sum, a[static_cast<size_t>(matrix * kM * kK + at)],
                     b[static_cast<size_t>(matrix * kK * kN + to)]);
        }
        expected.push_back(sum);
      }
      for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
        NodeRunner runner(graph, {}, *backend, {}, {.overflow = sums.overflow, .accumulator = sums.format});
        runner.feed(x, a.data());
        runner.feed(y, b.data());
        runner.run();
        expect_same(expected, runner.get(out), fmt::format("{} {} {}", backend->name, ta, tb));
      }
    }
  }
}

// One row through a linear layer with one output.
float dot(const std::string& format, Overflow overflow, const Values& a, const Values& b, float bias = 0) {
  Graph graph;
  Builder builder(graph, Mode::training);
  const auto n = static_cast<int64_t>(a.size());
  const TensorId x = input(builder, "x", {1, n}), out = linear(builder, "layer", x, {.out = 1});
  float first = 0;
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    NodeRunner runner(graph, {}, *backend, {}, {.overflow = overflow, .accumulator = parse_format(format)});
    runner.feed(x, a.data());
    runner.set(graph.find("layer.weight"), b);
    runner.set(graph.find("layer.bias"), Values{bias});
    runner.run();
    const float result = runner.get(out)[0];
    if (backend == &reference_backend()) first = result;
    EXPECT_TRUE(result == first || (std::isnan(result) && std::isnan(first)))
        << format << ": " << first << " and " << result << " on " << backend->name;
  }
  return first;
}

// Ones stop counting at 2^(m + 1): the next is half the spacing there, and the tie goes back to the
// even sum.
TEST(Accumulator, OnesStopCounting) {
  const Values ones(4096, 1);
  for (const auto& [format, sum] : std::vector<std::pair<std::string, float>>{{"fp16", 2048},
                                                                              {"bf16", 256},
                                                                              {"fp(6,9,0)", 1024},
                                                                              {"e5m2", 8},
                                                                              {"e4m3", 16},
                                                                              {"tf32", 2048},
                                                                              {"fp32", 4096}}) {
    EXPECT_EQ(dot(format, Overflow::saturate, ones, ones), sum) << format;
    // The bias is one more term.
    EXPECT_EQ(dot(format, Overflow::saturate, ones, ones, 1), format == "fp32" ? 4097 : sum) << format;
  }
}

TEST(Accumulator, SumsOverflowAsTheyGo) {
  const Values terms = {60000, 60000, -60000}, ones(3, 1);
  EXPECT_EQ(dot("fp16", Overflow::saturate, terms, ones), 65504 - 60000 + 0.0f);
  EXPECT_EQ(dot("fp16", Overflow::infinity, terms, ones), kInfinity);
  EXPECT_TRUE(std::isnan(dot("fp16", Overflow::infinity, {60000, 60000, -kInfinity}, ones)));
  EXPECT_EQ(dot("bf16", Overflow::infinity, {1, 2, -3.3e38f}, {1, 1, 2}), -kInfinity);
  // No infinity to keep.
  EXPECT_EQ(dot("e4m3", Overflow::infinity, {400, 400, -64}, ones), 384);
  EXPECT_EQ(dot("fp(6,9,0)", Overflow::infinity, {1e30f, 1, 1}, ones), largest(parse_format("fp(6,9,0)")));
  // Nor a NaN.
  EXPECT_EQ(dot("fp(6,9,0)", Overflow::saturate, {-kNan, 0, 0}, ones), largest(parse_format("fp(6,9,0)")));
}

// ---- the CPU's kernels ----

// Everything as it was found.
class OnUnits : public testing::Test {
 protected:
  void TearDown() override {
    use_simd("auto");
    set_thread_count(threads_);
  }
  static std::vector<std::string> units() {
    std::vector<std::string> names = simd_names();
    names.pop_back();  // the scalar codec
    return names;
  }
  int threads_ = thread_count();
};

using AccumulatorTest = OnUnits;

// Numbers around all codes and all borders between codes, and any numbers.
Values numbers_around(const FloatFormat& format, const Values& any) {
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  Values numbers = any;
  for (uint32_t code = 0; code <= format.max_code(); ++code) {
    const float low = bits_float(decode_scalar(spec, code));
    const float high = code < format.max_code() ? bits_float(decode_scalar(spec, code + 1)) : 2 * low;
    for (const float centre : {low, low + (high - low) / 2}) {
      for (const uint32_t by : {0u, 1u, 2u, 0u - 1u, 0u - 2u}) {
        const float near = bits_float(float_bits(centre) + by);
        numbers.push_back(settle_nan(near));
        numbers.push_back(settle_nan(-near));
      }
    }
  }
  return numbers;
}

// To -0 any number may be added and stays what it is: so this is what rounding alone does.
Values rounded_by_lanes(const narrow::SumRule& rule, const Values& numbers) {
  Values sums(numbers.size(), -0.0f);
  const float one = 1;
  narrow::add_terms(rule, {sums.data(), 1, sums.size(), 1, 0, &one, 0, 0, numbers.data(), 0});
  return sums;
}

TEST_F(AccumulatorTest, LanesRoundLikeTheCodec) {
  std::mt19937 random(7);
  Values any(200000);
  for (float& value : any) value = settle_nan(bits_float(static_cast<uint32_t>(random())));
  std::vector<FloatFormat> formats;
  for (const Preset& preset : presets()) {
    if (preset.format.bits() <= 16) formats.push_back(preset.format);
  }
  for (int exp = 2; exp <= 8; ++exp) {
    for (int man = 0; man <= 15 - exp; ++man) {
      for (const Specials specials : {Specials::none, Specials::ieee, Specials::fn}) {
        for (const int bias : {-100, 0, 3, 120}) {
          try {
            formats.push_back(make_format(exp, man, bias, specials));
          } catch (const Error&) {  // there is none
          }
        }
      }
    }
  }
  size_t tried = 0;
  for (const FloatFormat& format : formats) {
    // Those of fewer bits are small: only they get all the rest.
    const Values numbers = numbers_around(format, tried % 16 == 0 || format.bits() < 10 ? any : Values{});
    for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
      if (overflow == Overflow::infinity && !format.has_inf()) continue;
      const std::optional<narrow::SumRule> rule = narrow::sum_rule(make_spec(format, overflow));
      if (!rule) continue;
      ++tried;
      std::vector<uint8_t> codes(packed_bytes(format.bits(), numbers.size()));
      Values expected(numbers.size());
      encode(format, {Round::nearest_even, overflow, {}}, numbers, codes);
      decode(format, codes, expected);
      for (const std::string& unit : units()) {
        use_simd(unit);
        expect_same(expected, rounded_by_lanes(*rule, numbers), format_name(format) + " on " + unit);
        if (HasFatalFailure()) return;
      }
      use_simd("auto");
    }
  }
  EXPECT_GT(tried, 300u);
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(narrow::sum_rule(make_spec(preset.format, Overflow::saturate))) << preset.name;
  }
}

TEST_F(AccumulatorTest, KernelsGiveTheBitsOfTheReference) {
  std::mt19937 random(11);
  const auto upto = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int i = 0; i < 80; ++i) {
    const int64_t groups = i % 4 == 0 ? upto(5) : 1, kernel = upto(4);
    Layer layer{upto(5), kernel + upto(6), kernel + upto(9), groups * upto(40 / groups), {}, i % 5 == 0};
    layer.options = {.out = groups * upto(40 / groups),
                     .kernel = kernel,
                     .stride = upto(3),
                     .padding = upto(kernel + 1) - 1,
                     .groups = groups,
                     .bias = i % 2 == 0};
    layer.scale = std::array{1.0f, 30.0f, 0x1p-9f, 1e18f}[static_cast<size_t>(i / 4 % 4)];
    layer.specials = i % 3 == 0;
    if (layer.linear) {
      layer = {upto(50),      1, 1, upto(300), {.out = upto(60), .bias = i % 2 == 0}, true, layer.scale,
               layer.specials};
    }
    const Sums sums{parse_format(kFormats[static_cast<size_t>(i) % kFormats.size()]),
                    i % 7 < 3 ? Overflow::infinity : Overflow::saturate};
    const Trained net(layer);
    const Numbers expected = net.run(reference_backend(), sums);
    for (const std::string& unit : units()) {
      use_simd(unit);
      for (const int threads : {1, 2}) {
        set_thread_count(threads);
        expect_same(
            expected, net.run(cpu_backend(), sums),
            fmt::format("{} in {} on {}, {} threads", text(layer), format_name(sums.format), unit, threads));
        if (HasFatalFailure()) return;
      }
    }
    use_simd("auto");
  }
}

// Products of narrow operands, into gradients of weights and sums of them, in the memory that was
// planned.
TEST_F(AccumulatorTest, StepsGiveTheBitsOfTheReference) {
  for (const char* model : {"resnet8", "lenet"}) {
    ModelRequest request;
    request.name = model;
    request.width = std::string_view(model) == "lenet" ? 1 : 0.25;
    request.batch = 2;
    harness::TrainingGraph made;
    made.net = build_classifier(request, Mode::training);
    harness::make_step(made, 7, 2);
    const std::array<std::string, 4> storages = {"fp16", "fp(5,4,0)", "s2fp8", "fp32"};
    const auto formats = harness::choose_formats(made.net.graph, [&](const TensorInfo& tensor) {
      return storages[tensor.number / 7 % storages.size()];
    });
    PlanOptions options = harness::cpu_plan();
    options.compute = {
        .overflow = Overflow::infinity, .workspace = size_t{1} << 16, .accumulator = parse_format("fp16")};
    set_thread_count(2);
    const harness::Trained fast = run_plan(made, formats, options, 0xFF);
    options.kernels = harness::reference_products();
    expect_same_bits(run_plan(made, formats, options, 0x55), fast, model);
  }
}

TEST(Accumulator, LibrariesDecline) {
  const Trained net(kLayers[0]);
  const std::vector<TensorFormat> formats(net.graph().tensor_count(), {parse_storage("fp32"), {}});
  PlanContext plan{net.graph(), formats};
  for (size_t i = 0; i < net.graph().node_count(); ++i) {
    const Problem problem{plan, {}, {{static_cast<int32_t>(i)}}, {}};
    for (const KernelDef& kernel : cpu_backend().kernels) {
      if (kernel.op != problem.root().op->name || kernel.name != "onednn") continue;
      plan.options.accumulator.reset();
      EXPECT_EQ(kernel.why_not(problem), "") << kernel.op;
      EXPECT_EQ(KernelChoice().pick(cpu_backend(), problem)->name, "onednn");
      plan.options.accumulator = parse_format("fp16");
      EXPECT_EQ(kernel.why_not(problem), "it accumulates in fp32") << kernel.op;
      EXPECT_EQ(KernelChoice().pick(cpu_backend(), problem)->name, "narrow");
      plan.options.accumulator = parse_format("fp(5,4,120)");  // normal numbers below fp32's
      EXPECT_EQ(KernelChoice().pick(cpu_backend(), problem)->name, "reference");
    }
  }
}

}  // namespace
}  // namespace ulp
