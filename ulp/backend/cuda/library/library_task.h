// A product in a library's terms, and the task that runs it. Convolutions, linear layers and matrix
// products differ in how plans are made; the rest is shared. Operands already in the unit's layout
// are used in place, others are decoded. The batch is processed in slices if decoding would need
// too much workspace. Results are computed in fp32 and encoded once. A bf16 result is written by
// the library itself (library_task.cc says what that changes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/library/cublaslt_matmul.h"
#include "ulp/backend/cuda/library/cudnn_conv.h"
#include "ulp/backend/cuda/library/im2col.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/kernel.h"

namespace ulp::cuda {

// A tensor as a library sees it: rows of numbers, padded with zeros.
struct Matrix {
  TensorId id = {};
  // Whether all slices have the same matrix: a weight, or a result that is summed.
  bool whole = false;
  uint64_t rows = 1;      // of one item of the batch; of a whole matrix all
  uint64_t channels = 1;  // of a row
  uint64_t padded = 1;    // elements of a row in the array; a multiple of 4
  // Rows of zeros after the last; of a result, rows that are ignored.
  uint64_t more = 0;
  std::optional<ConvExtents32> window = {};  // im2col: rows are gathered from images
};

// The library's plan for a number of items.
struct LibraryPlan {
  std::shared_ptr<ConvPlan> conv;
  std::shared_ptr<MatmulPlan> matmul;

  explicit operator bool() const { return conv != nullptr || matmul != nullptr; }
  size_t workspace() const { return conv ? conv->workspace() : matmul->workspace(); }
  std::string note() const { return conv ? conv->note() : matmul->note(); }
  void run(Stream stream, const void* a, const void* b, void* out, void* workspace) const;
};

struct LibraryProduct {
  std::string why_not;  // not for the library; the other fields are then undefined
  int64_t items = 1;    // images, rows or matrices that can be processed separately
  UnitChoice unit = {};
  Matrix a, b, out;
  TensorId bias = {};  // none if unset
  // Finds the library's plan; an empty one, with the reason, if there is none.
  std::function<LibraryPlan(int64_t items, Written written, size_t workspace_limit, std::string* why_not)>
      find;
};

// Describes the problem for a unit.
using Describe = LibraryProduct (*)(const Problem& problem, const UnitChoice& unit);

// Why the library cannot do it, or "".
std::string why_not_library(const Problem& problem, Describe describe);
std::unique_ptr<Task> make_library_task(const Problem& problem, Describe describe);

}  // namespace ulp::cuda
