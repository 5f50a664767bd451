// Tasks for broadcast.h.
#include "ulp/backend/cuda/ops/broadcast.h"

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp::cuda {
namespace {

class BroadcastTask : public ArrayTask {
 public:
  using ArrayTask::ArrayTask;

 protected:
  const Shape& in_shape(size_t i) const { return graph()[node().in[i]].shape; }
  const Shape& out_shape() const { return graph()[node().out[0]].shape; }
};

Walk walk_of(const Repetition& r) {
  Walk walk;
  for (size_t axis = 0; axis < Shape::kMaxRank; ++axis) {
    walk.extent[axis] = static_cast<uint32_t>(r.extent[axis]);
    walk.stride[axis] = static_cast<uint64_t>(r.stride[axis]);
  }
  return walk;
}

class BroadcastAddTask : public BroadcastTask {
 public:
  using BroadcastTask::BroadcastTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape& out = out_shape();
    broadcast_add(walk_of(repetition(in_shape(0), out)), walk_of(repetition(in_shape(1), out)),
                  out.elements(), arrays.real(0), arrays.real(1), arrays.result(), context.stream);
  }
};

class BroadcastSumTask : public BroadcastTask {
 public:
  using BroadcastTask::BroadcastTask;
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    const Shape &larger = in_shape(0), &smaller = out_shape();
    const Repetition r = repetition(smaller, larger);
    BroadcastSum sum{};
    sum.kept = sum.repeated = walk_of(repetition(larger, larger));
    for (size_t axis = 0; axis < Shape::kMaxRank; ++axis) {
      Walk& other = r.stride[axis] == 0 ? sum.kept : sum.repeated;
      other.extent[axis] = 1;
    }
    sum.elements = smaller.elements();
    sum.repetitions = larger.elements() / smaller.elements();
    broadcast_sum(sum, arrays.real(0), arrays.result(), context.stream);
  }
};

}  // namespace

std::span<const KernelDef> broadcast_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"broadcast_add", "generic", takes_one_node, make_one<BroadcastAddTask>},
      {"broadcast_sum", "generic", takes_one_node, make_one<BroadcastSumTask>},
  };
  return kKernels;
}

}  // namespace ulp::cuda
