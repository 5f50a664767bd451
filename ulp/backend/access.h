// Reading and writing tensors whatever their storage. A Reader gives a pointer to fp32 if the
// tensor is stored so, and decodes slices otherwise. A Writer takes slices of fp32, each element
// once. It rounds them to the tensor's format and reports the range events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ulp/backend/kernel.h"
#include "ulp/numeric/scalar.h"

namespace ulp {

// How a tensor is rounded in this step. Without a mode, the plan says it, and state is rounded to
// nearest even.
Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state);
Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state, Round mode);

// What overflow becomes in a storage: infinity if the storage has one, else the largest number.
Overflow overflow_of(const PlanContext& plan, const Storage& storage);

// How operators read a tensor. Split storage whose operand is its high part is that part.
TensorFormat read_format(const Problem& problem, TensorId id);
// Whether the problem has the first node that reads a weight. A weight is rounded at each use, in
// the same way. The first reader reports the range events.
bool first_reader(const Problem& problem, TensorId id);

// The codec of a narrow accumulator; none if sums are fp32.
std::optional<CodecSpec> accumulator_spec(const PlanContext& plan);

class Reader {
 public:
  Reader() = default;
  Reader(const Problem& problem, TensorId id);
  // Reads what is stored, not the operand, as updates do. Slices begin at whole words of extra bits
  // and at whole scaled blocks.
  static Reader stored(const Problem& problem, TensorId id);

  // The tensor's own fp32 values; null if they must be decoded.
  const float* direct(const RunContext& context) const;
  bool is_direct() const { return direct_; }

  // Slices must begin at multiples of this many elements; 1 if codes are whole bytes. 0: the tensor
  // is read as a whole, because rounding the operand looks at all of it. If the operand of split
  // storage has the high part's format, it is the high part.
  size_t granule() const { return granule_; }

  // Decodes elements [first, first + out.size()). A weight is also rounded to its operand's format,
  // which its first reader reports. `first` is a multiple of the granule; so is the size, except at
  // the tensor's end.
  void read(const RunContext& context, uint64_t first, std::span<float> out) const;
  // The same on all threads, if the tensor can be read in slices.
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

  // The tensor's own fp32 values; null if values must be encoded, or added in this step.
  float* direct(const RunContext& context) const;
  bool may_be_direct() const { return direct_; }

  // Slices must begin at multiples of this many elements. 0: the tensor is written as a whole,
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
