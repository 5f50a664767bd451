// All 2^32 floats through the bulk codec and back: fp16 against the compiler's _Float16, the other
// formats against the oracle. The slow suite: minutes. Each pass says on stderr when it is done.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"

namespace ulp {
namespace {

// A chunk is half a binade: all its numbers have one exponent, or are fp32 subnormals, or infinity
// and NaN.
constexpr uint64_t kFloats = uint64_t{1} << 32, kChunk = uint64_t{1} << 22;
constexpr size_t kGrain = size_t{1} << 16;

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// One chunk, or a part of it: what went in, and what the codec made of it. The element numbers,
// which give the random words, are the bit patterns of the floats.
struct Slice {
  uint64_t first;
  std::span<const float> inputs;
  std::span<const uint8_t> codes;
  std::span<const float> values;

  Slice part(size_t begin, size_t end, int bytes_per_code) const {
    const size_t n = end - begin;
    return {first + begin, inputs.subspan(begin, n),
            codes.subspan(begin * bytes_per_code, n * bytes_per_code), values.subspan(begin, n)};
  }
};

// What a checker found in a slice.
struct Findings {
  oracle::Tally tally;
  std::optional<size_t> wrong;  // the first element that is

  void expect(const Slice& slice, size_t i, bool right, RangeEvent event) {
    tally.add(slice.inputs[i], event);
    if (!right && !wrong) wrong = i;
  }
};

// The chunk in work, and the codec's output for it.
class Chunk {
 public:
  explicit Chunk(const FloatFormat& format)
      : format_(format), inputs_(kChunk), values_(kChunk), codes_(packed_bytes(format.bits(), kChunk)) {}

  void fill(uint64_t first) {
    first_ = first;
    parallel_for(kChunk, kGrain, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i)
        inputs_[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i));
    });
  }

  const std::vector<float>& inputs() const { return inputs_; }

  // Through the codec and back; `check` is given slices, from several threads at once, and returns
  // Findings.
  template <typename Check>
  void run(const std::string& name, const Rounding& how, const Check& check) {
    const EncodeStats stats = encode(format_, how, inputs_, codes_, first_);
    decode(format_, codes_, values_);
    const Slice whole = {first_, inputs_, codes_, values_};
    oracle::Tally tally;
    std::mutex mutex;
    parallel_for(kChunk, kGrain, [&](size_t begin, size_t end) {
      const Slice slice = whole.part(begin, end, format_.bits() / 8);
      const Findings found = check(slice);
      const std::lock_guard lock(mutex);
      tally.merge(found.tally);
      if (!found.wrong) return;
      const float x = slice.inputs[*found.wrong];
      ADD_FAILURE() << fmt::format("{}: {:#010x} = {:a} becomes {:a}", name, bits_of(x), x,
                                   slice.values[*found.wrong]);
    });
    const EncodeStats& expected = tally.stats();
    EXPECT_EQ(stats, expected) << fmt::format(
        "{}, chunk of {:#010x}: overflow {} not {}, underflow {} not {}, nan {} not {}, amax {:a} not {:a}",
        name, first_, stats.overflow, expected.overflow, stats.underflow, expected.underflow, stats.nan,
        expected.nan, stats.amax, expected.amax);
  }

 private:
  FloatFormat format_;
  uint64_t first_ = 0;
  std::vector<float> inputs_, values_;
  std::vector<uint8_t> codes_;
};

// Calls body(chunk) with every chunk of floats.
template <typename Body>
void for_all_floats(const std::string& name, const FloatFormat& format, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(format.bits() % 8, 0);
  Chunk chunk(format);
  for (uint64_t first = 0; first < kFloats && !testing::Test::HasFailure(); first += kChunk) {
    chunk.fill(first);
    body(chunk);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "all floats: {} done in {:.0f} s\n", name, taken.count());
}

// ---- Against the oracle ----

Findings check_against_oracle(const oracle::Rounder& rounder, const Rounding& how, const Slice& slice) {
  Findings found;
  std::vector<uint32_t> words;
  if (how.mode == Round::stochastic) words = oracle::random_words(how.key, slice.first, slice.inputs.size());
  // One grid for all where one exponent is: fp32 normals.
  const bool one_binade = std::isnormal(slice.inputs[0]);
  const oracle::Rounder::Grid& grid = rounder.grid(one_binade ? std::ilogb(slice.inputs[0]) : 0);
  for (size_t i = 0; i < slice.inputs.size(); ++i) {
    const uint32_t word = words.empty() ? 0 : words[i];
    const oracle::Rounded expected =
        one_binade ? rounder.round_on(grid, slice.inputs[i], word) : rounder.round(slice.inputs[i], word);
    found.expect(slice, i, oracle::same(slice.values[i], expected.value), expected.event);
  }
  return found;
}

void run_against_oracle(const std::string& name, Round mode) {
  const FloatFormat format = parse_format(name);
  const Rounding how = {
      mode, Overflow::saturate, {.seed = 0xc0ffee, .step = 17, .tensor = 4, .micro_batch = 2}};
  const oracle::Rounder rounder(format, how.mode, how.overflow);
  const std::string title = fmt::format("{} {}", name, round_name(mode));
  for_all_floats(title, format, [&](Chunk& chunk) {
    chunk.run(title, how, [&](const Slice& slice) { return check_against_oracle(rounder, how, slice); });
  });
}

TEST(AllFloats, Bf16) { run_against_oracle("bf16", Round::nearest_even); }
TEST(AllFloats, E4m3) { run_against_oracle("e4m3", Round::nearest_even); }
TEST(AllFloats, E5m2) { run_against_oracle("e5m2", Round::nearest_even); }
TEST(AllFloats, E5m2AwayFromZero) { run_against_oracle("e5m2", Round::nearest_away); }
TEST(AllFloats, E5m2TowardZero) { run_against_oracle("e5m2", Round::toward_zero); }
TEST(AllFloats, E5m2Stochastic) { run_against_oracle("e5m2", Round::stochastic); }

// ---- fp16 against the compiler ----

// `compiled` are the compiler's codes of the whole chunk. Its infinity is, saturated, the largest
// number: 0x7bff with the sign, the code before.
Findings check_against_compiler(const std::vector<uint16_t>& compiled, Overflow overflow,
                                const Slice& slice) {
  Findings found;
  // The code last expected and its value: neighbouring floats share a code, and the conversion is
  // slow.
  uint32_t expected = 0, expected_value = 0;
  for (size_t i = 0; i < slice.inputs.size(); ++i) {
    const float x = slice.inputs[i];
    const uint32_t code = slice.codes[2 * i] + 256u * slice.codes[2 * i + 1];
    if (std::isnan(x)) {
      const bool right = code % 0x8000u > 0x7c00u && std::isnan(slice.values[i]) &&
                         code / 0x8000u == static_cast<uint32_t>(std::signbit(x));
      found.expect(slice, i, right, RangeEvent::nan);
      continue;
    }
    uint16_t right = compiled[slice.first % kChunk + i];
    RangeEvent event = RangeEvent::none;
    if (right % 0x8000u == 0x7c00u) {
      event = RangeEvent::overflow;
      if (overflow == Overflow::saturate) --right;
    } else if (right % 0x8000u == 0 && x != 0) {
      event = RangeEvent::underflow;
    }
    if (right != expected) {
      expected = right;
      expected_value = bits_of(static_cast<float>(std::bit_cast<_Float16>(right)));
    }
    found.expect(slice, i, code == expected && bits_of(slice.values[i]) == expected_value, event);
  }
  return found;
}

TEST(AllFloats, Fp16EqualsTheCompilers) {
  std::vector<uint16_t> compiled(kChunk);
  for_all_floats("fp16 even, infinity and saturating", parse_format("fp16"), [&](Chunk& chunk) {
    parallel_for(kChunk, kGrain, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        compiled[i] = std::bit_cast<uint16_t>(static_cast<_Float16>(chunk.inputs()[i]));
      }
    });
    for (const Overflow overflow : {Overflow::infinity, Overflow::saturate}) {
      chunk.run(overflow == Overflow::infinity ? "fp16, infinity" : "fp16, saturating",
                {Round::nearest_even, overflow, {}},
                [&](const Slice& slice) { return check_against_compiler(compiled, overflow, slice); });
    }
  });
}

}  // namespace
}  // namespace ulp
