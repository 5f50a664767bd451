// What the parts of products_check share: titles, times.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/memory.h"
#include "tests/support/square_conv.h"
#include "ulp/backend/cuda/library/cublaslt_matmul.h"
#include "ulp/backend/cuda/library/cudnn_conv.h"
#include "ulp/base/error.h"

namespace ulp::cuda {

// Rates of products of round sizes (products_speed.cc).
void time_matmuls();
void time_convs();
// Native fp8 and bf16 beside each other.
void time_native();
// Convolutions of whole networks, in every way that a result is written (products_layers.cc).
void time_layers();

inline constexpr size_t kLimit = size_t{256} << 20;  // of workspaces
inline constexpr ConvKind kKinds[] = {ConvKind::forward, ConvKind::grad_input, ConvKind::grad_weight};
inline constexpr Unit kExact[] = {Unit::bf16, Unit::fp16, Unit::tf32, Unit::fp32};

inline int failures = 0;

inline void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline cudaStream_t stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

// ", to bf16 by a plain graph"; nothing for fp32 by any.
inline std::string ending_text(Unit unit, const ConvEnding& ending) {
  std::string text = ending.written == Written::half ? fmt::format(", to {}", unit_name(unit)) : "";
  if (ending.only) text += *ending.only == ConvForm::plain ? ", plain" : ", fused";
  return text;
}

inline std::string_view kind_name(ConvKind kind) {
  return kind == ConvKind::forward ? "forward" : kind == ConvKind::grad_input ? "grad_input" : "grad_weight";
}

inline std::string conv_title(ConvKind kind, const ConvExtents& s, Unit unit, const ConvEnding& ending = {}) {
  return fmt::format("conv {} {} {}x{}x{}x{} to {}, {}x{} stride {} padding {}{}{}", kind_name(kind),
                     unit_name(unit), s.n, s.h, s.w, s.c, s.out_c, s.kernel_h, s.kernel_w, s.stride_h,
                     s.padding_h, s.groups > 1 ? fmt::format(" groups {}", s.groups) : "",
                     ending_text(unit, ending));
}

struct ConvSizes {
  int64_t a, b, out;
};
inline ConvSizes conv_sizes(ConvKind kind, const ConvExtents& s) {
  const auto x = static_cast<int64_t>(s.x_elements()), y = static_cast<int64_t>(s.out_elements()),
             w = static_cast<int64_t>(s.weight_elements());
  if (kind == ConvKind::forward) return {x, w, y};
  if (kind == ConvKind::grad_input) return {y, w, x};
  return {x, y, w};
}

inline std::string matmul_title(const MatmulShape& s, Unit unit, Written written = Written::fp32) {
  return fmt::format("matmul {} {}x{}x{} {}{}{}{}{}{}", unit_name(unit), s.m, s.n, s.k,
                     s.transpose_a ? "T" : "N", s.transpose_b ? "T" : "N",
                     s.batch > 1 ? fmt::format(" batch {}", s.batch) : "", s.accumulate ? " added" : "",
                     s.ldc > s.n ? " with gaps" : "", ending_text(unit, {written}));
}

// Of one run; kernels are launched one by one.
inline double milliseconds(const std::function<void()>& run, int times) {
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  for (int i = 0; i < 3; ++i) run();
  check(cudaEventRecord(start, stream()));
  for (int i = 0; i < times; ++i) run();
  check(cudaEventRecord(stop, stream()));
  check(cudaEventSynchronize(stop));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, start, stop));
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  return ms / times;
}

// The same without the host's part: from a graph of many.
inline double recorded_milliseconds(const std::function<void()>& run, int times) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  run();  // what is loaded or compiled at first
  check(cudaStreamSynchronize(stream()));
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < times; ++i) run();
  check(cudaStreamEndCapture(stream(), &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  const double ms = milliseconds([&] { check(cudaGraphLaunch(executable, stream())); }, 3);
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  return ms / times;
}

}  // namespace ulp::cuda
