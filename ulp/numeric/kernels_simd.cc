// Vector kernels, one source for every unit of the machine: Highway compiles this file once per
// target and picks at run time. Each gives the bits of scalar.h; where a format is outside what a
// kernel handles, it hands the run to the reference.
#include <hwy/cache_control.h>

#include <cstring>
#include <limits>

#include "ulp/numeric/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/numeric/kernels_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ulp/numeric/nearest_even_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ulp::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = ulp::lanes::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using DU = hn::ScalableTag<uint32_t>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

// Rounders turn magnitudes into magnitude codes with unbounded exponent, plus a constant `offset`.
// All integers involved stay below 2^31, so signed vectors serve, whose comparisons every unit has.
// A rounder is right for patterns below `limit`; a run with a larger one is done again by the
// reference.
constexpr uint32_t kInfinity = 0x7F800000u;

// Nearest-even by the float adder.
struct AdderRounder {
  explicit AdderRounder(const CodecSpec& s)
      : adder(static_cast<uint32_t>(23 - s.man), static_cast<uint32_t>(s.emin + 127) << 23),
        offset(adder.offset),
        limit(static_cast<uint32_t>(254 - (23 - s.man) + 1) << 23) {}

  // With m = 23 the sum would have no room for the units, and the lowest constant must be a number.
  static bool fits(const CodecSpec& s) { return s.man <= 22 && s.emin + (23 - s.man) <= 127; }

  VI operator()(VI magnitude, VU /*random*/) const { return adder.code(magnitude); }

  lanes::EvenByAdder<DF> adder;
  int offset;
  uint32_t limit;
};

// Nearest-even by pattern, for formats with the exponents of fp32 itself.
struct PatternRounder {
  explicit PatternRounder(const CodecSpec& s) : even(static_cast<uint32_t>(23 - s.man)) {}

  // With m = 23 there is no half. With m = 0 the lowest bit of the pattern is not the
  // significand's, whose parity decides ties.
  static bool fits(const CodecSpec& s) { return s.emin == -126 && s.man >= 1 && s.man <= 22; }

  VI operator()(VI magnitude, VU /*random*/) const { return even.code(magnitude); }

  lanes::EvenByPattern<DF> even;
  static constexpr int offset = 0;
  static constexpr uint32_t limit = kInfinity + 1;
};

// Any mode, step by step as in scalar.h. Needs emin >= -126.
template <Round mode>
struct StepRounder {
  explicit StepRounder(const CodecSpec& s)
      : lowest_field(hn::Set(DI(), s.emin + 127)), man(s.man), base_shift(hn::Set(DI(), 23 - s.man)) {}

  VI operator()(VI magnitude, VU random) const {
    const DI di;
    const DU du;
    const VI one = hn::Set(di, 1), most = hn::Set(di, 31);
    // An fp32 subnormal has field 1 and no leading one: both cases are magnitude - (field - 1)
    // 2^23.
    const VI field = hn::Max(hn::ShiftRight<23>(magnitude), one);
    const VI significand = hn::Sub(magnitude, hn::ShiftLeft<23>(hn::Sub(field, one)));
    const VI top = hn::Max(field, lowest_field);
    const VI shift = hn::Add(hn::Sub(top, field), base_shift);
    const VI near_shift = hn::Min(shift, most);
    const VU units = hn::Shr(hn::BitCast(du, significand), hn::BitCast(du, near_shift));
    // The shifted-out bits, moved to the top of a word. Shifts of 32 and more leave no units, and
    // only the fraction's lower bits.
    const VU near_fraction = hn::Shl(hn::BitCast(du, hn::Add(significand, significand)),
                                     hn::BitCast(du, hn::Sub(most, near_shift)));
    const VI over = hn::Min(hn::Max(hn::Sub(shift, hn::Set(di, 32)), hn::Zero(di)), most);
    const VU far_fraction = hn::Shr(hn::BitCast(du, significand), hn::BitCast(du, over));
    const VU fraction = hn::IfThenElse(hn::RebindMask(du, hn::Gt(shift, most)), far_fraction, near_fraction);
    const VU code = hn::Add(hn::ShiftLeftSame(hn::BitCast(du, hn::Sub(top, lowest_field)), man), units);
    return hn::BitCast(di, hn::Add(code, round_up(fraction, units, random)));
  }

  // 1 where the magnitude rounds up, else 0.
  static VU round_up(VU fraction, VU units, VU random) {
    const DU du;
    const VU one = hn::Set(du, 1);
    if constexpr (mode == Round::toward_zero) return hn::Zero(du);
    if constexpr (mode == Round::nearest_away) return hn::ShiftRight<31>(fraction);
    if constexpr (mode == Round::stochastic) return hn::IfThenElseZero(hn::Lt(random, fraction), one);
    // Nearest-even: above half, or at half and odd, which is above half - odd.
    const VU odd = hn::And(units, one);
    return hn::IfThenElseZero(hn::Gt(fraction, hn::Sub(hn::Set(du, 0x80000000u), odd)), one);
  }

  VI lowest_field;
  int man;
  VI base_shift;
  static constexpr int offset = 0;
  static constexpr uint32_t limit = kInfinity + 1;
};

#ifdef ULP_COUNT_NO_RANGES
constexpr bool kCountRanges = false;
#else
constexpr bool kCountRanges = true;
#endif

// Clamps, counts, adds the sign and stores: one vector of 16- or 32-bit codes at a time.
template <typename Code>
class CodeWriter {
 public:
  static constexpr size_t kVectors = 1;

  CodeWriter(const CodecSpec& spec, int offset)
      : offset_(hn::Set(DI(), offset)),
        max_code_(hn::Set(DI(), static_cast<int32_t>(spec.max_code))),
        over_code_(hn::Set(DI(), static_cast<int32_t>(spec.over_code))),
        sign_bit_(hn::Set(DI(), std::numeric_limits<int32_t>::min())),
        sign_down_(31 - spec.sign_shift) {}

  HWY_INLINE void operator()(const VI (&x)[1], const VI (&rounded)[1], Code* out) {
    const DI di;
    const DU du;
    const VI code = hn::Sub(rounded[0], offset_);
    if constexpr (kCountRanges) {
      overflow_ += hn::CountTrue(di, hn::Gt(code, max_code_));
      zeros_ += hn::CountTrue(di, hn::Eq(code, hn::Zero(di)));
    }
    // An overflow is at least max_code + 1, which is infinity where there is one: a minimum serves
    // both.
    const VU sign = hn::ShiftRightSame(hn::BitCast(du, hn::And(x[0], sign_bit_)), sign_down_);
    const VU codes = hn::Or(hn::BitCast(du, hn::Min(code, over_code_)), sign);
    if constexpr (sizeof(Code) == 4) {
      hn::StoreU(codes, du, out);
    } else {
      const hn::Rebind<Code, DU> dc;
      hn::StoreU(hn::TruncateTo(dc, codes), dc, out);
    }
  }

  uint64_t overflow() const { return overflow_; }
  uint64_t zeros() const { return zeros_; }

 private:
  VI offset_, max_code_, over_code_, sign_bit_;
  int sign_down_;
  uint64_t overflow_ = 0, zeros_ = 0;
};

#if HWY_TARGET != HWY_SCALAR
// 8-bit codes, two vectors at a time: most of the work is done in 16-bit lanes, half as often.
// Narrowing saturates, so an overflow stays one, and the sign of a pattern stays its sign.
template <>
class CodeWriter<uint8_t> {
  using DS = hn::Repartition<int16_t, DI>;
  using DB = hn::Rebind<uint8_t, DS>;
  using D4 = hn::Repartition<uint32_t, DB>;
  using VS = hn::Vec<DS>;

 public:
  static constexpr size_t kVectors = 2;

  CodeWriter(const CodecSpec& spec, int offset)
      : offset_(hn::Set(DS(), static_cast<int16_t>(offset))),
        max_code_(hn::Set(DS(), static_cast<int16_t>(spec.max_code))),
        over_code_(hn::Set(DS(), static_cast<int16_t>(spec.over_code))),
        sign_bit_(hn::Set(DS(), 0x80)) {
    // Narrowing two vectors interleaves their 128-bit blocks: after it, four codes of the first
    // stand beside four of the second. This order of groups of four undoes it.
    const size_t blocks = hn::Lanes(D4()) / 2;
    HWY_ALIGN uint32_t from[hn::MaxLanes(D4())];
    for (size_t k = 0; k < blocks; ++k) {
      from[k] = static_cast<uint32_t>(2 * k);
      from[blocks + k] = static_cast<uint32_t>(2 * k + 1);
    }
    std::memcpy(order_, from, sizeof from);
  }

  HWY_INLINE void operator()(const VI (&x)[2], const VI (&rounded)[2], uint8_t* out) {
    const DS ds;
    const DB db;
    const D4 d4;
    const VS code = hn::Sub(hn::ReorderDemote2To(ds, rounded[0], rounded[1]), offset_);
    if constexpr (kCountRanges) {
      overflow_ += hn::CountTrue(ds, hn::Gt(code, max_code_));
      zeros_ += hn::CountTrue(ds, hn::Eq(code, hn::Zero(ds)));
    }
    const VS sign = hn::And(hn::ShiftRight<8>(hn::ReorderDemote2To(ds, x[0], x[1])), sign_bit_);
    const VS codes = hn::Or(hn::Min(code, over_code_), sign);
    const auto bytes = hn::BitCast(d4, hn::DemoteTo(db, codes));
    const auto ordered = hn::TableLookupLanes(bytes, hn::SetTableIndices(d4, order_));
    hn::StoreU(hn::BitCast(db, ordered), db, out);
  }

  uint64_t overflow() const { return overflow_; }
  uint64_t zeros() const { return zeros_; }

 private:
  VS offset_, max_code_, over_code_, sign_bit_;
  HWY_ALIGN uint32_t order_[hn::MaxLanes(D4())];
  uint64_t overflow_ = 0, zeros_ = 0;
};
#endif

template <typename Code, typename Rounder>
EncodeStats encode_loop(const EncodeRun& run, const Rounder rounder) {
  using Writer = CodeWriter<Code>;
  constexpr size_t kVectors = Writer::kVectors;
  const DF df;
  const DI di;
  const DU du;
  const size_t lanes = hn::Lanes(di), step = kVectors * lanes;
  const VI magnitude_mask = hn::Set(di, 0x7FFFFFFF);
  Writer writer(*run.spec, rounder.offset);
  VI amax = hn::Zero(di);
  uint64_t zero_inputs = 0;

  auto encode_step = [&](const float* in, const uint32_t* random, Code* out) HWY_ATTR {
    VI x[kVectors], rounded[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      x[v] = hn::BitCast(di, hn::LoadU(df, in + v * lanes));
      const VI magnitude = hn::And(x[v], magnitude_mask);
      amax = hn::Max(amax, magnitude);
      if constexpr (kCountRanges) zero_inputs += hn::CountTrue(di, hn::Eq(magnitude, hn::Zero(di)));
      rounded[v] = rounder(magnitude, random ? hn::LoadU(du, random + v * lanes) : hn::Zero(du));
    }
    writer(x, rounded, out);
  };

  const float* in = run.in;
  const uint32_t* random = run.mode == Round::stochastic ? run.random : nullptr;
  Code* out = static_cast<Code*>(run.out);
  size_t i = 0;
  for (; i + step <= run.n; i += step) encode_step(in + i, random ? random + i : nullptr, out + i);
  if (i < run.n) {
    // The rest, padded with zeros, which are inputs and codes alike and so cancel in the count of
    // underflows.
    const size_t rest = run.n - i;
    HWY_ALIGN float in_rest[kVectors * hn::MaxLanes(df)] = {};
    HWY_ALIGN uint32_t random_rest[kVectors * hn::MaxLanes(di)] = {};
    HWY_ALIGN Code out_rest[kVectors * hn::MaxLanes(di)];
    std::memcpy(in_rest, in + i, rest * sizeof(float));
    if (random) std::memcpy(random_rest, random + i, rest * sizeof(uint32_t));
    encode_step(in_rest, random ? random_rest : nullptr, out_rest);
    std::memcpy(out + i, out_rest, rest * sizeof(Code));
  }

  const uint32_t largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, amax)));
  EncodeStats stats;
  stats.overflow = writer.overflow();
  stats.underflow = writer.zeros() - zero_inputs;
  stats.amax = largest < rounder.limit ? bits_float(largest) : std::numeric_limits<float>::quiet_NaN();
  return stats;
}

template <typename Code>
EncodeStats encode_as(const EncodeRun& run) {
  const CodecSpec& spec = *run.spec;
  if (spec.emin < -126) return reference_encode(run);
  switch (run.mode) {
    case Round::nearest_away:
      return encode_loop<Code>(run, StepRounder<Round::nearest_away>(spec));
    case Round::toward_zero:
      return encode_loop<Code>(run, StepRounder<Round::toward_zero>(spec));
    case Round::stochastic:
      return encode_loop<Code>(run, StepRounder<Round::stochastic>(spec));
    case Round::nearest_even:
      break;
  }
  if (PatternRounder::fits(spec)) return encode_loop<Code>(run, PatternRounder(spec));
  if (AdderRounder::fits(spec)) return encode_loop<Code>(run, AdderRounder(spec));
  return encode_loop<Code>(run, StepRounder<Round::nearest_even>(spec));
}

EncodeStats encode(const EncodeRun& run) {
  if (run.code_bytes == 1) return encode_as<uint8_t>(run);
  if (run.code_bytes == 2) return encode_as<uint16_t>(run);
  return encode_as<uint32_t>(run);
}

template <typename Code>
void decode_as(const DecodeRun& run) {
  const DI di;
  const DU du;
  const DF df;
  const hn::Rebind<Code, DU> dc;
  const size_t lanes = hn::Lanes(di);
  const CodecSpec& spec = *run.spec;
  const int bias = 1 - spec.emin;
  const VI magnitude_mask = hn::Set(di, static_cast<int32_t>((uint32_t{1} << spec.sign_shift) - 1));
  const VI max_code = hn::Set(di, static_cast<int32_t>(spec.max_code));
  const VI first_normal = hn::Set(di, 1 << spec.man);
  const VI rebias = hn::Set(di, static_cast<int32_t>(static_cast<uint32_t>(127 - bias) << 23));
  const VI one_field = hn::Set(di, 1 << 23);
  const auto lowest = hn::BitCast(df, hn::Set(di, (spec.emin + 127) << 23));
  const VI special_keep = hn::Set(di, static_cast<int32_t>(spec.special_keep));
  const VI special_code = hn::Set(di, static_cast<int32_t>(spec.special_code));
  const int up = 23 - spec.man, sign_up = 31 - spec.sign_shift;
  // fp32's own exponents: the pattern moved up is the number, subnormals, infinity and NaN
  // included.
  const bool as_is = bias == 127 && spec.sign_shift - spec.man == 8 && spec.special_keep != 0;

  auto step = [&](const Code* in) HWY_ATTR {
    VI code;
    if constexpr (sizeof(Code) == 4) {
      code = hn::BitCast(di, hn::LoadU(du, in));
    } else {
      code = hn::BitCast(di, hn::PromoteTo(du, hn::LoadU(dc, in)));
    }
    const VI magnitude = hn::And(code, magnitude_mask);
    const VI sign = hn::ShiftLeftSame(hn::Xor(code, magnitude), sign_up);
    const VI moved = hn::ShiftLeftSame(magnitude, up);
    if (as_is) return hn::BitCast(df, hn::Or(moved, sign));
    // A subnormal gets the leading one it lacks, by standing in the lowest binade, and loses it
    // again.
    const VI normal = hn::Add(moved, rebias);
    const VI subnormal = hn::BitCast(di, hn::Sub(hn::BitCast(df, hn::Add(normal, one_field)), lowest));
    VI value = hn::IfThenElse(hn::Lt(magnitude, first_normal), subnormal, normal);
    value = hn::IfThenElse(hn::Gt(magnitude, max_code), hn::Or(hn::And(moved, special_keep), special_code),
                           value);
    return hn::BitCast(df, hn::Or(value, sign));
  };

  const Code* in = static_cast<const Code*>(run.in);
  float* out = run.out;
  size_t i = 0;
  if (run.stream) {
    // Streaming stores need aligned addresses; a float is at least aligned to itself.
    while (i < run.n && reinterpret_cast<uintptr_t>(out + i) % (lanes * sizeof(float)) != 0) {
      const DecodeRun head{run.spec, in + i, run.code_bytes, run.out + i, 1, false};
      reference_decode(head);
      ++i;
    }
    for (; i + lanes <= run.n; i += lanes) hn::Stream(step(in + i), df, out + i);
    hwy::FlushStream();
  }
  for (; i + lanes <= run.n; i += lanes) hn::StoreU(step(in + i), df, out + i);
  if (i < run.n) {
    HWY_ALIGN Code in_rest[hn::MaxLanes(di)] = {};
    HWY_ALIGN float out_rest[hn::MaxLanes(df)];
    std::memcpy(in_rest, in + i, (run.n - i) * sizeof(Code));
    hn::Store(step(in_rest), df, out_rest);
    std::memcpy(out + i, out_rest, (run.n - i) * sizeof(float));
  }
}

void decode(const DecodeRun& run) {
  // Past bias 127 normal numbers of the format are fp32 subnormals: the trick above has no binade
  // to stand in.
  if (run.spec->emin < -126) return reference_decode(run);
  if (run.code_bytes == 1) return decode_as<uint8_t>(run);
  if (run.code_bytes == 2) return decode_as<uint16_t>(run);
  return decode_as<uint32_t>(run);
}

// Philox on 64-bit lanes, one block a lane: a product of the low halves fills a lane, its high half
// is a shift away, and what stands in the upper half of a state word is never looked at.
class PhiloxLanes {
 public:
  using D = hn::ScalableTag<uint64_t>;
  using V = hn::Vec<D>;
  // Independent chains side by side hide the multiplier's latency.
  static constexpr size_t kGroups = 4;

  explicit PhiloxLanes(const RoundKey& key)
      : micro_batch_(hn::Set(D(), uint64_t{key.micro_batch} << 16)),
        step_(hn::Set(D(), key.step)),
        tensor_(hn::Set(D(), key.tensor)) {
    const D d;
    PhiloxKey k = round_philox_key(key);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      hn::Store(hn::Set(d, k.word[0]), d, schedule_[round][0]);
      hn::Store(hn::Set(d, k.word[1]), d, schedule_[round][1]);
      k.word[0] += kPhiloxWeyl0;
      k.word[1] += kPhiloxWeyl1;
    }
  }

  static size_t blocks() { return kGroups * hn::Lanes(D()); }

  // The words of blocks `block` .. `block` + blocks() - 1.
  HWY_INLINE void operator()(uint64_t block, uint32_t* out) const {
    const D d;
    const DU du;
    const size_t lanes = hn::Lanes(d);
    const V mul0 = hn::Set(d, kPhiloxMul0), mul1 = hn::Set(d, kPhiloxMul1);
    auto product = [&](V a, V b) HWY_ATTR { return hn::MulEven(hn::BitCast(du, a), hn::BitCast(du, b)); };
    V c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      c0[g] = hn::Iota(d, block + g * lanes);
      c1[g] = hn::Or(hn::ShiftRight<32>(c0[g]), micro_batch_);
      c2[g] = step_;
      c3[g] = tensor_;
    }
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V k0 = hn::Load(d, schedule_[round][0]), k1 = hn::Load(d, schedule_[round][1]);
      for (size_t g = 0; g < kGroups; ++g) {
        const V p0 = product(c0[g], mul0), p1 = product(c2[g], mul1);
        c0[g] = hn::Xor3(hn::ShiftRight<32>(p1), c1[g], k0);
        c2[g] = hn::Xor3(hn::ShiftRight<32>(p0), c3[g], k1);
        c1[g] = p1, c3[g] = p0;
      }
    }
    for (size_t g = 0; g < kGroups; ++g) store(c0[g], c1[g], c2[g], c3[g], out + g * 4 * lanes);
  }

 private:
  static HWY_INLINE void store(V c0, V c1, V c2, V c3, uint32_t* out) {
    const D d;
    const V low = hn::Set(d, 0xFFFFFFFFu);
    const V words01 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    const V words23 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
#if HWY_TARGET == HWY_SCALAR
    // Here a store is a plain one of its type, and the words are of another.
    const uint64_t words[] = {hn::GetLane(words01), hn::GetLane(words23)};
    std::memcpy(out, words, sizeof words);
#else
    hn::StoreInterleaved2(words01, words23, d, reinterpret_cast<uint64_t*>(out));
#endif
  }

  V micro_batch_, step_, tensor_;
  HWY_ALIGN uint64_t schedule_[kPhiloxRounds][2][hn::MaxLanes(D())];
};

void random_words(const RoundKey& key, uint64_t first, size_t n, uint32_t* out) {
  const PhiloxLanes philox(key);
  const uint64_t words = PhiloxLanes::blocks() * 4, end = first + n;
  for (uint64_t from = first / 4 * 4; from < end; from += words) {
    if (from >= first && from + words <= end) {
      philox(from / 4, out + (from - first));
    } else {
      // The ends, where the element numbers do not fill a group of blocks.
      HWY_ALIGN uint32_t part[4 * PhiloxLanes::kGroups * hn::MaxLanes(PhiloxLanes::D())];
      philox(from / 4, part);
      const uint64_t begin = from > first ? from : first, stop = from + words < end ? from + words : end;
      std::memcpy(out + (begin - first), part + (begin - from), (stop - begin) * sizeof(uint32_t));
    }
  }
}

}  // namespace ulp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::kernels {

HWY_EXPORT(encode);
HWY_EXPORT(decode);
HWY_EXPORT(random_words);

void fill_codec_kernels(Table& table) {
  table.encode = HWY_DYNAMIC_DISPATCH(encode);
  table.decode = HWY_DYNAMIC_DISPATCH(decode);
  table.random_words = HWY_DYNAMIC_DISPATCH(random_words);
}

}  // namespace ulp::kernels
#endif
