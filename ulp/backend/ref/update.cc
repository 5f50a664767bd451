// The end of a step: the norm of all gradients, and optimizer steps. State is read as it is stored (a weight's
// operand is rounded for operators, not for its update), changed, and written where it was.
#include "ulp/backend/update.h"

#include <algorithm>
#include <array>
#include <variant>

#include "ulp/backend/ref/plain.h"
#include "ulp/tensor/memory.h"

namespace ulp::ref {
namespace {

// One gradient is decoded at a time.
class NormTask : public Task {
 public:
  explicit NormTask(const Problem& problem)
      : out_(problem.root().out[0]), max_norm_(problem.root().attrs.real("max_norm")) {
    size_t space = 0;
    for (const TensorId id : problem.root().in) {
      readers_.emplace_back(problem, id);
      space = std::max(space, readers_.back().space());
    }
    Workspace workspace;
    workspace.book(space);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    double squares = 0;
    for (const Reader& reader : readers_) {
      const float* grad = reader.all(context, floats(context, 0));
      for (size_t i = 0; i < reader.elements(); ++i) squares += static_cast<double>(grad[i]) * grad[i];
    }
    const NormAndFactor result = norm_and_factor(squares, context.state->update.grad_scale, max_norm_);
    context.as<float>(out_)[0] = result.norm;
    context.as<float>(out_)[1] = result.factor;
  }

 private:
  const TensorId out_;
  const double max_norm_;
  std::vector<Reader> readers_;
};

void read_stored(const RunContext& context, const Storage& storage, TensorId id, std::span<float> out) {
  const StorageSize size = storage_size(storage, out.size());
  const uint8_t* data = context.bytes(id);
  decode(storage, {data, size.code_bytes},
         {reinterpret_cast<const uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words}, out);
}

class UpdateTask : public Task {
 public:
  explicit UpdateTask(const Problem& problem) {
    size_t most = 0;
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      Step step{make_optimizer(update_config(node.attrs)),
                Reader(problem, node.in[0]),
                node.in.size() > 1 ? node.in[1] : TensorId{},
                {},
                {},
                {}};
      for (size_t i = 0; i < node.out.size(); ++i) {
        step.stored.push_back(node.out[i]);
        step.storage.push_back(problem.format(node.out[i]).storage);
        step.writers.emplace_back(problem, node, node.out[i]);
      }
      most = std::max(most, step.grad.elements());
      steps_.push_back(std::move(step));
    }
    Workspace workspace;
    grad_ = workspace.book(most);
    for (size_t& space : stored_) space = workspace.book(most);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (const Step& step : steps_) {
      const UpdateScalars scalars =
          update_scalars(*context.state, step.norm ? context.as<const float>(step.norm)[1] : 1.0f);
      const size_t n = step.grad.elements();
      const float* grad = step.grad.all(context, floats(context, grad_));
      std::array<float*, kMost> values{};
      for (size_t k = 0; k < step.stored.size(); ++k) {
        values[k] = floats(context, stored_[k]);
        read_stored(context, step.storage[k], step.stored[k], {values[k], n});
      }
      std::visit(
          [&](const auto& optimizer) {
            for (size_t i = 0; i < n; ++i) {
              std::array<float, kMost - 1> state{};
              for (size_t k = 1; k < step.stored.size(); ++k) state[k - 1] = values[k][i];
              values[0][i] = optimizer.step(scalars, values[0][i], grad[i], state.data());
              for (size_t k = 1; k < step.stored.size(); ++k) values[k][i] = state[k - 1];
            }
          },
          step.optimizer);
      for (size_t k = 0; k < step.stored.size(); ++k) step.writers[k].all(context, values[k]);
    }
  }

 private:
  static constexpr size_t kMost = 3;  // a weight and Adam's two moments

  struct Step {
    Optimizer optimizer;
    Reader grad;
    TensorId norm;
    std::vector<TensorId> stored;  // the weight, then its states
    std::vector<Storage> storage;
    std::vector<Writer> writers;
  };

  std::vector<Step> steps_;
  size_t grad_ = 0;
  std::array<size_t, kMost> stored_{};
};

}  // namespace

std::span<const KernelDef> update_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"grad_norm", "reference", takes_one_node, make_one<NormTask>},
      {"update", "reference", takes_no_inlined, make_one<UpdateTask>},
  };
  return kKernels;
}

}  // namespace ulp::ref
