// The dot products of an example's vectors with each other: the inner loops of dot_interaction.
#pragma once

#include <cstddef>

namespace ulp::pairs {

// Of n vectors x (n, width): out has the product of vectors i and j < i at i (i - 1) / 2 + j.
void multiply(const float* x, size_t n, size_t width, float* out);

// The gradient of x, from that of the products.
void gradient(const float* dout, const float* x, size_t n, size_t width, float* dx);

}  // namespace ulp::pairs
