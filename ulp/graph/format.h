// How a tensor of a graph is stored. A graph itself holds no formats: lists of these, by tensor,
// are made from it (ulp/precision) and obeyed by kernels (ulp/backend).
#pragma once

#include <optional>

#include "ulp/numeric/storage.h"

namespace ulp {

// How a tensor is stored, and, for a weight whose operand has another format than what is stored,
// what its values are rounded to as they are loaded.
struct TensorFormat {
  Storage storage;
  std::optional<Storage> operand = {};
};

// True for plain fp32, which kernels may read and write in place.
bool is_fp32(const Storage& storage);

}  // namespace ulp
