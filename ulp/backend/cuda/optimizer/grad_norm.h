// The norm of all gradients: sums of squares of many tensors at once, in double. The order of
// summation is fixed, whichever tensors share a launch.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp {
struct Problem;
class Task;
}  // namespace ulp

namespace ulp::cuda {

inline constexpr uint32_t kSquaresTensors = 512, kSquaresFormats = 24;
inline constexpr uint64_t kSquaresSpan = 16384;  // elements that are first summed to one number

constexpr uint32_t squares_spans(uint64_t elements) {
  return static_cast<uint32_t>((elements + kSquaresSpan - 1) / kSquaresSpan);
}

struct SquaresTensor {
  uint8_t* codes = nullptr;
  double* out = nullptr;
  uint64_t elements = 0;
  uint32_t format = 0;
};
struct SquaresBatch {
  double* sums = nullptr;  // of spans, by block
  uint32_t count = 0;
  uint32_t first_block[kSquaresTensors + 1] = {};
  SquaresTensor tensors[kSquaresTensors] = {};
  StoredView formats[kSquaresFormats] = {};  // without addresses
};
void sum_squares(const SquaresBatch& batch, Stream stream);

inline constexpr uint32_t kNormTensors = 2048;
struct NormBatch {
  const StepState* state = nullptr;
  double max_norm = 0;
  double* sum = nullptr;  // of the tensors of this batch and those before
  bool first = true;      // no batch before
  float* out = nullptr;   // the norm and its factor; null: more batches follow
  uint32_t count = 0;
  const double* squares[kNormTensors] = {};
};
void add_norm(const NormBatch& batch, Stream stream);

std::unique_ptr<Task> make_squares(const Problem& problem);
std::unique_ptr<Task> make_norm(const Problem& problem);

}  // namespace ulp::cuda
