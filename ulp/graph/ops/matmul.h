// Matrix products, linear layers, dot products of vectors and embeddings.
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
// (x (b, n, d)) -> out (b, n (n - 1) / 2): the dot product of vectors i and j < i of an example at
// i (i - 1) / 2 + j.
extern const OpDef kDotInteraction;
extern const OpDef kDotInteractionGrad;  // (dout, x) -> dx
// (table (rows, width), indices (...)) -> out (..., width). An index outside the table throws an
// Error.
extern const OpDef kEmbedding;
extern const OpDef kEmbeddingGrad;  // (dout, indices) -> dtable: rows that no index names get 0
// (dout, indices) -> drows (n, width), rows (n): the same of the rows that an index names, with their
// numbers in ascending order. What is left of the n rows is 0, with -1 for a number. The attribute
// table_rows is the number of the table's rows.
extern const OpDef kEmbeddingGradRows;

}  // namespace ulp
