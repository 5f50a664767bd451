// One convolution as cuDNN runs it: operands in the unit's type, images NHWC and filters KRSC without gaps, sums in fp32, never
// rounded on the way; the result in fp32, or in the unit's type, to which each sum is rounded once.
//
// The engine is the first of cuDNN's heuristics that is deterministic, sums plain products in fp32 (no Winograd, no
// FFT) and fits the workspace. Nothing is timed, so the same library on the same device always runs the same
// engine. Plans are kept for the life of the process.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

enum class ConvKind : uint8_t { forward, grad_input, grad_weight };

struct ConvShape {
  int64_t n, h, w,
      c;      // c and k: all groups together; padded by the caller as the engines want them, which is to
  int64_t k;  // multiples of 8 for operands of 16 bits and of 4 for fp32
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t padding_h, padding_w;
  int64_t groups;

  auto operator<=>(const ConvShape&) const = default;
  int64_t out_h() const { return (h + 2 * padding_h - kernel_h) / stride_h + 1; }
  int64_t out_w() const { return (w + 2 * padding_w - kernel_w) / stride_w + 1; }
};

// Which of cuDNN's graphs a convolution is.
enum class ConvForm : uint8_t {
  plain,  // the convolution alone: of 16-bit operands it writes no fp32
  fused,  // the convolution to a virtual fp32 tensor, which an identity writes: kernels compiled at run time
};

struct ConvEnding {
  Written written = Written::fp32;
  std::optional<ConvForm> only = {};  // for measurements; else the better one that has an engine

  auto operator<=>(const ConvEnding&) const = default;
};

class ConvPlan {
 public:
  // The plan for all of this on the current device, made on the first call and kept; null, with the reason, where no engine
  // will do. Does not compile as far as cuDNN tells the workspace without, except convolutions in groups: of those many
  // engines are named that do not compile, and a caller who is told so now has other kernels. Any thread may call.
  static std::shared_ptr<ConvPlan> find(ConvKind kind, const ConvShape& shape, Unit unit,
                                        const ConvEnding& ending, size_t workspace_limit,
                                        std::string* why_not = nullptr);
  // One line for each engine that the heuristics name, in their order, and why it is declined if it is.
  static std::vector<std::string> engines(ConvKind kind, const ConvShape& shape, Unit unit,
                                          const ConvEnding& ending, size_t workspace_limit);

  ~ConvPlan();

  // Bytes that run() wants, aligned to 256. Does not change.
  size_t workspace() const;
  // The engine, and what of it is not as asked ("no tf32 engine, runs in fp32").
  std::string name() const;
  std::string note() const;

  // Compiles if that is not done yet (about half a second); run() calls it. Any thread may call. Should the engine
  // not compile, takes the next that needs no more workspace; throws Error if there is none, and whenever it is called
  // again.
  void prepare();

  // forward: a = x, b = weight, out = y. grad_input: a = dout, b = weight, out = dx. grad_weight: a = x, b = dout,
  // out = dweight. Pointers are aligned to 16 bytes. Overwrites out.
  void run(Stream stream, const void* a, const void* b, void* out, void* workspace);

 private:
  struct Impl;
  explicit ConvPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Compiles many on as many threads as there are cores. One that fails keeps no other from being compiled: throws the first
// Error once all are through.
void prepare_all(std::span<const std::shared_ptr<ConvPlan>> plans);

}  // namespace ulp::cuda
