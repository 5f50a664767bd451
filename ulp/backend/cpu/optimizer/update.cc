// All parameters are divided into pieces of one size, which the threads share, however small or
// large the tensors are.
#include "ulp/backend/cpu/optimizer/update.h"

#include <algorithm>

#include "ulp/backend/cpu/optimizer/update_step.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

// A piece of one of several tensors.
struct Piece {
  size_t tensor, first, count;
};

// All pieces of one size of several tensors, in order. They are worked out when they are asked for: a
// list of them would take memory for tensors that are only planned.
class Pieces {
 public:
  explicit Pieces(size_t size) : size_(size) {}

  void add(size_t elements) {
    elements_.push_back(elements);
    ends_.push_back(count() + elements / size_ + (elements % size_ != 0));
  }
  size_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  Piece operator[](size_t i) const {
    const auto tensor = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
    const size_t first = (i - (tensor == 0 ? 0 : ends_[tensor - 1])) * size_;
    return {tensor, first, std::min(size_, elements_[tensor] - first)};
  }

 private:
  size_t size_;
  std::vector<size_t> elements_, ends_;  // by tensor: how many pieces it and those before it have
};

// Calls body(part, piece number) for every piece; a part has consecutive pieces and one thread.
template <typename Body>
void for_pieces(size_t pieces, size_t parts, const Body& body) {
  parallel_for(parts, 1, [&](size_t begin, size_t end) {
    for (size_t part = begin; part < end; ++part) {
      for (size_t i = pieces * part / parts; i < pieces * (part + 1) / parts; ++i) body(part, i);
    }
  });
}

class UpdateTask : public Task {
 public:
  explicit UpdateTask(const Problem& problem) {
    Workspace workspace;
    for (const NodeId id : problem.roots) {
      steps_.emplace_back(problem, problem.graph()[id], workspace);
      spans_.add(steps_.back().elements());
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), spans_.count());
    found_.resize(parts_ * steps_.size());
    for (size_t part = 0; part < parts_; ++part)
      scratch_.push_back(workspace.book(UpdateStep::scratch_bytes(), 1));
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (UpdateStep& step : steps_) step.begin(context);
    std::fill(found_.begin(), found_.end(), UpdateStep::Found{});
    for_pieces(spans_.count(), parts_, [&](size_t part, size_t i) {
      const Piece span = spans_[i];
      UpdateStep::Found found;
      for (size_t at = 0; at < span.count; at += step::kPiece) {
        steps_[span.tensor].run(context, span.first + at, std::min(step::kPiece, span.count - at),
                                context.workspace + scratch_[part], found);
      }
      found_[part * steps_.size() + span.tensor].merge(found);
    });
    for (size_t s = 0; s < steps_.size(); ++s) {
      UpdateStep::Found sum;
      for (size_t part = 0; part < parts_; ++part) sum.merge(found_[part * steps_.size() + s]);
      steps_[s].end(context, sum);
    }
  }

 private:
  static constexpr size_t kSpan = 16 * step::kPiece;  // what a thread takes at a time

  std::vector<UpdateStep> steps_;
  Pieces spans_{kSpan};
  size_t parts_ = 0;
  std::vector<size_t> scratch_;           // in the workspace, by part
  std::vector<UpdateStep::Found> found_;  // by part and step
};

// Sums of pieces are kept and added in order, separately for each tensor, so they do not depend on
// the number of threads or on the other tensors.
class SquaresTask : public Task {
 public:
  explicit SquaresTask(const Problem& problem) {
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      sums_.push_back({Reader::stored(problem, node.in[0]), node.out[0]});
      pieces_.add(sums_.back().grad.elements());
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), pieces_.count());
    Workspace workspace;
    piece_sums_ = workspace.book(pieces_.count(), sizeof(double));
    buffer_ = workspace.book(parts_ * kPiece);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    double* sums = reinterpret_cast<double*>(context.workspace + piece_sums_);
    for_pieces(pieces_.count(), parts_, [&](size_t part, size_t i) {
      const Piece piece = pieces_[i];
      const Reader& grad = sums_[piece.tensor].grad;
      float* buffer = floats(context, buffer_) + part * kPiece;
      const float* direct = grad.direct(context);
      if (direct == nullptr) grad.read(context, piece.first, {buffer, piece.count});
      sums[i] = step::squares(direct != nullptr ? direct + piece.first : buffer, piece.count);
    });
    for (const Sum& sum : sums_) *context.as<double>(sum.out) = 0;
    for (size_t i = 0; i < pieces_.count(); ++i) *context.as<double>(sums_[pieces_[i].tensor].out) += sums[i];
  }

 private:
  static constexpr size_t kPiece = 4096;
  struct Sum {
    Reader grad;
    TensorId out;
  };

  std::vector<Sum> sums_;
  Pieces pieces_{kPiece};
  size_t parts_ = 0, piece_sums_ = 0, buffer_ = 0;
};

}  // namespace

std::span<const KernelDef> update_kernels() {
  static constexpr KernelDef kernels[] = {
      {"update", "cpu", takes_no_inlined, make_one<UpdateTask>},
      {"grad_squares", "cpu", takes_no_inlined, make_one<SquaresTask>},
  };
  return kernels;
}

}  // namespace ulp
