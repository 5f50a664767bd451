// Moving elements within and between tensors. Nothing is computed: codes are copied if both sides
// have the same format; otherwise values are decoded and written in the other format, with its
// range events.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Where the elements of a tensor lie in another: up to four axes, the last runs fastest.
struct Walk {
  uint32_t extent[4] = {1, 1, 1, 1};
  uint64_t stride[4] = {0, 0, 0, 0};  // in the source
};

// A transposition of codes of any width; a channel shuffle is one. `side` words stored after the
// codes move with them.
void move_codes(const Walk& walk, uint64_t elements, uint32_t bits, const uint8_t* in, uint8_t* out,
                const uint32_t* side_in, uint32_t* side_out, uint32_t side, Stream stream);
// The same for values.
void move_values(const Walk& walk, const StoredView& in, const WriteView& out, const StepState* state,
                 Stream stream);

inline constexpr size_t kMostParts = 16;

// A row of a tensor in parts, its last axis or several: of elements, or of bytes.
template <typename Part>
struct RowParts {
  Part part[kMostParts];
  // Where each part begins in a whole row; the last entry is the row's end.
  uint32_t begin[kMostParts + 1];
  uint32_t count;
};

// Rows of whole bytes; `begin` counts bytes.
void join_bytes(const RowParts<const uint8_t*>& parts, uint64_t rows, uint8_t* out, Stream stream);
void divide_bytes(const uint8_t* in, uint32_t width, uint64_t rows, const RowParts<uint8_t*>& parts,
                  Stream stream);

// Values. When dividing a tensor, the parts may cover only some of the row.
void join_values(const RowParts<StoredView>& parts, const WriteView& out, const StepState* state,
                 Stream stream);
void divide_values(const StoredView& in, uint32_t width, const RowParts<WriteView>& parts,
                   const StepState* state, Stream stream);

// Copies one part of a row into rows of fp32: for tensors with more parts than the others take at
// once.
void paste_columns(const float* in, uint32_t own, uint64_t rows, float* out, uint32_t begin, uint32_t width,
                   Stream stream);

}  // namespace ulp::cuda
