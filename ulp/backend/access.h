// Reading and writing tensors without knowing how they are stored. A kernel asks for a pointer to
// fp32 where there is one, and else for slices of decoded values; it writes slices of fp32, each
// element once, and the tensor gets them in its format with its range events reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ulp/backend/kernel.h"
#include "ulp/numeric/scalar.h"

namespace ulp {

// The rounding with which a tensor is written in this step: as the plan says, state to
// nearest-even; or in a mode that is given.
Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state);
Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state, Round mode);

// What becomes of numbers beyond a storage's range: infinities are kept where there are any, else
// numbers saturate.
Overflow overflow_of(const PlanContext& plan, const Storage& storage);

// How operators read a tensor. Split storage whose operand is its high part is that part.
TensorFormat read_format(const Problem& problem, TensorId id);
// Whether the problem has the first node that reads a weight: a weight is rounded at each use, the
// same way, and counted at one.
bool first_reader(const Problem& problem, TensorId id);

// The codec that narrow sums of products are rounded by; none where they are fp32.
std::optional<CodecSpec> accumulator_spec(const PlanContext& plan);

class Reader {
 public:
  Reader() = default;
  Reader(const Problem& problem, TensorId id);
  // All that is stored, in slices as updates take it: no operand, and granules of words of extra
  // bits and of blocks.
  static Reader stored(const Problem& problem, TensorId id);

  // In place, or null where the values must be decoded.
  const float* direct(const RunContext& context) const;
  bool is_direct() const { return direct_; }

  // Slices must begin at multiples of this many elements (1 where codes are whole bytes). A weight
  // whose operand is rounded as it is loaded is read as a whole where that rounding looks at the
  // whole tensor: 0. The operand of split storage in the high part's format is the high part
  // itself.
  size_t granule() const { return granule_; }

  // Elements [first, first + out.size()), decoded, and for a weight rounded to its operand's
  // format. `first` and, except at the tensor's end, the size are multiples of the granule. A
  // weight's rounding is reported by its first reader.
  void read(const RunContext& context, uint64_t first, std::span<float> out) const;
  // The same on all threads, where there are slices.
  void read_on_threads(const RunContext& context, uint64_t first, std::span<float> out) const;

  size_t elements() const { return elements_; }
  // The whole tensor, in place if it can be, else decoded to `space`, on all threads.
  const float* all(const RunContext& context, float* space) const;
  size_t space() const { return direct_ ? 0 : elements_; }  // floats that `all` needs

 private:
  const PlanContext* plan_ = nullptr;
  TensorId id_;
  TensorFormat format_;
  size_t elements_ = 0, granule_ = 1;
  bool direct_ = false, reports_ = false;
};

class Writer {
 public:
  Writer() = default;
  // `adds` is the node's.
  Writer(const Problem& problem, const Node& node, TensorId id);
  Writer(const Problem& problem, const Node& node, TensorId id, Round mode);

  // In place, or null where values must be encoded or, in this step, added to what is there.
  float* direct(const RunContext& context) const;
  bool may_be_direct() const { return direct_; }

  // Slices must begin at multiples of this many elements; 0: the tensor is written as a whole,
  // because its storage looks at all of it first.
  size_t granule() const { return granule_; }

  // Writes or adds elements [first, first + in.size()). Range events are merged into `stats`; the
  // caller reports them.
  void write(const RunContext& context, uint64_t first, std::span<const float> in, EncodeStats& stats) const;
  // Writes the whole tensor on all threads and reports.
  void all(const RunContext& context, const float* in) const;

  size_t elements() const { return elements_; }
  TensorId id() const { return id_; }

 private:
  bool adding(const RunContext& context) const;

  const PlanContext* plan_ = nullptr;
  TensorId id_;
  Storage storage_;
  Round mode_ = Round::nearest_even;
  size_t elements_ = 0, granule_ = 1;
  bool direct_ = false, sums_ = false, adds_ = false;
};

// Cuts a task's workspace into arrays: book them when the task is made, find them when it runs.
class Workspace {
 public:
  // Returns where `count` objects of `size` bytes will lie.
  size_t book(size_t count, size_t size = sizeof(float));
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

inline float* floats(const RunContext& context, size_t offset) {
  return reinterpret_cast<float*>(context.workspace + offset);
}

}  // namespace ulp
