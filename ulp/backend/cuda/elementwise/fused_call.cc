// Arguments of the fused elementwise and reduction kernels, derived from formats and shapes.
#include <algorithm>
#include <numeric>

#include "ulp/backend/cuda/batchnorm/batchnorm.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

// Minimum number of groups per thread, if there are that many. A thread has several loads in flight
// at once, and a reduction's partial results cost more than smaller shares save.
constexpr uint64_t kFewGroups = 2, kFewRows = 4;

float power_of_two(int exponent) {  // 0 below fp32's range
  if (exponent < -149) return 0;
  return exponent < -126 ? bits_float(1u << (exponent + 149))
                         : bits_float(static_cast<uint32_t>(exponent + 127) << 23);
}

uint64_t period_of(uint64_t channels) { return channels / std::gcd(channels, uint64_t{kGroup}); }

uint64_t up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

Rounder make_rounder(bool fp32, const QuickCodec& codec, Round mode, uint32_t number) {
  Rounder made;
  if (fp32) return made;
  made.on = true;
  made.mode = mode;
  made.number = number;
  made.codec = codec;
  made.quick = mode == Round::nearest_even && codec.short_in;
  if (!made.quick) return made;
  const CodecSpec& spec = codec.spec;
  static_assert(float_bits(kShortLimit) == kQuickLimit);
  made.largest = bits_float(decode_scalar(spec, spec.max_code));
  made.over = bits_float(decode_scalar(spec, spec.over_code));
  made.limit = std::min(made.largest, bits_float(kQuickLimit - 1));
  // Half the smallest value and all below: a tie goes to 0, which is even.
  made.vanishing = 2 * float_bits(power_of_two(spec.emin - spec.man - 1));
  made.even = EvenByAdder::of(codec.shift, codec.lowest);
  if (codec.short_out && codec.lift <= 0x1p126f) made.drop = 1 / codec.lift;
  if (spec.sign_shift == 15 && spec.man == 7 && spec.emin == -126) made.native = Rounder::Native::bf16;
  if (spec.sign_shift == 15 && spec.man == 10 && spec.emin == -14 && spec.max_code <= 0x7BFFu) {
    made.native = Rounder::Native::fp16;
  }
  return made;
}

Leaf make_leaf(const ReadView& view) {
  Leaf leaf;
  leaf.view = view;
  const StoredView& stored = view.stored;
  leaf.table = stored.kind == Stored::s2fp8 && !view.rounds && !view.rounds_s2fp8 && !view.rounds_scaled;
  if (stored.kind != Stored::plain || view.rounds || view.rounds_s2fp8 || view.rounds_scaled) return leaf;
  if (stored.fp32) {
    leaf.quick = true;
    return leaf;
  }
  const CodecSpec& spec = stored.codec.spec;
  const int shift = 9 - stored.bits + spec.man;
  if ((stored.bits != 8 && stored.bits != 16) || !stored.codec.short_out || shift < 0 ||
      spec.sign_shift != stored.bits - 1)
    return leaf;
  leaf.quick = true;
  leaf.shift = static_cast<uint8_t>(shift);
  leaf.mask = 0x80000000u | ((1u << spec.sign_shift) - 1) << (23 - spec.man);
  leaf.lift = stored.codec.lift;
  leaf.largest = bits_float(decode_scalar(spec, spec.max_code));
  leaf.ordinary = spec.max_code == (1u << spec.sign_shift) - 1;
  leaf.same = stored.bits == 16 && shift == 0 && leaf.lift == 1;
  for (uint32_t code = spec.max_code + 1; leaf.same && code < 0x8000u; ++code) {
    leaf.same = decode_scalar(spec, code) == code << 16;
  }
  return leaf;
}

Spread spread_elements(uint64_t elements, uint64_t channels) {
  Spread made;
  made.period = period_of(channels);
  // Channel values are in shared memory, at most eight per thread and value. Each block computes
  // them, so there are few blocks.
  const uint64_t wanted = up(groups_of(elements), kFewGroups);
  const uint32_t block = channels > 1024 ? kThreads / 2 : kThreads;
  made.block = static_cast<uint32_t>(std::min<uint64_t>(block, up(wanted, 32) * 32));
  const uint64_t most = kProcessors * (channels == 1 ? 8 : kBlocksAtOnce) * kThreads / made.block;
  made.blocks =
      static_cast<uint32_t>(std::max(std::min(up(wanted, made.block), most), up(made.period, made.block)));
  made.active = made.block;
  made.threads = uint64_t{made.blocks} * made.block / made.period * made.period;
  return made;
}

Spread spread_rows(uint64_t elements, uint64_t channels) {
  Spread made;
  made.period = period_of(channels);
  const uint64_t groups = groups_of(elements);
  if (made.period <= kReductionThreads) {
    // One row of partial results per block.
    const uint64_t few = up(groups, kFewRows);
    made.active = static_cast<uint32_t>(std::min<uint64_t>(kReductionThreads, std::max<uint64_t>(few, 1)) /
                                        made.period * made.period);
    made.active = std::max(made.active, static_cast<uint32_t>(made.period));
    made.block = static_cast<uint32_t>(up(made.active, 32) * 32);
    made.rows = std::clamp<uint64_t>(up(groups, made.active * kFewRows), 1, kProcessors * kBlocksAtOnce);
    made.blocks = static_cast<uint32_t>(made.rows);
    made.threads = made.rows * made.active;
  } else {
    // One row for each run of threads through all channels.
    made.active = made.block = kReductionThreads;
    made.rows = std::clamp<uint64_t>(
        groups / (made.period * kFewRows), 1,
        std::max<uint64_t>(kProcessors * kBlocksAtOnce * kReductionThreads / made.period, 1));
    made.threads = made.rows * made.period;
    made.blocks = static_cast<uint32_t>(up(made.threads, made.block));
  }
  return made;
}

size_t partial_floats(uint64_t elements, uint64_t channels) {
  const Spread spread = spread_rows(elements, channels);
  const uint64_t general = 3 * spread.rows * spread.period * kGroup;
  SliceSpread slices_spread;
  return slices_spread.take(elements, channels) ? std::max(general, slices_spread.partial_floats()) : general;
}

bool SliceSpread::take(uint64_t elements, uint64_t channels) {
  // Wide enough that a pixel's part is a whole memory sector, narrow enough that there are few rows
  // of partial results.
  constexpr uint32_t kWidth = 8, kNarrow = 4;
  // One block per multiprocessor while threads have few pixels, two if they have many.
  constexpr uint64_t kFewPixels = 2, kManyPixels = 8;
  if (elements % kGroup != 0 || channels % kGroup != 0 || elements / kGroup >= 1u << 30) return false;
  period = static_cast<uint32_t>(channels / kGroup);
  pixels = static_cast<uint32_t>(elements / channels);
  const auto widest = [&](uint32_t most) {
    while (period % most != 0) --most;
    return most;
  };
  width = widest(kWidth);
  if (width < kNarrow) width = widest(kWidest);
  slices = period / width;
  if (slices > kMostSlices) return false;
  slots = kThreads / width;
  const uint64_t groups = uint64_t{pixels} * period;
  const uint64_t blocks = std::max(std::min<uint64_t>(up(groups, kThreads * kFewPixels), kProcessors),
                                   std::min<uint64_t>(up(groups, kThreads * kManyPixels), 2 * kProcessors));
  rows = static_cast<uint32_t>(std::clamp<uint64_t>(blocks / slices, 1, std::max(pixels / slots, 1u)));
  over_width = (1u << 16) / width + 1;
  over_slices = (1u << 16) / slices + 1;
  return true;
}

}  // namespace ulp::cuda
