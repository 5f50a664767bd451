// Kernels around the library products: im2col, range events of tensors that a library has written,
// and small operations on fp32 arrays with padded rows. Widths of such arrays are multiples of 4,
// and arrays are aligned to 16 bytes.
#pragma once

#include <cstdint>

#include "ulp/backend/conv_extents.h"
#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Threads of a launch are numbered in 32 bits. Cuts a batch into launches of whole images, with at
// most 2^31 numbers where an image has no more, and calls `launch` with the first image of each and
// how many it has.
template <typename Launch>
void in_slices_of_images(uint64_t images, uint64_t numbers_per_image, const Launch& launch) {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  const uint64_t most = numbers_per_image < kMost ? kMost / numbers_per_image : 1;
  for (uint64_t first = 0; first < images; first += most) {
    launch(first, images - first < most ? images - first : most);
  }
}

// Im2col: one row per output pixel with the contents of its window, (kernel_h,kernel_w,c), zeros
// outside the image and up to `padded`, a multiple of 8. Operands that are rounded when read are
// not supported. `target` must hold every value.
void gather_windows(const StoredView& view, const ConvExtents32& window, uint64_t first_image,
                    uint64_t images, uint32_t padded, DecodedType target, void* out, Stream stream);

// The same for codes of one or two bytes, unchanged, for formats whose zero is code 0. `padded`
// codes must be a multiple of 16 bytes.
void gather_codes(const uint8_t* codes, uint32_t bytes, const ConvExtents32& window, uint64_t images,
                  uint32_t padded, void* out, Stream stream);

// Passes 16-bit codes, whole groups, that a library has written in the tensor's own format through
// the codec once more: reports range events and replaces infinities as the view says. Everything
// else stays unchanged.
void recode(const WriteView& view, Stream stream);

// total += part.
void add_array(float* total, const float* part, uint64_t count, Stream stream);
// Adds a row to every row.
void add_to_rows(float* out, const float* row, uint64_t rows, uint64_t width, Stream stream);
// Copies rows of `channels` from rows of one width to rows of another; the rest of each row becomes
// zero.
void copy_rows(float* to, uint64_t to_width, const float* from, uint64_t from_width, uint64_t rows,
               uint64_t channels, Stream stream);
// Zeros. A multiple of 16 bytes.
void clear_bytes(void* out, uint64_t bytes, Stream stream);

}  // namespace ulp::cuda
