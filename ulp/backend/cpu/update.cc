// All parameters are cut into pieces of one size, which the threads share out among themselves, however small or
// large the tensors are. A piece is changed where it lies if it is fp32, else through buffers of the thread. What is
// stored with something beside its codes can only be read and written whole; such tensors go one by one.
#include "ulp/backend/cpu/update.h"

#include <algorithm>
#include <array>

#include "ulp/backend/access.h"
#include "ulp/backend/cpu/step_loops.h"
#include "ulp/backend/update.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

constexpr size_t kPiece = 8192;  // elements; a multiple of every granule
constexpr size_t kMost = 3;      // tensors that a step changes: a weight and Adam's two moments

// A piece of one of several tensors.
struct Piece {
  size_t tensor, first, count;
};

void cut(std::vector<Piece>& pieces, size_t tensor, size_t elements) {
  for (size_t first = 0; first < elements; first += kPiece) {
    pieces.push_back({tensor, first, std::min(kPiece, elements - first)});
  }
}

// Calls body(part, piece number) for every piece; a part has consecutive ones and one thread.
template <typename Body>
void for_pieces(size_t pieces, size_t parts, const Body& body) {
  parallel_for(parts, 1, [&](size_t begin, size_t end) {
    for (size_t part = begin; part < end; ++part) {
      for (size_t i = pieces * part / parts; i < pieces * (part + 1) / parts; ++i) body(part, i);
    }
  });
}

// State as it is stored: a weight's operand is rounded for operators, not for its update.
void read_stored(const RunContext& context, const Storage& storage, TensorId id, size_t elements,
                 size_t first, std::span<float> out) {
  const uint8_t* data = context.bytes(id);
  if (const Plain* plain = std::get_if<Plain>(&storage)) {
    const auto bits = static_cast<size_t>(plain->format.bits());
    decode(plain->format, {data + first * bits / 8, packed_bytes(plain->format.bits(), out.size())}, out);
    return;
  }
  const StorageSize size = storage_size(storage, elements);
  decode(storage, {data, size.code_bytes},
         {reinterpret_cast<const uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words}, out);
}

struct Changed {
  TensorId id;
  Storage storage;
  Writer writer;
};

struct Step {
  Optimizer optimizer;
  Reader grad;
  TensorId norm;
  std::vector<Changed> changed;  // the weight, then its states
  size_t elements;
  bool in_pieces = true;

  UpdateScalars scalars(const RunContext& context) const {
    return update_scalars(*context.state, norm ? context.as<const float>(norm)[1] : 1.0f);
  }
};

Step make_step(const Problem& problem, const Node& node) {
  Step step{make_optimizer(update_config(node.attrs)),
            Reader(problem, node.in[0]),
            node.in.size() > 1 ? node.in[1] : TensorId{},
            {},
            problem.tensor(node.out[0]).elements()};
  step.in_pieces = step.grad.granule() != 0;
  for (const TensorId id : node.out) {
    step.changed.push_back({id, problem.format(id).storage, Writer(problem, node, id)});
    step.in_pieces = step.in_pieces && step.changed.back().writer.granule() != 0;
  }
  return step;
}

class UpdateTask : public Task {
 public:
  explicit UpdateTask(const Problem& problem) {
    size_t whole = 0;
    for (const NodeId id : problem.roots) {
      steps_.push_back(make_step(problem, problem.graph()[id]));
      const Step& step = steps_.back();
      if (step.in_pieces) {
        cut(pieces_, steps_.size() - 1, step.elements);
      } else {
        whole = std::max(whole, step.elements);
      }
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), pieces_.size());
    stats_.resize(parts_ * steps_.size() * kMost);
    // Whole tensors and pieces take turns.
    Workspace wholes, buffers;
    for (size_t& place : whole_) place = wholes.book(whole);
    for (size_t& place : buffer_) place = buffers.book(kPiece);
    stride_ = buffers.bytes();
    workspace_ = std::max(wholes.bytes(), parts_ * stride_);
  }

  void run(const RunContext& context) override {
    for (const Step& step : steps_) {
      if (!step.in_pieces) run_whole(context, step);
    }
    if (pieces_.empty()) return;
    std::fill(stats_.begin(), stats_.end(), EncodeStats{});
    for_pieces(pieces_.size(), parts_, [&](size_t part, size_t i) { run_piece(context, part, pieces_[i]); });
    for (size_t s = 0; s < steps_.size(); ++s) {
      for (size_t k = 0; steps_[s].in_pieces && k < steps_[s].changed.size(); ++k) {
        EncodeStats sum;
        for (size_t part = 0; part < parts_; ++part) sum.merge(stats(part, s, k));
        context.report(steps_[s].changed[k].id, sum);
      }
    }
  }

 private:
  EncodeStats& stats(size_t part, size_t step, size_t k) {
    return stats_[(part * steps_.size() + step) * kMost + k];
  }

  void run_piece(const RunContext& context, size_t part, const Piece& piece) {
    const Step& step = steps_[piece.tensor];
    const auto buffer = [&](size_t k) { return floats(context, part * stride_ + buffer_[k]); };
    const float* grad = step.grad.direct(context);
    if (grad != nullptr) {
      grad += piece.first;
    } else {
      step.grad.read(context, piece.first, {buffer(kMost), piece.count});
      grad = buffer(kMost);
    }
    std::array<float*, kMost> values{};
    for (size_t k = 0; k < step.changed.size(); ++k) {
      const Changed& changed = step.changed[k];
      float* direct = changed.writer.direct(context);
      values[k] = direct != nullptr ? direct + piece.first : buffer(k);
      if (direct == nullptr) {
        read_stored(context, changed.storage, changed.id, step.elements, piece.first,
                    {values[k], piece.count});
      }
    }
    step::advance(step.optimizer, step.scalars(context), piece.count, grad, values[0], values.data() + 1);
    for (size_t k = 0; k < step.changed.size(); ++k) {
      const Changed& changed = step.changed[k];
      if (changed.writer.direct(context) != nullptr) continue;
      changed.writer.write(context, piece.first, {values[k], piece.count}, stats(part, piece.tensor, k));
    }
  }

  void run_whole(const RunContext& context, const Step& step) const {
    const UpdateScalars scalars = step.scalars(context);
    const float* grad = step.grad.all(context, floats(context, whole_[kMost]));
    std::array<float*, kMost> values{};
    for (size_t k = 0; k < step.changed.size(); ++k) {
      const Changed& changed = step.changed[k];
      values[k] = changed.writer.direct(context);
      if (values[k] != nullptr) continue;
      values[k] = floats(context, whole_[k]);
      read_stored(context, changed.storage, changed.id, step.elements, 0, {values[k], step.elements});
    }
    parallel_for(step.elements, kPiece, [&](size_t begin, size_t end) {
      std::array<float*, kMost> from{};
      for (size_t k = 0; k < step.changed.size(); ++k) from[k] = values[k] + begin;
      step::advance(step.optimizer, scalars, end - begin, grad + begin, from[0], from.data() + 1);
    });
    for (size_t k = 0; k < step.changed.size(); ++k) {
      const Writer& writer = step.changed[k].writer;
      if (writer.direct(context) == nullptr) writer.all(context, values[k]);
    }
  }

  std::vector<Step> steps_;
  std::vector<Piece> pieces_;
  size_t parts_ = 0, stride_ = 0;
  std::array<size_t, kMost + 1> buffer_{}, whole_{};  // the last is the gradient's
  std::vector<EncodeStats> stats_;                    // by part, step and changed tensor
};

// Sums of pieces are kept and added in order, so the norm is the same on any number of threads.
class NormTask : public Task {
 public:
  explicit NormTask(const Problem& problem)
      : out_(problem.root().out[0]), max_norm_(problem.root().attrs.real("max_norm")) {
    size_t most = 0;
    for (const TensorId id : problem.root().in) {
      grads_.emplace_back(problem, id);
      const Reader& grad = grads_.back();
      if (grad.granule() == 0) {
        most = std::max(most, grad.elements());
      } else {
        cut(pieces_, grads_.size() - 1, grad.elements());
      }
    }
    parts_ = std::min(static_cast<size_t>(thread_count()), pieces_.size());
    Workspace workspace;
    sums_ = workspace.book(std::max(pieces_.size(), (most + kPiece - 1) / kPiece), sizeof(double));
    Workspace wholes = workspace;
    whole_ = wholes.book(most);
    buffer_ = workspace.book(parts_ * kPiece);
    workspace_ = std::max(wholes.bytes(), workspace.bytes());
  }

  void run(const RunContext& context) override {
    double* sums = reinterpret_cast<double*>(context.workspace + sums_);
    double total = 0;
    for (const Reader& grad : grads_) {
      if (grad.granule() == 0) total += whole(context, grad, sums);
    }
    for_pieces(pieces_.size(), parts_, [&](size_t part, size_t i) {
      const Piece& piece = pieces_[i];
      const Reader& grad = grads_[piece.tensor];
      float* buffer = floats(context, buffer_) + part * kPiece;
      const float* direct = grad.direct(context);
      if (direct == nullptr) grad.read(context, piece.first, {buffer, piece.count});
      sums[i] = step::squares(direct != nullptr ? direct + piece.first : buffer, piece.count);
    });
    for (size_t i = 0; i < pieces_.size(); ++i) total += sums[i];
    const NormAndFactor result = norm_and_factor(total, context.state->update.grad_scale, max_norm_);
    context.as<float>(out_)[0] = result.norm;
    context.as<float>(out_)[1] = result.factor;
  }

 private:
  double whole(const RunContext& context, const Reader& grad, double* sums) const {
    const float* values = grad.all(context, floats(context, whole_));
    const size_t n = grad.elements();
    parallel_for(n, kPiece, [&](size_t begin, size_t end) {
      for (size_t at = begin; at < end; at += kPiece) {
        sums[at / kPiece] = step::squares(values + at, std::min(kPiece, end - at));
      }
    });
    double total = 0;
    for (size_t i = 0; i < (n + kPiece - 1) / kPiece; ++i) total += sums[i];
    return total;
  }

  const TensorId out_;
  const double max_norm_;
  std::vector<Reader> grads_;
  std::vector<Piece> pieces_;
  size_t parts_ = 0, sums_ = 0, whole_ = 0, buffer_ = 0;
};

}  // namespace

std::span<const KernelDef> update_kernels() {
  static constexpr KernelDef kernels[] = {
      {"update", "cpu", takes_no_inlined, make_one<UpdateTask>},
      {"grad_norm", "cpu", takes_one_node, make_one<NormTask>},
  };
  return kernels;
}

}  // namespace ulp
