// Tasks for pool.h.
#include "ulp/backend/cuda/ops/pool.h"

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/kernels.h"

namespace ulp::cuda {
namespace {

uint32_t number(int64_t n) { return static_cast<uint32_t>(n); }

// Pools with their extents.
class PoolTask : public DecodeAroundTask {
 public:
  explicit PoolTask(const Problem& problem)
      : DecodeAroundTask(problem), shape_(pool_extents(problem.graph(), problem.root()).as<uint32_t>()) {}

 protected:
  const ConvExtents32 shape_;
};

class MaxPoolTask : public PoolTask {
 public:
  using PoolTask::PoolTask;

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    max_pool(shape_, views.in[0], views.out[0], views.out[1].stored.codes, context.state, context.stream);
  }
};

class MaxPoolGradTask : public PoolTask {
 public:
  using PoolTask::PoolTask;

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    max_pool_grad(shape_, views.in[0], views.in[1].codes, views.out[0], context.state, context.stream);
  }
};

template <auto function>
class AveragePoolTask : public PoolTask {
 public:
  using PoolTask::PoolTask;

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    function(shape_, views.in[0], views.out[0], context.state, context.stream);
  }
};

// Forward reads the image; backward writes it.
template <auto function, bool forward>
class GlobalAverageTask : public DecodeAroundTask {
 public:
  explicit GlobalAverageTask(const Problem& problem) : DecodeAroundTask(problem) {
    const Node& node = problem.root();
    const Shape& image = problem.shape(forward ? node.in[0] : node.out[0]);
    pixels_ = number(image.h() * image.w());
    channels_ = number(image.c());
  }

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    function(pixels_, channels_, views.in[0], views.out[0], context.state, context.stream);
  }
  uint32_t pixels_, channels_;
};

template <typename Made>
constexpr KernelDef pool(std::string_view op) {
  return {op, "pool", takes_one_node, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> pool_kernels() {
  static constexpr KernelDef kKernels[] = {
      pool<MaxPoolTask>("max_pool"),
      pool<MaxPoolGradTask>("max_pool_grad"),
      pool<AveragePoolTask<avg_pool>>("avg_pool"),
      pool<AveragePoolTask<avg_pool_grad>>("avg_pool_grad"),
      pool<GlobalAverageTask<global_average, true>>("global_average"),
      pool<GlobalAverageTask<global_average_grad, false>>("global_average_grad"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
