// Convolutions from codes to codes (conv_igemm.h) on a real GPU, in every tiling: sums against
// plain loops in double (|err| <= 2 (n + 8) 2^-23 sum |a| |b|), codes and range events of results
// against the scalar codec on those sums, those of weights likewise, the same bits from garbage in
// the workspace, nothing written past a buffer; and speed. Prints a line for each and the number of
// failures; exits 1 if there are any.
//
// Gradients of weights are checked and timed after them (wgrad_check.h).
//
//   conv_igemm_check [--speed] [--few] [--fp16] [--every N]     what is right, or how long it
//       takes; * is the tiling that plans take; few: only convolutions of few channels, which may
//       have halo tiles (conv_halo.h); fp16: only those in fp16, of which all are checked and none
//       timed; every N: of the cases one in so many
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/igemm_bench.h"
#include "tests/cuda/igemm_cases.h"
#include "tests/cuda/igemm_work.h"
#include "tests/cuda/naive_conv.h"
#include "tests/cuda/wgrad_check.h"
#include "ulp/backend/cuda/igemm/conv_halo.h"

namespace ulp::cuda {
namespace {

int failures = 0;

struct Tile {
  uint32_t rows, columns;
  // Halo: so many images, or one in so many bands; for so many processors, 0 for all, as with few
  // of them blocks have several tiles.
  uint32_t images = 0, bands = 1, processors = 0;
};

// All tilings; the same on few processors, too.
std::vector<Tile> all_tiles(bool few_processors) {
  std::vector<Tile> all = {{256, 128}, {128, 128}, {128, 64}, {256, 32}, {128, 32}};
  for (const uint32_t processors : {0u, 3u}) {
    if (processors != 0 && !few_processors) continue;
    for (const uint32_t columns : {64u, 32u, 16u}) {
      for (const uint32_t images : {1u, 2u, 3u, 4u}) all.push_back({0, columns, images, 1, processors});
      for (const uint32_t bands : {2u, 3u, 4u}) all.push_back({0, columns, 1, bands, processors});
    }
  }
  return all;
}

// A convolution on the device.
class Bench {
 public:
  explicit Bench(const Work& work)
      : work_(work),
        parts_(work.gradient ? gradient_parts(work.conv) : std::vector{forward_part(work.conv)}),
        taps_(work.conv.taps()),
        x_codes_(spoil(work, false, random_codes(work.x, pixels(false) * in_c(), 1))),
        weight_codes_(spoil(work, true, random_codes(work.weight, size_t{in_c()} * out_c() * taps_, 2))),
        x_(x_codes_),
        weight_(work.rounds ? bytes_of(masters()) : weight_codes_),
        results_(pixels(true) * out_c()),
        out_(results_ * sizeof(float)),
        stats_(2 * sizeof(EncodeStats)),
        state_(std::vector<StepState>(1)),
        most_(std::vector<float>{largest()}) {}

  uint32_t in_c() const { return work_.gradient ? work_.conv.out_c : work_.conv.c; }
  uint32_t out_c() const { return work_.gradient ? work_.conv.c : work_.conv.out_c; }
  size_t pixels(bool out) const {
    const ConvExtents32& conv = work_.conv;
    return size_t{conv.n} * (out != work_.gradient ? conv.out_h * conv.out_w : conv.h * conv.w);
  }
  double operations() const {
    double all = 0;
    for (const IgemmPart& part : parts_) {
      all += 2.0 * static_cast<double>(part.shape.results()) * part.shape.taps() * in_c() * out_c();
    }
    return all;
  }

  // False where a tile does not fit.
  bool cut(const Tile& tile) {
    if (tile.images == 0) {
      tilings_ = make_tilings(parts_, work_.feed, igemm_processors(), tile.rows, tile.columns);
      if (tilings_.empty()) return false;
    } else {
      tilings_.clear();
      for (const IgemmPart& part : parts_) {
        IgemmTiling tiling;
        tiling.rows = tile.rows;
        tiling.columns = tile.columns;
        tiling.halo.images = tile.images;
        tiling.halo.rows = (part.shape.out_h + tile.bands - 1) / tile.bands;
        const uint32_t processors = tile.processors == 0 ? igemm_processors() : tile.processors;
        if (!make_halo(part.shape, work_.feed, processors, tiling)) return false;
        tilings_.push_back(tiling);
      }
    }
    size_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i)
      bytes += tilings_[i].image_bytes(work_.feed, parts_[i].shape.taps());
    image_ = std::make_unique<Memory>(bytes);
    return !feeds_fp16(work_.feed) || cut_recompute();
  }
  // Whether plans would cut it so.
  bool chosen(const Tile& tile) const {
    const IgemmShape& shape = parts_.back().shape;
    if (parts_.size() == 1) {
      if (const auto halo = choose_halo(shape, work_.feed, igemm_processors())) {
        return halo->columns == tile.columns && halo->halo.images == tile.images &&
               halo->halo.rows == (shape.out_h + tile.bands - 1) / tile.bands;
      }
    }
    const auto tilings = choose_tilings(parts_, work_.feed, igemm_processors());
    return tile.images == 0 && !tilings.empty() && tilings[0].rows == tile.rows &&
           tilings[0].columns == tile.columns;
  }

  void soil(int byte) {
    image_->soil(byte);
    if (feeds_fp16(work_.feed)) {
      recompute_image_->soil(byte);
      marks_->soil(byte);
      words_->soil(byte);
    }
    out_.soil(byte);
    check(cudaMemset(stats_.as(), 0, 2 * sizeof(EncodeStats)));
  }

  void prepare() {
    IgemmWeights weights = weights_of(work_.feed, tilings_, image_->as());
    weights.view.stats = stats_.as<EncodeStats>() + 1;
    if (work_.feed == OperandFeed::bf16_from_8)
      weights.factor = std::ldexp(1.0f, 127 - parse_format(work_.x.name).bias);
    if (feeds_fp16(work_.feed)) {
      weights.factor = std::ldexp(1.0f, weight_power() - 112);
      weights.marked = words_->as<uint32_t>();
      weights.outside = weights.marked + 1;
    }
    prepare_weights({&weights, 1}, nullptr);
  }

  IgemmWeights weights_of(OperandFeed feed, const std::vector<IgemmTiling>& tilings, uint8_t* to) const {
    IgemmWeights weights;
    StoredView& stored = weights.view.stored;
    stored.codes = weight_.as();
    stored.elements = size_t{in_c()} * out_c() * taps_;
    if (work_.rounds) {
      weights.view.rounds = true;
      weights.view.operand = work_.weight.codec();
    } else {
      stored.fp32 = false;
      stored.bits = static_cast<uint8_t>(work_.weight.bits());
      stored.codec = work_.weight.codec();
    }
    weights.state = state_.as<const StepState>();
    weights.in_c = in_c();
    weights.out_c = out_c();
    weights.weight_taps = taps_;
    weights.transposed = work_.gradient;
    weights.product = feed_product(feed);
    weights.images = static_cast<uint32_t>(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      weights.image[i] = weight_image(parts_[i], tilings[i], reinterpret_cast<uint32_t*>(to));
      to += tilings[i].image_bytes(feed, parts_[i].shape.taps());
    }
    return weights;
  }

  void run(bool fp32) {
    run_parts(fp32, work_.feed, tilings_, image_->as());
    if (!feeds_fp16(work_.feed)) return;
    IgemmWeights weights = weights_of(recompute_feed(), recompute_tilings_, recompute_image_->as());
    weights.marked = words_->as<uint32_t>();
    prepare_weights({&weights, 1}, nullptr);
    run_parts(fp32, recompute_feed(), recompute_tilings_, recompute_image_->as());
  }

  void run_parts(bool fp32, OperandFeed feed, const std::vector<IgemmTiling>& tilings, const uint8_t* image) {
    uint8_t* marks = feeds_fp16(work_.feed) ? marks_->as() : nullptr;
    std::vector<IgemmCall> calls;
    for (size_t i = 0; i < parts_.size(); ++i) {
      IgemmCall call;
      call.shape = parts_[i].shape;
      call.tiling = tilings[i];
      call.out.stored.codes = out_.as();
      call.out.stored.elements = results_;
      if (!fp32) {
        call.out.stored.fp32 = false;
        call.out.stored.bits = static_cast<uint8_t>(work_.out.bits());
        call.out.stored.codec = work_.out.codec();
        call.out.stats = stats_.as<EncodeStats>();
      }
      call.rounder = make_rounder(fp32, call.out.stored.codec, Round::nearest_even, 0);
      complete(call, feed, work_.x.codec());
      call.part[0].image = image;
      if (marks != nullptr) {
        call.marks = marks;
        call.mark_shift = feed != work_.feed && tilings_[i].rows == 256 ? 1 : 0;
        call.marked = words_->as<uint32_t>();
        call.outside = call.marked + 1;
        call.outside_words = outside_words_;
        call.fp16_power = fp16_source(work_.x.codec()).bias - 15 + weight_power();
        call.most = most_.as<const float>();
        marks += tilings_[i].row_tiles * tilings_[i].column_tiles;
      }
      if (calls.empty() || !merge_calls(calls.back(), call, work_.feed)) calls.push_back(call);
      image += tilings[i].image_bytes(feed, parts_[i].shape.taps());
    }
    for (const IgemmCall& call : calls) run_conv_igemm(call, feed, x_.as(), nullptr);
  }

  // In fp16: what share of tiles was marked.
  double marked() const {
    const std::vector<uint8_t> marks = marks_->read<uint8_t>();
    return static_cast<double>(std::count(marks.begin(), marks.end(), 1)) / static_cast<double>(marks.size());
  }

  // What is wrong with the present tiling.
  std::string wrong() {
    if (expected_.empty()) find_expected();
    soil(0xFF);
    prepare();
    run(true);
    const std::vector<float> sums = out_.read<float>();
    std::string text = wrong_sums(sums) + wrong_events(1, weight_events_, "weights");
    soil(0x7B);
    prepare();
    run(true);
    if (std::memcmp(sums.data(), out_.read<float>().data(), results_ * sizeof(float)) != 0)
      text += ", other bits when run again";
    soil(0);
    prepare();
    run(false);
    text += wrong_codes(sums);
    if (feeds_fp16(work_.feed)) text += wrong_marks();
    if (!out_.guard_intact() || !image_->guard_intact()) text += ", wrote past a buffer";
    return text;
  }
  double worst() const { return worst_; }

 private:
  OperandFeed recompute_feed() const {
    return work_.feed == OperandFeed::fp16_from_8 ? OperandFeed::tf32_from_8 : OperandFeed::tf32_from_16;
  }
  // Weights below 1 are fp16's.
  static int weight_power() { return 16; }
  bool cut_recompute() {
    recompute_tilings_.clear();
    size_t bytes = 0, tiles = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto made = choose_recompute(parts_[i].shape, recompute_feed(), igemm_processors(), tilings_[i]);
      if (!made) return false;
      recompute_tilings_.push_back(made->tiling);
      bytes += made->tiling.image_bytes(recompute_feed(), parts_[i].shape.taps());
      tiles += size_t{tilings_[i].row_tiles} * tilings_[i].column_tiles;
    }
    recompute_image_ = std::make_unique<Memory>(bytes);
    marks_ = std::make_unique<Memory>(tiles);
    outside_words_ = weight_blocks(weights_of(work_.feed, tilings_, image_->as()));
    words_ = std::make_unique<Memory>(sizeof(uint32_t) * (1 + outside_words_));
    return true;
  }
  // The largest number as the task that wrote the images would have reported it, or not.
  float largest() const {
    if (work_.outside == Work::Outside::largest_unknown) return 0;
    if (work_.outside == Work::Outside::largest_wrong) return 1e30f;
    float most = 0;
    for (const float value : decoded(work_.x, x_codes_)) most = std::max(most, std::fabs(value));
    return most;
  }
  std::string wrong_marks() const {
    if (!marks_->guard_intact() || !words_->guard_intact() || !recompute_image_->guard_intact())
      return ", wrote past a buffer";
    const double share = marked();
    // Of parts without taps, no tiles; of small images those of a few numbers may be all.
    switch (work_.outside) {
      case Work::Outside::few:
      case Work::Outside::full:
        if (work_.feed == OperandFeed::fp16_from_8) return share > 0 ? "" : ", no tile marked";
        [[fallthrough]];
      case Work::Outside::nothing:
        return share == 0 ? "" : fmt::format(", {} of tiles marked", share);
      case Work::Outside::weight:
        return share == 1 ? "" : fmt::format(", only {} of tiles marked", share);
      default:
        return share > 0 ? "" : ", no tile marked";
    }
  }

  // Numbers that round to the codes, some of them to 0 with an event.
  std::vector<float> masters() {
    std::vector<float> values = decoded(work_.weight, weight_codes_);
    const QuickCodec codec = work_.weight.codec();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0 && i % 3 == 0) values[i] = std::ldexp(1.0f, -120);
      const Encoded made = encode_even(codec, float_bits(values[i]));
      weight_events_.overflow += made.event == RangeEvent::overflow ? 1 : 0;
      weight_events_.underflow += made.event == RangeEvent::underflow ? 1 : 0;
    }
    return values;
  }

  void find_expected() {
    const Memory x(decoded(work_.x, x_codes_)), weight(decoded(work_.weight, weight_codes_));
    const Memory out(results_ * sizeof(float)), magnitude(results_ * sizeof(float));
    for (const IgemmPart& part : parts_) {
      naive_part(part, taps_, work_.gradient, x.as<float>(), weight.as<float>(), out.as<float>(),
                 magnitude.as<float>());
    }
    check(cudaDeviceSynchronize());
    expected_ = out.read<float>();
    magnitude_ = magnitude.read<float>();
  }

  std::string wrong_sums(const std::vector<float>& sums) {
    worst_ = 0;
    const double terms = static_cast<double>(taps_) * in_c();
    for (size_t i = 0; i < sums.size(); ++i) {
      const double allowed = 2 * (terms + 8) * std::ldexp(1.0, -23) * magnitude_[i];
      const double error = std::fabs(static_cast<double>(sums[i]) - expected_[i]);
      const double share = error == 0 ? 0 : error / allowed;
      if (!(share <= worst_)) worst_ = share;
    }
    return worst_ <= 1 ? "" : ", sums are wrong";
  }

  std::string wrong_codes(const std::vector<float>& sums) {
    const std::vector<uint8_t> codes = out_.read<uint8_t>();
    const uint32_t bytes = work_.out.bits() / 8;
    const QuickCodec codec = work_.out.codec();
    EncodeStats events;
    size_t wrong = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const Encoded made = encode_even(codec, float_bits(sums[i]));
      uint32_t code = 0;
      std::memcpy(&code, &codes[i * bytes], bytes);
      wrong += code != made.code ? 1 : 0;
      events.overflow += made.event == RangeEvent::overflow ? 1 : 0;
      events.underflow += made.event == RangeEvent::underflow ? 1 : 0;
    }
    return (wrong == 0 ? "" : fmt::format(", {} of {} codes are wrong", wrong, sums.size())) +
           wrong_events(0, events, "results");
  }

  std::string wrong_events(size_t which, const EncodeStats& expected, std::string_view what) const {
    const EncodeStats seen = stats_.read<EncodeStats>()[which];
    if (seen.overflow == expected.overflow && seen.underflow == expected.underflow && seen.nan == 0)
      return "";
    return fmt::format(", events of {}: {} and {} instead of {} and {}", what, seen.overflow, seen.underflow,
                       expected.overflow, expected.underflow);
  }

  Work work_;
  std::vector<IgemmPart> parts_;
  uint32_t taps_;
  std::vector<uint8_t> x_codes_, weight_codes_;
  EncodeStats weight_events_ = {};
  Memory x_, weight_;
  size_t results_;
  Memory out_, stats_, state_;
  std::unique_ptr<Memory> image_;
  std::vector<IgemmTiling> tilings_;
  // Of fp16: the largest number; what does marked tiles; marks; a word whether there are any, and
  // words of weights.
  Memory most_;
  std::unique_ptr<Memory> recompute_image_, marks_, words_;
  uint32_t outside_words_ = 0;
  std::vector<IgemmTiling> recompute_tilings_;
  std::vector<float> expected_, magnitude_;
  double worst_ = 0;
};

std::string title(const Work& work, const Tile& tile) {
  const std::string what =
      fmt::format("{} {}x{}x{}x{} to {}, {} x {} = {}", work.name, work.conv.n, work.conv.h, work.conv.w,
                  work.conv.c, work.conv.out_c, work.x.name, work.weight.name, work.out.name);
  if (tile.images == 0) return fmt::format("{}, tiles of {} by {}", what, tile.rows, tile.columns);
  return fmt::format("{}, halo {} of {}x{} by {}{}", what,
                     tile.bands > 1 ? fmt::format("1/{}", tile.bands) : fmt::format("{}", tile.images),
                     work.conv.out_h, work.conv.out_w, tile.columns,
                     tile.processors == 0 ? "" : ", few processors");
}

// Where they are halo, some such tiling must fit.
void check_all(const std::vector<Work>& all, bool halo = false) {
  for (const Work& work : all) {
    Bench bench(work);
    size_t fitted = 0;
    for (const Tile& tile : all_tiles(true)) {
      if (!bench.cut(tile)) continue;
      fitted += halo && tile.images == 0 ? 0 : 1;
      if (!taken()) continue;
      const std::string wrong = bench.wrong();
      if (!wrong.empty()) ++failures;
      fmt::print("{} {}: error {:.4f} of allowed{}\n", wrong.empty() ? "PASS" : "FAIL", title(work, tile),
                 bench.worst(), wrong);
      std::fflush(stdout);
    }
    if (fitted == 0) ++failures;
  }
}

void time_all(const std::vector<Work>& all) {
  for (const Work& work : all) {
    Bench bench(work);
    for (const Tile& tile : all_tiles(false)) {
      if (tile.columns > (tile.images == 0 ? 32 : 16) && tile.columns / 2 >= bench.out_c()) continue;
      if (!bench.cut(tile)) continue;
      bench.soil(0);
      const double weights = milliseconds([&] { bench.prepare(); }),
                   ms = milliseconds([&] { bench.run(false); });
      fmt::print("{} {}: {:.4f} ms, {:.0f} TFLOP/s, weights {:.4f} ms\n", bench.chosen(tile) ? "*" : " ",
                 title(work, tile), ms, bench.operations() / ms * 1e-9, weights);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  try {
    if (ulp::cuda::igemm_processors() == 0) ulp::fail("conv_igemm_check", "not for this GPU");
    ulp::cuda::read_every(argc, argv);
    const bool speed = ulp::cuda::has_flag(argc, argv, "--speed"),
               few = ulp::cuda::has_flag(argc, argv, "--few");
    if (ulp::cuda::has_flag(argc, argv, "--fp16")) {
      if (speed || few) ulp::fail("conv_igemm_check", "--fp16 has no --speed and no --few");
      ulp::cuda::check_all(ulp::cuda::checked_in_fp16());
      fmt::print("{} failures\n", ulp::cuda::failures);
    } else if (speed) {
      ulp::cuda::time_all(ulp::cuda::timed_halo());
      if (!few) ulp::cuda::time_all(ulp::cuda::timed());
      if (!few) ulp::cuda::time_grads();
    } else {
      ulp::cuda::check_all(ulp::cuda::checked_halo(), true);
      if (!few) {
        ulp::cuda::check_all(ulp::cuda::checked());
        ulp::cuda::check_all(ulp::cuda::checked_in_fp16());
        ulp::cuda::failures += ulp::cuda::check_grads();
      }
      fmt::print("{} failures\n", ulp::cuda::failures);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return ulp::cuda::failures == 0 ? 0 : 1;
}
