// One convolution by cuDNN: operands in the unit's type, images NHWC and filters KRSC without gaps,
// sums in fp32 without intermediate rounding. The result is fp32, or the unit's type, to which each
// sum is rounded once.
//
// The engine is the first of cuDNN's heuristics that is deterministic, sums plain products in fp32
// (no Winograd, no FFT) and fits the workspace. Nothing is timed, so the same library on the same
// device always runs the same engine. Plans are kept for the life of the process.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/conv_extents.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Which of cuDNN's graphs a convolution uses.
enum class ConvForm : uint8_t {
  plain,  // the convolution alone; with 16-bit operands it cannot write fp32
  fused,  // via a virtual fp32 tensor, written by an identity; compiled at run time
};

struct ConvEnding {
  Written written = Written::fp32;
  // For measurements; otherwise the better one that has an engine.
  std::optional<ConvForm> only = {};

  auto operator<=>(const ConvEnding&) const = default;
};

class ConvPlan {
 public:
  // The plan for these arguments on the current device, made on the first call and kept. Null, with
  // the reason, if no engine qualifies. Does not compile if cuDNN tells the workspace without;
  // grouped convolutions are always compiled, because cuDNN names many engines for them that do not
  // compile, and the caller still has other kernels at this point. Thread-safe. The caller pads
  // channels: to multiples of 8 for 16-bit operands, of 4 for fp32.
  static std::shared_ptr<ConvPlan> find(ConvKind kind, const ConvExtents& shape, Unit unit,
                                        const ConvEnding& ending, size_t workspace_limit,
                                        std::string* why_not = nullptr);
  // One line per engine that the heuristics name, in their order, with the reason if it is
  // declined.
  static std::vector<std::string> engines(ConvKind kind, const ConvExtents& shape, Unit unit,
                                          const ConvEnding& ending, size_t workspace_limit);

  ~ConvPlan();

  // Bytes of workspace for run(), aligned to 256. Does not change.
  size_t workspace() const;
  // The engine, and how it differs from the request ("no tf32 engine, runs in fp32").
  std::string name() const;
  std::string note() const;

  // Compiles if not done yet (about half a second); run() calls it. Thread-safe. If the engine does
  // not compile, takes the next that needs no more workspace. Throws Error if there is none, on
  // this and every later call.
  void prepare();

  // forward: a = x, b = weight, out = y. grad_input: a = dout, b = weight, out = dx. grad_weight: a
  // = x, b = dout, out = dweight. Pointers must be aligned to 16 bytes. Overwrites out.
  void run(Stream stream, const void* a, const void* b, void* out, void* workspace);

 private:
  struct Impl;
  explicit ConvPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Compiles many plans on all cores. A failure does not stop the others: throws the first Error
// after all are done.
void prepare_all(std::span<const std::shared_ptr<ConvPlan>> plans);

}  // namespace ulp::cuda
