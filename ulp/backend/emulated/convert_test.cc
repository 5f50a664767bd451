// Conversions of whole arrays by kernels against the CPU's codecs: all that convert_check does on a
// GPU, on fewer values.
#include "ulp/backend/cuda/access/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/access/stochastic_round.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/base/philox.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/storage.h"
#include "ulp/tensor/stored.h"

namespace ulp::cuda {
namespace {

// Values near 1. If `special` is not 0, every other element has any pattern, and every `special`-th
// is NaN, infinity or zero.
std::vector<float> numbers(size_t n, size_t special) {
  std::vector<float> made(n);
  for (size_t i = 0; i < n; ++i) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), 1, 2, 3}}, {{11, 12}});
    const uint32_t near = (words.word[0] & 0x80FFFFFFu) | (112u + (words.word[0] >> 24 & 31u)) << 23;
    made[i] = bits_float(special != 0 && i % 2 == 0 ? words.word[1] : near);
    if (special != 0 && i % special == 1) {
      constexpr uint32_t kSpecials[] = {0x7F800000u, 0xFF800000u, 0x7FC00001u, 0x7F800001u, 0u, 0x80000000u};
      made[i] = bits_float(kSpecials[words.word[2] % 6]);
    }
  }
  return made;
}

struct alignas(16) Line {  // memory aligned as a device's is
  uint32_t word[4];
};

struct Written {
  std::vector<uint8_t> codes;
  EncodeStats stats;
};

StepState state_of(const RoundKey& key) {
  StepState state;
  state.seed = key.seed;
  state.step = key.step;
  state.micro_batch = key.micro_batch;
  return state;
}

// Rows [first, first + count) of a tensor `in` by kernels, each row `channels` wide.
void compare(const FloatFormat& format, const Rounding& rounding, const std::vector<float>& in, size_t first,
             size_t channels) {
  SCOPED_TRACE(format_name(format) + " " + std::string(round_name(rounding.mode)));
  const Storage storage = Plain{format};
  const size_t begin = first * channels, n = in.size() - begin;
  const size_t bytes = storage_size(storage, in.size()).code_bytes;
  // The CPU's random words are numbered from the tensor's beginning.
  Written expected{std::vector<uint8_t>(bytes), {}};
  {
    const std::vector<float> part(in.begin() + static_cast<std::ptrdiff_t>(begin), in.end());
    const size_t skipped = storage_size(storage, begin).code_bytes;
    expected.stats = ulp::encode(format, rounding, part, std::span(expected.codes).subspan(skipped), begin);
  }
  std::vector<Line> memory(bytes / sizeof(Line) + 2);
  std::vector<Line> source(n / 4 + 2), back(n / 4 + 2);
  std::memcpy(source.data(), in.data() + begin, 4 * n);
  const StepState state = state_of(rounding.key);
  Written made;
  WriteView view;
  view.stored = stored_view(storage, rounding.overflow, in.size());
  view.stored.codes = reinterpret_cast<uint8_t*>(memory.data());
  view.mode = rounding.mode;
  view.number = rounding.key.tensor;
  view.stats = &made.stats;
  const Rows rows{first, n / channels, channels, channels};
  encode(view, &state, rows, reinterpret_cast<const float*>(source.data()), nullptr, nullptr);
  EXPECT_EQ(std::memcmp(expected.codes.data(), memory.data(), bytes), 0);
  EXPECT_EQ(made.stats, expected.stats);

  // Decoded, and rounded from fp32 to fp32 and, if it fits, to bf16.
  std::vector<float> values(in.size());
  ulp::decode(format, expected.codes, values);
  ReadView read;
  read.stored = view.stored;
  decode(read, &state, rows, DecodedType::fp32, back.data(), nullptr, nullptr);
  EXPECT_EQ(std::memcmp(back.data(), values.data() + begin, 4 * n), 0);
  if (first != 0) return;  // a weight is read whole
  EncodeStats seen;
  ReadView rounds;
  rounds.stored = stored_view(parse_storage("fp32"), Overflow::saturate, in.size());
  rounds.stored.codes = reinterpret_cast<uint8_t*>(source.data());
  rounds.rounds = true;
  rounds.mode = rounding.mode;
  rounds.number = rounding.key.tensor;
  rounds.operand = view.stored.codec;
  rounds.stats = &seen;
  StepState of_state = state;
  of_state.micro_batch = 0;
  back.assign(back.size(), Line{});
  decode(rounds, &of_state, rows, DecodedType::fp32, back.data(), nullptr, nullptr);
  if (rounding.key.micro_batch == 0 || rounding.mode != Round::stochastic) {
    EXPECT_EQ(std::memcmp(back.data(), values.data(), 4 * n), 0);
    EXPECT_EQ(seen, expected.stats);
  }
  if (format.exp > 8 || format.man > 7) return;
  decode(rounds, &of_state, rows, DecodedType::bf16, back.data(), nullptr, nullptr);
  const auto* halves = reinterpret_cast<const uint16_t*>(back.data());
  if (rounding.key.micro_batch == 0 || rounding.mode != Round::stochastic) {
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) wrong += halves[i] != float_bits(values[i]) >> 16 ? 1 : 0;
    EXPECT_EQ(wrong, 0u);
  }
  // Native fp8 reads a weight as the codes in which its operand format would be stored: the same,
  // row by row, and padded.
  if (format != operand_format(Unit::e4m3) ||
      (rounding.key.micro_batch != 0 && rounding.mode == Round::stochastic))
    return;
  back.assign(back.size(), Line{});
  seen = {};
  decode(rounds, &of_state, rows, DecodedType::e4m3, back.data(), nullptr, nullptr);
  EXPECT_EQ(std::memcmp(back.data(), expected.codes.data(), n), 0);
  EXPECT_EQ(seen, expected.stats);
  const Rows padded{0, rows.count, rows.channels, rows.channels + 3};
  std::vector<uint8_t> wide(padded.count * padded.padded, 0xAA);
  seen = {};
  decode(rounds, &of_state, padded, DecodedType::e4m3, wide.data(), nullptr, nullptr);
  EXPECT_EQ(seen, expected.stats);
  size_t wrong = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    const size_t row = i / padded.padded, channel = i % padded.padded;
    wrong += wide[i] != (channel < channels ? expected.codes[row * channels + channel] : 0) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
}

constexpr RoundKey kKey{0x123456789ABCDEF0u, 77, 4242, 0};

TEST(EmulatedConvert, EveryPresetAndMode) {
  // Several pieces of a warp and part of one; with and without whole groups of eight.
  const std::vector<float> wild = numbers(5000, 17), tame = numbers(4099, 0);
  for (const Preset& preset : presets()) {
    if (is_fp32(Storage(Plain{preset.format}))) continue;
    for (const Round mode :
         {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
      compare(preset.format, {mode, Overflow::saturate, kKey}, wild, 0, wild.size());
      compare(preset.format, {mode, Overflow::saturate, kKey}, tame, 0, tame.size());
      if (preset.format.has_inf())
        compare(preset.format, {mode, Overflow::infinity, kKey}, wild, 0, wild.size());
    }
  }
}

// More than the one-element-per-thread kernels take.
TEST(EmulatedConvert, ManyNumbers) {
  const std::vector<float> in = numbers((1 << 16) + 64, 17);
  for (const Round mode : {Round::nearest_even, Round::stochastic})
    compare(parse_format("e4m3"), {mode, Overflow::saturate, kKey}, in, 0, in.size());
}

// Blocks that loop over further pieces.
TEST(EmulatedConvert, FewBlocksForManyPieces) {
  constexpr size_t kCount = 3 * 8 * 512 + 20;
  const std::vector<float> in = numbers(kCount, 17);
  const FloatFormat format = parse_format("e4m3");
  const Rounding rounding{Round::stochastic, Overflow::saturate, kKey};
  std::vector<uint8_t> codes(kCount);
  const EncodeStats stats = ulp::encode(format, rounding, in, codes, 0);
  std::vector<float> values(kCount);
  ulp::decode(format, codes, values);
  const StepState state = state_of(kKey);
  std::vector<Line> source(kCount / 4 + 1), out(kCount / 4 + 1);
  std::memcpy(source.data(), in.data(), 4 * kCount);
  for (const RandomForm form : {RandomForm::codes8, RandomForm::fp32, RandomForm::bf16}) {
    EncodeStats seen;
    RandomCall call;
    call.state = &state;
    call.in = reinterpret_cast<const float*>(source.data());
    call.out = reinterpret_cast<uint8_t*>(out.data());
    call.runs = kCount / kRandomRun;
    call.codec = make_quick(make_spec(format, Overflow::saturate));
    call.number = kKey.tensor;
    call.stats = &seen;
    call.most_blocks = 1;
    round_runs(call, form, nullptr);
    EXPECT_EQ(seen, stats);
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const uint32_t bits = float_bits(values[i]);
      wrong += form == RandomForm::codes8 ? call.out[i] != codes[i]
               : form == RandomForm::fp32 ? reinterpret_cast<uint32_t*>(out.data())[i] != bits
                                          : reinterpret_cast<uint16_t*>(out.data())[i] != bits >> 16;
    }
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(EmulatedConvert, RowsOfATensor) {
  RoundKey key = kKey;
  key.micro_batch = 3;
  for (const size_t channels : {8, 24, 136}) {
    const std::vector<float> in = numbers(channels * 40, 31);
    for (const size_t first : {0, 1, 7, 39}) {
      for (const char* name : {"e4m3", "bf16", "fp(4,3,4)"}) {
        compare(parse_format(name), {Round::stochastic, Overflow::saturate, key}, in, first, channels);
        compare(parse_format(name), {Round::nearest_even, Overflow::saturate, key}, in, first, channels);
      }
    }
  }
}

// Subnormal values whose fraction begins like their random word: the comparison depends on bits
// that the fast path has truncated.
TEST(EmulatedConvert, WordsNextToTheFraction) {
  for (const char* name : {"e4m3", "e5m2", "fp(4,3,4)", "fp16", "fp(6,9,0)"}) {
    const FloatFormat format = parse_format(name);
    const CodecSpec spec = make_spec(format, Overflow::saturate);
    const float spacing = bits_float(decode_scalar(spec, 1));
    std::vector<float> in(2048);
    for (size_t i = 0; i < in.size(); ++i) {
      const uint32_t word = random_word(kKey, i);
      const float exact = static_cast<float>(word) * 0x1p-32f * spacing;
      in[i] = bits_float(float_bits(exact) + static_cast<uint32_t>(i % 5) - 2);
    }
    compare(format, {Round::stochastic, Overflow::saturate, kKey}, in, 0, in.size());
  }
}

// Formats with normal numbers below fp32's, with hardly a mantissa, with a range far from 1.
TEST(EmulatedConvert, StrangeFormats) {
  const std::vector<float> in = numbers(1024, 13);
  for (const char* name :
       {"fp(8,7,100)", "fp(5,2,-60)", "fp(2,5,40)", "fp(8,0,0)", "fp(4,11,0)", "fp(7,8,-64)"}) {
    FloatFormat format{};
    try {
      format = parse_format(name);
    } catch (const std::exception&) {
      continue;  // no fp32 number
    }
    compare(format, {Round::stochastic, Overflow::saturate, kKey}, in, 0, in.size());
  }
}

// A whole tensor in S2FP8: codes, statistics and range events; an operand rounded from elsewhere and in
// place; read as a whole, by rows from any on, and with rows padded.
void compare_s2fp8(const std::vector<float>& in) {
  SCOPED_TRACE(in.size());
  const size_t n = in.size();
  const Storage storage = parse_storage("s2fp8");
  std::vector<uint8_t> codes(n);
  std::vector<uint32_t> side(2);
  const EncodeStats stats = ulp::encode(storage, {}, in, codes, side);
  std::vector<float> values(n);
  ulp::decode(storage, codes, side, values);

  std::vector<Line> source(n / 4 + 1), made(n / 16 + 1), out(n / 2 + 2), space(kConvertSpace / sizeof(Line));
  std::memcpy(source.data(), in.data(), 4 * n);
  std::memset(space.data(), 0xAB, kConvertSpace);  // whatever another task left
  const StepState state;
  EncodeStats seen;
  uint32_t made_side[2] = {};
  WriteView view;
  view.stored = stored_view(storage, Overflow::saturate, n);
  view.stored.codes = reinterpret_cast<uint8_t*>(made.data());
  view.stored.side = made_side;
  view.stats = &seen;
  encode(view, &state, Rows::all(n), reinterpret_cast<const float*>(source.data()), space.data(), nullptr);
  EXPECT_EQ(std::memcmp(made.data(), codes.data(), n), 0);
  EXPECT_EQ(std::memcmp(made_side, side.data(), sizeof made_side), 0);
  EXPECT_EQ(seen, stats);
  EXPECT_EQ(std::memcmp(source.data(), in.data(), 4 * n), 0);

  ReadView read;
  read.stored = view.stored;
  const auto got = [&] { return reinterpret_cast<const float*>(out.data()); };
  decode(read, &state, Rows::all(n), DecodedType::fp32, out.data(), space.data(), nullptr);
  EXPECT_EQ(std::memcmp(got(), values.data(), 4 * n), 0);
  for (const size_t first : {size_t{1}, size_t{8}}) {
    if (n < 20) continue;
    const Rows some{first, n - first - 3, 1, 1};
    decode(read, &state, some, DecodedType::fp32, out.data(), space.data(), nullptr);
    EXPECT_EQ(std::memcmp(got(), values.data() + first, 4 * some.count), 0);
  }
  if (n > 6) {
    const Rows padded{1, n / 3 - 1, 3, 4};
    decode(read, &state, padded, DecodedType::fp32, out.data(), space.data(), nullptr);
    size_t wrong = 0;
    for (size_t i = 0; i < padded.count * 4; ++i) {
      const float want = i % 4 == 3 ? 0.0f : values[3 + i / 4 * 3 + i % 4];
      wrong += std::memcmp(got() + i, &want, sizeof want) != 0 ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0u);
  }

  ReadView rounds;
  rounds.stored = stored_view(parse_storage("fp32"), Overflow::saturate, n);
  rounds.stored.codes = reinterpret_cast<uint8_t*>(source.data());
  rounds.rounds_s2fp8 = true;
  rounds.operand = view.stored.codec;
  seen = {};
  rounds.stats = &seen;
  decode(rounds, &state, Rows::all(n), DecodedType::fp32, out.data(), space.data(), nullptr);
  EXPECT_EQ(std::memcmp(got(), values.data(), 4 * n), 0);
  EXPECT_EQ(seen, stats);
  // A weight of 16 bits is decoded first, and rounded where it then is.
  std::vector<uint8_t> halves(2 * n);
  ulp::encode(parse_format("bf16"), {}, in, halves, 0);
  std::vector<float> rounded(n);
  ulp::decode(parse_format("bf16"), halves, rounded);
  const EncodeStats again = ulp::encode(storage, {}, rounded, codes, side);
  ulp::decode(storage, codes, side, values);
  std::memcpy(source.data(), halves.data(), 2 * n);
  rounds.stored = stored_view(parse_storage("bf16"), Overflow::saturate, n);
  rounds.stored.codes = reinterpret_cast<uint8_t*>(source.data());
  seen = {};
  decode(rounds, &state, Rows::all(n), DecodedType::fp32, out.data(), space.data(), nullptr);
  EXPECT_EQ(std::memcmp(got(), values.data(), 4 * n), 0);
  EXPECT_EQ(seen, again);
}

TEST(EmulatedConvert, S2fp8) {
  for (const size_t n : {1, 7, 8, 33, 4099}) compare_s2fp8(numbers(n, 0));
  // One block whose threads loop, and several.
  compare_s2fp8(numbers(10'000, 17));
  compare_s2fp8(numbers(20'000, 17));
  compare_s2fp8(std::vector<float>(100, 0.0f));
  compare_s2fp8(std::vector<float>(100, -3.0f));
  // More than narrow blocks take.
  compare_s2fp8(numbers(300'001, 0));
}

TEST(EmulatedConvert, ASkippedUpdateKeepsItsS2fp8) {
  const std::vector<float> in = numbers(64, 0);
  std::vector<Line> source(16), codes(4), space(kConvertSpace / sizeof(Line));
  std::memcpy(source.data(), in.data(), 256);
  std::memset(codes.data(), 0x33, 64);
  StepState state;
  state.skip = 1;
  EncodeStats seen;
  uint32_t side[2] = {7, 8};
  WriteView view;
  view.stored = stored_view(parse_storage("s2fp8"), Overflow::saturate, 64);
  view.stored.codes = reinterpret_cast<uint8_t*>(codes.data());
  view.stored.side = side;
  view.stats = &seen;
  view.update = true;
  encode(view, &state, Rows::all(64), reinterpret_cast<const float*>(source.data()), space.data(), nullptr);
  EXPECT_EQ(codes[3].word[3], 0x33333333u);
  EXPECT_TRUE(side[0] == 7 && side[1] == 8);
  EXPECT_EQ(seen, EncodeStats{});
  state.skip = 0;
  encode(view, &state, Rows::all(64), reinterpret_cast<const float*>(source.data()), space.data(), nullptr);
  EXPECT_NE(codes[3].word[3], 0x33333333u);
}

}  // namespace
}  // namespace ulp::cuda
