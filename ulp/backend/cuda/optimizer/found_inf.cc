#include "ulp/backend/cuda/optimizer/found_inf.h"

#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp::cuda {
namespace {

class FoundInfTask : public Task {
 public:
  FoundInfTask(std::span<const TensorId> gradients, TensorId sums)
      : gradients_(gradients.begin(), gradients.end()), sums_(sums) {}

  void run(const RunContext& context) override {
    size_t done = 0;
    do {
      FoundInfBatch batch;
      // Other tasks only read the step's state; this one sets a field of it.
      batch.state = const_cast<StepState*>(context.state);
      batch.stats = context.stats;
      batch.sums = context.as<const float>(sums_);
      batch.first = done == 0;
      for (; batch.count < kFoundInfTensors && done < gradients_.size(); ++done)
        batch.tensors[batch.count++] = gradients_[done].index;
      launch_found_inf(batch, context.stream);
    } while (done < gradients_.size());
  }

 private:
  const std::vector<TensorId> gradients_;
  const TensorId sums_;
};

}  // namespace

std::unique_ptr<Task> make_found_inf(const PlanContext&, std::span<const TensorId> gradients, TensorId sums) {
  return std::make_unique<FoundInfTask>(gradients, sums);
}

}  // namespace ulp::cuda
