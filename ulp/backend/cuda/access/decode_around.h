// Tasks whose kernels read and write tensors by groups of eight (codec.h), for any storage: in
// place if possible, else through fp32 in the task's workspace. Weights go through the workspace:
// they are small and read often, and each element is then rounded to its operand format and counted
// once. So do results whose storage needs more than a group at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/kernel.h"

namespace ulp::cuda {

// An fp32 array as a tensor.
StoredView array_view(float* data, size_t elements);

class DecodeAroundTask : public Task {
 public:
  explicit DecodeAroundTask(const Problem& problem);
  void run(const RunContext& context) override;

 protected:
  // For tensors of integers only `codes` is meaningful: their address.
  struct Views {
    std::vector<StoredView> in;
    std::vector<WriteView> out;
    // The values of an fp32 tensor.
    const float* numbers(size_t i) const { return reinterpret_cast<const float*>(in[i].codes); }
    const int32_t* indices(size_t i) const { return reinterpret_cast<const int32_t*>(in[i].codes); }
  };
  // Launches the kernels.
  virtual void launch_on(const RunContext& context, const Views& views) = 0;

 private:
  struct Input {
    TensorId id;
    std::optional<Operand> operand;  // for real numbers
    bool decoded = false;            // to the workspace
    size_t space = 0;
  };
  struct Output {
    TensorId id;
    std::optional<Result> result;
    size_t space = 0;
  };

  size_t convert_space_;
  std::vector<Input> in_;
  std::vector<Output> out_;
};

}  // namespace ulp::cuda
