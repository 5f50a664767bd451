// How the rules write weights back, each by two loops: one for pieces in range and one for any
// (step_codes.h).
#include <cmath>
#include <cstring>

#include "ulp/backend/cpu/optimizer/step_loops.h"
#include "ulp/numeric/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/optimizer/rule_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::step::HWY_NAMESPACE {

// Adds a loop's events; `codes` are what it wrote, from which NaN is told from overflow.
HWY_INLINE void merge(const Tally& tally, uint32_t nan_code, const uint16_t* codes, size_t n,
                      EncodeStats& stats) {
  uint64_t nan = 0;
  for (size_t i = 0; tally.beyond > 0 && i < n; ++i) nan += (codes[i] & 0x7FFFu) == nan_code ? 1 : 0;
  stats.merge({tally.beyond - nan, tally.underflow, nan, bits_float(tally.amax)});
}

HWY_FLATTEN HWY_NOINLINE bool bf16_in_range(const Codes& given, size_t n, const float* from, uint16_t* to,
                                            EncodeStats& stats) {
  const Codes codes = given;
  const InRangeRound<true, 16> rounding{codes};
  const float* HWY_RESTRICT in = from;
  uint16_t* HWY_RESTRICT out = to;
  Extremes extremes;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(in[i]);
    extremes.add(pattern & 0x7FFFFFFFu);
    out[i] = static_cast<uint16_t>(rounding.nearest(pattern).code);
  }
  if (!extremes.in_range(codes)) return false;
  stats.merge({0, 0, 0, bits_float(extremes.largest)});
  return true;
}

HWY_FLATTEN HWY_NOINLINE void bf16_loop(const Codes& given, size_t n, const float* from, uint16_t* to,
                                        EncodeStats& stats) {
  const Codes codes = given;
  const float* HWY_RESTRICT in = from;
  uint16_t* HWY_RESTRICT out = to;
  Tally tally;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(in[i]), magnitude = pattern & 0x7FFFFFFFu;
    const uint32_t code = codes.nearest<true>(magnitude);
    tally.add(codes, magnitude, code);
    out[i] = static_cast<uint16_t>(codes.stored(magnitude, code) | (pattern ^ magnitude) >> 16);
  }
  merge(tally, codes.nan_code, out, n, stats);
}

void write_bf16(const Codes& codes, size_t n, const float* in, uint16_t* out, EncodeStats& stats) {
  if (!bf16_in_range(codes, n, in, out, stats)) bf16_loop(codes, n, in, out, stats);
}

// Updates that were not zero, and those of them that changed nothing.
struct Count {
  uint32_t updates = 0, cancelled = 0;

  HWY_INLINE void add(float decrease, bool same) {
    const auto is = static_cast<uint32_t>(decrease != 0);
    updates += is;
    cancelled += is & static_cast<uint32_t>(same);
  }
  HWY_INLINE void to(UpdateCounts& counts) const { counts.merge({updates, cancelled}); }
};

// Adds what a piece in range has to report; false if the piece was not in range.
HWY_INLINE bool finish(const WriteRun& run, const Codes& codes, const Extremes& extremes,
                       const Count& count) {
  if (!extremes.in_range(codes)) return false;
  run.stats->merge({0, 0, 0, bits_float(extremes.largest)});
  count.to(*run.counts);
  return true;
}

void write_fp32(const WriteRun& run, float* out) {
  const size_t n = run.n;
  const float* HWY_RESTRICT decrease = run.decrease;
  float* HWY_RESTRICT weight = out;
  Count count;
  for (size_t i = 0; i < n; ++i) {
    const float before = weight[i], after = direct_update(before, decrease[i]);
    weight[i] = after;
    count.add(decrease[i], after == before);
  }
  count.to(*run.counts);
}

template <bool same, bool stochastic>
HWY_FLATTEN HWY_NOINLINE void plain_loop(const WriteRun& run, const Codes& given, uint16_t* to) {
  const Codes codes = given;
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t* HWY_RESTRICT out = to;
  Count count;
  Tally tally;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(direct_update(weight[i], decrease[i]));
    const uint32_t magnitude = pattern & 0x7FFFFFFFu, sign = pattern ^ magnitude;
    const uint32_t code =
        stochastic ? codes.stochastic<same>(magnitude, random[i]) : codes.nearest<same>(magnitude);
    tally.add(codes, magnitude, code);
    const uint32_t stored = codes.stored(magnitude, code);
    out[i] = static_cast<uint16_t>(stored | sign >> 16);
    count.add(decrease[i], bits_float(codes.pattern<same>(stored) | sign) == weight[i]);
  }
  merge(tally, codes.nan_code, out, n, *run.stats);
  count.to(*run.counts);
}

template <bool same, bool stochastic>
HWY_FLATTEN HWY_NOINLINE bool plain_in_range(const WriteRun& run, const Codes& given, uint16_t* to) {
  const Codes codes = given;
  const InRangeRound<same, same ? 16 : -1> rounding{codes};
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t* HWY_RESTRICT out = to;
  Count count;
  Extremes extremes;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(weight[i] - decrease[i]);
    extremes.add(pattern & 0x7FFFFFFFu);
    const Rounded rounded = stochastic ? rounding.stochastic(pattern, random[i]) : rounding.nearest(pattern);
    out[i] = static_cast<uint16_t>(rounded.code);
    count.add(decrease[i], bits_float(rounded.pattern) == weight[i]);
  }
  return finish(run, codes, extremes, count);
}

void write_plain(const WriteRun& run, const Codes& codes, bool same, uint16_t* out) {
  const bool random = run.random != nullptr;
  const auto in_range = same ? (random ? plain_in_range<true, true> : plain_in_range<true, false>)
                             : (random ? plain_in_range<false, true> : plain_in_range<false, false>);
  if (in_range(run, codes, out)) return;
  const auto loop = same ? (random ? plain_loop<true, true> : plain_loop<true, false>)
                         : (random ? plain_loop<false, true> : plain_loop<false, false>);
  loop(run, codes, out);
}

template <bool same, bool stochastic, typename Near>
HWY_FLATTEN HWY_NOINLINE void kahan_loop(const WriteRun& run, const Codes& given, const Near& given_near,
                                         uint16_t* to, const Compensation& kept) {
  const Codes codes = given;
  const Near near = given_near;
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t *HWY_RESTRICT out = to, *HWY_RESTRICT lost = kept.codes;
  Count count;
  Tally tally, losses;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t lost_code = lost[i], lost_sign = lost_code & 0x8000u;
    const float before = bits_float(codes.pattern<same>(lost_code ^ lost_sign) | lost_sign << 16);
    uint32_t sum_code = 0;
    const RoundedSum<same, stochastic> rounded{codes, stochastic ? random[i] : 0, tally, sum_code};
    const Compensated made = kahan_update(weight[i], decrease[i], before, near, rounded);
    out[i] = static_cast<uint16_t>(sum_code);
    const uint32_t pattern = float_bits(made.compensation), magnitude = pattern & 0x7FFFFFFFu;
    const uint32_t code = codes.nearest<same>(magnitude);
    losses.add(codes, magnitude, code);
    lost[i] = static_cast<uint16_t>(codes.stored(magnitude, code) | (pattern ^ magnitude) >> 16);
    count.add(decrease[i], static_cast<bool>(static_cast<uint32_t>(made.compensation == before) &
                                             static_cast<uint32_t>(made.weight == weight[i])));
  }
  merge(tally, codes.nan_code, out, n, *run.stats);
  merge(losses, codes.nan_code, lost, n, *kept.stats);
  count.to(*run.counts);
}

// Magnitudes so far below the largest one that no sum of a few of them overflows.
HWY_INLINE uint32_t few_of_them(const Codes& codes) { return codes.largest - (4u << 23); }

template <bool same, bool stochastic>
HWY_FLATTEN HWY_NOINLINE bool kahan_in_range(const WriteRun& run, const Codes& given, uint16_t* to,
                                             const Compensation& kept) {
  const Codes codes = given;
  const InRangeRound<same, same ? 16 : -1> rounding{codes};
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t *HWY_RESTRICT out = to, *HWY_RESTRICT lost = kept.codes;
  Count count;
  Extremes sums;
  uint32_t amax = 0, any = 0;
  for (size_t i = 0; i < n; ++i) {
    const float before = bits_float(rounding.pattern(lost[i]));
    uint32_t code = 0;
    const InRangeNear<InRangeRound<same, same ? 16 : -1>> near{rounding};
    const InRangeSum<stochastic, InRangeRound<same, same ? 16 : -1>> sum{rounding, stochastic ? random[i] : 0,
                                                                         sums, code};
    const Compensated made = kahan_sum(weight[i], decrease[i], before, near, sum);
    out[i] = static_cast<uint16_t>(code);
    lost[i] = static_cast<uint16_t>(rounding.code(made.compensation));
    amax = most(amax, float_bits(made.compensation) & 0x7FFFFFFFu);
    any |= float_bits(decrease[i]) | float_bits(before);  // at least the largest
    count.add(decrease[i], static_cast<bool>(static_cast<uint32_t>(made.compensation == before) &
                                             static_cast<uint32_t>(made.weight == weight[i])));
  }
  if (most(most(any & 0x7FFFFFFFu, amax), sums.largest) > few_of_them(codes) ||
      !finish(run, codes, sums, count))
    return false;
  kept.stats->merge({0, 0, 0, bits_float(amax)});
  return true;
}

void write_kahan(const WriteRun& run, const Codes& codes, bool same, const Nearest& near, uint16_t* out,
                 const Compensation& kept) {
  const bool random = run.random != nullptr;
  const auto in_range = same ? (random ? kahan_in_range<true, true> : kahan_in_range<true, false>)
                             : (random ? kahan_in_range<false, true> : kahan_in_range<false, false>);
  alignas(64) uint16_t before[kPiece];
  std::memcpy(before, kept.codes, run.n * sizeof(uint16_t));
  if (in_range(run, codes, out, kept)) return;
  std::memcpy(kept.codes, before, run.n * sizeof(uint16_t));
  if (same) {
    random ? kahan_loop<true, true>(run, codes, NearSame(codes), out, kept)
           : kahan_loop<true, false>(run, codes, NearSame(codes), out, kept);
  } else {
    random ? kahan_loop<false, true>(run, codes, near, out, kept)
           : kahan_loop<false, false>(run, codes, near, out, kept);
  }
}

template <bool same, bool stochastic, typename Side>
HWY_FLATTEN HWY_NOINLINE void split_loop(const WriteRun& run, const CodecSpec& spec, int bits,
                                         const SplitArrays& to) {
  const Codes codes = Codes::of(spec);
  const CodecSpec wide = spec;
  const int extra = bits;
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t* HWY_RESTRICT high = to.high;
  Side* HWY_RESTRICT side = static_cast<Side*>(to.side);
  Count count;
  Tally tally;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(direct_update(weight[i], decrease[i]));
    const uint32_t magnitude = pattern & 0x7FFFFFFFu, sign = pattern ^ magnitude;
    const uint32_t code = codes.nearest<same>(magnitude);
    tally.add(codes, magnitude, code);
    const uint32_t stored = codes.stored(magnitude, code);
    const SplitCode parts =
        split_code(wide, extra, stochastic, stored | sign >> codes.sign_down, stochastic ? random[i] : 0);
    high[i] = static_cast<uint16_t>(parts.high);
    side[i] = static_cast<Side>(parts.side);
    count.add(decrease[i], bits_float(codes.pattern<same>(stored) | sign) == weight[i]);
  }
  merge(tally, codes.nan_code >> extra, high, n, *run.stats);
  count.to(*run.counts);
}

template <bool same, int kShift, bool stochastic, typename Side>
HWY_FLATTEN HWY_NOINLINE bool split_in_range(const WriteRun& run, const CodecSpec& spec, int bits,
                                             const SplitArrays& to) {
  const Codes codes = Codes::of(spec);
  const CodecSpec wide = spec;
  const InRangeRound<same, kShift> rounding{codes};
  const int extra = kShift >= 0 ? 16 - kShift : bits;
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  const uint32_t* HWY_RESTRICT random = run.random;
  uint16_t* HWY_RESTRICT high = to.high;
  Side* HWY_RESTRICT side = static_cast<Side*>(to.side);
  Count count;
  Extremes extremes;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pattern = float_bits(weight[i] - decrease[i]);
    extremes.add(pattern & 0x7FFFFFFFu);
    const Rounded rounded = rounding.nearest(pattern);
    const SplitCode parts = split_code(wide, extra, stochastic, rounded.code, stochastic ? random[i] : 0);
    high[i] = static_cast<uint16_t>(parts.high);
    side[i] = static_cast<Side>(parts.side);
    count.add(decrease[i], bits_float(rounded.pattern) == weight[i]);
  }
  return finish(run, codes, extremes, count);
}

// kShift: known if the extra bits fill bytes.
template <bool same, int kShift, bool stochastic, typename Side>
void split_with(const WriteRun& run, const CodecSpec& wide, int extra, const SplitArrays& out) {
  if (split_in_range<same, kShift, stochastic, Side>(run, wide, extra, out)) return;
  split_loop<same, stochastic, Side>(run, wide, extra, out);
}

template <bool same, bool stochastic>
void split_sides(const WriteRun& run, const CodecSpec& wide, int extra, const SplitArrays& out) {
  if (out.side_bytes == 4) return split_with<same, -1, stochastic, uint32_t>(run, wide, extra, out);
  if (same && !stochastic && extra == 16)
    return split_with < same, same ? 0 : -1, stochastic, uint16_t > (run, wide, extra, out);
  if (out.side_bytes == 2) return split_with<same, -1, stochastic, uint16_t>(run, wide, extra, out);
  if (same && !stochastic && extra == 8)
    return split_with < same, same ? 8 : -1, stochastic, uint8_t > (run, wide, extra, out);
  split_with<same, -1, stochastic, uint8_t>(run, wide, extra, out);
}

void write_split(const WriteRun& run, const CodecSpec& wide, int extra, const SplitArrays& out) {
  const bool random = run.random != nullptr;
  const auto write = Codes::same_exponents(wide)
                         ? (random ? split_sides<true, true> : split_sides<true, false>)
                         : (random ? split_sides<false, true> : split_sides<false, false>);
  write(run, wide, extra, out);
}

template <bool same, typename Side>
HWY_FLATTEN HWY_NOINLINE void join_loop(const CodecSpec& wide, int bits, size_t n, const SplitArrays& in,
                                        float* to) {
  const Codes codes = Codes::of(wide);
  const int extra = bits;
  const uint16_t* HWY_RESTRICT high = in.high;
  const Side* HWY_RESTRICT side = static_cast<const Side*>(in.side);
  float* HWY_RESTRICT out = to;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t code = join_code(extra, {high[i], side[i]});
    const uint32_t sign = code << codes.sign_down & 0x80000000u;
    out[i] = bits_float(codes.pattern<same>(code ^ sign >> codes.sign_down) | sign);
  }
}

void read_split(const CodecSpec& wide, int extra, size_t n, const SplitArrays& in, float* out) {
  const bool same = Codes::same_exponents(wide);
  if (in.side_bytes == 4) {
    same ? join_loop<true, uint32_t>(wide, extra, n, in, out)
         : join_loop<false, uint32_t>(wide, extra, n, in, out);
  } else if (in.side_bytes == 2) {
    same ? join_loop<true, uint16_t>(wide, extra, n, in, out)
         : join_loop<false, uint16_t>(wide, extra, n, in, out);
  } else {
    same ? join_loop<true, uint8_t>(wide, extra, n, in, out)
         : join_loop<false, uint8_t>(wide, extra, n, in, out);
  }
}

void advance_any(const WriteRun& run, float* to, float* compare_to) {
  const size_t n = run.n;
  const float *HWY_RESTRICT weight = run.before, *HWY_RESTRICT decrease = run.decrease;
  float *HWY_RESTRICT out = to, *HWY_RESTRICT compare = compare_to;
  Count count;
  for (size_t i = 0; i < n; ++i) {
    const float before = weight[i];
    count.add(decrease[i], false);
    out[i] = direct_update(before, decrease[i]);
    compare[i] = bits_float(choose(decrease[i] != 0, float_bits(before), kNanBits));
  }
  count.to(*run.counts);
}

}  // namespace ulp::step::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::step {

HWY_EXPORT(write_bf16);
HWY_EXPORT(write_fp32);
HWY_EXPORT(write_plain);
HWY_EXPORT(write_kahan);
HWY_EXPORT(write_split);
HWY_EXPORT(read_split);
HWY_EXPORT(advance_any);

void write_bf16(const Codes& codes, size_t n, const float* in, uint16_t* out, EncodeStats& stats) {
  HWY_DYNAMIC_DISPATCH(write_bf16)(codes, n, in, out, stats);
}
void write_fp32(const WriteRun& run, float* weight) { HWY_DYNAMIC_DISPATCH(write_fp32)(run, weight); }
void write_plain(const WriteRun& run, const Codes& codes, bool same, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(write_plain)(run, codes, same, out);
}
void write_kahan(const WriteRun& run, const Codes& codes, bool same, const Nearest& near, uint16_t* out,
                 const Compensation& compensation) {
  HWY_DYNAMIC_DISPATCH(write_kahan)(run, codes, same, near, out, compensation);
}
void write_split(const WriteRun& run, const CodecSpec& wide, int extra, const SplitArrays& out) {
  HWY_DYNAMIC_DISPATCH(write_split)(run, wide, extra, out);
}
void read_split(const CodecSpec& wide, int extra, size_t n, const SplitArrays& in, float* out) {
  HWY_DYNAMIC_DISPATCH(read_split)(wide, extra, n, in, out);
}
void advance_any(const WriteRun& run, float* weight, float* compare) {
  HWY_DYNAMIC_DISPATCH(advance_any)(run, weight, compare);
}

// Formats without a vector loop: element by element, by the definition.
void advance_any_kahan(const WriteRun& run, const CodecSpec& spec, const Nearest& near, float* compensation,
                       float* weight, float* compare) {
  const Round mode = run.random != nullptr ? Round::stochastic : Round::nearest_even;
  for (size_t i = 0; i < run.n; ++i) {
    const float before = run.before[i], decrease = run.decrease[i], lost = compensation[i];
    const Compensated made = kahan_update(before, decrease, lost, near, [&](float sum) {
      const Encoded code =
          encode_scalar(spec, mode, float_bits(settle_nan(sum)), run.random != nullptr ? run.random[i] : 0);
      run.stats->overflow += code.event == RangeEvent::overflow ? 1 : 0;
      run.stats->underflow += code.event == RangeEvent::underflow ? 1 : 0;
      run.stats->nan += code.event == RangeEvent::nan ? 1 : 0;
      if (std::abs(sum) > run.stats->amax) run.stats->amax = std::abs(sum);
      return bits_float(decode_scalar(spec, code.code));
    });
    run.counts->updates += decrease != 0 ? 1 : 0;
    const bool moved = decrease == 0 || made.compensation != lost;
    compare[i] = moved ? bits_float(kNanBits) : before;
    weight[i] = made.weight;
    compensation[i] = made.compensation;
  }
}

}  // namespace ulp::step
#endif
