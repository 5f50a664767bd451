// Kernels around the libraries' products: pixels under a window gathered to rows, range events of what a library has written, and small
// things done to fp32 arrays whose rows are padded. Widths of such arrays are multiples of 4, and arrays are aligned to 16 bytes.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// A convolution's window on images (h,w,c) of a tensor.
struct Window {
  uint32_t h = 1, w = 1, c = 1;
  uint32_t out_h = 1, out_w = 1;
  uint32_t kernel_h = 1, kernel_w = 1;
  uint32_t stride_h = 1, stride_w = 1;
  uint32_t padding_h = 0, padding_w = 0;

  ULP_HD constexpr uint32_t taps() const { return kernel_h * kernel_w * c; }
};

// A row for each pixel of the result: what the window holds there, (kernel_h,kernel_w,c), zeros outside of the image and up to
// `padded`, a multiple of 8. Operands that are rounded as they are loaded are not read here. `target` holds every number.
void gather_windows(const StoredView& view, const Window& window, uint64_t first_image, uint64_t images,
                    uint32_t padded, PlainType target, void* out, Stream stream);

// The same as codes of one or two bytes, as they lie: for formats whose zero is the code 0. `padded` codes are whole pieces of 16 bytes.
void gather_codes(const uint8_t* codes, uint32_t bytes, const Window& window, uint64_t images,
                  uint32_t padded, void* out, Stream stream);

// Codes of 16 bits, whole groups, that a library has written in a tensor's own format, through the codec once more: range events are
// reported, and infinities become what the view says of them. All else stays as it is.
void recode(const WriteView& view, Stream stream);

// total += part.
void add_array(float* total, const float* part, uint64_t count, Stream stream);
// Adds a row to every row.
void add_to_rows(float* out, const float* row, uint64_t rows, uint64_t width, Stream stream);
// Rows of `channels` from rows of one width to rows of another, any; what is beyond them becomes zero.
void copy_rows(float* to, uint64_t to_width, const float* from, uint64_t from_width, uint64_t rows,
               uint64_t channels, Stream stream);
// Zeros. A multiple of 16 bytes.
void clear_bytes(void* out, uint64_t bytes, Stream stream);

}  // namespace ulp::cuda
