#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "ulp/base/error.h"
#include "ulp/graph/ops.h"
#include "ulp/models/recommenders.h"

namespace ulp {
namespace {

constexpr std::array<int64_t, 3> kBottom = {512, 256, 64};
constexpr std::array<int64_t, 2> kTop = {512, 256};
constexpr int64_t kVector = 16;

// As its authors' code starts weights: Glorot's normal law for weights, biases by the outputs alone.
TensorId layer(Builder& b, const std::string& name, TensorId x, int64_t out) {
  const auto of = [](double variance) { return Init::normal(static_cast<float>(std::sqrt(variance))); };
  const auto in = static_cast<double>(b.shape(x).back()), wide = static_cast<double>(out);
  return linear(b, name, x, {.out = out, .init = of(2 / (in + wide)), .bias_init = of(1 / wide)});
}

}  // namespace

TensorId dlrm(Builder& b, TensorId numbers, std::span<const TensorId> ids, const DlrmOptions& options) {
  if (ids.empty() || ids.size() != options.tables.size())
    fail("models", "dlrm needs a table for each kind of ids, got {} for {}", options.tables.size(),
         ids.size());
  const auto wide = [&](int64_t n) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(n) * options.width));
  };
  const int64_t vector = wide(kVector);
  TensorId x = numbers;
  for (size_t i = 0; i <= kBottom.size(); ++i) {
    const std::string number = std::to_string(i);
    x = layer(b, "bottom" + number, x, i < kBottom.size() ? wide(kBottom[i]) : vector);
    x = relu(b, "bottom_relu" + number, x);
  }
  std::vector<TensorId> vectors = {x};
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t rows = options.tables[i];
    vectors.push_back(embedding(b, "table" + std::to_string(i), ids[i], rows, vector,
                                Init::uniform(static_cast<float>(1 / std::sqrt(static_cast<double>(rows))))));
  }
  const auto count = static_cast<int64_t>(vectors.size());
  const TensorId joined = concat(b, "vectors", vectors);
  const TensorId pairs = dot_interaction(
      b, "interaction", reshape(b, "by_vector", joined, {b.shape(numbers)[0], count, vector}));
  TensorId y = concat(b, "joined", {x, pairs});
  for (size_t i = 0; i < kTop.size(); ++i) {
    const std::string number = std::to_string(i);
    y = relu(b, "top_relu" + number, layer(b, "top" + number, y, wide(kTop[i])));
  }
  return layer(b, "score", y, 1);
}

}  // namespace ulp
