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

void cut(std::vector<Piece>& pieces, size_t tensor, size_t elements, size_t size) {
  for (size_t first = 0; first < elements; first += size) {
    pieces.push_back({tensor, first, std::min(size, elements - first)});
  }
}

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
      cut(spans_, steps_.size() - 1, steps_.back().elements(), kSpan);
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), spans_.size());
    found_.resize(parts_ * steps_.size());
    for (size_t part = 0; part < parts_; ++part)
      scratch_.push_back(workspace.book(UpdateStep::scratch_bytes(), 1));
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (UpdateStep& step : steps_) step.begin(context);
    std::fill(found_.begin(), found_.end(), UpdateStep::Found{});
    for_pieces(spans_.size(), parts_, [&](size_t part, size_t i) {
      const Piece& span = spans_[i];
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
  std::vector<Piece> spans_;
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
      cut(pieces_, sums_.size() - 1, sums_.back().grad.elements(), kPiece);
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), pieces_.size());
    Workspace workspace;
    piece_sums_ = workspace.book(pieces_.size(), sizeof(double));
    buffer_ = workspace.book(parts_ * kPiece);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    double* sums = reinterpret_cast<double*>(context.workspace + piece_sums_);
    for_pieces(pieces_.size(), parts_, [&](size_t part, size_t i) {
      const Piece& piece = pieces_[i];
      const Reader& grad = sums_[piece.tensor].grad;
      float* buffer = floats(context, buffer_) + part * kPiece;
      const float* direct = grad.direct(context);
      if (direct == nullptr) grad.read(context, piece.first, {buffer, piece.count});
      sums[i] = step::squares(direct != nullptr ? direct + piece.first : buffer, piece.count);
    });
    for (const Sum& sum : sums_) *context.as<double>(sum.out) = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) *context.as<double>(sums_[pieces_[i].tensor].out) += sums[i];
  }

 private:
  static constexpr size_t kPiece = 4096;
  struct Sum {
    Reader grad;
    TensorId out;
  };

  std::vector<Sum> sums_;
  std::vector<Piece> pieces_;
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
