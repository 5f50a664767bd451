// A product in a library's terms, and the task that runs it. Convolutions, linear layers and matrix products differ in how
// plans are made; what is around them is the same: operands that lie as the unit wants them are used in place, others are
// decoded, the batch is cut in slices where that would take too much workspace, results are made in fp32 and encoded once.
// Where a result is stored in bf16 the library writes it itself (library_task.cc says what that changes).
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

// A tensor as a library is given it: rows of numbers, padded with zeros.
struct Matrix {
  TensorId id = {};
  bool whole = false;                 // the same for all slices: a weight, or a result that is summed
  uint64_t rows = 1;                  // of one unit of the batch; of a whole matrix all
  uint64_t channels = 1;              // of a row
  uint64_t padded = 1;                // elements of a row in the array; a multiple of 4
  uint64_t more = 0;                  // rows after the last, of zeros, or of a result not looked at
  std::optional<Window> window = {};  // its rows are gathered from images
};

// What a library runs for a number of units.
struct Plan {
  std::shared_ptr<ConvPlan> conv;
  std::shared_ptr<MatmulPlan> matmul;

  explicit operator bool() const { return conv != nullptr || matmul != nullptr; }
  size_t workspace() const { return conv ? conv->workspace() : matmul->workspace(); }
  std::string note() const { return conv ? conv->note() : matmul->note(); }
  void run(Stream stream, const void* a, const void* b, void* out, void* workspace) const;
};

struct LibraryProduct {
  std::string why_not;  // it is none of the library's; the rest is of no meaning then
  int64_t units = 1;    // images, rows or matrices that can be done one by one
  UnitChoice unit = {};
  Matrix a, b, out;
  TensorId bias = {};  // none
  // Nothing, with the reason, where the library has no plan.
  std::function<Plan(int64_t units, Written written, size_t workspace_limit, std::string* why_not)> find;
};

// Describes the problem for a unit.
using Describe = LibraryProduct (*)(const Problem& problem, const UnitChoice& unit);

// Why the library cannot do it; "".
std::string why_not_library(const Problem& problem, Describe describe);
std::unique_ptr<Task> make_library_task(const Problem& problem, Describe describe);

}  // namespace ulp::cuda
