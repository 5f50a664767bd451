#include "ulp/backend/cpu/optimizer/fused_loops.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <variant>

#include "ulp/numeric/nearest_even.h"
#include "ulp/numeric/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/optimizer/fused_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::step::HWY_NAMESPACE {

using Beside = FusedKind::Beside;

// Neighbours are computed side by side: a word of two codes is unpacked and packed within its lane,
// and all lanes are as wide as fp32. So vectors of codes need not be spread over twice as many
// vectors.
static_assert(std::endian::native == std::endian::little);
template <typename T>
struct Two {
  T first, second;
};

// Codes in words of two.
template <typename Code>
struct Pairs {
  using Word = std::conditional_t<sizeof(Code) == 1, uint16_t, uint32_t>;
  static constexpr uint32_t kBits = 8 * sizeof(Code), kMask = (1u << kBits) - 1;

  static HWY_INLINE Two<uint32_t> load(const void* from, size_t pair) {
    Word word;
    std::memcpy(&word, static_cast<const Code*>(from) + 2 * pair, sizeof word);
    return {word & kMask, static_cast<uint32_t>(word) >> kBits};
  }
  static HWY_INLINE Word join(Two<uint32_t> codes) {
    return static_cast<Word>((codes.first & kMask) | codes.second << kBits);
  }
};

// Values of gradients and states.
struct Fp32 {
  using Type = float;
  using Word = Two<float>;
  static HWY_INLINE Two<float> load(const void* from, size_t pair) {
    const float* numbers = static_cast<const float*>(from) + 2 * pair;
    return {numbers[0], numbers[1]};
  }
  static HWY_INLINE Word store(Two<float> x, Extremes&) { return x; }
  static bool finish(const Extremes&, const Codes&, EncodeStats&) { return true; }
};
struct Bf16 {
  using Type = uint16_t;
  using Word = uint32_t;
  static HWY_INLINE Two<float> load(const void* from, size_t pair) {
    const Two<uint32_t> codes = Pairs<uint16_t>::load(from, pair);
    return {bits_float(codes.first << 16), bits_float(codes.second << 16)};
  }
  static HWY_INLINE uint32_t code(float x, Extremes& extremes) {
    const uint32_t pattern = float_bits(x);
    extremes.add(pattern & 0x7FFFFFFFu);
    return EvenByPattern::dropping(16).code(pattern);
  }
  static HWY_INLINE Word store(Two<float> x, Extremes& extremes) {
    return Pairs<uint16_t>::join({code(x.first, extremes), code(x.second, extremes)});
  }
  static bool finish(const Extremes& extremes, const Codes& codes, EncodeStats& stats) {
    if (!extremes.in_range(codes)) return false;
    stats.merge({0, 0, 0, bits_float(extremes.largest)});
    return true;
  }
};

// What is found of the weights of a piece.
struct Seen {
  Extremes sums;
  uint32_t updates = 0, cancelled = 0;
  uint32_t lost = 0;  // the largest compensation
  uint32_t any = 0;   // at least the largest input, if that must be known
};

// The codes of a weight and of its extra bits or compensation.
struct Stored {
  uint32_t high, side;
};

// Weights as they are read. Extra bits that were rounded stochastically have one more bit.
template <bool same, int kExtra, bool kUp = false>
struct WeightIn {
  static constexpr bool kKept = !same;
  using Side = std::conditional_t<kExtra == 8 && !kUp, uint8_t, uint16_t>;
  using InRange = InRangeRound<same, same ? 16 - kExtra : -1>;

  static HWY_INLINE Two<float> load(const Codes& codes, const void* weight, const void* side, size_t pair) {
    Two<uint32_t> code = Pairs<uint16_t>::load(weight, pair);
    if constexpr (kExtra > 0) {
      const Two<uint32_t> extra = Pairs<Side>::load(side, pair);
      code = {join_code(kExtra, {code.first, extra.first}), join_code(kExtra, {code.second, extra.second})};
    }
    const InRange rounding{codes};
    return {bits_float(rounding.pattern(code.first)), bits_float(rounding.pattern(code.second))};
  }
};

template <bool same, bool stochastic, Beside beside>
struct WeightPort {
  static constexpr bool kCompensated = beside == Beside::compensation, kHasSide = beside != Beside::nothing,
                        kRandom = stochastic;
  static constexpr int kExtra = beside == Beside::extra8 ? 8 : beside == Beside::extra16 ? 16 : 0;
  using In = WeightIn<same, kExtra, stochastic && kExtra != 0>;
  using Side = typename In::Side;
  using InRange = typename In::InRange;

  static HWY_INLINE Stored step(const Codes& codes, const CodecSpec& wide, float before, float decrease,
                                uint32_t side, uint32_t random, Seen& seen) {
    const InRange rounding{codes};
    const auto moved = static_cast<uint32_t>(decrease != 0);
    seen.updates += moved;
    if constexpr (kCompensated) {
      const float lost = bits_float(rounding.pattern(side));
      uint32_t code = 0;
      const InRangeNear<InRange> near{rounding};
      const InRangeSum<stochastic, InRange> sum{rounding, random, seen.sums, code};
      const Compensated made = kahan_sum(before, decrease, lost, near, sum);
      seen.lost = most(seen.lost, float_bits(made.compensation) & 0x7FFFFFFFu);
      seen.any |= float_bits(decrease) | float_bits(lost) | (same ? 0 : float_bits(before));
      seen.cancelled += moved & static_cast<uint32_t>(made.compensation == lost) &
                        static_cast<uint32_t>(made.weight == before);
      return {code, rounding.code(made.compensation)};
    } else {
      const uint32_t pattern = float_bits(before - decrease);
      seen.sums.add(pattern & 0x7FFFFFFFu);
      // Other exponents: codes of infinities and NaN were read as large numbers.
      if constexpr (!same) seen.any = most(seen.any, float_bits(before) & 0x7FFFFFFFu);
      const Rounded rounded =
          stochastic && kExtra == 0 ? rounding.stochastic(pattern, random) : rounding.nearest(pattern);
      seen.cancelled += moved & static_cast<uint32_t>(bits_float(rounded.pattern) == before);
      const SplitCode parts = split_code(wide, kExtra, stochastic && kExtra > 0, rounded.code, random);
      return {parts.high, parts.side};
    }
  }

  static bool finish(const Codes& codes, const Seen& seen, const FusedRun& run) {
    if (!seen.sums.in_range(codes)) return false;
    if constexpr (kCompensated) {
      // So far below the largest number that no sum of a few of them overflows.
      if (most(most(seen.any & 0x7FFFFFFFu, seen.lost), seen.sums.largest) > codes.largest - (4u << 23))
        return false;
      run.compensation_stats->merge({0, 0, 0, bits_float(seen.lost)});
    } else if (seen.any > codes.largest) {
      return false;
    }
    run.weight_stats->merge({0, 0, 0, bits_float(seen.sums.largest)});
    run.counts->merge({seen.updates, seen.cancelled});
    return true;
  }
};

template <int states, typename Weight, typename State, typename Grad, typename Rule>
HWY_FLATTEN HWY_NOINLINE bool decrease_loop(const Rule& optimizer, const UpdateScalars& given,
                                            const FusedKind& kind, const FusedRun& run, FusedMade& made) {
  // Local copies, so that nothing can alias them.
  const Rule rule = optimizer;
  const UpdateScalars scalars = given;
  const Codes codes = *kind.weight;
  const void *HWY_RESTRICT grad = run.grad, *HWY_RESTRICT first = run.state[0],
                           *HWY_RESTRICT second = run.state[1], *HWY_RESTRICT weight = run.weight,
                           *HWY_RESTRICT side = run.beside;
  float *HWY_RESTRICT decrease_a = made.decrease[0], *HWY_RESTRICT decrease_b = made.decrease[1];
  float *HWY_RESTRICT kept_a = made.before[0], *HWY_RESTRICT kept_b = made.before[1];
  auto *HWY_RESTRICT next_first = reinterpret_cast<typename State::Word*>(made.state[0]),
                     *HWY_RESTRICT next_second = reinterpret_cast<typename State::Word*>(made.state[1]);
  const size_t pairs = run.n / 2;
  Extremes firsts, seconds;
  for (size_t i = 0; i < pairs; ++i) {
    const Two<float> gradient = Grad::load(grad, i), before = Weight::load(codes, weight, side, i);
    const Two<float> before_first = State::load(first, i);
    Two<float> before_second{};
    if constexpr (states > 1) before_second = State::load(second, i);
    float a[2] = {before_first.first, before_second.first},
          b[2] = {before_first.second, before_second.second};
    decrease_a[i] = rule.decrease(scalars, before.first, gradient.first, a, InRangeWide{});
    decrease_b[i] = rule.decrease(scalars, before.second, gradient.second, b, InRangeWide{});
    if constexpr (Weight::kKept) {
      kept_a[i] = before.first;
      kept_b[i] = before.second;
    }
    next_first[i] = State::store({a[0], b[0]}, firsts);
    if constexpr (states > 1) next_second[i] = State::store({a[1], b[1]}, seconds);
  }
  return State::finish(firsts, *kind.bf16, made.stats[0]) &&
         State::finish(seconds, *kind.bf16, made.stats[1]);
}

template <typename Weight>
HWY_FLATTEN HWY_NOINLINE bool weight_loop(const FusedKind& kind, const FusedRun& run, FusedMade& made) {
  using Side = Pairs<typename Weight::Side>;
  const Codes codes = *kind.weight;
  CodecSpec wide{};
  wide.max_code = codes.max_code;
  wide.sign_shift = 31 - static_cast<int>(codes.sign_down);
  const void *HWY_RESTRICT weight = run.weight, *HWY_RESTRICT side = run.beside;
  const uint32_t* HWY_RESTRICT random = run.random;
  const float *HWY_RESTRICT decrease_a = made.decrease[0], *HWY_RESTRICT decrease_b = made.decrease[1];
  const float *HWY_RESTRICT kept_a = made.before[0], *HWY_RESTRICT kept_b = made.before[1];
  uint32_t* HWY_RESTRICT next = made.weight;
  auto* HWY_RESTRICT next_side = reinterpret_cast<typename Side::Word*>(made.beside);
  const size_t pairs = run.n / 2;
  Seen seen;
  for (size_t i = 0; i < pairs; ++i) {
    Two<float> before;
    if constexpr (Weight::In::kKept) {
      before = {kept_a[i], kept_b[i]};
    } else {
      before = Weight::In::load(codes, weight, side, i);
    }
    Two<uint32_t> beside{}, word{};
    if constexpr (Weight::kCompensated) beside = Side::load(side, i);
    if constexpr (Weight::kRandom) word = {random[2 * i], random[2 * i + 1]};
    const Stored a = Weight::step(codes, wide, before.first, decrease_a[i], beside.first, word.first, seen);
    const Stored b =
        Weight::step(codes, wide, before.second, decrease_b[i], beside.second, word.second, seen);
    next[i] = Pairs<uint16_t>::join({a.high, b.high});
    if constexpr (Weight::kHasSide) next_side[i] = Side::join({a.side, b.side});
  }
  return Weight::finish(codes, seen, run);
}

// A branch would prevent vectorisation.
struct MomentumSgd {
  Sgd sgd;
  template <typename Arithmetic>
  HWY_INLINE float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                            const Arithmetic& arithmetic) const {
    return Sgd{sgd.momentum, sgd.weight_decay, false}.decrease(s, weight, grad, state, arithmetic);
  }
};
HWY_INLINE MomentumSgd loop_rule(const Sgd& sgd) { return {sgd}; }
HWY_INLINE const Adam& loop_rule(const Adam& adam) { return adam; }
HWY_INLINE const AdamW& loop_rule(const AdamW& adamw) { return adamw; }

using DecreaseStep = decltype(FusedStep::decrease);

template <typename Rule, typename Weight, typename State, typename Grad>
bool decrease_with(const Optimizer& optimizer, const UpdateScalars& scalars, const FusedKind& kind,
                   const FusedRun& run, FusedMade& made) {
  return decrease_loop<Rule::kStates, Weight, State, Grad>(loop_rule(*std::get_if<Rule>(&optimizer)), scalars,
                                                           kind, run, made);
}

template <typename Weight, typename Rule>
DecreaseStep for_numbers(const FusedKind& kind) {
  if (kind.state_bf16)
    return kind.grad_bf16 ? decrease_with<Rule, Weight, Bf16, Bf16> : decrease_with<Rule, Weight, Bf16, Fp32>;
  return kind.grad_bf16 ? decrease_with<Rule, Weight, Fp32, Bf16> : decrease_with<Rule, Weight, Fp32, Fp32>;
}

template <typename Weight>
DecreaseStep for_optimizer(const Optimizer& optimizer, const FusedKind& kind) {
  if (const Sgd* sgd = std::get_if<Sgd>(&optimizer))
    return sgd->states() == 1 && !sgd->nesterov ? for_numbers<Weight, Sgd>(kind) : nullptr;
  if (std::get_if<Adam>(&optimizer) != nullptr) return for_numbers<Weight, Adam>(kind);
  return std::get_if<AdamW>(&optimizer) != nullptr ? for_numbers<Weight, AdamW>(kind) : nullptr;
}

template <bool same, bool stochastic, Beside beside>
FusedStep for_weight(const Optimizer& optimizer, const FusedKind& kind) {
  using Weight = WeightPort<same, stochastic, beside>;
  return {for_optimizer<typename Weight::In>(optimizer, kind), weight_loop<Weight>};
}

template <bool same, bool stochastic>
FusedStep for_beside(const Optimizer& optimizer, const FusedKind& kind) {
  switch (kind.beside) {
    case Beside::nothing:
      return for_weight<same, stochastic, Beside::nothing>(optimizer, kind);
    case Beside::compensation:
      return for_weight<same, stochastic, Beside::compensation>(optimizer, kind);
    case Beside::extra8:
      return for_weight<same, stochastic, Beside::extra8>(optimizer, kind);
    case Beside::extra16:
      // fp32 has no bits left for other exponents, and the 17 bits of stochastic rounding do not
      // fit an array of 16.
      if constexpr (same && !stochastic)
        return for_weight<same, stochastic, Beside::extra16>(optimizer, kind);
  }
  return {};
}

FusedStep fused_step(const Optimizer& optimizer, const FusedKind& kind) {
  const auto step = kind.same ? (kind.stochastic ? for_beside<true, true> : for_beside<true, false>)
                              : (kind.stochastic ? for_beside<false, true> : for_beside<false, false>);
  return step(optimizer, kind);
}

}  // namespace ulp::step::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::step {

HWY_EXPORT(fused_step);

FusedStep fused_step(const Optimizer& optimizer, const FusedKind& kind) {
  return HWY_DYNAMIC_DISPATCH(fused_step)(optimizer, kind);
}

bool FusedStep::operator()(const Optimizer& optimizer, const UpdateScalars& scalars, const FusedKind& kind,
                           const FusedRun& run) const {
  FusedMade made;
  if (run.n % 2 != 0 || !decrease(optimizer, scalars, kind, run, made) || !weight(kind, run, made))
    return false;
  for (size_t k = 0; k < 2 && run.state[k] != nullptr; ++k) {
    std::memcpy(run.state[k], made.state[k], run.n * (kind.state_bf16 ? 2 : 4));
    run.state_stats[k].merge(made.stats[k]);
  }
  std::memcpy(run.weight, made.weight, run.n * 2);
  const bool bytes = kind.beside == FusedKind::Beside::extra8 && !kind.stochastic;
  if (kind.beside != FusedKind::Beside::nothing)
    std::memcpy(run.beside, made.beside, run.n * (bytes ? 1 : 2));
  return true;
}

}  // namespace ulp::step
#endif
