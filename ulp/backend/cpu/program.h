// A problem as a list of stages over blocks of elements: what is read, what is computed and rounded
// in the cache, what comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/cpu/blocks.h"
#include "ulp/backend/kernel.h"

namespace ulp {

// Elements of a block: a few blocks fit a core's first cache. If rows must stay whole it may be up
// to kMaxBlock.
inline constexpr size_t kBlock = 2048, kMaxBlock = 4096;
inline constexpr size_t kMinPeriod = 256;
inline constexpr size_t kMaxValues = 16;

struct Stage {
  blocks::StageLoop loop = nullptr;
  NodeId node;
  std::vector<int> in;                 // values
  int out = -1;                        // a value
  std::vector<Reader> channel_inputs;  // in the node's order
  std::vector<size_t> params;          // where each tile is in the workspace
  float scalars[blocks::kMaxScalars] = {};
  uint32_t words = 0, threshold = 0;  // dropout
  bool rounds = false, silent = false, recorded = false;
  FloatFormat format;  // what a value that is not stored is rounded to
  TensorId tensor;
};

class Program {
 public:
  // The elementwise nodes of the problem: the inlined ones, and the root if it is one. The inputs
  // of a reduction become values too. Reserves the tiles of channel values in `workspace`.
  Program(const Problem& problem, Workspace& workspace);
  static std::string why_not(const Problem& problem);

  size_t elements() const { return elements_; }
  size_t block() const { return block_; }
  size_t blocks() const { return (elements_ + block_ - 1) / block_; }
  size_t period() const { return period_; }
  size_t channels() const { return channels_; }
  // The value of an input of the root; of its output.
  int input(size_t index) const { return root_inputs_[index]; }
  int output() const { return output_; }

  // Computes channel values, before the blocks.
  void prepare(const RunContext& context) const;

  // One thread's state: the block it computes, and the range events it counted.
  class Worker {
   public:
    Worker(const Program& program, const RunContext& context);
    // Computes a block; `out` is where the output goes if it has no place of its own. Values are
    // valid until the next call.
    void run(size_t block, float* out);
    const float* value(int index) const { return value_[index]; }
    // Of the last block.
    size_t first() const { return first_; }
    size_t count() const { return count_; }
    void report() const;

   private:
    const Program& program_;
    const RunContext& context_;
    size_t first_ = 0, count_ = 0;
    const float* value_[kMaxValues] = {};
    EncodeStats stats_[kMaxValues];
    alignas(64) float space_[kMaxValues][kMaxBlock];
  };

 private:
  struct Leaf {
    Reader reader;
    int value;
  };
  int value_of(const Problem& problem, TensorId id);
  void add_stage(const Problem& problem, NodeId id, bool inlined, Workspace& workspace);

  const PlanContext* plan_;
  size_t elements_, channels_, period_, block_;
  std::vector<Leaf> leaves_;
  std::vector<Stage> stages_;
  std::vector<std::pair<TensorId, int>> values_;  // by owner of the bytes
  std::vector<int> root_inputs_;
  int output_ = -1;
};

}  // namespace ulp
