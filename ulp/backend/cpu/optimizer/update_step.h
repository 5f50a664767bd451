// One update node on the CPU: which loops handle its storages, and the work on one piece. fp32 and
// the common 16-bit storages are read and written in place, the most common ones in two loops;
// others are decoded to the thread's buffers and encoded from there. A tensor whose storage needs a
// pass over all of it is decoded as a whole before the pieces, and written after them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/cpu/optimizer/fused_loops.h"
#include "ulp/backend/cpu/optimizer/step_loops.h"
#include "ulp/backend/update.h"

namespace ulp {

class UpdateStep {
 public:
  // Tensors that a step changes: a weight, two states, a compensation.
  static constexpr size_t kMost = 4;

  // What pieces have counted, by thread.
  struct Found {
    std::array<EncodeStats, kMost> stats;
    UpdateCounts counts;
    void merge(const Found& other);
  };

  // Reserves what it keeps from the first piece to the last.
  UpdateStep(const Problem& problem, const Node& node, Workspace& workspace);

  // What the pieces go through: the elements of the gradient.
  size_t elements() const { return grad_.elements(); }
  // Bytes that a thread needs for a piece.
  static size_t scratch_bytes();

  // In this order: begin once, run for every piece [first, first + n) on any thread, end once.
  void begin(const RunContext& context);
  void run(const RunContext& context, size_t first, size_t n, uint8_t* scratch, Found& found) const;
  void end(const RunContext& context, Found found) const;

 private:
  // Where a piece's gradient is: a piece of the weight and its gradient begin at the same element,
  // unless the gradient has only some rows.
  struct Span {
    size_t first, n;    // of the weight
    size_t grad;        // the first of the gradient
    const float* read;  // its values, if they were decoded
  };

  enum class Way : uint8_t { fp32, codes, buffered, whole };  // how the loops access a tensor
  struct Changed {
    TensorId id;
    Reader reader;
    Writer writer;
    Way way = Way::buffered;
    size_t whole = 0;  // in the workspace
  };
  enum class Writing : uint8_t { fp32, plain, kahan, split, any, any_kahan };
  struct Scratch;

  Changed changed(const Problem& problem, const Node& node, TensorId id, Round mode,
                  Workspace& workspace) const;
  void choose_writing(const Problem& problem);
  void choose_fused();
  size_t compensation() const { return 1 + states_; }
  void run_span(const RunContext& context, const Span& span, Scratch& scratch, Found& found) const;
  bool run_fused(const RunContext& context, const Span& span, Scratch& scratch, Found& found) const;
  float* values(const RunContext& context, const Changed& one, size_t first, float* buffer) const;
  const float* read_weight(const RunContext& context, size_t first, size_t n, Scratch& scratch) const;
  void write_weight(const RunContext& context, size_t first, size_t n, const float* before, Scratch& scratch,
                    Found& found) const;
  step::SplitArrays split_arrays(const RunContext& context, size_t first, Scratch& scratch) const;
  void read_side(const RunContext& context, size_t first, size_t n, Scratch& scratch) const;
  void write_side(const RunContext& context, size_t first, size_t n, Scratch& scratch) const;
  uint8_t* split_side(const RunContext& context, size_t first) const;

  const PlanContext* plan_;
  UpdateNode node_;
  size_t elements_, width_, states_ = 0;  // of the weight
  Reader grad_;
  bool grad_bf16_ = false;
  std::vector<Changed> changed_;  // the weight, its states, its compensation
  size_t compare_ = 0;            // in the workspace, if the weight is written whole
  Writing writing_ = Writing::any;
  std::optional<Nearest> arithmetic_, near_;
  CodecSpec spec_{};  // of the weight if it is codes, and if it has a compensation
  step::Codes codes_{}, bf16_{};
  bool same_ = false, random_ = false;
  Split split_{};
  step::FusedKind fused_kind_;
  step::FusedStep fused_;
  // Of this step.
  UpdateScalars scalars_{};
  RoundKey key_{};
};

}  // namespace ulp
