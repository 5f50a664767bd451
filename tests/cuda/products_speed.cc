// Rates of the products, with results in fp32.
#include <algorithm>

#include "tests/cuda/products_naive.h"
#include "tests/cuda/products_tools.h"

namespace ulp::cuda {
namespace {

void time_conv(ConvKind kind, const ConvExtents& whole, int64_t slice_batch, Unit unit) {
  ConvExtents slice = whole;
  slice.n = slice_batch;
  std::string why_not;
  const auto plan = ConvPlan::find(kind, whole, unit, {}, kLimit, &why_not);
  const auto sliced = ConvPlan::find(kind, slice, unit, {}, kLimit, &why_not);
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
  const double error = conv_error(kind, whole, unit, a.get(), b.get(), out.get(), Written::fp32, 997);
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
  const double work = 2e-9 * static_cast<double>(whole.multiply_adds());
  // Of gradients in fp8, which nothing runs, the error is only shown.
  const bool judged = unit != Unit::e4m3 || kind == ConvKind::forward;
  if (judged && !(error <= 1)) ++failures;
  say(fmt::format(
      "{} {}: {:.0f} TFLOP/s ({:.3f} ms, {}, workspace {}), in slices of {} {:.0f} TFLOP/s ({:.3f} ms, {}, "
      "workspace {}), error {:.4f} of allowed{}{}",
      !judged      ? "INFO"
      : error <= 1 ? "PASS"
                   : "FAIL",
      conv_title(kind, whole, unit), work / ms, ms, plan->name(), plan->workspace(), slice.n,
      work / sliced_ms, sliced_ms, sliced->name(), sliced->workspace(), error,
      plan->note().empty() ? "" : ", ", plan->note()));
}

}  // namespace

void time_convs() {
  const std::vector<ConvExtents> shapes{
      square_conv(1024, 32, 64, 64, 3, 1, 1),  square_conv(1024, 16, 128, 128, 3, 1, 1),
      square_conv(1024, 8, 256, 256, 3, 1, 1), square_conv(1024, 4, 512, 512, 3, 1, 1),
      square_conv(1024, 32, 16, 16, 3, 1, 1),  square_conv(1024, 32, 8, 64, 3, 1, 1),
      square_conv(1024, 32, 64, 128, 3, 2, 1)};
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total));
    return free;
  };
  const size_t free_before = free_bytes();
  // What compiling costs, one after the other and on threads: different plans, since compiled ones
  // stay.
  std::vector<std::shared_ptr<ConvPlan>> serial, parallel;
  double start = now();
  for (const ConvKind kind : kKinds) {
    for (const ConvExtents& shape : shapes) {
      if (auto plan = ConvPlan::find(kind, shape, Unit::bf16, {}, kLimit)) serial.push_back(std::move(plan));
    }
  }
  const double serial_found = now() - start;
  start = now();
  for (const auto& plan : serial) plan->prepare();
  const double serial_compiled = now() - start;
  start = now();
  for (const ConvKind kind : kKinds) {
    for (ConvExtents shape : shapes) {
      shape.n = 128;
      if (auto plan = ConvPlan::find(kind, shape, Unit::bf16, {}, kLimit))
        parallel.push_back(std::move(plan));
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
    for (const ConvExtents& shape : shapes) {
      for (const ConvKind kind : kKinds) time_conv(kind, shape, 128, unit);
    }
  }
}

void time_native() {
  for (const ConvExtents& shape :
       {square_conv(1024, 32, 64, 64, 3, 1, 1), square_conv(1024, 16, 128, 128, 3, 1, 1),
        square_conv(1024, 8, 256, 256, 3, 1, 1), square_conv(1024, 4, 512, 512, 3, 1, 1)}) {
    for (const ConvKind kind : kKinds) {
      for (const Unit unit : {Unit::bf16, Unit::e4m3}) time_conv(kind, shape, 128, unit);
    }
  }
}

void time_matmuls() {
  for (const Unit unit : {Unit::bf16, Unit::fp16, Unit::tf32, Unit::fp32, Unit::e4m3}) {
    for (const MatmulShape& s :
         {matmul_shape(4096, 4096, 4096, false, true), matmul_shape(8192, 1024, 1024, false, true),
          matmul_shape(8192, 1024, 1024, false, false), matmul_shape(1024, 1024, 8192, true, false)}) {
      std::string why_not;
      const auto plan = MatmulPlan::find(s, unit, Written::fp32, kLimit, &why_not);
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

}  // namespace ulp::cuda
