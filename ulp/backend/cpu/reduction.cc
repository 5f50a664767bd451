#include "ulp/backend/cpu/reduction.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ulp/backend/cpu/program.h"
#include "ulp/backend/elementwise.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops/conv.h"
#include "ulp/graph/ops/norm.h"

namespace ulp {
namespace {

// A tensor is divided into at most this many chunks of whole blocks, each summed by one thread;
// chunks are then added in order.
constexpr size_t kMaxChunks = 64;

// Two numbers for each channel of a chunk, in double.
class ReductionTask : public Task {
 public:
  explicit ReductionTask(const Problem& problem) : program_(problem, book_), node_(problem.root()) {
    for (const TensorId out : node_.out) writers_.emplace_back(problem, node_, out);
    for (size_t i = 2; i < node_.in.size(); ++i) channel_inputs_.emplace_back(problem, node_.in[i]);
    const size_t blocks = program_.blocks();
    chunk_blocks_ = (blocks + kMaxChunks - 1) / kMaxChunks;
    chunks_ = (blocks + chunk_blocks_ - 1) / chunk_blocks_;
    sums_ = book_.book(chunks_ * 2 * program_.channels(), sizeof(double));
    for (size_t i = 0; i < 2; ++i) tiles_[i] = book_.book(program_.period());
    results_ = book_.book(2 * program_.channels());
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    program_.prepare(context);
    prepare(context);
    parallel_for(chunks_, 1, [&](size_t begin, size_t end) {
      Program::Worker worker(program_, context);
      for (size_t chunk = begin; chunk < end; ++chunk) {
        const size_t first = chunk * chunk_blocks_;
        sum_chunk(context, worker, first, std::min(first + chunk_blocks_, program_.blocks()),
                  chunk_sums(context, chunk));
      }
      worker.report();
    });
    float* results = floats(context, results_);
    combine(context, results);
    for (size_t i = 0; i < writers_.size(); ++i) writers_[i].all(context, results + i * program_.channels());
  }

 protected:
  // Channel values that the sums need.
  virtual void prepare(const RunContext&) {}
  virtual void sum_chunk(const RunContext& context, Program::Worker& worker, size_t begin, size_t end,
                         double* sums) = 0;
  // (2, channels), from all chunks.
  virtual void combine(const RunContext& context, float* results) = 0;

  double* chunk_sums(const RunContext& context, size_t chunk) const {
    return reinterpret_cast<double*>(context.workspace + sums_) + chunk * 2 * program_.channels();
  }
  // Rows of blocks [begin, end).
  double rows(size_t begin, size_t end) const {
    const size_t first = begin * program_.block(),
                 last = std::min(end * program_.block(), program_.elements());
    return static_cast<double>((last - first) / program_.channels());
  }

  Workspace book_;
  Program program_;
  const Node& node_;
  std::vector<Writer> writers_;
  std::vector<Reader> channel_inputs_;
  size_t chunk_blocks_ = 0, chunks_ = 0, sums_ = 0, results_ = 0;
  std::array<size_t, 2> tiles_{};
};

// Plain sums: of a bias's gradient, and the two of batch norm's.
class SumTask : public ReductionTask {
 public:
  explicit SumTask(const Problem& problem)
      : ReductionTask(problem), gradients_(node_.op == &kBatchNormSums) {}

 private:
  void prepare(const RunContext& context) override {
    if (!gradients_) return;
    std::array<std::array<float, kMaxBlock>, 2> values;  // mean, variance
    for (size_t i = 0; i < 2; ++i)
      channel_inputs_[i].read(context, 0, {values[i].data(), program_.channels()});
    const auto epsilon = static_cast<float>(node_.attrs.real("epsilon"));
    for (size_t i = 0; i < program_.period(); ++i) {
      const size_t c = i % program_.channels();
      floats(context, tiles_[0])[i] = values[0][c];
      floats(context, tiles_[1])[i] = elementwise::batch_inv(values[1][c], epsilon);
    }
  }

  void sum_chunk(const RunContext& context, Program::Worker& worker, size_t begin, size_t end,
                 double* sums) override {
    const size_t channels = program_.channels();
    std::fill(sums, sums + 2 * channels, 0.0);
    alignas(64) std::array<std::array<float, kMaxBlock>, 2> partial;
    for (size_t block = begin; block < end; ++block) {
      worker.run(block, nullptr);
      blocks::SumArgs args{};
      args.in[0] = worker.value(program_.input(0));
      args.out[0] = partial[0].data();
      args.out[1] = partial[1].data();
      args.n = worker.count();
      args.period = program_.period();
      if (gradients_) {
        args.in[1] = worker.value(program_.input(1));
        args.param[0] = floats(context, tiles_[0]);
        args.param[1] = floats(context, tiles_[1]);
        blocks::sum_gradients(args);
        blocks::fold(args.out[1], args.period, channels, sums + channels);
      } else {
        blocks::sum_rows(args);
      }
      blocks::fold(args.out[0], args.period, channels, sums);
    }
  }

  void combine(const RunContext& context, float* results) override {
    for (size_t i = 0; i < writers_.size() * program_.channels(); ++i) {
      double sum = 0;
      for (size_t chunk = 0; chunk < chunks_; ++chunk) sum += chunk_sums(context, chunk)[i];
      results[i] = static_cast<float>(sum);
    }
  }

  const bool gradients_;
};

// Mean and variance: within a block squares are taken about the block's own mean, and means and
// squares of two sets of rows are combined exactly (Chan, Golub and LeVeque), so nothing cancels.
class StatsTask : public ReductionTask {
 public:
  using ReductionTask::ReductionTask;

 private:
  // Combines the mean and squares of `count` rows with those of `before` rows.
  static void join(double before, double count, size_t channels, const double* mean, const double* squares,
                   double* sums) {
    const double share = count / (before + count), weight = before * share;
    for (size_t c = 0; c < channels; ++c) {
      const double delta = mean[c] - sums[c];
      sums[c] += delta * share;
      sums[channels + c] += squares[c] + delta * delta * weight;
    }
  }

  void sum_chunk(const RunContext&, Program::Worker& worker, size_t begin, size_t end,
                 double* sums) override {
    const size_t channels = program_.channels(), period = program_.period();
    std::fill(sums, sums + 2 * channels, 0.0);
    alignas(64) std::array<float, kMaxBlock> partial, tile;
    alignas(64) std::array<double, kMaxBlock> mean, squares;
    for (size_t block = begin; block < end; ++block) {
      worker.run(block, nullptr);
      blocks::SumArgs args{};
      args.in[0] = worker.value(program_.input(0));
      args.out[0] = partial.data();
      args.n = worker.count();
      args.period = period;
      blocks::sum_rows(args);
      std::fill(mean.begin(), mean.begin() + static_cast<ptrdiff_t>(channels), 0.0);
      std::fill(squares.begin(), squares.begin() + static_cast<ptrdiff_t>(channels), 0.0);
      blocks::fold(partial.data(), period, channels, mean.data());
      const double count = rows(block, block + 1);
      for (size_t c = 0; c < channels; ++c) {
        const auto rounded = static_cast<float>(mean[c] / count);
        // The squares are about this number, which is the mean except for its rounding.
        for (size_t i = c; i < period; i += channels) tile[i] = rounded;
        mean[c] /= count;
      }
      args.param[0] = tile.data();
      blocks::sum_squares(args);
      blocks::fold(partial.data(), period, channels, squares.data());
      join(rows(begin, block), count, channels, mean.data(), squares.data(), sums);
    }
  }

  void combine(const RunContext& context, float* results) override {
    const size_t channels = program_.channels();
    double* sums = chunk_sums(context, 0);
    for (size_t chunk = 1; chunk < chunks_; ++chunk) {
      const size_t first = chunk * chunk_blocks_;
      const double* other = chunk_sums(context, chunk);
      join(rows(0, first), rows(first, first + chunk_blocks_), channels, other, other + channels, sums);
    }
    const double count = rows(0, program_.blocks());
    for (size_t c = 0; c < channels; ++c) {
      results[c] = static_cast<float>(sums[c]);
      results[channels + c] = static_cast<float>(sums[channels + c] / count);
    }
  }
};

std::string why_not(const Problem& problem) { return Program::why_not(problem); }

}  // namespace

std::span<const KernelDef> reduction_kernels() {
  static const std::vector<KernelDef> kernels = {
      {"batch_stats", "fused", why_not, make_one<StatsTask>},
      {"batch_norm_sums", "fused", why_not, make_one<SumTask>},
      {"channel_sum", "fused", why_not, make_one<SumTask>},
  };
  return kernels;
}

}  // namespace ulp
