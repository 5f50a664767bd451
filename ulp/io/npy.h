// NumPy's .npy files: float32 arrays in, float32 or uint8 arrays out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ulp {

struct NpyFloats {
  std::vector<size_t> shape;  // empty for a single number
  std::vector<float> values;  // C order; bit patterns as they stand in the file
};

// Reads a little-endian float32 C-order .npy of version 1, 2 or 3 and of any shape. Anything else
// (not an .npy, another dtype, Fortran order, a file cut short or with bytes left over, a shape
// whose size overflows) throws an Error that names the file, what was found and what would be
// right. Allocates no more than the file holds, whatever its header claims.
NpyFloats read_npy_floats(const std::string& path);

// Write atomically (ulp/base/file.h), version 1 headers (2 where thousands of axes need it), data
// aligned to 64 bytes as NumPy does.
void write_npy(const std::string& path, std::span<const size_t> shape, std::span<const float> values);
void write_npy(const std::string& path, std::span<const size_t> shape, std::span<const uint8_t> values);

}  // namespace ulp
