// Where data comes in: the caller feeds these tensors by name before a step.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

extern const OpDef kInput;    // () -> out: real numbers, written in the tensor's format
extern const OpDef kIndices;  // () -> out: int32, labels or rows of an embedding
extern const OpDef kTarget;   // () -> out: real numbers in fp32 that a loss compares with

// Each makes NAME.out.
TensorId input(Builder& b, const std::string& name, const Shape& shape);
TensorId indices(Builder& b, const std::string& name, const Shape& shape);
TensorId target(Builder& b, const std::string& name, const Shape& shape);

}  // namespace ulp
