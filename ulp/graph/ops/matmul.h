// Matrix products, linear layers and embeddings.
#pragma once

#include <optional>
#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// (x (..., in), weight (out, in)[, bias (out)]) -> out (..., out)
extern const OpDef kLinear;
extern const OpDef kLinearGradInput;   // (dout, weight) -> dx
extern const OpDef kLinearGradWeight;  // (x, dout) -> dweight, over all rows
// (a (..., m, k), b (..., k, n)) -> out (..., m, n), the leading axes equal. With transpose_a, a is
// (..., k, m); with transpose_b, b is (..., n, k). Its gradients are matrix products.
extern const OpDef kMatmul;
// (table (rows, width), indices (...)) -> out (..., width). An index outside the table throws an
// Error.
extern const OpDef kEmbedding;
extern const OpDef kEmbeddingGrad;  // (dout, indices) -> dtable: rows that no index names get 0

struct LinearOptions {
  int64_t out = 0;
  bool bias = true;
  std::optional<Init> init = {};       // of the weight; uniform within 1 / sqrt(in) unless said
  std::optional<Init> bias_init = {};  // the same
};

// Weights NAME.weight and NAME.bias.
TensorId linear(Builder& b, const std::string& name, TensorId x, const LinearOptions& options);
TensorId matmul(Builder& b, const std::string& name, TensorId x, TensorId y, bool transpose_x = false,
                bool transpose_y = false);
// Weight NAME.weight (rows, width), normal(0, 1) unless said.
TensorId embedding(Builder& b, const std::string& name, TensorId indices, int64_t rows, int64_t width,
                   Init init = Init::normal(1));

}  // namespace ulp
