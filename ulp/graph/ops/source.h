// Where data comes in: the caller feeds these nodes by name before a step.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

extern const OpDef kInput;    // () -> out: real numbers, written in the tensor's format
extern const OpDef kIndices;  // () -> out: int32, labels or rows of an embedding
extern const OpDef kTarget;   // () -> out: real numbers in fp32 that a loss compares with, or weights it
extern const OpDef kBytes;    // () -> out: bytes
// (bytes) -> out: (byte - shift) * scale, each rounded to fp32 and written in the tensor's format.
extern const OpDef kFromBytes;

// Whether the caller feeds the node an array for each step. Other nodes that are fed read data that
// stays in the backend's memory (batch.h).
bool is_source(const Node& node);

}  // namespace ulp
