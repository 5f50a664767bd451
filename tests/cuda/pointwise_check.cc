// 1x1 convolutions of any even number of channels (pointwise.h) on a real GPU, in every size of
// tiles: sums against plain loops in double (|err| <= 2 (n + 8) 2^-23 sum |a| |b|), codes and range
// events of results against the scalar codec on those sums, the same bits from garbage in the
// workspace, nothing written past a buffer; and speed. Prints a line for each and the number of
// failures; exits 1 if there are any.
//
//   pointwise_check [--speed]     what is right, or how long ShuffleNetV2's layers take with a
//                                 batch of 1024; * is the tile that plans take
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/codes.h"
#include "tests/cuda/products_tools.h"
#include "ulp/backend/cuda/conv/pointwise.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kTiles[] = {128, 64, 32};

constexpr Format k434{"fp(4,3,4)"}, k520{"fp(5,2,0)"}, kBf16{"bf16"};

struct Work {
  ConvKind kind = ConvKind::forward;
  uint32_t pixels = 1, c = 2, k = 2;
  // Images or gradients; weights, or what the gradient is multiplied by; the result.
  Format a, b, out;

  bool gradient() const { return kind == ConvKind::grad_input; }
  uint32_t in_c() const { return gradient() ? k : c; }
  uint32_t out_c() const { return gradient() ? c : k; }
};

std::string title(const Work& work) {
  return fmt::format("{} {} x {} = {}, {} pixels, {} to {}", kind_name(work.kind), work.a.name, work.b.name,
                     work.out.name, work.pixels, work.c, work.k);
}

// A convolution on the device. Buffers are as many as it takes to come from memory each time, or
// one.
class Bench {
 public:
  Bench(const Work& work, bool many)
      : work_(work),
        weights_(work.kind == ConvKind::grad_weight),
        a_codes_(random_codes(work.a, size_t{work.pixels} * (weights_ ? work.c : work.in_c()), 1)),
        b_codes_(random_codes(work.b, size_t{work.k} * (weights_ ? work.pixels : work.c), 2)),
        results_(size_t{work.out_c()} * (weights_ ? work.c : work.pixels)),
        stats_(sizeof(EncodeStats)),
        state_(sizeof(StepState)) {
    check(cudaMemset(state_.get(), 0, sizeof(StepState)));
    const size_t copies = many ? kCold / bytes() + 1 : 1;
    for (size_t i = 0; i < copies; ++i) {
      a_.push_back(filled(a_codes_));
      b_.push_back(i == 0 || weights_ ? filled(b_codes_) : nullptr);
      out_.push_back(std::make_unique<Memory>(results_ * sizeof(float)));
    }
  }

  // Of operands and results that grow with the batch.
  size_t bytes() const {
    return weights_ ? a_codes_.size() + b_codes_.size() : a_codes_.size() + results_ * work_.out.bytes();
  }
  bool weights() const { return weights_; }

  // Tiles of so many pixels, or what is best. False where they do not fit.
  bool cut(uint32_t tile) {
    const uint32_t processors = igemm_processors();
    if (weights_) {
      grad_ = make_point_grad_tiling(work_.pixels, work_.c, work_.k, work_.a.bytes(), work_.b.bytes(),
                                     processors);
      space_ = std::make_unique<Memory>((grad_.pieces * results_ + kGroup) * sizeof(float));
      return true;
    }
    // Results of the check are fp32 too, which takes more room.
    const std::optional<PointTiling> tiling =
        make_point_tiling(work_.pixels, work_.in_c(), work_.out_c(), work_.a.bytes(),
                          wide_ ? sizeof(float) : work_.out.bytes(), processors, tile);
    if (!tiling) return false;
    tiling_ = *tiling;
    space_ = std::make_unique<Memory>(tiling_.image_words() * sizeof(uint32_t));
    return true;
  }
  uint32_t tile() const { return weights_ ? grad_.pixels : tiling_.pixels; }
  void widen(bool wide) { wide_ = wide; }
  std::string cut_text() const {
    if (weights_) return fmt::format("{} pieces, {} stages", grad_.pieces, grad_.stages);
    return fmt::format("{} blocks of {} threads, {} stages{}", tiling_.grid, tiling_.threads(),
                       tiling_.stages, tiling_.stationary ? "" : ", weights from the cache");
  }

  void prepare() {
    PointWeights weights;
    StoredView& stored = weights.view.stored;
    stored.codes = at(*b_[0]);
    stored.elements = size_t{work_.c} * work_.k;
    stored.fp32 = false;
    stored.bits = static_cast<uint8_t>(8 * work_.b.bytes());
    stored.codec = work_.b.codec();
    weights.state = static_cast<const StepState*>(state_.get());
    weights.in_c = work_.in_c();
    weights.out_c = work_.out_c();
    weights.transposed = work_.gradient();
    weights.factor = std::ldexp(1.0f, point_codes(work_.a.bytes(), work_.a.codec()).power);
    weights.chunks = tiling_.chunks;
    weights.steps = tiling_.steps;
    weights.to = static_cast<uint32_t*>(space_->get());
    prepare_points(weights, stream());
  }

  // The kernel alone.
  void multiply(bool fp32, size_t i = 0) {
    i %= a_.size();
    if (weights_) {
      PointGradCall call;
      call.in = at(*a_[i]);
      call.grad = at(*b_[i]);
      call.pixels = work_.pixels;
      call.in_c = work_.c;
      call.out_c = work_.k;
      call.in_codes = point_codes(work_.a.bytes(), work_.a.codec());
      call.grad_codes = point_codes(work_.b.bytes(), work_.b.codec());
      call.tiling = grad_;
      call.parts = space_->floats();
      run_point_grad(call, stream());
      return;
    }
    PointCall call;
    call.in = at(*a_[i]);
    call.image = static_cast<const uint32_t*>(space_->get());
    call.pixels = work_.pixels;
    call.in_c = work_.in_c();
    call.out_c = work_.out_c();
    call.codes = point_codes(work_.a.bytes(), work_.a.codec());
    call.tiling = tiling_;
    call.out = written(fp32, i);
    call.rounder = make_rounder(fp32, call.out.stored.codec, Round::nearest_even, 0);
    run_points(call, stream());
  }
  void add(bool fp32, size_t i = 0) {
    add_split_k({space_->floats(), grad_.pieces, results_, written(fp32, i % out_.size()),
                 static_cast<const StepState*>(state_.get())},
                stream());
  }
  void run(bool fp32, int garbage) {
    space_->soil(garbage);
    out_[0]->soil(garbage);
    check(cudaMemset(stats_.get(), 0, sizeof(EncodeStats)));
    check(cudaDeviceSynchronize());
    if (!weights_) prepare();
    multiply(fp32);
    if (weights_) add(fp32);
    check(cudaStreamSynchronize(stream()));
  }

  // What is wrong with the present tiling.
  std::string wrong() {
    if (expected_.empty()) find_expected();
    run(true, 0xFF);
    const std::vector<float> sums = read<float>(results_);
    std::string text = wrong_sums(sums);
    run(true, 0x7B);
    if (std::memcmp(sums.data(), read<float>(results_).data(), results_ * sizeof(float)) != 0)
      text += ", other bits when run again";
    run(false, 0);
    text += wrong_codes(sums);
    if (!out_[0]->guard_intact() || !space_->guard_intact()) text += ", wrote past a buffer";
    return text;
  }
  double worst() const { return worst_; }

 private:
  static constexpr size_t kCold = size_t{512} << 20;

  static uint8_t* at(const Memory& memory) { return static_cast<uint8_t*>(memory.get()); }
  static std::unique_ptr<Memory> filled(const std::vector<uint8_t>& codes) {
    auto made = std::make_unique<Memory>(codes.size());
    check(cudaMemcpy(made->get(), codes.data(), codes.size(), cudaMemcpyHostToDevice));
    return made;
  }
  template <typename T>
  std::vector<T> read(size_t count) const {
    std::vector<T> values(count);
    check(cudaMemcpy(values.data(), out_[0]->get(), count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

  WriteView written(bool fp32, size_t i) const {
    WriteView view;
    view.stored.codes = at(*out_[i]);
    view.stored.elements = results_;
    if (fp32) return view;
    view.stored.fp32 = false;
    view.stored.bits = static_cast<uint8_t>(8 * work_.out.bytes());
    view.stored.codec = work_.out.codec();
    view.stats = static_cast<EncodeStats*>(stats_.get());
    return view;
  }

  void find_expected() {
    const std::vector<float> a = decoded(work_.a, a_codes_), b = decoded(work_.b, b_codes_);
    expected_.assign(results_, 0);
    magnitude_.assign(results_, 0);
    const auto take = [&](size_t out, float x, float y) {
      const double product = static_cast<double>(x) * y;
      expected_[out] += product;
      magnitude_[out] += std::fabs(product);
    };
    const size_t in_c = weights_ ? work_.c : work_.in_c(), out_c = work_.out_c();
    for (size_t pixel = 0; pixel < work_.pixels; ++pixel) {
      for (size_t n = 0; n < out_c; ++n) {
        for (size_t c = 0; c < in_c; ++c) {
          const float x = a[pixel * in_c + c];
          if (weights_) {
            take(n * in_c + c, x, b[pixel * out_c + n]);
          } else {
            take(pixel * out_c + n, x, b[work_.gradient() ? c * out_c + n : n * in_c + c]);
          }
        }
      }
    }
  }

  std::string wrong_sums(const std::vector<float>& sums) {
    worst_ = 0;
    const double terms = weights_ ? work_.pixels : work_.in_c();
    for (size_t i = 0; i < sums.size(); ++i) {
      const double allowed = 2 * (terms + 8) * std::ldexp(1.0, -23) * magnitude_[i];
      const double error = std::fabs(static_cast<double>(sums[i]) - expected_[i]);
      const double share = error == 0 ? 0 : error / allowed;
      if (!(share <= worst_)) worst_ = share;
    }
    return worst_ <= 1 ? "" : ", sums are wrong";
  }

  std::string wrong_codes(const std::vector<float>& sums) const {
    const uint32_t bytes = work_.out.bytes();
    const std::vector<uint8_t> codes = read<uint8_t>(results_ * bytes);
    const QuickCodec codec = work_.out.codec();
    EncodeStats expected, seen;
    size_t wrong = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const Encoded made = encode_even(codec, float_bits(sums[i]));
      uint32_t code = 0;
      std::memcpy(&code, &codes[i * bytes], bytes);
      wrong += code != made.code ? 1 : 0;
      expected.overflow += made.event == RangeEvent::overflow ? 1 : 0;
      expected.underflow += made.event == RangeEvent::underflow ? 1 : 0;
      expected.amax = std::max(expected.amax, std::fabs(sums[i]));
    }
    check(cudaMemcpy(&seen, stats_.get(), sizeof seen, cudaMemcpyDeviceToHost));
    std::string text = wrong == 0 ? "" : fmt::format(", {} of {} codes are wrong", wrong, sums.size());
    if (!(seen == expected)) {
      text += fmt::format(", events: {}, {}, {} and {} instead of {}, {}, 0 and {}", seen.overflow,
                          seen.underflow, seen.nan, seen.amax, expected.overflow, expected.underflow,
                          expected.amax);
    }
    return text;
  }

  Work work_;
  bool weights_;       // it makes the gradient of weights
  bool wide_ = false;  // there must be room for fp32
  std::vector<uint8_t> a_codes_, b_codes_;
  size_t results_;
  Memory stats_, state_;
  std::vector<std::unique_ptr<Memory>> a_, b_, out_;
  std::unique_ptr<Memory> space_;
  PointTiling tiling_;
  PointGradTiling grad_;
  std::vector<double> expected_, magnitude_;
  double worst_ = 0;
};

void check_one(const Work& work) {
  Bench bench(work, false);
  bench.widen(true);
  for (const uint32_t tile : kTiles) {
    if (!bench.cut(tile) || (bench.weights() && tile != kTiles[0])) continue;
    const std::string wrong = bench.wrong();
    if (!wrong.empty()) ++failures;
    say(fmt::format("{} {}, tiles of {}: error {:.4f} of allowed{}", wrong.empty() ? "PASS" : "FAIL",
                    title(work), bench.tile(), bench.worst(), wrong));
  }
}

void check_all() {
  struct Extents {
    uint32_t pixels, c, k;
  };
  for (const Extents& e : {Extents{1, 2, 2},
                           {128, 58, 58},
                           {1000, 58, 58},
                           {777, 24, 58},
                           {300, 58, 116},
                           {999, 116, 116},
                           {515, 232, 232},
                           {100, 30, 6},
                           {130, 280, 474},
                           {5000, 14, 28}}) {
    for (const ConvKind kind : kKinds) {
      check_one({kind, e.pixels, e.c, e.k, kBf16, kBf16, kBf16});
      check_one({kind, e.pixels, e.c, e.k, k434, k434, k434});
      if (kind == ConvKind::grad_input) check_one({kind, e.pixels, e.c, e.k, k520, k434, k520});
      if (kind == ConvKind::grad_weight) check_one({kind, e.pixels, e.c, e.k, k434, k520, k434});
      if (kind == ConvKind::grad_weight) check_one({kind, e.pixels, e.c, e.k, k434, kBf16, kBf16});
    }
  }
}

// Bytes that a copy within the GPU reads and writes in a second.
double copy_rate() {
  constexpr size_t kBytes = size_t{1} << 30;
  const Memory from(kBytes), to(kBytes);
  const double ms = recorded_milliseconds(
      [&] { check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream())); }, 5);
  return 2.0 * kBytes / ms * 1e3;
}

void time_one(const Work& work, double rate) {
  constexpr int kTimes = 20;
  Bench bench(work, true);
  bench.cut(0);
  const uint32_t chosen = bench.tile();
  for (const uint32_t tile : kTiles) {
    if (!bench.cut(tile) || (bench.weights() && tile != kTiles[0])) continue;
    size_t next = 0;
    const double ms = recorded_milliseconds([&] { bench.multiply(false, next++); }, kTimes);
    const double beside =
        recorded_milliseconds([&] { bench.weights() ? bench.add(false, next++) : bench.prepare(); }, kTimes);
    say(fmt::format("{} {}, tiles of {}: {:.4f} ms, {:.1f}% of a copy; {} {:.4f} ms; {}",
                    bench.tile() == chosen ? "*" : " ", title(work), bench.tile(), ms,
                    100 * static_cast<double>(bench.bytes()) / ms * 1e3 / rate,
                    bench.weights() ? "parts" : "weights", beside, bench.cut_text()));
  }
}

void time_all() {
  const double rate = copy_rate();
  say(fmt::format("a copy: {:.0f} GB/s", rate * 1e-9));
  struct Extents {
    uint32_t size, c, k;
  };
  for (const Extents& e : {Extents{32, 24, 58},
                           {16, 24, 58},
                           {16, 58, 58},
                           {16, 116, 116},
                           {8, 116, 116},
                           {8, 232, 232},
                           {4, 232, 232}}) {
    for (const ConvKind kind : kKinds) {
      for (const Format& format : {kBf16, k434})
        time_one({kind, 1024 * e.size * e.size, e.c, e.k, format, format, format}, rate);
    }
  }
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  try {
    if (ulp::cuda::igemm_processors() == 0) ulp::fail("pointwise_check", "not for this GPU");
    if (argc > 1 && std::string_view(argv[1]) == "--speed") {
      ulp::cuda::time_all();
    } else {
      ulp::cuda::check_all();
      fmt::print("{} failures\n", ulp::cuda::failures);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return ulp::cuda::failures == 0 ? 0 : 1;
}
