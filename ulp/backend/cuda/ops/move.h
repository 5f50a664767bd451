// Moving elements within and between tensors. Nothing is computed: codes go as they are where both sides have the same
// format; else numbers are decoded and written in the other one, with its range events.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Where the elements of a tensor lie in another: of up to four axes, the last running fastest.
struct Walk {
  uint32_t extent[4] = {1, 1, 1, 1};
  uint64_t stride[4] = {0, 0, 0, 0};  // in what is read
};

// A transposition of codes of any width; a channel shuffle is one. `side` words beside the codes go with them.
void move_codes(const Walk& walk, uint64_t elements, uint32_t bits, const uint8_t* in, uint8_t* out,
                const uint32_t* side_in, uint32_t* side_out, uint32_t side, Stream stream);
// The same of numbers.
void move_values(const Walk& walk, const StoredView& in, const WriteView& out, const StepState* state,
                 Stream stream);

inline constexpr size_t kMostParts = 16;

// The last axis of a tensor in parts: of elements, or of bytes.
template <typename Part>
struct RowParts {
  Part part[kMostParts];
  uint32_t begin[kMostParts + 1];  // where each begins in a row of the whole; the last is the row's end
  uint32_t count;
};

// Rows of whole bytes; `begin` counts bytes.
void join_bytes(const RowParts<const uint8_t*>& parts, uint64_t rows, uint8_t* out, Stream stream);
void divide_bytes(const uint8_t* in, uint32_t width, uint64_t rows, const RowParts<uint8_t*>& parts,
                  Stream stream);

// Numbers. Of a tensor that is divided the parts may be some of all.
void join_values(const RowParts<StoredView>& parts, const WriteView& out, const StepState* state,
                 Stream stream);
void divide_values(const StoredView& in, uint32_t width, const RowParts<WriteView>& parts,
                   const StepState* state, Stream stream);

// One part of a row's width into rows of fp32: for tensors of more parts than the others take at once.
void paste_columns(const float* in, uint32_t own, uint64_t rows, float* out, uint32_t begin, uint32_t width,
                   Stream stream);

}  // namespace ulp::cuda
