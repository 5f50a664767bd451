// Products on plain fp32 arrays, one thread per sum: any shape, summed in double, or in a narrow
// accumulator with the reference's bits. The fallback for what no library supports.
#pragma once

#include <cstdint>

#include "ulp/backend/conv_extents.h"
#include "ulp/numeric/quick.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// How to sum: in double, rounded to fp32 once; or with each partial sum rounded to the
// accumulator's format.
struct SumRule {
  bool narrow = false;
  QuickCodec accumulator = {};
};

// Split-K: few but long sums are divided into parts. `partials` has room for parts times the number
// of sums; parts are added in order. With one part it is not used. Narrow sums always have one
// part.
struct Parts {
  uint32_t count = 1;
  double* partials = nullptr;
};

// out (batch, m, n) = a (m, k) b (k, n) + bias (n), with explicit strides for every matrix.
struct GenericProduct {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  int64_t batch = 1, a_matrix = 0, b_matrix = 0;
};
void generic_product(const GenericProduct& product, const SumRule& rule, const Parts& parts, const float* a,
                     const float* b, const float* bias, float* out, Stream stream);

void generic_conv(const ConvExtents& conv, const SumRule& rule, const float* x, const float* weight,
                  const float* bias, float* out, Stream stream);
void generic_conv_grad_input(const ConvExtents& conv, const SumRule& rule, const float* dout,
                             const float* weight, float* dx, Stream stream);
void generic_conv_grad_weight(const ConvExtents& conv, const SumRule& rule, const Parts& parts,
                              const float* x, const float* dout, float* dweight, Stream stream);

// Dot products of all pairs of an example's vectors (examples, vectors, width).
struct GenericInteraction {
  int64_t examples, vectors, width;
};
void generic_dot_interaction(const GenericInteraction& shape, const SumRule& rule, const float* x, float* out,
                             Stream stream);
void generic_dot_interaction_grad(const GenericInteraction& shape, const SumRule& rule, const float* dout,
                                  const float* x, float* dx, Stream stream);

// Rows of a table. An index outside of it, which a device cannot report, gives NaN.
struct GenericTable {
  int64_t rows, width, places;
};
void generic_embedding(const GenericTable& table, const float* rows, const int32_t* indices, float* out,
                       Stream stream);
// The same of the rows that are named, in ascending order: `out` has `named.rows` of them, of which
// what is left is 0 with the number -1. `slots` has room for a number per place.
struct NamedRows {
  int64_t rows;
  int32_t* numbers;
  int32_t* slots;
};
void generic_embedding_grad(const GenericTable& table, const NamedRows& named, const float* dout,
                            const int32_t* indices, uint64_t* keys, float* out, Stream stream);
// O(n log n) for n places. `keys` has room for two numbers per place. Indices outside the table add
// nothing.
void generic_embedding_grad(const GenericTable& table, const float* dout, const int32_t* indices,
                            uint64_t* keys, float* out, Stream stream);

}  // namespace ulp::cuda
