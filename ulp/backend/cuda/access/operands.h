// From a problem's tensors to kernel arguments (view.h), and tasks that compute on plain fp32
// arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/kernel.h"

namespace ulp::cuda {

// How a storage is accessed, without an address.
StoredView stored_view(const Storage& storage, Overflow overflow, size_t elements);

// A tensor that is read: as operators see it, with a weight rounded to its operand format; or
// exactly as stored, as updates do.
class Operand {
 public:
  Operand() = default;
  Operand(const Problem& problem, TensorId id);
  static Operand stored(const Problem& problem, TensorId id);

  ReadView view(const RunContext& context) const;
  // The view without an address.
  const ReadView& form() const { return view_; }
  // Whether kernels can read it by groups. Otherwise it must be decoded as a whole: an operand in
  // S2FP8 or scaled storage.
  bool in_groups() const { return !view_.rounds_s2fp8 && !view_.rounds_scaled; }
  bool fp32() const { return view_.stored.fp32 && !view_.rounds && in_groups(); }
  // A format that holds all its values: of the codes, or of the operand. None for S2FP8 and scaled
  // storage.
  const std::optional<FloatFormat>& format() const { return format_; }
  // Whether it is stored as plain codes of exactly that format, to be read in place.
  bool plain() const { return plain_; }

  TensorId id() const { return id_; }
  size_t elements() const { return view_.stored.elements; }
  // The whole tensor in fp32: in place, or decoded to `space`, which must have space() floats.
  size_t space() const { return fp32() ? 0 : elements(); }
  const float* all(const RunContext& context, float* space, void* convert_space) const;

 private:
  TensorId id_;
  TensorId weight_;  // where rounding of the operand is reported
  size_t side_ = 0;  // offset of the data stored after the codes
  bool reports_ = false, plain_ = false;
  std::optional<FloatFormat> format_;
  ReadView view_;
};

// A tensor that is written.
class Result {
 public:
  Result() = default;
  Result(const Problem& problem, const Node& node, TensorId id);
  Result(const Problem& problem, const Node& node, TensorId id, Round mode);

  WriteView view(const RunContext& context) const;
  const WriteView& form() const { return view_; }
  // Whether kernels can write it by groups. Otherwise encode() writes it as a whole.
  bool in_groups() const { return view_.stored.kind == Stored::plain || view_.stored.kind == Stored::split; }
  // Whether threads can write a few elements each.
  bool by_vectors() const { return writes_by_vectors(view_); }
  // It is fp32 and never added to: a kernel may write it in place.
  bool direct() const { return view_.stored.fp32 && !view_.sums; }

  TensorId id() const { return id_; }
  size_t elements() const { return view_.stored.elements; }
  // Floats for the whole tensor before it is encoded; 0 if it is computed in place.
  size_t space() const { return direct() ? 0 : elements(); }
  float* target(const RunContext& context, float* space) const;
  // Encodes what target() returned, unless that is the tensor itself.
  void write(const RunContext& context, const float* space, void* convert_space) const;

 private:
  TensorId id_;
  size_t side_ = 0;
  WriteView view_;
};

// Bytes of scratch that a task reserves for conversions of what its nodes read and write.
size_t convert_bytes(const Problem& problem);

// A task whose kernels see whole tensors as fp32 arrays (int32 and bytes unchanged): inputs are
// decoded and outputs encoded around it. For operators that take little time; it needs memory for
// the decoded tensors.
class ArrayTask : public Task {
 public:
  explicit ArrayTask(const Problem& problem);
  void run(const RunContext& context) override;

 protected:
  struct Arrays {
    std::vector<const void*> in;
    std::vector<void*> out;
    const float* real(size_t i) const { return static_cast<const float*>(in[i]); }
    float* result(size_t i = 0) const { return static_cast<float*>(out[i]); }
  };
  // Launches the kernels.
  virtual void launch_on(const RunContext& context, const Arrays& arrays) = 0;
  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  // Reserves workspace; to be called in the constructor and resolved at run time.
  size_t book(size_t count, size_t size = sizeof(float));

 private:
  struct Input {
    TensorId id;
    std::optional<Operand> operand;  // for real numbers
    size_t space;
  };
  struct Output {
    TensorId id;
    std::optional<Result> result;
    size_t space;
  };

  const Graph& graph_;
  const Node& node_;
  Workspace book_;
  size_t convert_space_;
  std::vector<Input> in_;
  std::vector<Output> out_;
};

}  // namespace ulp::cuda
