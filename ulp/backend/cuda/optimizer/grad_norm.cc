#include "ulp/backend/cuda/optimizer/grad_norm.h"

#include <algorithm>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"

namespace ulp::cuda {
namespace {

class SquaresTask : public Task {
 public:
  explicit SquaresTask(const Problem& problem) {
    uint32_t most = 0;
    std::vector<Storage> formats;
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      const Storage& storage = problem.format(node.in[0]).storage;
      auto at = std::find(formats.begin(), formats.end(), storage);
      if (parts_.empty() || parts_.back().batch.count == kSquaresTensors ||
          (at == formats.end() && formats.size() == kSquaresFormats)) {
        parts_.emplace_back();
        formats.clear();
        at = formats.end();
      }
      SquaresBatch& batch = parts_.back().batch;
      const auto format = static_cast<uint32_t>(at - formats.begin());
      const size_t elements = problem.tensor(node.in[0]).elements();
      if (at == formats.end()) {
        batch.formats[format] = stored_view(storage, overflow_of(problem.plan, storage), elements);
        formats.push_back(storage);
      }
      batch.tensors[batch.count] = {nullptr, nullptr, elements, format};
      batch.first_block[batch.count + 1] = batch.first_block[batch.count] + squares_spans(elements);
      ++batch.count;
      parts_.back().tensors.push_back({node.in[0], node.out[0]});
      most = std::max(most, batch.first_block[batch.count]);
    }
    Workspace workspace;
    workspace.book(most, sizeof(double));
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (Part& part : parts_) {
      part.batch.sums = reinterpret_cast<double*>(context.workspace);
      for (uint32_t i = 0; i < part.batch.count; ++i) {
        part.batch.tensors[i].codes = context.bytes(part.tensors[i].first);
        part.batch.tensors[i].out = context.as<double>(part.tensors[i].second);
      }
      sum_squares(part.batch, context.stream);
    }
  }

 private:
  struct Part {
    SquaresBatch batch;
    std::vector<std::pair<TensorId, TensorId>> tensors;  // gradients and their sums
  };
  std::vector<Part> parts_;
};

class NormTask : public Task {
 public:
  explicit NormTask(const Problem& problem)
      : Task(sizeof(double)),
        squares_(problem.root().in),
        out_(problem.root().out[0]),
        max_norm_(problem.root().attrs.real("max_norm")) {}

  void run(const RunContext& context) override {
    size_t done = 0;
    do {
      NormBatch batch;
      batch.state = context.state;
      batch.max_norm = max_norm_;
      batch.sum = reinterpret_cast<double*>(context.workspace);
      batch.first = done == 0;
      for (; batch.count < kNormTensors && done < squares_.size(); ++done)
        batch.squares[batch.count++] = context.as<const double>(squares_[done]);
      if (done == squares_.size()) batch.out = context.as<float>(out_);
      add_norm(batch, context.stream);
    } while (done < squares_.size());
  }

 private:
  const std::vector<TensorId> squares_;
  const TensorId out_;
  const double max_norm_;
};

}  // namespace

std::unique_ptr<Task> make_squares(const Problem& problem) { return std::make_unique<SquaresTask>(problem); }
std::unique_ptr<Task> make_norm(const Problem& problem) { return std::make_unique<NormTask>(problem); }

}  // namespace ulp::cuda
