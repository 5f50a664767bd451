// Tasks for loss.h: softmax, losses, counting.
#include "ulp/backend/cuda/ops/loss.h"

#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/kernels.h"

namespace ulp::cuda {
namespace {

class LossTask : public DecodeAroundTask {
 public:
  // `rows` rows of `width` elements each.
  LossTask(const Problem& problem, uint64_t rows, uint64_t width) : DecodeAroundTask(problem) {
    const Node& node = problem.root();
    views_.rows = rows;
    views_.width = static_cast<uint32_t>(width);
    for (const TensorId id : node.in) integers_.push_back(problem.tensor(id).element == Element::int32);
    if (node.attrs.has("smoothing")) {
      const double smoothing = node.attrs.real("smoothing");
      views_.rest = smoothing / static_cast<double>(width);
      views_.top = 1 - smoothing;
    }
  }

 protected:
  LossViews loss_views(const Views& views) const {
    LossViews made = views_;
    StoredView* real[] = {&made.a, &made.b};
    size_t next = 0;
    for (size_t i = 0; i < views.in.size(); ++i) {
      if (integers_[i]) {
        made.labels = views.indices(i);
      } else {
        *real[next++] = views.in[i];
      }
    }
    return made;
  }
  const LossViews& shape() const { return views_; }

 private:
  LossViews views_;
  std::vector<bool> integers_;
};

template <RowMap map>
class MapTask : public LossTask {
 public:
  explicit MapTask(const Problem& problem)
      : LossTask(problem, problem.shape(problem.root().out[0]).rows(),
                 static_cast<uint64_t>(problem.shape(problem.root().out[0]).back())) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    map_rows(map, loss_views(views), views.out[0], context.state, context.stream);
  }
};

// An example of any rank is a row.
uint64_t examples(const Problem& problem, TensorId id) { return static_cast<uint64_t>(problem.shape(id)[0]); }
uint64_t example_size(const Problem& problem, TensorId id) {
  return problem.tensor(id).elements() / examples(problem, id);
}

template <RowLoss loss>
class SumTask : public LossTask {
 public:
  explicit SumTask(const Problem& problem)
      : LossTask(problem, examples(problem, problem.root().in[0]),
                 example_size(problem, problem.root().in[0])) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    sum_rows(loss, loss_views(views), views.out[0], context.state, context.stream);
  }
};

template <RowLoss loss>
class TargetGradTask : public DecodeAroundTask {
 public:
  explicit TargetGradTask(const Problem& problem)
      : DecodeAroundTask(problem),
        width_(static_cast<uint32_t>(example_size(problem, problem.root().out[0]))) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    target_grad(loss, views.in[0], views.in[1], views.in[2], width_, views.out[0], context.state,
                context.stream);
  }
  const uint32_t width_;
};

class ClassifyTask : public LossTask {
 public:
  explicit ClassifyTask(const Problem& problem)
      : LossTask(problem, examples(problem, problem.root().in[0]),
                 example_size(problem, problem.root().in[0])) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    classify(loss_views(views), views.out[0], context.state, context.stream);
  }
};

class LossSumTask : public LossTask {
 public:
  explicit LossSumTask(const Problem& problem)
      : LossTask(problem, problem.tensor(problem.root().in[0]).elements(), 1) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    sum_terms(loss_views(views), views.out[0], context.state, context.stream);
  }
};

template <typename Made>
constexpr KernelDef rows(std::string_view op) {
  return {op, "rows", takes_one_node, make_one<Made>};
}
// Reported values: gradients do not depend on them, so they may run on the side stream.
template <typename Made>
constexpr KernelDef report(std::string_view op) {
  return {op, "rows", takes_one_node, make_one<Made>, false, true};
}

}  // namespace

std::span<const KernelDef> loss_kernels() {
  static constexpr KernelDef kKernels[] = {
      rows<MapTask<RowMap::softmax>>("softmax"),
      rows<MapTask<RowMap::softmax_grad>>("softmax_grad"),
      rows<MapTask<RowMap::log_softmax>>("log_softmax"),
      rows<MapTask<RowMap::log_softmax_grad>>("log_softmax_grad"),
      report<SumTask<RowLoss::nll>>("nll"),
      rows<MapTask<RowMap::nll_grad>>("nll_grad"),
      report<SumTask<RowLoss::cross_entropy>>("cross_entropy"),
      rows<MapTask<RowMap::cross_entropy_grad>>("cross_entropy_grad"),
      report<SumTask<RowLoss::mse>>("mse"),
      rows<TargetGradTask<RowLoss::mse>>("mse_grad"),
      report<SumTask<RowLoss::bce_with_logits>>("bce_with_logits"),
      rows<TargetGradTask<RowLoss::bce_with_logits>>("bce_with_logits_grad"),
      report<ClassifyTask>("classify"),
      report<LossSumTask>("loss_sum"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
