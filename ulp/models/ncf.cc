#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "ulp/graph/ops.h"
#include "ulp/models/recommenders.h"

namespace ulp {
namespace {

constexpr int64_t kFactors = 8;
constexpr std::array<int64_t, 4> kLayers = {64, 32, 16, 8};

// As its authors' code starts weights: Glorot's uniform law for layers, Le Cun's for the last one.
Init glorot(int64_t in, int64_t out) {
  return Init::uniform(static_cast<float>(std::sqrt(6.0 / static_cast<double>(in + out))));
}
Init lecun(int64_t in) { return Init::uniform(static_cast<float>(std::sqrt(3.0 / static_cast<double>(in)))); }

}  // namespace

TensorId ncf(Builder& b, TensorId users, TensorId items, const NcfOptions& options) {
  const auto wide = [&](int64_t n) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(n) * options.width));
  };
  const auto row = [&](const std::string& name, TensorId of, int64_t rows, int64_t width) {
    return embedding(b, name, of, rows, width, Init::normal(0.01f));
  };
  const TensorId product = multiply(b, "gmf", row("gmf_user", users, options.users, wide(kFactors)),
                                    row("gmf_item", items, options.items, wide(kFactors)));
  const int64_t half = wide(kLayers[0] / 2);
  TensorId x = concat(
      b, "mlp", {row("mlp_user", users, options.users, half), row("mlp_item", items, options.items, half)});
  for (size_t i = 1; i < kLayers.size(); ++i) {
    const int64_t in = b.shape(x).back(), out = wide(kLayers[i]);
    x = linear(b, "fc" + std::to_string(i), x,
               {.out = out, .init = glorot(in, out), .bias_init = Init::constant(0)});
    x = relu(b, "relu" + std::to_string(i), x);
  }
  x = concat(b, "joined", {product, x});
  return linear(b, "score", x, {.out = 1, .init = lecun(b.shape(x).back()), .bias_init = Init::constant(0)});
}

}  // namespace ulp
