// S2FP8 against a reference in long double, from the definition at the top of s2fp8.h.
//
// What may differ, and by how much. u = 2^-22 is the unit of a logarithm, L = 0.82 u its stated
// error.
//   alpha  m and mu are each off by at most L, so alpha by a factor of 1 + 2 L / (m - mu - 2 L),
//          then rounded to fp32; the cap brings two values no further apart.
//   beta   -alpha mu with the stored alpha: alpha L, then rounded to fp32.
//   t      log2 Y from the stored alpha and beta: alpha (L + u / 2) for the logarithm and for mu
//          rounded to units, and two fp32 roundings, 2^-23 |t|.
//   Y      ln 2 times that, and the power's 2^-23.5.
//   x      back from Y: (L + 3 * 2^-24 |log2 Y|) / alpha, u / 2 and 2^-25 in the exponent, the
//          power's 2^-23.5, and half of 2^-149.
#include "ulp/numeric/s2fp8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/kernels.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

using Real = long double;

constexpr Real kUnit = 0x1p-22L, kLog = 0.82L * kUnit;
const Real kPower = std::exp2(-23.5L), kLn2 = std::log(2.0L);

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

bool counts(float x) { return x != 0 && !std::isnan(x); }
Real log_of(float x) { return std::log2(static_cast<Real>(std::min(std::fabs(x), FLT_MAX))); }

struct Reference {
  Real alpha = 1, mu = 0, spread = 0;  // spread: m - mu
  uint64_t count = 0;
};

Reference reference_of(std::span<const float> in) {
  Reference r;
  Real sum = 0, m = -1000;
  bool equal = true;
  for (const float x : in) {
    if (!counts(x)) continue;
    const Real log = log_of(x);
    equal = equal && (r.count == 0 || log == m);
    sum += log;
    m = std::max(m, log);
    ++r.count;
  }
  if (r.count == 0) return r;
  r.mu = equal ? m : sum / static_cast<Real>(r.count);
  r.spread = m - r.mu;
  if (!equal) r.alpha = std::min<Real>(15 / r.spread, 1024);
  return r;
}

// Nearest-even on the grid of e5m2; Y never reaches its overflow.
Real round_e5m2(Real y) {
  if (y == 0) return 0;
  const Real spacing = std::ldexp(1.0L, std::max(std::ilogb(y), -14) - 2);
  const Real units = y / spacing, below = std::floor(units), fraction = units - below;
  return (below + (fraction > 0.5L || (fraction == 0.5L && std::fmod(below, 2.0L) == 1) ? 1 : 0)) * spacing;
}

float e5m2_value(uint8_t code) {
  float value;
  decode(parse_format("e5m2"), {&code, 1}, {&value, 1});
  return value;
}

struct Stored {
  std::vector<uint8_t> codes;
  S2fp8Stats stats;
  EncodeStats report;
  bool operator==(const Stored&) const = default;
};

Stored store(std::span<const float> in, ExponentHistogram* histogram = nullptr) {
  Stored s{std::vector<uint8_t>(in.size(), 0xAA), {}, {}};
  s.report = s2fp8_encode(in, s.codes, s.stats, histogram);
  return s;
}

std::vector<float> restored(const Stored& s) {
  std::vector<float> out(s.codes.size(), -1.0f);
  s2fp8_decode(s.codes, s.stats, out);
  return out;
}

void check_stats(const Reference& r, const S2fp8Stats& got) {
  if (r.count == 0) {
    EXPECT_EQ(got, (S2fp8Stats{1, 0}));
    return;
  }
  const Real alpha = got.alpha;
  if (r.spread == 0) {
    EXPECT_EQ(got.alpha, 1.0f);
  } else if (r.spread > 4 * kLog) {
    EXPECT_LE(std::fabs(alpha / r.alpha - 1), 2 * kLog / (r.spread - 2 * kLog) + 0x1p-24L) << alpha;
  } else {
    EXPECT_TRUE(got.alpha == 1.0f || got.alpha == 1024.0f) << alpha;
  }
  EXPECT_LE(std::fabs(got.beta + alpha * r.mu), alpha * kLog + std::fabs(alpha * r.mu) * 0x1.0001p-24L)
      << alpha;
}

// Every code is the reference's, or Y is within the bound of the midpoint between the two. Returns
// how many were that close.
template <typename Log2Y, typename Slack>
size_t check_codes(std::span<const float> in, const Stored& s, const Log2Y& log2_y, const Slack& slack) {
  size_t close = 0, wrong = 0;
  for (size_t i = 0; i < in.size() && wrong < 5; ++i) {
    const float got = e5m2_value(s.codes[i]);
    EXPECT_EQ(std::signbit(got), std::signbit(in[i]));
    if (!counts(in[i])) {
      EXPECT_TRUE(std::isnan(in[i]) ? std::isnan(got) : got == 0);
      continue;
    }
    const Real t = log2_y(log_of(in[i])), y = std::exp2(t);
    const Real e = std::expm1(kLn2 * slack(t)) + kPower;
    const Real low = round_e5m2(y * (1 - e)), high = round_e5m2(y * (1 + e)), magnitude = std::fabs(got);
    close += low != high;
    const bool right = magnitude == low || magnitude == high;
    wrong += !right;
    EXPECT_TRUE(right) << fmt::format("{:a}: Y = 2^{}, {} for {} to {}", in[i], static_cast<double>(t), got,
                                      static_cast<double>(low), static_cast<double>(high));
  }
  return close;
}

void check_restored(std::span<const float> in, const Stored& s) {
  const std::vector<float> out = restored(s);
  const Real alpha = s.stats.alpha, mu = -static_cast<Real>(s.stats.beta) / alpha;
  int wrong = 0;
  for (size_t i = 0; i < out.size() && wrong < 5; ++i) {
    const float y = e5m2_value(s.codes[i]);
    bool right = std::signbit(out[i]) == std::signbit(in[i]);
    if (counts(y)) {
      const Real log_y = std::log2(std::fabs(static_cast<Real>(y)));
      const Real slack = (kLog + 3 * 0x1p-24L * std::fabs(log_y)) / alpha + kUnit / 2 + 0x1p-25L;
      const Real e = std::expm1(kLn2 * slack) + kPower, x = std::exp2(log_y / alpha + mu);
      // Where fp32 ends, its largest or smallest number stands: what was not stored as zero is
      // none.
      const Real most = std::clamp<Real>(x * (1 + e), 0x1p-149L, FLT_MAX);
      const Real least = std::clamp<Real>(x * (1 - e), 0x1p-149L, FLT_MAX);
      right = right && std::isfinite(out[i]) && std::fabs(out[i]) <= most + 0x1p-150L &&
              std::fabs(out[i]) >= least - 0x1p-150L;
    } else {
      right = right && (std::isnan(y) ? std::isnan(out[i]) : out[i] == 0);
    }
    wrong += !right;
    EXPECT_TRUE(right) << fmt::format("{:a} came back as {:a} from {}", in[i], out[i], y);
  }
}

// All of it; returns the part of the codes that were too close to a midpoint to tell.
double check_all(std::span<const float> in) {
  const Stored s = store(in);
  const Reference r = reference_of(in);
  check_stats(r, s.stats);
  const Real alpha = s.stats.alpha, beta = s.stats.beta;
  // From the statistics that were stored.
  const size_t close = check_codes(
      in, s, [&](Real log) { return alpha * log + beta; },
      [&](Real t) { return alpha * (kLog + kUnit / 2) + 0x1.01p-23L * std::fabs(t); });
  // From nothing but the tensor: the errors of both statistics on top.
  if (r.spread == 0 || r.spread > 4 * kLog) {
    const Real alpha_error = r.spread == 0 ? 0 : 2 * kLog / (r.spread - 2 * kLog) + 0x1p-24L;
    const Real mu_error = kLog + 0x1.01p-24L * std::fabs(r.mu) + kUnit / 2;
    check_codes(
        in, s, [&](Real log) { return r.alpha * (log - r.mu); },
        [&](Real t) {
          return (alpha_error + 0x1.01p-23L) * std::fabs(t) + 1.001L * r.alpha * (kLog + mu_error);
        });
  }
  check_restored(in, s);
  EncodeStats report;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool nan = std::isnan(in[i]), lost = counts(in[i]) && e5m2_value(s.codes[i]) == 0;
    report.merge({std::isinf(in[i]), lost, nan, nan ? 0 : std::fabs(in[i])});
  }
  EXPECT_EQ(s.report, report);
  return in.empty() ? 0 : static_cast<double>(close) / static_cast<double>(in.size());
}

// exponent + width * normal, as powers of two.
std::vector<float> spread_out(double exponent, double width, size_t n, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(exponent, width);
  std::vector<float> in;
  for (size_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(std::exp2(std::clamp(normal(rng), -149.0, 127.9)));
    in.push_back(rng() % 2 ? x : -x);
  }
  return in;
}

TEST(S2fp8, EqualsTheReferenceOnTensorsOfManyKinds) {
  for (const double exponent : {-140.0, -60.0, -20.0, -1.0, 0.0, 10.0, 100.0, 126.0}) {
    for (const double width : {1e-4, 0.01, 0.3, 2.0, 8.0, 30.0}) {
      SCOPED_TRACE(fmt::format("2^({} +- {})", exponent, width));
      // The bound is at most 2^-12 of Y, a midpoint's share of the line 2^-3.
      EXPECT_LT(check_all(spread_out(exponent, width, 3001)), 0.02);
    }
  }
  std::mt19937 rng(4);
  std::vector<float> in;
  while (in.size() < 20'001) in.push_back(float_of(rng()));  // all exponents, some NaN
  EXPECT_LT(check_all(in), 1e-3);
}

TEST(S2fp8, BringsTheLargestTo2To15AndTheMeanTo1) {
  const std::vector<float> in = spread_out(-30, 3, 10'000);
  const Stored s = store(in);
  uint8_t top = 0;
  for (const uint8_t code : s.codes) top = std::max<uint8_t>(top, code & 0x7F);
  EXPECT_EQ(e5m2_value(top), 0x1p15f);
  // The header: an error of one e5m2 rounding, 1/alpha-th of it in the exponent.
  const std::vector<float> out = restored(s);
  for (size_t i = 0; i < in.size(); ++i) {
    // Subnormal, or rounded up from there.
    if (std::fabs(e5m2_value(s.codes[i])) <= 0x1p-14f) continue;
    EXPECT_LE(std::fabs(log_of(out[i]) - log_of(in[i])), std::log2(1.125L) / s.stats.alpha + 1e-5L);
  }
}

// m = mu: alpha 1, Y = 1, and x = 2^mu with mu as beta keeps it. The logarithm is off by L, beta by
// half a unit in its last place from 4 on (below, units of 2^-22 fit in it), the power by 2^-23.5:
// a relative error of ln 2 (L + ulp(beta) / 2) + 2^-23.5, at most 2^-17.9, and half of 2^-149.
Real constant_bound(float x, float beta) {
  const Real half_ulp = std::fabs(beta) < 4 ? 0 : std::ldexp(1.0L, std::ilogb(beta) - 24);
  return std::fabs(x) * (std::expm1(kLn2 * (kLog + half_ulp)) + kPower) + 0x1p-150L;
}

std::vector<float> magnitudes() {
  std::vector<float> all = {FLT_MAX, std::nextafter(FLT_MAX, 0.0f), FLT_MIN, 0x1p-149f, 3 * 0x1p-149f};
  std::mt19937 rng(2);
  for (int e = -149; e <= 127; ++e) {
    all.push_back(std::ldexp(1.0f, e));
    for (int k = 0; k < 20; ++k) all.push_back(std::ldexp(1 + static_cast<float>(rng() >> 9) * 0x1p-23f, e));
  }
  return all;
}

TEST(S2fp8, ReturnsConstantTensors) {
  Real worst = 0;
  for (const float x : magnitudes()) {
    for (const std::vector<float>& in : {std::vector<float>{x}, std::vector<float>{-x, 0.0f, -0.0f, NAN},
                                         std::vector<float>{x, -x, x, 0, x, -x, x}}) {
      const Stored s = store(in);
      EXPECT_EQ(s.stats.alpha, 1.0f);
      EXPECT_LE(std::fabs(s.stats.beta + log_of(x)), kLog + std::fabs(s.stats.beta) * 0x1p-24L);
      const std::vector<float> out = restored(s);
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(std::signbit(out[i]), std::signbit(in[i]));
        if (!counts(in[i])) continue;
        const Real error = std::fabs(static_cast<Real>(out[i]) - in[i]);
        ASSERT_LE(error, constant_bound(in[i], s.stats.beta)) << fmt::format("{:a} for {:a}", out[i], in[i]);
        if (x >= FLT_MIN) worst = std::max(worst, error / x);
      }
    }
    check_all(std::vector<float>{x, x});
  }
  EXPECT_LE(worst, 0x1p-17L);
  // Powers of two come back as they are.
  for (int e = -149; e <= 127; ++e) {
    const std::vector<float> in(3, std::ldexp(-1.0f, e));
    EXPECT_EQ(restored(store(in)), in);
  }
}

TEST(S2fp8, TakesAConstantTensorForOneWhateverItsSize) {
  // Sums past 2^53 no longer fit in a double. All logarithms are equal all the same: m = mu.
  std::mt19937_64 rng(6);
  for (int k = 0; k < 20'000; ++k) {
    const uint64_t count = (uint64_t{1} << 24) + rng() % (uint64_t{1} << 30);
    const int32_t log = static_cast<int32_t>(rng() % (277u << 22)) - (149 << 22);
    const S2fp8Stats got = s2fp8_stats({static_cast<int64_t>(count) * log, count, log});
    ASSERT_EQ(got.alpha, 1.0f) << count << " elements of logarithm " << log;
    ASSERT_LE(std::fabs(got.beta + log * 0x1p-22), std::fabs(log * 0x1.000001p-46));
  }
}

TEST(S2fp8, CapsAlpha) {
  std::vector<float> in(1000, 3.0f);
  in[17] = 3.0001f;
  in[18] = 3.0f * 0.991f;  // log2 = -0.013: 2^-13.4 at alpha 1024
  const Stored s = store(in);
  EXPECT_EQ(s.stats.alpha, 1024.0f);
  const std::vector<float> out = restored(s);
  EXPECT_NEAR(out[18], in[18], in[18] * 0x1p-12f);
  EXPECT_NEAR(out[17], in[17], in[17] * 0x1p-12f);
  EXPECT_LT(out[18], out[0]);
  check_all(in);
  // Neighbours in fp32, which the logarithm may not tell apart.
  for (const float x : magnitudes()) {
    if (x < FLT_MIN || x > 0x1p127f) continue;
    const std::vector<float> pair = {x, std::nextafter(x, INFINITY)};
    check_all(pair);
    const std::vector<float> back = restored(store(pair));
    EXPECT_NEAR(back[0], pair[0], pair[0] * 0x1p-17f);
  }
}

TEST(S2fp8, TakesTheWholeRangeOfFp32) {
  std::vector<float> in(1000, 0x1p-149f);
  in[3] = FLT_MAX;
  check_all(in);
  EXPECT_NEAR(store(in).stats.alpha, 15 / 277.0, 1e-3);
  std::vector<float> other(1000, -FLT_MAX);
  other[3] = 0x1p-149f;
  check_all(other);
  check_all(std::vector<float>{0x1p-149f, FLT_MAX});
  check_all(std::vector<float>{0x1p-149f, 0x1p-149f, 0x1p-148f});
  check_all(spread_out(0, 60, 5000));
}

TEST(S2fp8, KeepsZerosInfinitiesAndNans) {
  const float inf = INFINITY;
  for (const std::vector<float>& in : std::vector<std::vector<float>>{
           {},
           {0.0f, -0.0f},
           {NAN, -NAN, 0.0f},
           {inf},
           {-inf, inf, NAN, 0.0f},
           {inf, 1.0f, -2.0f, 0.0f, -0.0f, float_of(0x7F800001u), float_of(0xFFFFFFFFu)},
           {-inf, FLT_MAX, 0x1p-149f}}) {
    check_all(in);
    for (const float x : restored(store(in))) EXPECT_FALSE(std::isinf(x));
  }
  EXPECT_EQ(restored(store(std::vector<float>{inf, -inf})), (std::vector<float>{FLT_MAX, -FLT_MAX}));
  // Zeros and NaN do not move the statistics.
  EXPECT_EQ(store(std::vector<float>{4.0f, 0.25f}).stats,
            store(std::vector<float>{0.0f, 4.0f, NAN, 0.25f, -0.0f}).stats);
}

TEST(S2fp8, RestoredIsNeverInfinite) {
  for (const float alpha : {15 / 277.0f, 0.1f, 1.0f, 7.3f, 1024.0f}) {
    for (const float mu : {-149.0f, -126.5f, 0.0f, 100.0f, 127.999f, 128.0f}) {
      std::vector<float> in(256);
      Stored s{std::vector<uint8_t>(256), {alpha, -alpha * mu}, {}};
      for (int c = 0; c < 256; ++c) s.codes[c] = static_cast<uint8_t>(c), in[c] = c < 128 ? 1.0f : -1.0f;
      std::vector<float> out = restored(s);
      for (int c = 0; c < 256; ++c) {
        // Infinity is a code that no encoder writes; it may come back as it is.
        EXPECT_EQ(std::isinf(out[c]), (c & 0x7F) == 0x7C) << c;
        if ((c & 0x7F) >= 0x7C) s.codes[c] = 0, in[c] = 1.0f;
      }
      check_restored(in, s);
    }
  }
}

TEST(S2fp8, IsTheSameOnEveryUnitAndThreadCount) {
  const int threads = thread_count();
  for (const double width : {0.001, 3.0, 40.0}) {
    std::vector<float> in = spread_out(-7, width, 150'001);
    for (const float x : {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f}) in[bits_of(x) % in.size()] = x;
    use_simd("reference");
    set_thread_count(1);
    ExponentHistogram histogram;
    const Stored one = store(in, &histogram);
    for (const std::string& unit : simd_names()) {
      use_simd(unit);
      for (const int t : {1, 2, 7}) {
        set_thread_count(t);
        ExponentHistogram h;
        EXPECT_TRUE(store(in, &h) == one && h == histogram) << width << " " << unit << " " << t;
      }
    }
  }
  use_simd("auto");
  set_thread_count(threads);
}

TEST(S2fp8, RefusesDamagedStatistics) {
  const std::vector<uint8_t> codes = {0x3C, 0x7B, 0x01};
  std::vector<float> out(3);
  for (const S2fp8Stats& bad : {S2fp8Stats{0, 0},
                                {-1, 0},
                                {1025, 0},
                                {INFINITY, 0},
                                {NAN, 0},
                                {1, NAN},
                                {1, INFINITY},
                                {1, 151},
                                {1, -151},
                                {1024, 151 * 1024.0f},
                                {FLT_MIN, 1}}) {
    EXPECT_THROW(s2fp8_decode(codes, bad, out), Error) << bad.alpha << " " << bad.beta;
  }
  // No tensor has an alpha below 15 / 277. One that is not refused must at least be followed.
  for (const S2fp8Stats& bad :
       {S2fp8Stats{1e-10f, 0}, {1e-10f, 1e-9f}, {FLT_MIN, 0}, {0x1p-149f, 0}, {0x1p-20f, 0}}) {
    try {
      s2fp8_decode(codes, bad, out);
      EXPECT_EQ(out[1], FLT_MAX) << bad.alpha << " " << bad.beta;
      EXPECT_EQ(out[2], 0.0f) << bad.alpha << " " << bad.beta;
    } catch (const Error&) {
    }
  }
}

TEST(S2fp8, RefusesTooLittleRoom) {
  const std::vector<float> in(5);
  std::vector<float> out(5);
  std::vector<uint8_t> codes(4);
  S2fp8Stats stats;
  EXPECT_THROW(s2fp8_encode(in, codes, stats), Error);
  EXPECT_THROW(s2fp8_decode(codes, stats, out), Error);
}

RC_GTEST_PROP(S2fp8Property, EqualsTheReference, ()) {
  const double exponent = *rc::gen::inRange(-149, 128), width = *rc::gen::inRange(0, 3000) * 0.01;
  std::vector<float> in =
      spread_out(exponent, width, *rc::gen::inRange<size_t>(0, 300), *rc::gen::arbitrary<uint32_t>());
  const auto places = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, 1000));
  const float specials[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY};
  for (const size_t place : places) {
    if (!in.empty()) in[place % in.size()] = specials[place % std::size(specials)];
  }
  check_all(in);
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace
}  // namespace ulp
