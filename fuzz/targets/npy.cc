// NumPy arrays. What is read is written and read back to the same bits.
#include "ulp/io/npy.h"

#include <bit>

#include "fuzz/fuzz.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  const NpyFloats read = read_npy_floats(file("a.npy", input));
  size_t elements = 1;
  for (const size_t side : read.shape) elements *= side;
  expect(elements == read.values.size(), "the shape is not that of the values");
  const std::string again = folder() + "/b.npy";
  write_npy(again, read.shape, std::span<const float>(read.values));
  const NpyFloats back = read_npy_floats(again);
  expect(back.shape == read.shape && back.values.size() == read.values.size(), "read back in another shape");
  for (size_t i = 0; i < elements; ++i) {
    expect(std::bit_cast<uint32_t>(back.values[i]) == std::bit_cast<uint32_t>(read.values[i]),
           "read back with other bits");
  }
}

}  // namespace ulp::fuzz
