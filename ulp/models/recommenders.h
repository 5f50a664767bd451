// Networks that recommend: what goes with a user, and what will be clicked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

// The deep learning recommendation model (Naumov et al.): a multi-layer perceptron makes a vector of
// the numbers, each id has one in a table of its kind, all of them are multiplied with each other,
// and a second perceptron reads these products beside the first vector.
struct DlrmOptions {
  std::vector<int64_t> tables = {};  // ids of each kind
  double width = 1;                  // of layers of 512, 256, 64 and vectors of 16; and of 512 and 256 above
};
// (numbers (n, k), for each table ids (n) from `indices`) -> scores (n, 1) before the sigmoid.
TensorId dlrm(Builder& b, TensorId numbers, std::span<const TensorId> ids, const DlrmOptions& options);

}  // namespace ulp
