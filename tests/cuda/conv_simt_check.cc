// Convolutions in plain fp32 (conv_simt.h) on a real GPU, in every tile, in one piece and in
// several: sums against plain loops in double (|err| <= (n + 8) 2^-24 sum |a| |b|), the same bits
// from garbage in the workspace, nothing written past a buffer; and speed. Prints a line for each
// and the number of failures; exits 1 if there are any.
//
//   conv_simt_check [--speed] [--every N]     what is right, or how long ResNet-18's layers take; *
//                                          is the tile that plans take; every N: of the cases one
//                                          in so many
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/igemm_bench.h"
#include "tests/cuda/naive_conv.h"
#include "tests/support/square_conv.h"
#include "ulp/backend/cuda/conv/conv_simt.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/step_state.h"

namespace ulp::cuda {
namespace {

int failures = 0;

constexpr ConvSimtTile kTiles[] = {ConvSimtTile::wide, ConvSimtTile::narrow, ConvSimtTile::slim};
constexpr size_t kWorkspace = size_t{64} << 20;  // of plans

constexpr ConvKind kKinds[] = {ConvKind::forward, ConvKind::grad_input, ConvKind::grad_weight};
constexpr std::string_view kNames[] = {"forward", "gradient of inputs", "gradient of weights"};

std::string title(const ConvExtents32& conv, ConvKind kind) {
  return fmt::format("{} {}x{}x{}x{} to {}, {}x{} stride {}", kNames[static_cast<size_t>(kind)], conv.n,
                     conv.h, conv.w, conv.c, conv.out_c, conv.kernel_h, conv.kernel_w, conv.stride_h);
}

// Large tensors repeat themselves.
std::vector<float> random_numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> unit(-1, 1);
  std::vector<float> values(count);
  const size_t own = std::min(count, size_t{1} << 20);
  for (size_t i = 0; i < own; ++i) values[i] = unit(random);
  for (size_t i = own; i < count; ++i) values[i] = values[i - own];
  return values;
}

// A convolution on the device.
class Bench {
 public:
  Bench(const ConvExtents32& conv, ConvKind kind)
      : conv_(conv),
        kind_(kind),
        taps_(conv.taps()),
        x_(random_numbers(conv.x_elements(), 1)),
        weight_(random_numbers(conv.weight_elements(), 2)),
        grad_(random_numbers(conv.out_elements(), 3)),
        elements_(kind == ConvKind::forward      ? conv.out_elements()
                  : kind == ConvKind::grad_input ? conv.x_elements()
                                                 : conv.weight_elements()),
        out_(elements_ * sizeof(float)),
        state_(std::vector<StepState>(1)) {
    parts_ = kind == ConvKind::grad_input ? gradient_parts(conv) : std::vector{forward_part(conv)};
    call_ = conv_simt_call(parts_, taps_, kind == ConvKind::grad_input);
    call_.images = (kind == ConvKind::forward ? x_ : grad_).as<const float>();
    call_.weight = weight_.as<const float>();
    weights_ = conv_simt_wgrad(forward_part(conv));
    weights_.images = x_.as<const float>();
    weights_.grad = grad_.as<const float>();
  }

  // Products with pixels, inside of images or not.
  double operations() const {
    double all = 0;
    for (const IgemmPart& part : parts_) {
      all += 2.0 * static_cast<double>(part.shape.results()) * part.shape.taps() * conv_.c * conv_.out_c;
    }
    return all;
  }

  ConvSimtTiling chosen(std::optional<ConvSimtTile> only = {}) const {
    const uint32_t processors = igemm_processors();
    return kind_ == ConvKind::grad_weight ? choose_tiling(weights_, processors, kWorkspace, only)
                                          : choose_tiling(call_, processors, kWorkspace, only);
  }

  // What was taken of it.
  ConvSimtTiling cut(const ConvSimtTiling& tiling) {
    call_.tiling = weights_.tiling = tiling;
    if (kind_ == ConvKind::grad_weight) {
      complete(weights_);
    } else {
      complete(call_);
    }
    const uint32_t count = pieces();
    space_ = std::make_unique<Memory>((count * elements_ + kGroup) * sizeof(float));
    return {tiling.tile, count};
  }

  void run() {
    float* out = pieces() > 1 ? space_->as<float>() : out_.as<float>();
    call_.out = weights_.out = out;
    if (kind_ == ConvKind::grad_weight) {
      run_conv_simt_wgrad(weights_, nullptr);
    } else {
      run_conv_simt(call_, nullptr);
    }
    if (pieces() == 1) return;
    WriteView view;
    view.stored.codes = out_.as();
    view.stored.elements = elements_;
    add_split_k({out, pieces(), elements_, view, state_.as<const StepState>()}, nullptr);
  }

  // Of one run.
  double median() {
    constexpr size_t kTimes = 15;
    cudaEvent_t start = nullptr, stop = nullptr;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&stop));
    for (int i = 0; i < 3; ++i) run();
    std::vector<float> times(kTimes);
    for (float& ms : times) {
      check(cudaEventRecord(start));
      run();
      check(cudaEventRecord(stop));
      check(cudaEventSynchronize(stop));
      check(cudaEventElapsedTime(&ms, start, stop));
    }
    check(cudaEventDestroy(start));
    check(cudaEventDestroy(stop));
    std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
    return times[kTimes / 2];
  }

  // What is wrong with the present tiling; "".
  std::string wrong() {
    if (sums_.empty()) find_sums();
    const std::vector<float> made = made_from(0xFF), again = made_from(0x7B);
    worst_ = 0;
    const double terms =
        kind_ == ConvKind::grad_weight
            ? static_cast<double>(weights_.pixels())
            : static_cast<double>(taps_) * (kind_ == ConvKind::forward ? conv_.c : conv_.out_c);
    for (size_t i = 0; i < elements_; ++i) {
      const double allowed = (terms + 8) * std::ldexp(1.0, -24) * magnitudes_[i];
      const double error = std::fabs(static_cast<double>(made[i]) - sums_[i]);
      const double share = error == 0 ? 0 : error / allowed;
      if (!(share <= worst_)) worst_ = share;
    }
    std::string text = worst_ <= 1 ? "" : ", sums are wrong";
    if (std::memcmp(made.data(), again.data(), elements_ * sizeof(float)) != 0)
      text += ", other bits when run again";
    if (!out_.guard_intact() || !space_->guard_intact()) text += ", wrote past a buffer";
    return text;
  }
  double worst() const { return worst_; }

 private:
  uint32_t pieces() const {
    return kind_ == ConvKind::grad_weight ? weights_.tiling.pieces : call_.tiling.pieces;
  }

  std::vector<float> made_from(int garbage) {
    out_.soil(garbage);
    space_->soil(garbage);
    run();
    check(cudaDeviceSynchronize());
    return out_.read<float>();
  }

  void find_sums() {
    if (kind_ == ConvKind::grad_weight) {
      const Memory sums(elements_ * sizeof(double)), magnitudes(elements_ * sizeof(double));
      naive_grad(weights_.shape, x_.as<float>(), grad_.as<float>(), sums.as<double>(),
                 magnitudes.as<double>());
      sums_ = sums.read<double>();
      magnitudes_ = magnitudes.read<double>();
      return;
    }
    const Memory sums(elements_ * sizeof(float)), magnitudes(elements_ * sizeof(float));
    const bool gradient = kind_ == ConvKind::grad_input;
    for (const IgemmPart& part : parts_) {
      naive_part(part, taps_, gradient, (gradient ? grad_ : x_).as<float>(), weight_.as<float>(),
                 sums.as<float>(), magnitudes.as<float>());
    }
    const std::vector<float> sum = sums.read<float>(), magnitude = magnitudes.read<float>();
    sums_.assign(sum.begin(), sum.end());
    magnitudes_.assign(magnitude.begin(), magnitude.end());
  }

  ConvExtents32 conv_;
  ConvKind kind_;
  uint32_t taps_;
  Memory x_, weight_, grad_;
  size_t elements_;
  Memory out_, state_;
  std::vector<IgemmPart> parts_;
  ConvSimtCall call_;
  ConvSimtGrad weights_;
  std::unique_ptr<Memory> space_;
  std::vector<double> sums_, magnitudes_;
  double worst_ = 0;
};

// One pixel; odd sizes; half a chunk of channels; tiles that are not full; pixels that no tap
// meets; layers as they are.
std::vector<ConvExtents32> checked() {
  return {same_conv(3, 1, 4, 4, 3, 1),     same_conv(3, 7, 12, 20, 3, 1),    same_conv(5, 9, 72, 132, 3, 1),
          same_conv(4, 13, 4, 68, 5, 1),   same_conv(6, 16, 64, 64, 3, 1),   same_conv(6, 16, 64, 40, 1, 1),
          same_conv(6, 16, 64, 128, 3, 2), same_conv(5, 9, 24, 32, 3, 2),    same_conv(5, 11, 32, 16, 5, 3),
          same_conv(6, 16, 64, 128, 1, 2), same_conv(33, 2, 36, 260, 3, 1),  same_conv(16, 4, 512, 512, 3, 1),
          same_conv(20, 32, 64, 64, 3, 1), same_conv(20, 8, 256, 256, 3, 1), same_conv(16, 8, 256, 512, 3, 2),
          same_conv(2, 30, 132, 4, 3, 1)};
}

void check_one(const ConvExtents32& conv, ConvKind kind) {
  Bench bench(conv, kind);
  const ConvSimtTiling plan = bench.chosen();
  for (const ConvSimtTile tile : kTiles) {
    std::vector<uint32_t> pieces = {1, 3};
    if (tile == plan.tile && plan.pieces != 1 && plan.pieces != 3) pieces.push_back(plan.pieces);
    for (const uint32_t count : pieces) {
      if (!taken()) continue;
      const ConvSimtTiling tiling = bench.cut({tile, count});
      const std::string wrong = bench.wrong();
      if (!wrong.empty()) ++failures;
      fmt::print("{} {}, tiles of {} by {}, {} pieces: error {:.4f} of allowed{}\n",
                 wrong.empty() ? "PASS" : "FAIL", title(conv, kind), kSimtRows, tile_columns(tile),
                 tiling.pieces, bench.worst(), wrong);
      std::fflush(stdout);
    }
  }
}

void time_one(const ConvExtents32& conv, ConvKind kind) {
  Bench bench(conv, kind);
  const ConvSimtTiling plan = bench.chosen();
  std::string line;
  for (const ConvSimtTile tile : kTiles) {
    const ConvSimtTiling tiling = bench.cut(bench.chosen(tile));
    const double ms = bench.median();
    line += fmt::format("  {}{}/{}: {:.3f} ms {:.1f}", tile == plan.tile ? "*" : "", tile_columns(tile),
                        tiling.pieces, ms, bench.operations() / ms * 1e-9);
  }
  fmt::print("{:60}{}\n", title(conv, kind), line);
  std::fflush(stdout);
}

void time_all() {
  fmt::print("columns of a tile/pieces: time, TFLOP/s\n");
  for (const uint32_t images : {128u, 1024u}) {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const uint32_t c = 64u << layer, size = 32u >> layer;
      for (const ConvKind kind : kKinds) time_one(same_conv(images, size, c, c, 3, 1), kind);
      if (layer == 0) continue;
      for (const uint32_t kernel : {3u, 1u}) {
        for (const ConvKind kind : kKinds) time_one(same_conv(images, 2 * size, c / 2, c, kernel, 2), kind);
      }
    }
    // For 1x1 there is a library, too.
    for (const ConvKind kind : kKinds) time_one(same_conv(images, 16, 256, 64, 1, 1), kind);
  }
  // Few channels.
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (const ConvKind kind : kKinds)
      time_one(same_conv(128, 32u >> layer, 16u << layer, 16u << layer, 3, 1), kind);
  }
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  using namespace ulp::cuda;
  try {
    if (igemm_processors() == 0) ulp::fail("conv_simt_check", "not for this GPU");
    read_every(argc, argv);
    if (has_flag(argc, argv, "--speed")) {
      time_all();
    } else {
      for (const ulp::ConvExtents32& conv : checked()) {
        for (const ulp::ConvKind kind : kKinds) check_one(conv, kind);
      }
      fmt::print("{} failures\n", failures);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
