// Convolutions and matrix products of the CUDA backend on a real GPU: every kind, unit and shape against plain loops in double
// (|err| <= 2 (n + 8) 2^-23 sum |a| |b|), the same bits when run again and from a captured graph, nothing written past a
// buffer; then speed. Prints a line for each and the number of failures; exits 1 if there are any.
//
//   products_check [check] [speed] [engines]     what to do; all but engines if nothing is named
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/products_naive.h"
#include "ulp/backend/cuda/convolution.h"
#include "ulp/backend/cuda/product.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

constexpr size_t kLimit = size_t{256} << 20;  // of workspaces
constexpr ConvKind kKinds[] = {ConvKind::forward, ConvKind::grad_input, ConvKind::grad_weight};
constexpr Unit kExact[] = {Unit::bf16, Unit::fp16, Unit::tf32, Unit::fp32};

int failures = 0;

void check(cudaError_t error) {
  if (error != cudaSuccess) fail("cuda", "{}", cudaGetErrorString(error));
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Device memory with a guard behind it.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&at_, bytes + kGuard));
    check(cudaMemset(at_, 0xA5, bytes + kGuard));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(at_); }
  void* get() const { return at_; }
  float* floats() const { return static_cast<float*>(at_); }
  size_t bytes() const { return bytes_; }
  // Garbage, so that nothing relies on what was there.
  void soil(int byte) { check(cudaMemset(at_, byte, bytes_)); }
  bool guard_intact() const {
    std::vector<unsigned char> guard(kGuard);
    check(cudaMemcpy(guard.data(), static_cast<char*>(at_) + bytes_, kGuard, cudaMemcpyDeviceToHost));
    for (const unsigned char byte : guard) {
      if (byte != 0xA5) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 1024;
  void* at_ = nullptr;
  size_t bytes_;
};

cudaStream_t stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

// Runs into `first`, again into `second`, and a third time from a captured graph; says what is wrong.
std::string run_thrice(const std::function<void(float*)>& run, const std::function<void(Memory&)>& before,
                       Memory& first, Memory& second, Memory& workspace) {
  std::string wrong;
  const auto words = static_cast<int64_t>(first.bytes() / 4);
  const auto clean = [&](Memory& out, int byte) {
    out.soil(byte);
    workspace.soil(byte);
    before(out);
    check(cudaDeviceSynchronize());
  };
  clean(first, 0xFF);
  run(first.floats());
  check(cudaDeviceSynchronize());
  clean(second, 0x7B);
  run(second.floats());
  check(cudaDeviceSynchronize());
  if (const uint64_t n = differences(first.get(), second.get(), words)) {
    wrong += fmt::format(", {} of {} differ when run again", n, words);
  }
  clean(second, 0x00);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  run(second.floats());
  check(cudaStreamEndCapture(stream(), &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphLaunch(executable, stream()));
  check(cudaDeviceSynchronize());
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  if (const uint64_t n = differences(first.get(), second.get(), words)) {
    wrong += fmt::format(", {} of {} differ from a captured graph", n, words);
  }
  if (!first.guard_intact() || !second.guard_intact()) wrong += ", wrote past the result";
  if (!workspace.guard_intact()) wrong += ", wrote past the workspace";
  return wrong;
}

void report(const std::string& title, double error, const std::string& wrong, const std::string& engine,
            const std::string& note, size_t workspace) {
  const bool ok = wrong.empty() && error <= 1;
  if (!ok) ++failures;
  say(fmt::format("{} {}: error {:.4f} of allowed, {}, workspace {}{}{}{}", ok ? "PASS" : "FAIL", title,
                  error, engine, workspace, note.empty() ? "" : ", ", note, wrong));
}

std::string_view kind_name(ConvKind kind) {
  return kind == ConvKind::forward ? "forward" : kind == ConvKind::grad_input ? "grad_input" : "grad_weight";
}

std::string conv_title(ConvKind kind, const ConvShape& s, Unit unit) {
  return fmt::format("conv {} {} {}x{}x{}x{} to {}, {}x{} stride {} padding {}{}", kind_name(kind),
                     unit_name(unit), s.n, s.h, s.w, s.c, s.k, s.kernel_h, s.kernel_w, s.stride_h,
                     s.padding_h, s.groups > 1 ? fmt::format(" groups {}", s.groups) : "");
}

struct ConvSizes {
  int64_t a, b, out;
};
ConvSizes conv_sizes(ConvKind kind, const ConvShape& s) {
  const int64_t x = s.n * s.h * s.w * s.c, y = s.n * s.out_h() * s.out_w() * s.k,
                w = s.k * s.kernel_h * s.kernel_w * (s.c / s.groups);
  if (kind == ConvKind::forward) return {x, w, y};
  if (kind == ConvKind::grad_input) return {y, w, x};
  return {x, y, w};
}

ConvShape square(int64_t n, int64_t size, int64_t c, int64_t k, int64_t kernel, int64_t stride,
                 int64_t padding, int64_t groups = 1) {
  return {n, size, size, c, k, kernel, kernel, stride, stride, padding, padding, groups};
}

void check_conv(ConvKind kind, const ConvShape& shape, Unit unit, Fill a_fill, Fill b_fill) {
  const std::string title =
      conv_title(kind, shape, unit) + (a_fill == Fill::subnormal ? ", subnormal operands" : "");
  std::string why_not;
  const std::shared_ptr<ConvPlan> plan = ConvPlan::find(kind, shape, unit, kLimit, &why_not);
  if (!plan) {
    // Grouped convolutions may have no engine: the caller has another kernel for them.
    if (shape.groups == 1) ++failures;
    say(fmt::format("{} {}: {}", shape.groups == 1 ? "FAIL" : "NONE", title, why_not));
    return;
  }
  const ConvSizes sizes = conv_sizes(kind, shape);
  Memory a(static_cast<size_t>(sizes.a) * operand_bytes(unit)),
      b(static_cast<size_t>(sizes.b) * operand_bytes(unit));
  Memory first(static_cast<size_t>(sizes.out) * 4), second(first.bytes()), workspace(plan->workspace());
  fill(unit, a_fill, a.get(), sizes.a, 1);
  fill(unit, b_fill, b.get(), sizes.b, 2);
  const std::string wrong =
      run_thrice([&](float* out) { plan->run(stream(), a.get(), b.get(), out, workspace.get()); },
                 [](Memory&) {}, first, second, workspace);
  const double error = conv_error(kind, shape, unit, a.get(), b.get(), first.floats(), 1);
  report(title, error, wrong, plan->name(), plan->note(), plan->workspace());
}

void check_convs() {
  const ConvShape wide{37, 9, 7, 24, 40, 3, 3, 1, 1, 1, 1, 1}, flat{6, 12, 10, 16, 24, 1, 5, 1, 2, 0, 2, 1};
  const std::vector<ConvShape> shapes{square(128, 32, 64, 64, 3, 1, 1),
                                      square(128, 32, 64, 64, 1, 1, 0),
                                      square(128, 32, 64, 128, 3, 2, 1),
                                      square(128, 32, 64, 128, 1, 2, 0),
                                      square(128, 32, 8, 64, 3, 1, 1),
                                      square(128, 4, 512, 512, 3, 1, 1),
                                      square(64, 8, 256, 256, 3, 1, 1),
                                      square(128, 32, 16, 16, 3, 1, 1),
                                      square(128, 32, 16, 32, 3, 2, 1),
                                      square(16, 32, 8, 64, 7, 2, 3),
                                      square(5, 13, 16, 32, 5, 2, 2),
                                      square(1, 4, 32, 32, 3, 1, 1),
                                      square(3, 1, 64, 16, 1, 1, 0),
                                      square(16, 16, 64, 64, 3, 1, 1, 4),
                                      square(16, 16, 64, 64, 3, 1, 1, 64),
                                      wide,
                                      flat};
  std::vector<std::shared_ptr<ConvPlan>> plans;
  double start = now();
  for (const ConvShape& shape : shapes) {
    for (const ConvKind kind : kKinds) {
      for (const Unit unit : kExact) {
        if (auto plan = ConvPlan::find(kind, shape, unit, kLimit)) plans.push_back(std::move(plan));
      }
    }
  }
  const double found = now() - start;
  start = now();
  prepare_all(plans);
  say(fmt::format("TIME {} plans: {:.2f} s to find, {:.2f} s to compile all on threads", plans.size(), found,
                  now() - start));
  for (const ConvShape& shape : shapes) {
    for (const Unit unit : kExact) {
      for (const ConvKind kind : kKinds) check_conv(kind, shape, unit, Fill::plain, Fill::plain);
    }
  }
  for (const Unit unit : kExact) {
    for (const ConvKind kind : kKinds) check_conv(kind, shapes[0], unit, Fill::subnormal, Fill::large);
    for (const ConvKind kind : kKinds) check_conv(kind, shapes[6], unit, Fill::subnormal, Fill::large);
  }
}

std::string matmul_title(const MatmulShape& s, Unit unit) {
  return fmt::format("matmul {} {}x{}x{} {}{}{}{}{}", unit_name(unit), s.m, s.n, s.k,
                     s.transpose_a ? "T" : "N", s.transpose_b ? "T" : "N",
                     s.batch > 1 ? fmt::format(" batch {}", s.batch) : "", s.accumulate ? " added" : "",
                     s.ldc > s.n ? " with gaps" : "");
}

// Elements from the first to the last that a batch of matrices touches.
int64_t extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + (rows - 1) * ld + columns;
}

void check_matmul(const MatmulShape& s, Unit unit, Fill a_fill, Fill b_fill) {
  const std::string title = matmul_title(s, unit) + (a_fill == Fill::subnormal ? ", subnormal operands" : "");
  std::string why_not;
  const std::shared_ptr<MatmulPlan> plan = MatmulPlan::find(s, unit, kLimit, &why_not);
  if (!plan) {
    ++failures;
    say(fmt::format("FAIL {}: {}", title, why_not));
    return;
  }
  const int64_t a_size =
      extent(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda, s.batch, s.stride_a);
  const int64_t b_size =
      extent(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb, s.batch, s.stride_b);
  const int64_t c_size = extent(s.m, s.n, s.ldc, s.batch, s.stride_c);
  Memory a(static_cast<size_t>(a_size) * operand_bytes(unit)),
      b(static_cast<size_t>(b_size) * operand_bytes(unit));
  Memory first(static_cast<size_t>(c_size) * 4), second(first.bytes()), held(first.bytes()),
      workspace(plan->workspace());
  fill(unit, a_fill, a.get(), a_size, 3);
  fill(unit, b_fill, b.get(), b_size, 4);
  fill(Unit::fp32, Fill::plain, held.get(), c_size, 5);
  // Gaps between rows must stay as they are, so every run starts from the same.
  const auto before = [&](Memory& out) {
    check(cudaMemcpy(out.get(), held.get(), out.bytes(), cudaMemcpyDeviceToDevice));
  };
  const std::string wrong =
      run_thrice([&](float* out) { plan->run(stream(), a.get(), b.get(), out, workspace.get()); }, before,
                 first, second, workspace);
  const double error =
      matmul_error(s, unit, a.get(), b.get(), s.accumulate ? held.floats() : nullptr, first.floats());
  report(title, error, wrong, plan->name(), plan->note(), plan->workspace());
}

void check_matmuls() {
  std::vector<MatmulShape> shapes;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      shapes.push_back(matmul_shape(128, 96, 64, ta, tb));
      shapes.push_back(matmul_shape(37, 29, 53, ta, tb));
      shapes.push_back(matmul_shape(64, 32, 48, ta, tb, 12));
      MatmulShape added = matmul_shape(200, 72, 512, ta, tb);
      added.accumulate = true;
      shapes.push_back(added);
      MatmulShape gaps = matmul_shape(50, 40, 24, ta, tb);
      gaps.lda += 8;
      gaps.ldb += 16;
      gaps.ldc += 4;
      shapes.push_back(gaps);
    }
  }
  shapes.push_back(matmul_shape(1024, 10, 512, false, true));   // a classifier forward,
  shapes.push_back(matmul_shape(1024, 512, 10, false, false));  // the gradient of its input,
  shapes.push_back(matmul_shape(10, 512, 1024, true, false));   // and of its weight
  shapes.push_back(matmul_shape(64, 64, 131072, true, false));  // a long sum that wants splitting
  shapes.push_back(matmul_shape(1, 1000, 2048, false, true));
  shapes.push_back(matmul_shape(1024, 1024, 1024, false, false));
  for (const MatmulShape& shape : shapes) {
    for (const Unit unit : kExact) check_matmul(shape, unit, Fill::plain, Fill::plain);
  }
  for (const Unit unit : kExact) {
    check_matmul(matmul_shape(256, 256, 256, false, true), unit, Fill::subnormal, Fill::large);
    check_matmul(matmul_shape(1024, 10, 512, false, true), unit, Fill::subnormal, Fill::large);
  }
}

double milliseconds(const std::function<void()>& run, int times) {
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

void time_conv(ConvKind kind, const ConvShape& whole, int64_t slice_batch, Unit unit) {
  ConvShape slice = whole;
  slice.n = slice_batch;
  std::string why_not;
  const auto plan = ConvPlan::find(kind, whole, unit, kLimit, &why_not);
  const auto sliced = ConvPlan::find(kind, slice, unit, kLimit, &why_not);
  if (!plan || !sliced) {
    say(fmt::format("NONE {}: {}", conv_title(kind, whole, unit), why_not));
    return;
  }
  const ConvSizes sizes = conv_sizes(kind, whole), part = conv_sizes(kind, slice);
  Memory a(static_cast<size_t>(sizes.a) * operand_bytes(unit)),
      b(static_cast<size_t>(sizes.b) * operand_bytes(unit));
  Memory out(static_cast<size_t>(sizes.out) * 4), workspace(std::max(plan->workspace(), sliced->workspace()));
  fill(unit, Fill::plain, a.get(), sizes.a, 1);
  fill(unit, Fill::plain, b.get(), sizes.b, 2);
  check(cudaDeviceSynchronize());
  const double ms =
      milliseconds([&] { plan->run(stream(), a.get(), b.get(), out.floats(), workspace.get()); }, 10);
  const double error = conv_error(kind, whole, unit, a.get(), b.get(), out.floats(), 997);
  // The images of a slice lie together; the weight, or its gradient, is the same for all slices.
  const double sliced_ms = milliseconds(
      [&] {
        for (int64_t i = 0; i < whole.n / slice.n; ++i) {
          const int64_t b_at = kind == ConvKind::grad_weight ? i * part.b : 0;
          const int64_t out_at = kind == ConvKind::grad_weight ? 0 : i * part.out;
          sliced->run(stream(),
                      static_cast<char*>(a.get()) + static_cast<size_t>(i * part.a) * operand_bytes(unit),
                      static_cast<char*>(b.get()) + static_cast<size_t>(b_at) * operand_bytes(unit),
                      out.floats() + out_at, workspace.get());
        }
      },
      10);
  const double work = 2e-9 * static_cast<double>(whole.n * whole.out_h() * whole.out_w() * whole.k) *
                      static_cast<double>(whole.kernel_h * whole.kernel_w * whole.c / whole.groups);
  const bool exact = unit != Unit::e4m3;  // the fp8 unit sums in fewer bits: its error is shown, not judged
  if (exact && !(error <= 1)) ++failures;
  say(fmt::format(
      "{} {}: {:.0f} TFLOP/s ({:.3f} ms, {}, workspace {}), in slices of {} {:.0f} TFLOP/s ({:.3f} ms, {}, "
      "workspace {}), error {:.4f} of allowed{}{}",
      !exact       ? "INFO"
      : error <= 1 ? "PASS"
                   : "FAIL",
      conv_title(kind, whole, unit), work / ms, ms, plan->name(), plan->workspace(), slice.n,
      work / sliced_ms, sliced_ms, sliced->name(), sliced->workspace(), error,
      plan->note().empty() ? "" : ", ", plan->note()));
}

void time_convs() {
  const std::vector<ConvShape> shapes{square(1024, 32, 64, 64, 3, 1, 1),  square(1024, 16, 128, 128, 3, 1, 1),
                                      square(1024, 8, 256, 256, 3, 1, 1), square(1024, 4, 512, 512, 3, 1, 1),
                                      square(1024, 32, 16, 16, 3, 1, 1),  square(1024, 32, 8, 64, 3, 1, 1),
                                      square(1024, 32, 64, 128, 3, 2, 1)};
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total));
    return free;
  };
  const size_t free_before = free_bytes();
  // What compiling costs, one after the other and on threads: different plans, since compiled ones stay.
  std::vector<std::shared_ptr<ConvPlan>> serial, parallel;
  double start = now();
  for (const ConvKind kind : kKinds) {
    for (const ConvShape& shape : shapes) {
      if (auto plan = ConvPlan::find(kind, shape, Unit::bf16, kLimit)) serial.push_back(std::move(plan));
    }
  }
  const double serial_found = now() - start;
  start = now();
  for (const auto& plan : serial) plan->prepare();
  const double serial_compiled = now() - start;
  start = now();
  for (const ConvKind kind : kKinds) {
    for (ConvShape shape : shapes) {
      shape.n = 128;
      if (auto plan = ConvPlan::find(kind, shape, Unit::bf16, kLimit)) parallel.push_back(std::move(plan));
    }
  }
  const double parallel_found = now() - start;
  start = now();
  prepare_all(parallel);
  say(
      fmt::format("TIME bf16: {} plans found in {:.3f} s and compiled one by one in {:.2f} s; {} found in "
                  "{:.3f} s and compiled "
                  "on threads in {:.2f} s; the device has {:.1f} MB less",
                  serial.size(), serial_found, serial_compiled, parallel.size(), parallel_found,
                  now() - start, static_cast<double>(free_before - free_bytes()) / 1e6));
  for (const Unit unit : {Unit::bf16, Unit::fp16, Unit::tf32, Unit::fp32}) {
    for (const ConvShape& shape : shapes) {
      for (const ConvKind kind : kKinds) time_conv(kind, shape, 128, unit);
    }
  }
  for (const ConvKind kind : kKinds) time_conv(kind, shapes[2], 128, Unit::e4m3);
}

void time_matmuls() {
  for (const Unit unit : {Unit::bf16, Unit::fp16, Unit::tf32, Unit::fp32, Unit::e4m3}) {
    for (const MatmulShape& s :
         {matmul_shape(4096, 4096, 4096, false, true), matmul_shape(8192, 1024, 1024, false, true),
          matmul_shape(8192, 1024, 1024, false, false), matmul_shape(1024, 1024, 8192, true, false)}) {
      std::string why_not;
      const auto plan = MatmulPlan::find(s, unit, kLimit, &why_not);
      if (!plan) {
        say(fmt::format("NONE {}: {}", matmul_title(s, unit), why_not));
        continue;
      }
      Memory a(static_cast<size_t>(s.m * s.k) * operand_bytes(unit)),
          b(static_cast<size_t>(s.k * s.n) * operand_bytes(unit));
      Memory c(static_cast<size_t>(s.m * s.n) * 4), workspace(plan->workspace());
      fill(unit, Fill::plain, a.get(), s.m * s.k, 3);
      fill(unit, Fill::plain, b.get(), s.k * s.n, 4);
      check(cudaDeviceSynchronize());
      const double ms =
          milliseconds([&] { plan->run(stream(), a.get(), b.get(), c.floats(), workspace.get()); }, 20);
      say(fmt::format("TIME {}: {:.0f} TFLOP/s ({:.3f} ms, {}, workspace {})", matmul_title(s, unit),
                      2e-9 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k) / ms, ms, plan->name(),
                      plan->workspace()));
    }
  }
}

void list_engines() {
  for (const ConvShape& shape : {square(1024, 32, 64, 64, 3, 1, 1), square(128, 32, 64, 128, 3, 2, 1)}) {
    for (const Unit unit : kExact) {
      for (const ConvKind kind : kKinds) {
        say(conv_title(kind, shape, unit));
        for (const std::string& line : ConvPlan::engines(kind, shape, unit, kLimit)) say("  " + line);
      }
    }
  }
}

int run(const std::vector<std::string_view>& what) {
  const auto wants = [&](std::string_view name, bool by_default) {
    for (const std::string_view word : what) {
      if (word == name) return true;
    }
    return what.empty() && by_default;
  };
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  say(fmt::format("{}, cuDNN {}", properties.name, cudnnGetVersion()));
  if (wants("engines", false)) list_engines();
  if (wants("check", true)) {
    check_matmuls();
    check_convs();
  }
  if (wants("speed", true)) {
    time_matmuls();
    time_convs();
  }
  say(fmt::format("{} failures", failures));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  try {
    return ulp::cuda::run({argv + 1, argv + argc});
  } catch (const ulp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
