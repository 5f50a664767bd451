// The reference in narrow formats: what is decoded, what is encoded, what is moved, what is added
// up.
#include <cstring>
#include <numeric>

#include "tests/support/numeric_gradient.h"
#include "ulp/backend/elementwise.h"
#include "ulp/numeric/codec.h"

namespace ulp::ref {
namespace {

using Values = std::vector<float>;

TensorFormat stored(const char* name) { return {parse_storage(name), {}}; }

// All tensors in one storage.
std::vector<TensorFormat> all_in(const Graph& graph, const char* name) {
  return std::vector<TensorFormat>(graph.tensor_count(), stored(name));
}

std::vector<uint8_t> codes_of(const NodeRunner& runner, TensorId id) {
  const auto bytes = runner.bytes(id);
  return {bytes.begin(), bytes.end()};
}

TEST(Format, OperatorsReadAndWriteCodes) {
  for (const char* name : {"fp32", "bf16", "fp(4,3,4)", "fp(5,4,0)", "s2fp8", "scaled(e4m3)"}) {
    Trial t;
    const TensorId x = t.input("x", {7, 5}), y = t.input("y", {7, 5});
    const TensorId z = multiply(t.b, "z", x, y);
    NodeRunner& runner = t.start(all_in(t.graph, name));
    runner.run();
    const Values a = runner.get(x), b = runner.get(y);
    Values expected(35);
    for (size_t i = 0; i < 35; ++i) expected[i] = a[i] * b[i];
    const std::vector<uint8_t> codes = codes_of(runner, z);
    runner.set(z, expected);  // to nearest-even
    EXPECT_EQ(codes, codes_of(runner, z)) << name;
    // fp32 is written in place.
    EXPECT_EQ(runner.stats(z).amax > 0, std::string(name) != "fp32") << name;
  }
}

// Moved codes are the same codes: also a NaN's, and in s2fp8 the statistics beside them. Twice the
// inverse is nothing.
TEST(Format, MovesKeepEveryBit) {
  for (const char* name :
       {"fp32", "fp16", "e4m3", "fp(3,2,0)", "fp(4,2,0)", "fp(5,6,0)", "s2fp8", "scaled(e4m3)"}) {
    for (const bool shuffles : {true, false}) {
      Trial t;
      const Shape shape{3, 2, 6};
      const TensorId x = t.input("x", shape);
      const TensorId y =
          shuffles ? channel_shuffle(t.b, "there", x, 2) : transpose(t.b, "there", x, {2, 0, 1});
      const TensorId z = shuffles ? channel_shuffle(t.b, "back", y, 3) : transpose(t.b, "back", y, {1, 2, 0});
      Values values = t.random(36);
      values[7] = std::numeric_limits<float>::quiet_NaN();
      values[8] = 0x1p-30f;
      values[9] = -0.0f;
      t.feed(x, values);
      NodeRunner& runner = t.start(all_in(t.graph, name));
      runner.run();
      const Values from = runner.get(x), moved = runner.get(y);
      for (size_t i = 0; i < 36; ++i) {
        // Element (i0, i1, i2) of x.
        const size_t i0 = i / 12, i1 = i / 6 % 2, i2 = i % 6;
        const size_t at = shuffles ? i0 * 12 + i1 * 6 + i2 % 3 * 2 + i2 / 3 : (i2 * 3 + i0) * 2 + i1;
        ASSERT_EQ(float_bits(moved[at]), float_bits(from[i])) << name << " " << shuffles << " " << i;
      }
      EXPECT_EQ(codes_of(runner, z), codes_of(runner, x)) << name << " " << shuffles;
    }
  }
}

TEST(Move, ChannelShuffleOfTwoGroups) {
  Trial t;
  const TensorId x = t.input("x", {1, 6}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(t.run(channel_shuffle(t.b, "op", x, 2)), (Values{0, 3, 1, 4, 2, 5}));
}

// A sum is fp32 whatever the gradient's format, and is rounded once.
TEST(Format, SumsOfGradientsAreRoundedOnce) {
  Trial t;
  const TensorId w = t.weight("w", {1, 4});
  const TensorId a = t.input("a", {1, 4}, {1, 1, 1, 1}),
                 c = t.input("c", {1, 4}, {0x1p-5f, 0x1p-6f, 3, 0x1p-9f});
  TensorId y = add(t.b, "y", multiply(t.b, "wa", w, a), multiply(t.b, "wc", w, c));
  y = add(t.b, "z", y, multiply(t.b, "wd", w, c));
  differentiate(t.graph, t.distance(y));
  std::vector<TensorFormat> formats(t.graph.tensor_count(), stored("fp32"));
  formats[static_cast<size_t>(t.graph.find("w.grad").index)] = stored("fp(5,4,0)");
  NodeRunner& runner = t.start(formats);
  runner.run();
  const Values grad = runner.get(t.graph.find("z.out.grad")), sum = runner.get(t.graph.find("w.grad.sum"));
  Values rounded(4);
  const Values parts[] = {runner.get(c), runner.get(c), runner.get(a)};  // readers in reverse
  for (size_t i = 0; i < 4; ++i) {
    float expected = 0;
    for (size_t k = 0; k < 3; ++k) {
      expected = k == 0 ? grad[i] * parts[k][i] : expected + grad[i] * parts[k][i];
    }
    EXPECT_EQ(sum[i], expected) << i;
  }
  const std::vector<uint8_t> codes = codes_of(runner, t.graph.find("w.grad"));
  runner.set(t.graph.find("w.grad"), sum);
  EXPECT_EQ(codes, codes_of(runner, t.graph.find("w.grad")));
}

// What operators read of a weight is its operand, rounded from what is stored.
TEST(Format, WeightsAreReadAsOperands) {
  Trial t;
  const TensorId x = t.input("x", {1, 3}, {1, 1, 1});
  const TensorId y = multiply(t.b, "y", x, t.weight("w", {1, 3}));
  t.set("w", {1.03125f, 1.3f, -0.7f});
  std::vector<TensorFormat> formats(t.graph.tensor_count(), stored("fp32"));
  formats[static_cast<size_t>(t.graph.find("w").index)] = {parse_storage("fp32"), parse_storage("fp(4,3,0)")};
  NodeRunner& runner = t.start(formats);
  runner.run();
  EXPECT_EQ(runner.get(y), (Values{1, 1.25f, -0.6875f}));
  EXPECT_EQ(runner.get(t.graph.find("w")), (Values{1.03125f, 1.3f, -0.7f}));
}

// Infinities are kept in formats that have them, other formats saturate; both count. NaN comes of
// infinities alone.
TEST(Format, OverflowBecomesInfinityWhereThereIsOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Values values = {1e6f, -1e6f, 1};
  for (const auto& [name, over] : std::vector<std::pair<const char*, float>>{{"fp16", kInfinity},
                                                                             {"e5m2", kInfinity},
                                                                             {"bf16+8", 1e6f},
                                                                             {"scaled(e5m2)", 1e6f},
                                                                             {"e4m3", 448},
                                                                             {"fp(4,3,4)", 30},
                                                                             {"s2fp8", 1e6f}}) {
    Trial t;
    const TensorId x = t.input("x", {3}), by = t.input("by", {3});
    const TensorId sum = add(t.b, "sum", x, t.weight("w", {3})), zero = multiply(t.b, "zero", sum, by);
    NodeRunner runner(t.graph, all_in(t.graph, name), reference_backend(), {},
                      {.overflow = Overflow::infinity});
    const Values factors = {0, 0, 1};
    runner.feed(x, values.data());
    runner.feed(by, factors.data());
    runner.set(t.graph.find("w"), Values(3));
    runner.run();
    const Values out = runner.get(sum), times = runner.get(zero);
    const bool overflows = over != 1e6f;
    EXPECT_TRUE(!overflows || out == (Values{over, -over, 1})) << name;
    EXPECT_EQ(runner.stats(x).overflow, overflows ? 2u : 0u) << name;
    EXPECT_EQ(std::isnan(times[0]), std::isinf(over)) << name;
    EXPECT_EQ(runner.stats(zero).nan, std::isinf(over) ? 2u : 0u) << name;
  }
}

// Stochastic rounding draws the words of the output's number; the reference adds nothing of its
// own.
TEST(Format, StochasticRoundingFollowsTheKey) {
  Trial t;
  const TensorId x = t.input("x", {4096}, Values(4096, 1.0f + 0x1p-6f));
  const TensorId y = relu(t.b, "y", x);
  t.start();
  std::vector<TensorFormat> formats(t.graph.tensor_count(), stored("fp32"));
  formats[static_cast<size_t>(y.index)] = stored("fp(4,3,0)");
  NodeRunner runner(t.graph, formats, reference_backend(), {}, {.round = Round::stochastic});
  const Values values(4096, 1.0f + 0x1p-6f);
  runner.feed(x, values.data());
  runner.state.seed = 9;
  runner.state.step = 4;
  runner.run();
  const Values out = runner.get(y);
  for (uint64_t i = 0; i < 4096; ++i) {
    const bool up = random_word({9, 4, t.graph[y].number, 0}, i) < 0x20000000u;  // an eighth
    ASSERT_EQ(out[i], up ? 1.125f : 1.0f) << i;
  }
}

}  // namespace
}  // namespace ulp::ref
