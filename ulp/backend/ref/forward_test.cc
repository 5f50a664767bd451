// Forward values worked out by hand, and the edges: ties, NaN, padding, large numbers, bad indices.
#include <functional>
#include <limits>

#include "tests/support/numeric_gradient.h"
#include "ulp/backend/elementwise.h"
#include "ulp/base/error.h"

namespace ulp::ref {
namespace {

using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Elementwise, EdgesOfRelu) {
  EXPECT_EQ(float_bits(elementwise::Relu::forward(-0.0f)), 0u);
  EXPECT_EQ(elementwise::Relu::forward(-kInf), 0);
  EXPECT_EQ(elementwise::Relu::forward(kInf), kInf);
  EXPECT_EQ(float_bits(elementwise::Relu::forward(bits_float(0xFFC01234u))),
            0xFFC01234u);  // passed on as it is
  EXPECT_EQ(elementwise::Relu::grad(3, 0), 0);
  EXPECT_EQ(elementwise::Relu::grad(3, kNan), 0);
  EXPECT_EQ(elementwise::Relu::grad(kNan, 0), 0);
  EXPECT_EQ(elementwise::Relu::grad(3, 0x1p-149f), 3);
  EXPECT_EQ(elementwise::Silu::forward(0), 0);
  EXPECT_EQ(elementwise::Silu::forward(200), 200);
  EXPECT_EQ(float_bits(elementwise::Silu::forward(-kInf)), kNanBits);  // infinity times 0
  EXPECT_EQ(elementwise::Silu::grad(2, 0), 1);
  EXPECT_EQ(elementwise::LeakyRelu::forward(-2, 0.5f), -1);
  EXPECT_EQ(elementwise::LeakyRelu::forward(2, 0.5f), 2);
  EXPECT_EQ(elementwise::LeakyRelu::grad(2, -1, 0.5f), 1);
  EXPECT_EQ(elementwise::LeakyRelu::grad(2, 0, 0.5f), 2);
}

// Which NaN an operation gives differs between processors; ours does not.
TEST(Elementwise, NanIsAlwaysTheSame) {
  const float nan = bits_float(0xFFC01234u);
  for (const float made :
       {elementwise::Add::forward(kInf, -kInf), elementwise::Add::forward(nan, 1),
        elementwise::Multiply::forward(1, nan), elementwise::Multiply::forward(0, kInf),
        elementwise::Tanh::forward(nan), elementwise::Sigmoid::forward(nan), elementwise::Tanh::grad(nan, 0),
        elementwise::Sigmoid::grad(kInf, 1), elementwise::LeakyRelu::grad(nan, -1, 0.5f),
        elementwise::batch_norm(nan, 0, 1, 0), elementwise::batch_inv(-1, 0.5f),
        elementwise::batch_norm_grad(nan, 0, 0, 1, 1, 0, 0)}) {
    EXPECT_EQ(float_bits(made), kNanBits);
  }
}

TEST(Elementwise, DropoutKeepsTheShareItShould) {
  const auto rule = elementwise::dropout_rule(0.25);
  EXPECT_EQ(rule.threshold, 1u << 30);
  EXPECT_EQ(rule.scale, static_cast<float>(4.0 / 3));
  EXPECT_EQ(elementwise::dropout(3, (1u << 30) - 1, rule), 0);
  EXPECT_EQ(elementwise::dropout(3, 1u << 30, rule), 3 * rule.scale);
  EXPECT_EQ(elementwise::dropout_rule(0).threshold, 0u);
  EXPECT_EQ(elementwise::dropout_rule(0x1.fffffffffffffp-1).threshold, 0xFFFFFFFFu);

  constexpr int kElements = 20000;
  Trial t;
  t.state.seed = 5;
  const TensorId y = dropout(t.b, "op", t.input("x", {kElements}, Values(kElements, 1)), 0.25);
  const Values first = t.run(y);
  const auto kept =
      static_cast<double>(std::count_if(first.begin(), first.end(), [](float v) { return v != 0; }));
  EXPECT_NEAR(kept / kElements, 0.75, 5 * std::sqrt(0.75 * 0.25 / kElements));
  EXPECT_EQ(t.run(y), first);
  // Its words are not the ones that would round the same tensor stochastically.
  const RoundKey rounding{5, 0, t.graph[y].number, 0};
  int same = 0;
  for (uint64_t i = 0; i < kElements; ++i)
    same += (random_word(rounding, i) >= rule.threshold) == (first[i] != 0);
  EXPECT_NEAR(same / double{kElements}, 0.75 * 0.75 + 0.25 * 0.25, 0.02);
  t.state.step = 1;
  const Values other = t.run(y);
  t.state.micro_batch = 1;
  EXPECT_NE(other, first);
  EXPECT_NE(t.run(y), other);
}

// A kernel with a single one moves the image.
TEST(DotInteraction, PairsBelowTheDiagonalRowByRow) {
  Trial t;
  // Vectors (1, 2), (3, 0), (0, 5), (1, 1), and their negatives doubled.
  const TensorId x = t.input("x", {2, 4, 2}, {1, 2, 3, 0, 0, 5, 1, 1, -2, -4, -6, 0, 0, -10, -2, -2});
  EXPECT_EQ(t.run(dot_interaction(t.b, "pairs", x)), (Values{3, 10, 0, 3, 3, 5, 12, 40, 0, 12, 12, 20}));
}

TEST(Elementwise, SumsRepeatWhatIsLacking) {
  Trial t;
  const TensorId x = t.input("x", {2, 1, 2}, {1, 2, 3, 4}), y = t.input("y", {3, 1}, {10, 20, 30});
  EXPECT_EQ(t.run(add(t.b, "sum", x, y)), (Values{11, 12, 21, 22, 31, 32, 13, 14, 23, 24, 33, 34}));
}

TEST(Move, ConcatAndSplitAlongAnyAxis) {
  Trial t;
  const TensorId x = t.input("x", {2, 1, 2}, {1, 2, 3, 4});
  const TensorId y = t.input("y", {2, 2, 2}, {5, 6, 7, 8, 9, 10, 11, 12});
  const TensorId joined = concat(t.b, "joined", {x, y}, 1);
  EXPECT_EQ(t.run(joined), (Values{1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12}));
  EXPECT_EQ(t.run(split(t.b, "rows", joined, 2, 0)[1]), (Values{3, 4, 9, 10, 11, 12}));
  EXPECT_EQ(t.run(split(t.b, "thirds", joined, 3, -2)[2]), (Values{7, 8, 11, 12}));
}

TEST(Conv, DeltaKernelsMoveTheImage) {
  Trial t;
  // Image 2x3 of two channels; output 0 is the pixel to the right of channel 0, output 1 the one
  // above of channel 1.
  const TensorId x = t.input("x", {1, 2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const TensorId y = conv2d(t.b, "conv", x, {.out = 2, .kernel = 3, .padding = 1, .bias = true});
  Values weight(2 * 3 * 3 * 2);
  weight[((0 * 3 + 1) * 3 + 2) * 2 + 0] = 1;
  weight[((1 * 3 + 0) * 3 + 1) * 2 + 1] = 1;
  t.set("conv.weight", weight);
  t.set("conv.bias", {100, 0.5f});
  EXPECT_EQ(t.run(y), (Values{103, 0.5f, 105, 0.5f, 100, 0.5f, 109, 2.5f, 111, 4.5f, 100, 6.5f}));
}

TEST(Conv, GroupsDoNotMixAndStridesSkip) {
  Trial t;
  const TensorId x = t.input("x", {1, 1, 4, 2}, {1, 10, 2, 20, 3, 30, 4, 40});
  const TensorId y = conv2d(t.b, "conv", x, {.out = 2, .kernel = 1, .stride = 3, .groups = 2});
  t.set("conv.weight", {2, 3});
  EXPECT_EQ(t.run(y), (Values{2, 30, 8, 120}));
}

TEST(Pool, TakesTheFirstOfEqualsAndNanBeforeAll) {
  Trial t;
  const TensorId x = t.input("x", {1, 2, 8, 1},
                             {1, 2, 5, 5, 9, kNan, -kInf, -kInf,  //
                              2, 0, 5, 5, kNan, kInf, -kInf, -kInf});
  const TensorId out = max_pool(t.b, "pool", x, {.kernel = 2});
  NodeRunner& runner = t.start();
  runner.run();
  const Values y = runner.get(out);
  EXPECT_EQ((Values{y[0], y[1], y[3]}), (Values{2, 5, -kInf}));
  EXPECT_TRUE(std::isnan(y[2]));
  const auto index = runner.bytes(t.graph.find("pool.index"));
  EXPECT_EQ(std::vector<int>(index.begin(), index.begin() + 4), (std::vector<int>{1, 0, 1, 0}));
}

// Padding is no number to a maximum, and a zero to a mean.
TEST(Pool, Padding) {
  Trial t;
  const TensorId x = t.input("x", {1, 2, 2, 1}, {-4, -8, -12, -16});
  const PoolOptions options{.kernel = 2, .stride = 2, .padding = 1};
  const TensorId largest = max_pool(t.b, "max", x, options), mean = avg_pool(t.b, "mean", x, options);
  NodeRunner& runner = t.start();
  runner.run();
  EXPECT_EQ(runner.get(largest), (Values{-4, -8, -12, -16}));
  EXPECT_EQ(runner.get(mean), (Values{-1, -2, -3, -4}));
  const auto index = runner.bytes(t.graph.find("max.index"));
  EXPECT_EQ(std::vector<int>(index.begin(), index.begin() + 4), (std::vector<int>{3, 2, 1, 0}));
}

TEST(Pool, GlobalAverage) {
  Trial t;
  const TensorId x = t.input("x", {2, 1, 2, 2}, {1, 2, 3, 4, 10, 20, 30, 40});
  EXPECT_EQ(t.run(global_average(t.b, "pool", x)), (Values{2, 3, 20, 30}));
}

TEST(Norm, StatisticsOfABatch) {
  Trial t;
  // Far from 0 with a small spread: squares of the numbers themselves would lose the variance.
  const TensorId x = t.input("x", {4, 2}, {4096, 1, 4097, 1, 4098, 1, 4099, 1});
  const TensorId y = batch_norm(t.b, "norm", x, {.epsilon = 0.75, .momentum = 0.5});
  t.set("norm.weight", {2 * std::sqrt(2.0f), 7});
  t.set("norm.bias", {1, 5});
  t.set("norm.running_mean", {0, 3});
  NodeRunner& runner = t.start();
  runner.run();
  EXPECT_EQ(runner.get(t.graph.find("norm.batch.mean")), (Values{4097.5f, 1}));
  EXPECT_EQ(runner.get(t.graph.find("norm.batch.variance")), (Values{1.25f, 0}));
  // 1 / sqrt(1.25 + 0.75) times 2 sqrt(2) is 2, up to the rounding of the root.
  const Values out = runner.get(y);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(out[2 * i], 2 * (i - 1.5) + 1, 1e-6);
    EXPECT_EQ(out[2 * i + 1], 5);
  }
  EXPECT_EQ(runner.get(t.graph.find("norm.running_mean")), (Values{2048.75f, 2}));
  const Values variance = runner.get(t.graph.find("norm.running_var"));
  EXPECT_NEAR(variance[0], 0.5 + 0.5 * 1.25 * 4 / 3, 1e-6);
  EXPECT_EQ(variance[1], 0.5f);
}

TEST(Norm, OneRowHasNoVariance) {
  Trial t;
  batch_norm(t.b, "norm", t.input("x", {1, 2}, {3, 4}), {.momentum = 1});
  NodeRunner& runner = t.start();
  runner.run();
  EXPECT_EQ(runner.get(t.graph.find("norm.running_mean")), (Values{3, 4}));
  EXPECT_EQ(runner.get(t.graph.find("norm.running_var")), (Values{0, 0}));
}

TEST(Norm, InferenceReadsTheRunningStatistics) {
  Trial t;
  Builder b(t.graph, Mode::inference);
  const TensorId y = batch_norm(b, "norm", t.input("x", {2, 1}, {3, 7}), {.epsilon = 0.5});
  t.set("norm.weight", {4});
  t.set("norm.bias", {1});
  t.set("norm.running_mean", {3});
  t.set("norm.running_var", {3.5f});
  EXPECT_EQ(t.run(y), (Values{1, 9}));
}

TEST(Norm, RowsOfALayer) {
  Trial t;
  const TensorId y = layer_norm(t.b, "norm", t.input("x", {2, 2}, {1, 3, 1000, 1000}), 3);
  t.set("norm.weight", {2, 4});
  t.set("norm.bias", {0, 1});
  NodeRunner& runner = t.start();
  runner.run();
  EXPECT_EQ(runner.get(y), (Values{-1, 3, 0, 1}));
  EXPECT_EQ(runner.get(t.graph.find("norm.mean")), (Values{2, 1000}));
  EXPECT_EQ(runner.get(t.graph.find("norm.variance")), (Values{1, 0}));
}

TEST(Loss, LargeScoresDoNotOverflow) {
  Trial t;
  const TensorId x = t.input("x", {3, 2}, {1e30f, 1e30f, 3e38f, -3e38f, -1000, -1000 + std::log(3.0f)});
  const TensorId p = softmax(t.b, "p", x), log_p = log_softmax(t.b, "log_p", x);
  const TensorId loss = cross_entropy(t.b, "loss", x, t.indices("labels", {3}, {0, 0, 1}));
  NodeRunner& runner = t.start();
  runner.run();
  const Values probability = runner.get(p), logs = runner.get(log_p), losses = runner.get(loss);
  EXPECT_EQ(probability[0], 0.5f);
  EXPECT_EQ(probability[2], 1);
  EXPECT_EQ(probability[3], 0);
  EXPECT_NEAR(probability[4], 0.25, 1e-4);  // -1000 + log 3 is rounded
  EXPECT_NEAR(probability[4] + probability[5], 1, 1e-7);
  EXPECT_EQ(logs[2], 0);
  EXPECT_EQ(logs[3], -kInf);  // -6e38 is no fp32 number
  EXPECT_NEAR(losses[2], std::log(4.0 / 3), 1e-4);
  EXPECT_EQ(losses[1], 0);
}

TEST(Loss, NllAndSmoothing) {
  Trial t;
  const TensorId x = t.input("x", {2, 4}, {-1, -2, -3, -4, -kInf, -8, -16, -32});
  const TensorId labels = t.indices("labels", {2}, {2, 1});
  const TensorId plain = nll(t.b, "plain", x, labels), smoothed = nll(t.b, "smoothed", x, labels, 0.5);
  NodeRunner& runner = t.start();
  runner.run();
  EXPECT_EQ(runner.get(plain), (Values{3, 8}));  // a class of no weight may have any logarithm
  EXPECT_EQ(runner.get(smoothed), (Values{0.5f * 3 + 0.125f * 10, kInf}));
}

TEST(Loss, ExtremeLogits) {
  Trial t;
  const TensorId x = t.input("x", {5, 1}, {1e4f, -1e4f, 1e4f, -1e4f, 0});
  const TensorId loss = bce_with_logits(t.b, "loss", x, t.target("t", {5, 1}, {1, 0, 0, 1, 0.5f}));
  const Values out = t.run(loss);
  EXPECT_EQ((Values{out[0], out[1], out[2], out[3]}), (Values{0, 0, 1e4f, 1e4f}));
  EXPECT_FLOAT_EQ(out[4], std::log(2.0f));
}

TEST(Loss, MeanSquares) {
  Trial t;
  const TensorId loss =
      mse(t.b, "loss", t.input("x", {2, 2}, {1, 2, 3, 4}), t.target("t", {2, 2}, {1, 4, 0, 4}));
  EXPECT_EQ(t.run(loss), (Values{2, 4.5f}));
}

TEST(Loss, ClassifyTakesTheFirstOfEquals) {
  Trial t;
  const TensorId scores = t.input("scores", {5, 3},
                                  {1, 3, 3,     // class 1: right
                                   1, 3, 3,     // class 1: wrong
                                   2, 2, 2,     // class 0: right
                                   -3, -2, -1,  // class 2: right
                                   5, kNan, 1});
  const TensorId labels = t.indices("labels", {5}, {1, 2, 0, 2, 0});
  const TensorId sums = classify(t.b, "count", scores, labels, t.input("loss", {5}, {1, 2, 4, 8, 16}));
  EXPECT_EQ(t.run(sums), (Values{31, 3}));
}

TEST(Errors, LabelsAndIndicesOutsideTheirRange) {
  for (const int32_t bad : {-1, 3}) {
    Trial t;
    nll(t.b, "loss", t.input("x", {2, 3}), t.indices("labels", {2}, {0, bad}));
    const std::string text = error_of([&] { t.start().run(); });
    for (const std::string& part :
         {std::string("loss"), "label " + std::to_string(bad), std::string("0 to 2")}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  for (const int32_t bad : {-7, 4}) {
    Trial t;
    embedding(t.b, "words", t.indices("i", {2}, {0, bad}), 4, 2);
    const std::string text = error_of([&] { t.start().run(); });
    for (const std::string& part :
         {std::string("words"), "index " + std::to_string(bad), std::string("0 to 3")}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Errors, NothingIsFed) {
  Trial t;
  input(t.b, "images", {2, 3});
  EXPECT_NE(error_of([&] { t.start().run(); }).find("'images'"), std::string::npos);
}

TEST(Errors, TargetsThatWantAGradient) {
  Trial t;
  const TensorId loss = mse(t.b, "loss", t.operand("x", {2, 3}), t.operand("y", {2, 3}));
  EXPECT_NE(error_of([&] { differentiate(t.graph, loss); }).find("loss"), std::string::npos);
}

}  // namespace
}  // namespace ulp::ref
