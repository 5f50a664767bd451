// The variant over all storages: names, sizes, refusals; and what all of them share: packing, the
// histogram, and the measure of quality.
#include "ulp/numeric/storage.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/bitpack.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/quality.h"
#include "ulp/numeric/s2fp8.h"

namespace ulp {
namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// ---- Names ----

std::string message_of(const std::string& name) {
  try {
    parse_storage(name);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Storage, NamesAndParsesEveryKind) {
  for (const char* name : {"fp32",
                           "tf32",
                           "bf16",
                           "fp16",
                           "e5m2",
                           "e4m3",
                           "fp(4,3,4)",
                           "fp(6,9,0)",
                           "fp(4,3,0,ieee)",
                           "e3m7",
                           "s2fp8",
                           "bf16+0",
                           "bf16+8",
                           "bf16+16",
                           "bf16+16sr",
                           "fp16+13sr",
                           "scaled(e5m2,nonzero)",
                           "scaled(e4m3,nonzero)",
                           "e5m2+8",
                           "e4m3+16sr",
                           "fp(4,3,4)+8",
                           "fp(6,9,0)+14sr",
                           "fp(4,3,0,ieee)+3",
                           "fp(4,3,0,fn)+3",
                           "scaled(e4m3)",
                           "scaled(e5m2)",
                           "scaled(fp(4,3,0))",
                           "scaled(fp(5,2,0))",
                           "scaled(e3m4)",
                           "scaled(fp(4,3,0,ieee))"}) {
    const Storage storage = parse_storage(name);
    EXPECT_EQ(parse_storage(storage_name(storage)), storage) << name;
    // e4m3 has a shorter name than its long form; all others here are the shortest.
    if (std::string(name) == "fp(4,3,0,fn)+3") {
      EXPECT_EQ(storage_name(storage), "e4m3+3");
    } else {
      EXPECT_EQ(storage_name(storage), name);
    }
  }
  EXPECT_EQ(parse_storage("bf16+8"), Storage(Split{parse_format("bf16"), 8, false}));
  EXPECT_EQ(parse_storage("fp16+13sr"), Storage(Split{parse_format("fp16"), 13, true}));
  EXPECT_EQ(parse_storage("scaled(e4m3)"), Storage(Scaled{parse_format("e4m3")}));
  EXPECT_EQ(parse_storage("e4m3"), Storage(Plain{parse_format("e4m3")}));
  EXPECT_EQ(parse_storage("s2fp8"), Storage(S2fp8{}));
}

TEST(Storage, SaysWhatIsWrongWithAName) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "unknown storage ''"},
      {"bf17", "unknown storage 'bf17'"},
      {"S2FP8", "unknown storage"},
      {"s2fp8 ", "unknown storage"},
      {"s2fp8+8", "unknown format 's2fp8'"},
      {"bf16+", "after + comes a number"},
      {"bf16+sr", "after + comes a number"},
      {"bf16+8s", "after + comes a number"},
      {"bf16+8SR", "after + comes a number"},
      {"bf16+8 sr", "after + comes a number"},
      {"bf16+ 8", "after + comes a number"},
      {"bf16++8", "after + comes a number"},
      {"bf16+8+8", "after + comes a number"},
      {"bf16+0x8", "after + comes a number"},
      {"bf16+99999999999", "after + comes a number"},
      {"bf16+17", "0 to 16 extra bits, got 17"},
      {"bf16+-1", "0 to 16 extra bits, got -1"},
      {"fp16+14", "0 to 13 extra bits, got 14"},
      {"fp(6,9,0)+15", "0 to 14 extra bits, got 15"},
      {"e4m3+17sr", "0 to 16 extra bits, got 17"},
      {"fp32+0", "has 32 bits"},
      {"tf32+4", "has 19 bits"},
      {"+8", "unknown format ''"},
      {"scaled(e4m3)+8", "unknown format"},
      {"scaled(e4m3", "unknown storage"},
      {"scaled", "unknown storage"},
      {"scaled()", "unknown format ''"},
      {"scaled(fp16)", "8-bit format"},
      {"scaled(fp(4,3,4))", "8-bit format"},
      {"scaled(s2fp8)", "unknown format 's2fp8'"},
      {"scaled(bf16+8)", "unknown format"},
      {"fp(9,3,0)", "exponent bits must be 2 to 8, got 9"},
      {"fp(9,3,0)+8", "exponent bits must be 2 to 8, got 9"},
      {"fp(4,3,4", "unknown storage"},
      {"fp(4,3,130)+11", "at most 10 extra bits fit"},
  };
  for (const auto& [name, part] : bad) {
    EXPECT_NE(message_of(name).find(part), std::string::npos) << "'" << name << "': " << message_of(name);
    EXPECT_EQ(message_of(name).find('\n'), std::string::npos) << name;
  }
  EXPECT_NE(message_of(std::string("bf16\0", 5)), "");
}

RC_GTEST_PROP(StorageProperty, ANameIsParsedOrRefusedWithAnError, (const std::string& tail)) {
  for (const std::string start : {"", "bf16+", "scaled(", "fp(4,3,4)", "s2fp8"}) {
    try {
      const Storage storage = parse_storage(start + tail);
      RC_ASSERT(parse_storage(storage_name(storage)) == storage);
    } catch (const Error&) {
    }
  }
}

// ---- Sizes ----

TEST(Storage, TakesTheBytesItSays) {
  struct Row {
    const char* name;
    size_t n, code_bytes, side_words;
  };
  const Row rows[] = {
      {"fp32", 5, 20, 0},
      {"tf32", 3, 8, 0},
      {"fp(2,1,0)", 3, 2, 0},
      {"bf16+8", 32, 64, 8},
      {"bf16+8", 33, 66, 9},
      {"bf16+8sr", 32, 64, 9},
      {"bf16+0", 100, 200, 0},
      {"bf16+0sr", 100, 200, 4},
      {"e5m2+11", 32, 32, 11},
      {"e5m2+11", 1, 1, 1},
      {"e5m2+16sr", 2, 2, 2},
      {"s2fp8", 7, 7, 2},
      {"s2fp8", 0, 0, 2},
      {"scaled(e4m3)", 0, 0, 0},
      {"scaled(e4m3)", 1, 1, 1},
      {"scaled(e4m3)", 256, 256, 1},
      {"scaled(e4m3)", 257, 257, 2},
      {"bf16+8", 0, 0, 0},
  };
  for (const Row& row : rows) {
    const StorageSize size = storage_size(parse_storage(row.name), row.n);
    EXPECT_EQ(size.code_bytes, row.code_bytes) << row.name << " " << row.n;
    EXPECT_EQ(size.side_words, row.side_words) << row.name << " " << row.n;
    EXPECT_EQ(size.bytes(), row.code_bytes + 4 * row.side_words);
  }
}

const char* const kNames[] = {"fp32",   "fp16",      "e4m3",        "fp(3,2,0)",    "s2fp8",
                              "e5m2+8", "bf16+16sr", "fp(4,3,4)+5", "scaled(e4m3)", "scaled(e5m2)"};

// Exactly as much as the storage asks for, each in a heap block of its own: a sanitizer sees a step
// past it.
struct Exact {
  Exact(const Storage& storage, size_t n)
      : size(storage_size(storage, n)),
        codes(new uint8_t[size.code_bytes]),
        side(new uint32_t[size.side_words]) {}
  std::span<uint8_t> code_span() { return {codes.get(), size.code_bytes}; }
  std::span<uint32_t> side_span() { return {side.get(), size.side_words}; }

  StorageSize size;
  std::unique_ptr<uint8_t[]> codes;
  std::unique_ptr<uint32_t[]> side;
};

// Whether overflowing to infinity is taken at all: the storage refuses where it has none.
TEST(Storage, HasAnInfinityWhereOneMayBeWritten) {
  for (const char* name : kNames) {
    const Storage storage = parse_storage(name);
    const auto check = [&] { check_rounding(storage, {Round::nearest_even, Overflow::infinity, {}}); };
    if (has_infinity(storage)) {
      EXPECT_NO_THROW(check()) << name;
    } else {
      EXPECT_THROW(check(), Error) << name;
    }
  }
  for (const char* name : {"fp32", "e5m2", "bf16+8", "scaled(e5m2)"})
    EXPECT_TRUE(has_infinity(parse_storage(name))) << name;
  for (const char* name : {"fp(4,3,4)", "e4m3", "s2fp8", "fp(5,2,0)+8", "scaled(e4m3)"})
    EXPECT_FALSE(has_infinity(parse_storage(name))) << name;
}

TEST(Storage, WritesAndReadsWhatItsPartsDo) {
  std::mt19937 rng(3);
  for (const char* name : kNames) {
    const Storage storage = parse_storage(name);
    for (const size_t n : {size_t{0}, size_t{1}, size_t{31}, size_t{257}, size_t{9001}}) {
      const std::unique_ptr<float[]> in(new float[n]), out(new float[n]), other(new float[n]);
      for (size_t i = 0; i < n; ++i) in[i] = std::ldexp(static_cast<float>(rng()) - 0x1p31f, -30);
      const std::span<const float> from(in.get(), n);
      const std::span<float> to(out.get(), n), expected(other.get(), n);
      const Rounding how = {Round::nearest_even, Overflow::saturate, {.seed = 5, .step = 2, .tensor = 1}};
      Exact exact(storage, n), part(storage, n);
      const EncodeStats stats = encode(storage, how, from, exact.code_span(), exact.side_span());
      decode(storage, exact.code_span(), exact.side_span(), to);
      EncodeStats direct;
      if (const Plain* p = std::get_if<Plain>(&storage)) {
        direct = encode(p->format, how, from, part.code_span());
        decode(p->format, part.code_span(), expected);
      } else if (const Split* s = std::get_if<Split>(&storage)) {
        direct = split_encode(*s, how.overflow, how.key, from, part.code_span(), part.side_span());
        split_decode(*s, part.code_span(), part.side_span(), expected);
      } else if (const Scaled* c = std::get_if<Scaled>(&storage)) {
        direct = scaled_encode(*c, how, from, part.code_span(), part.side_span());
        scaled_decode(*c, part.code_span(), part.side_span(), expected);
      } else {
        S2fp8Stats alpha_beta;
        direct = s2fp8_encode(from, part.code_span(), alpha_beta);
        s2fp8_decode(part.code_span(), alpha_beta, expected);
        EXPECT_EQ(exact.side[0], bits_of(alpha_beta.alpha));
        EXPECT_EQ(exact.side[1], bits_of(alpha_beta.beta));
      }
      EXPECT_EQ(stats, direct) << name;
      EXPECT_TRUE(std::equal(to.begin(), to.end(), expected.begin())) << name << " " << n;
      // One byte or word less is refused.
      if (n == 0) continue;
      EXPECT_THROW(
          encode(storage, how, from, exact.code_span().first(exact.size.code_bytes - 1), exact.side_span()),
          Error);
      EXPECT_THROW(decode(storage, exact.code_span().first(exact.size.code_bytes - 1), exact.side_span(), to),
                   Error);
      if (exact.size.side_words == 0) continue;
      EXPECT_THROW(
          encode(storage, how, from, exact.code_span(), exact.side_span().first(exact.size.side_words - 1)),
          Error);
      EXPECT_THROW(decode(storage, exact.code_span(), exact.side_span().first(exact.size.side_words - 1), to),
                   Error);
    }
  }
}

TEST(Storage, RefusesRoundingItCannotFollow) {
  const auto refused = [](const char* name, Round mode, Overflow overflow) {
    const Storage storage = parse_storage(name);
    const Rounding how = {mode, overflow, {}};
    bool threw = false;
    try {
      check_rounding(storage, how);
    } catch (const Error&) {
      threw = true;
    }
    // Writing refuses the same.
    Exact exact(storage, 4);
    const std::vector<float> in(4, 1.0f);
    bool write_threw = false;
    try {
      encode(storage, how, in, exact.code_span(), exact.side_span());
    } catch (const Error&) {
      write_threw = true;
    }
    EXPECT_EQ(threw, write_threw) << name;
    return threw;
  };
  for (const Round mode : {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
    const bool other = mode != Round::nearest_even;
    for (const char* name : {"fp16", "e5m2", "scaled(e5m2)", "scaled(fp(4,3,0,ieee))"}) {
      EXPECT_FALSE(refused(name, mode, Overflow::saturate)) << name;
      EXPECT_FALSE(refused(name, mode, Overflow::infinity)) << name;
    }
    for (const char* name : {"e4m3", "fp(4,3,4)", "scaled(e4m3)", "scaled(fp(4,3,0))"}) {
      EXPECT_FALSE(refused(name, mode, Overflow::saturate)) << name;
      EXPECT_TRUE(refused(name, mode, Overflow::infinity)) << name;
    }
    for (const char* name : {"bf16+8", "e5m2+8sr"}) {
      EXPECT_EQ(refused(name, mode, Overflow::saturate), other) << name;
      EXPECT_EQ(refused(name, mode, Overflow::infinity), other) << name;
    }
    EXPECT_EQ(refused("e4m3+8", mode, Overflow::saturate), other);
    EXPECT_TRUE(refused("e4m3+8", mode, Overflow::infinity));
    EXPECT_EQ(refused("s2fp8", mode, Overflow::saturate), other);
    EXPECT_TRUE(refused("s2fp8", mode, Overflow::infinity));
  }
}

// ---- The histogram ----

TEST(Histogram, CountsByExponent) {
  ExponentHistogram h;
  for (const uint32_t sign : {0u, 0x80000000u}) {
    for (const uint32_t p : {0u, 1u, 2u, 3u, 0x7FFFFFu, 0x800000u, 0x3F800000u, 0x3FFFFFFFu, 0x7F7FFFFFu,
                             0x7F800000u, 0x7F800001u, 0x7FFFFFFFu}) {
      h.add(p | sign);
    }
  }
  ExponentHistogram want;
  want.zero = 2, want.infinite = 2, want.nan = 4;
  want.bin[0] = 2;           // 2^-149
  want.bin[1] = 4;           // 2 and 3 times that
  want.bin[-127 + 149] = 2;  // the largest subnormal
  want.bin[-126 + 149] = 2;  // the smallest normal
  want.bin[149] = 4;         // 1 and just below 2
  want.bin[127 + 149] = 2;   // the largest
  EXPECT_EQ(h, want);
  EXPECT_EQ(want.bin.size(), 277u);
  h.merge(want);
  EXPECT_EQ(h.bin[149], 8u);
  EXPECT_EQ(h.nan, 8u);
}

TEST(Histogram, IsOfTheInputsInEveryStorage) {
  std::mt19937 rng(9);
  std::vector<float> in(70'001);
  for (float& x : in) x = float_of(rng());
  in[5] = 0, in[6] = -0.0f, in[40'000] = INFINITY, in[70'000] = -INFINITY;
  ExponentHistogram want;
  for (const float x : in) {
    if (std::isnan(x)) {
      ++want.nan;
    } else if (std::isinf(x)) {
      ++want.infinite;
    } else if (x == 0) {
      ++want.zero;
    } else {
      ++want.bin.at(std::ilogb(static_cast<double>(x)) + 149);
    }
  }
  const int threads = thread_count();
  for (const char* name : kNames) {
    const Storage storage = parse_storage(name);
    for (const int t : {1, 2, 7}) {
      set_thread_count(t);
      Exact exact(storage, in.size());
      ExponentHistogram h;
      h.zero = 10;  // added to what is there
      encode(storage, {}, in, exact.code_span(), exact.side_span(), 0, &h);
      h.zero -= 10;
      EXPECT_EQ(h, want) << name << " " << t;
    }
  }
  set_thread_count(threads);
}

// ---- Quality ----

TEST(Quality, IsWhatItSaysByHand) {
  const std::vector<float> x = {1, -2, 0, 4, INFINITY, NAN}, y = {1.5f, -2, 0.5f, 3, 7, 8};
  const Quality q = compare(x, y);
  EXPECT_EQ(q.compared, 4u);
  EXPECT_DOUBLE_EQ(q.mse, (0.25 + 0 + 0.25 + 1) / 4);
  EXPECT_DOUBLE_EQ(q.snr_db, 10 * std::log10(21 / 1.5));
  EXPECT_DOUBLE_EQ(q.mean_relative, (0.5 + 0 + 0.25) / 3);
}

TEST(Quality, HasItsEdges) {
  const std::vector<float> zero = {0, -0.0f}, some = {1, 2}, nothing, lost = {INFINITY, NAN};
  EXPECT_TRUE(std::isnan(compare(zero, zero).snr_db));
  EXPECT_EQ(compare(zero, zero).mse, 0);
  EXPECT_EQ(compare(zero, zero).mean_relative, 0);
  EXPECT_EQ(compare(some, some).snr_db, INFINITY);
  EXPECT_EQ(compare(zero, some).snr_db, -INFINITY);  // only error, no signal
  EXPECT_EQ(compare(nothing, nothing).compared, 0u);
  EXPECT_EQ(compare(nothing, nothing).mse, 0);
  EXPECT_EQ(compare(lost, some).compared, 0u);
  EXPECT_EQ(compare(lost, some).mse, 0);
  // A finite number that came back infinite is no good.
  EXPECT_EQ(compare(some, std::vector<float>{1, INFINITY}).mse, INFINITY);
  // Neither the largest nor the smallest numbers leave double.
  EXPECT_DOUBLE_EQ(compare(std::vector<float>{FLT_MAX}, std::vector<float>{-FLT_MAX}).mse,
                   4.0 * FLT_MAX * FLT_MAX);
  EXPECT_DOUBLE_EQ(compare(std::vector<float>{0x1p-149f}, std::vector<float>{0}).mse, 0x1p-298);
  EXPECT_THROW(compare(some, nothing), Error);
}

TEST(Quality, DoesNotDependOnThreads) {
  std::mt19937 rng(2);
  std::vector<float> x(700'001), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = float_of(rng());
    y[i] = std::isfinite(x[i]) ? x[i] * 0.999f : 0;
  }
  const int threads = thread_count();
  set_thread_count(1);
  const Quality one = compare(x, y);
  for (const int t : {2, 3, 7}) {
    set_thread_count(t);
    const Quality q = compare(x, y);
    EXPECT_TRUE(q.compared == one.compared && q.mse == one.mse && q.snr_db == one.snr_db &&
                q.mean_relative == one.mean_relative)
        << t;
  }
  set_thread_count(threads);
  EXPECT_NEAR(one.mean_relative, 0.001, 1e-4);
}

// ---- Packing ----

TEST(Bitpack, RoundTripsEveryWidthAndLength) {
  std::mt19937 rng(1);
  for (int bits = 1; bits <= 32; ++bits) {
    const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (size_t n = 0; n <= 70; ++n) {
      const size_t bytes = (n * bits + 7) / 8;
      EXPECT_EQ(packed_bytes(bits, n), bytes);
      for (const int kind : {0, 1}) {
        std::vector<uint32_t> codes(n);
        for (uint32_t& c : codes) c = kind == 0 ? rng() & mask : mask;
        // Guards before and behind; the space itself full of ones that must go.
        std::vector<uint8_t> space(bytes + 16, 0xFF);
        std::fill_n(space.begin(), 8, 0x5A);
        std::fill_n(space.end() - 8, 8, 0x5A);
        pack_bits(codes.data(), n, bits, space.data() + 8);
        EXPECT_TRUE(std::all_of(space.begin(), space.begin() + 8, [](uint8_t b) { return b == 0x5A; }));
        EXPECT_TRUE(std::all_of(space.end() - 8, space.end(), [](uint8_t b) { return b == 0x5A; }));
        for (size_t bit = 0; bit < bytes * 8; ++bit) {
          const uint32_t want = bit < n * bits ? codes[bit / bits] >> (bit % bits) & 1 : 0;
          ASSERT_EQ(space[8 + bit / 8] >> (bit % 8) & 1u, want)
              << bits << " bits, " << n << " codes, bit " << bit;
        }
        // The packed bytes at the end of a block of just that size: a sanitizer sees a read past
        // them.
        const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes]);
        std::copy_n(space.begin() + 8, bytes, exact.get());
        const std::unique_ptr<uint32_t[]> back(new uint32_t[n]);
        unpack_bits(exact.get(), n, bits, back.get());
        EXPECT_TRUE(std::equal(codes.begin(), codes.end(), back.get())) << bits << " bits, " << n << " codes";
      }
    }
  }
}

TEST(Bitpack, CountsBytesOfHugeArrays) {
  const size_t most = size_t{1} << 50;
  EXPECT_EQ(packed_bytes(3, most - 3), (size_t{3} << 47) - 1);
  EXPECT_EQ(packed_bytes(32, most), size_t{1} << 52);
  EXPECT_EQ(storage_size(parse_storage("bf16+16"), most).bytes(), size_t{1} << 52);
  for (const size_t n : {most + 1, size_t{1} << 62, ~size_t{0}}) {
    EXPECT_THROW(packed_bytes(3, n), Error);
    EXPECT_THROW(storage_size(parse_storage("s2fp8"), n), Error);
    EXPECT_THROW(storage_size(parse_storage("scaled(e4m3)"), n), Error);
  }
}

}  // namespace
}  // namespace ulp
