#include "tests/cuda/wgrad_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/igemm_bench.h"
#include "tests/cuda/naive_conv.h"
#include "tests/support/square_conv.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

namespace ulp::cuda {
namespace {

constexpr Format k434{"fp(4,3,4)"}, k520{"fp(5,2,0)"}, k690{"fp(6,9,0)"}, kBf16{"bf16"};

struct Grad {
  std::string_view name;
  ConvExtents32 conv;
  Format in, out;
  bool tf32 = false;
  bool small = false;  // subnormal codes and the lowest others
};

// Codes whose exponents are the two lowest.
std::vector<uint8_t> small_codes(const Format& format, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const CodecSpec spec = format.codec().spec;
  const uint32_t bytes = format.bits() / 8, kept = 1u << spec.sign_shift | ((2u << spec.man) - 1);
  std::vector<uint8_t> codes(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = static_cast<uint32_t>(random()) & kept;
    std::memcpy(&codes[i * bytes], &code, bytes);
  }
  return codes;
}

class GradBench {
 public:
  explicit GradBench(const Grad& work)
      : work_(work),
        call_(described(work)),
        elements_(uint64_t{call_.shape.out_c} * call_.shape.taps() * call_.shape.in_c),
        in_codes_(codes(work.in, work.conv.x_elements(), 1)),
        out_codes_(codes(work.out, call_.shape.results() * work.conv.out_c, 2)),
        in_(in_codes_),
        out_(out_codes_),
        parts_(elements_ * call_.tiling.pieces * sizeof(float)),
        result_(elements_ * sizeof(float)),
        state_(std::vector<StepState>(1)) {
    call_.parts = parts_.as<float>();
    complete(call_, work.in.codec(), work.out.codec());
  }

  double operations() const {
    return 2.0 * static_cast<double>(call_.shape.results()) * static_cast<double>(elements_);
  }

  void sum() { run_grad(call_, in_.as(), out_.as(), nullptr); }
  void add() {
    SplitKSums sums;
    sums.parts = call_.parts;
    sums.pieces = call_.tiling.pieces;
    sums.elements = elements_;
    sums.out.stored.codes = result_.as();
    sums.out.stored.elements = elements_;
    sums.state = state_.as<const StepState>();
    add_split_k(sums, nullptr);
  }

  std::string wrong() {
    const std::vector<float> sums = summed(0xFF);
    std::string text = wrong_sums(sums);
    if (std::memcmp(sums.data(), summed(0x7B).data(), elements_ * sizeof(float)) != 0)
      text += ", other bits when run again";
    if (!parts_.guard_intact() || !result_.guard_intact()) text += ", wrote past a buffer";
    return text;
  }
  double worst() const { return worst_; }
  std::string title() const {
    const ConvExtents32& conv = work_.conv;
    return fmt::format("weight gradient {} {} x {} as {}, {} images of {}x{}, {} to {} channels", work_.name,
                       work_.in.name, work_.out.name, work_.tf32 ? "tf32" : "bf16", conv.n, conv.h, conv.w,
                       conv.c, conv.out_c);
  }

 private:
  static GradCall described(const Grad& work) {
    GradCall call;
    call.shape = forward_part(work.conv).shape;
    call.tf32 = work.tf32;
    call.in_bytes = work.in.bits() / 8;
    call.out_bytes = work.out.bits() / 8;
    const auto tiling =
        make_grad_tiling(call.shape, call.in_bytes, call.out_bytes, work.tf32, igemm_processors());
    if (!tiling) fail("grad_check", "{} does not fit", work.name);
    call.tiling = *tiling;
    return call;
  }
  std::vector<uint8_t> codes(const Format& format, size_t count, uint32_t seed) const {
    return work_.small ? small_codes(format, count, seed) : random_codes(format, count, seed);
  }

  std::vector<float> summed(int soil) {
    parts_.soil(soil);
    result_.soil(soil);
    sum();
    add();
    return result_.read<float>();
  }

  std::string wrong_sums(const std::vector<float>& sums) {
    const Memory x(decoded(work_.in, in_codes_)), grad(decoded(work_.out, out_codes_));
    const Memory expected(elements_ * sizeof(double)), magnitude(elements_ * sizeof(double));
    naive_grad(call_.shape, x.as<float>(), grad.as<float>(), expected.as<double>(), magnitude.as<double>());
    check(cudaDeviceSynchronize());
    const std::vector<double> right = expected.read<double>(), all = magnitude.read<double>();
    const double terms = static_cast<double>(call_.shape.results());
    for (size_t i = 0; i < sums.size(); ++i) {
      const double error = std::fabs(static_cast<double>(sums[i]) - right[i]);
      const double share = error == 0 ? 0 : error / (2 * (terms + 8) * std::ldexp(1.0, -23) * all[i]);
      if (!(share <= worst_) && !std::isnan(worst_)) worst_ = share;
    }
    return worst_ <= 1 ? "" : ", sums are wrong";
  }

  Grad work_;
  GradCall call_;
  uint64_t elements_;
  std::vector<uint8_t> in_codes_, out_codes_;
  Memory in_, out_, parts_, result_, state_;
  double worst_ = 0;
};

struct Pair {
  Format in, out;
  bool tf32;
};
constexpr Pair kPairs[] = {{kBf16, kBf16, false}, {k434, k520, false}, {kBf16, k434, false},
                           {k690, k690, true},    {k434, k690, true},  {k690, k434, true},
                           {k434, kBf16, true},   {kBf16, k690, true}, {k690, kBf16, true}};

std::vector<Grad> checked() {
  std::vector<Grad> all;
  for (const Pair& pair : kPairs) {
    const auto add = [&](std::string_view name, const ConvExtents32& conv, bool small = false) {
      all.push_back({name, conv, pair.in, pair.out, pair.tf32, small});
    };
    add("one pixel", same_conv(3, 1, 16, 16, 3, 1));
    for (const uint32_t c : {16u, 32u, 48u, 64u, 128u}) add("3x3", same_conv(6, 9, c, c, 3, 1));
    add("3x3", {5, 7, 11, 64, 7, 11, 32, 3, 3, 1, 1, 1, 1});
    add("3x3", same_conv(40, 16, 32, 64, 3, 1));
    add("3x3", same_conv(150, 16, 64, 64, 3, 1));
    add("3x3 stride 2", same_conv(6, 16, 64, 128, 3, 2));
    add("3x3 stride 2", same_conv(7, 13, 16, 32, 3, 2));
    add("3x3 stride 2x1", {4, 9, 7, 64, 5, 7, 64, 3, 3, 2, 1, 1, 1});
    add("1x3", {4, 6, 7, 64, 6, 7, 32, 1, 3, 1, 1, 0, 1});
    add("2x2", {9, 6, 5, 64, 5, 4, 64, 2, 2, 1, 1, 0, 0});
    add("1x1", same_conv(6, 16, 64, 48, 1, 1));
    add("1x1 stride 2", same_conv(6, 16, 64, 128, 1, 2));
    add("1x1 stride 2", same_conv(5, 9, 128, 16, 1, 2));
    if (pair.tf32 && pair.in.name != kBf16.name && pair.out.name != kBf16.name)
      add("small numbers", same_conv(6, 9, 64, 64, 3, 1), true);
  }
  return all;
}

}  // namespace

int check_grads() {
  int failures = 0;
  for (const Grad& work : checked()) {
    if (!taken()) continue;
    GradBench bench(work);
    const std::string wrong = bench.wrong();
    if (!wrong.empty()) ++failures;
    fmt::print("{} {}: error {:.4f} of allowed{}\n", wrong.empty() ? "PASS" : "FAIL", bench.title(),
               bench.worst(), wrong);
    std::fflush(stdout);
  }
  return failures;
}

void time_grads() {
  const auto time = [](const Grad& work) {
    GradBench bench(work);
    const double ms = milliseconds([&] { bench.sum(); }), adding = milliseconds([&] { bench.add(); });
    fmt::print("* {}: {:.4f} ms, {:.0f} TFLOP/s, adding pieces {:.4f} ms\n", bench.title(), ms,
               bench.operations() / ms * 1e-9, adding);
    std::fflush(stdout);
  };
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const uint32_t c = 64u << layer, size = 32u >> layer;
    std::vector<std::pair<std::string_view, ConvExtents32>> convs = {
        {"3x3", same_conv(1024, size, c, c, 3, 1)}};
    if (layer > 0) {
      convs.emplace_back("3x3 stride 2", same_conv(1024, 2 * size, c / 2, c, 3, 2));
      convs.emplace_back("1x1 stride 2", same_conv(1024, 2 * size, c / 2, c, 1, 2));
    }
    for (const auto& [name, conv] : convs) {
      for (const Pair& pair : kPairs) {
        if (conv.stride_h > 1 && pair.in.name == kBf16.name && pair.tf32) continue;
        time({name, conv, pair.in, pair.out, pair.tf32});
      }
    }
  }
}

}  // namespace ulp::cuda
