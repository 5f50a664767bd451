// Networks that score how well a user and an item go together.
#pragma once

#include <cstdint>

#include "ulp/graph/builder.h"

namespace ulp {

// Neural matrix factorisation (He et al., "Neural collaborative filtering"): a product of two rows
// of tables, beside a multi-layer perceptron on two other rows, joined by one linear layer.
struct NcfOptions {
  int64_t users = 0, items = 0;
  double width = 1;  // of 8 factors and layers of 64 (the two rows), 32, 16 and 8
};
// (users (n), items (n)), from `indices` -> scores (n, 1) before the sigmoid.
TensorId ncf(Builder& b, TensorId users, TensorId items, const NcfOptions& options);

}  // namespace ulp
