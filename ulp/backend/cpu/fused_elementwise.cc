#include "ulp/backend/cpu/fused_elementwise.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ulp/backend/cpu/program.h"
#include "ulp/backend/cpu/reduction.h"
#include "ulp/backend/fusable.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

// Minimum number of blocks per thread: less is not worth waking one.
constexpr size_t kGrainBlocks = 8;

class FusedTask : public Task {
 public:
  explicit FusedTask(const Problem& problem)
      : program_(problem, book_), writer_(problem, problem.root(), problem.root().out[0]) {
    // A storage that needs a pass over the whole tensor gets it whole, from fp32.
    if (writer_.granule() == 0) buffer_ = book_.book(writer_.elements());
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    program_.prepare(context);
    float* whole = writer_.granule() == 0 ? floats(context, buffer_) : writer_.direct(context);
    parallel_for(program_.blocks(), kGrainBlocks, [&](size_t begin, size_t end) {
      Program::Worker worker(program_, context);
      EncodeStats stats;
      for (size_t block = begin; block < end; ++block) {
        worker.run(block, whole == nullptr ? nullptr : whole + block * program_.block());
        if (whole != nullptr) continue;
        writer_.write(context, worker.first(), {worker.value(program_.output()), worker.count()}, stats);
      }
      worker.report();
      if (!writer_.may_be_direct() && writer_.granule() != 0) context.report(writer_.id(), stats);
    });
    if (writer_.granule() == 0) writer_.all(context, whole);
  }

 private:
  Workspace book_;
  Program program_;
  Writer writer_;
  size_t buffer_ = 0;
};

std::string why_not(const Problem& problem) { return Program::why_not(problem); }

}  // namespace

std::span<const KernelDef> fused_elementwise_kernels() {
  static const std::vector<KernelDef> kernels = [] {
    std::vector<KernelDef> made;
    const auto add = [&](std::string_view op) {
      made.push_back({op, "fused", why_not, make_one<FusedTask>, true});
    };
    elementwise::for_each_fusable(add);
    add("copy");
    const auto reductions = reduction_kernels();
    made.insert(made.end(), reductions.begin(), reductions.end());
    return made;
  }();
  return kernels;
}

}  // namespace ulp
