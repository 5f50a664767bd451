// Tasks whose kernels read and write tensors by groups of eight (codec.h), whatever they are stored as: in place where that is
// possible, else through fp32 in the task's workspace. That is so for weights, which are few and which a kernel looks at often, so
// that each element is rounded to its operand's format and counted once; and for results whose storage looks at more than a group.
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
  // Of tensors that hold no real numbers only `codes` means something: where they lie.
  struct Views {
    std::vector<StoredView> in;
    std::vector<WriteView> out;
    const float* numbers(size_t i) const { return reinterpret_cast<const float*>(in[i].codes); }  // of fp32
    const int32_t* indices(size_t i) const { return reinterpret_cast<const int32_t*>(in[i].codes); }
  };
  // Launches the kernels.
  virtual void launch_on(const RunContext& context, const Views& views) = 0;

 private:
  struct Input {
    TensorId id;
    std::optional<Operand> operand;  // of real numbers
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
