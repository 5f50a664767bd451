// One matrix product by cuBLASLt: row-major C(m,n) = op(A) op(B), operands in the unit's type, sums
// in fp32. The result is fp32, or the unit's 16-bit type, to which each sum is rounded once.
//
// The algorithm is the first of cuBLASLt's heuristic that adds its parts in a fixed order and in
// fp32 and fits the workspace. Nothing is timed. Plans are kept for the life of the process.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

struct MatmulShape {
  int64_t m, n, k;
  bool transpose_a = false;  // A is stored (m,k), or (k,m) if transposed
  bool transpose_b = false;  // B is stored (k,n), or (n,k) if transposed
  int64_t lda, ldb, ldc;     // elements from one stored row to the next
  int64_t batch = 1;
  // Elements from one matrix of the batch to the next.
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool accumulate = false;  // adds to C, which is fp32

  auto operator<=>(const MatmulShape&) const = default;
};

// The shape of matrices without gaps.
inline MatmulShape matmul_shape(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b,
                                int64_t batch = 1) {
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .lda = transpose_a ? m : k,
          .ldb = transpose_b ? k : n,
          .ldc = n,
          .batch = batch,
          .stride_a = m * k,
          .stride_b = k * n,
          .stride_c = m * n};
}

class MatmulPlan {
 public:
  // The plan for these arguments on the current device, made on the first call and kept. Null, with
  // the reason, if no algorithm qualifies. Thread-safe.
  static std::shared_ptr<MatmulPlan> find(const MatmulShape& shape, Unit unit, Written written,
                                          size_t workspace_limit, std::string* why_not = nullptr);
  ~MatmulPlan();

  // Bytes of workspace for run(), aligned to 256.
  size_t workspace() const;
  // The algorithm, and how it differs from the request ("no tf32 algorithm, runs in fp32").
  const std::string& name() const;
  const std::string& note() const;

  // Pointers must be aligned to 16 bytes.
  void run(Stream stream, const void* a, const void* b, void* c, void* workspace) const;

 private:
  struct Impl;
  explicit MatmulPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulp::cuda
