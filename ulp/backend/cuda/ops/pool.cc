// Tasks for pool.h.
#include "ulp/backend/cuda/ops/pool.h"

#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/kernels.h"

namespace ulp::cuda {
namespace {

uint32_t number(int64_t n) { return static_cast<uint32_t>(n); }

PoolShape pool_shape(const Node& node, const Shape& x, const Shape& out) {
  const auto attribute = [&](std::string_view name) { return number(node.attrs.integer(name)); };
  return {number(x.h()),         number(x.w()),          number(x.c()),         number(out.h()),
          number(out.w()),       attribute("kernel_h"),  attribute("kernel_w"), attribute("stride_h"),
          attribute("stride_w"), attribute("padding_h"), attribute("padding_w")};
}

class MaxPoolTask : public DecodeAroundTask {
 public:
  explicit MaxPoolTask(const Problem& problem)
      : DecodeAroundTask(problem),
        shape_(pool_shape(problem.root(), problem.shape(problem.root().in[0]),
                          problem.shape(problem.root().out[0]))) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    max_pool(shape_, views.in[0], views.out[0], views.out[1].stored.codes, context.state, context.stream);
  }
  PoolShape shape_;
};

class MaxPoolGradTask : public DecodeAroundTask {
 public:
  explicit MaxPoolGradTask(const Problem& problem)
      : DecodeAroundTask(problem),
        shape_(pool_shape(problem.root(), problem.shape(problem.root().out[0]),
                          problem.shape(problem.root().in[0]))) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    max_pool_grad(shape_, views.in[0], views.in[1].codes, views.out[0], context.state, context.stream);
  }
  PoolShape shape_;
};

// Forward reads the image; backward writes it.
template <auto function, bool forward>
class AveragePoolTask : public DecodeAroundTask {
 public:
  explicit AveragePoolTask(const Problem& problem) : DecodeAroundTask(problem) {
    const Node& node = problem.root();
    const Shape &in = problem.shape(node.in[0]), &out = problem.shape(node.out[0]);
    shape_ = forward ? pool_shape(node, in, out) : pool_shape(node, out, in);
  }

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    function(shape_, views.in[0], views.out[0], context.state, context.stream);
  }
  PoolShape shape_;
};

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
      pool<AveragePoolTask<avg_pool, true>>("avg_pool"),
      pool<AveragePoolTask<avg_pool_grad, false>>("avg_pool_grad"),
      pool<GlobalAverageTask<global_average, true>>("global_average"),
      pool<GlobalAverageTask<global_average_grad, false>>("global_average_grad"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
