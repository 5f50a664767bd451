#include "ulp/numeric/bitpack.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace ulp {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored as they stand in memory");

constexpr size_t kGroup = 32;

// With the width known, every shift below is a constant and the loops unroll.
// Shifts by 32 - shift are made in two steps, since the compiler also looks at those for shift = 0.
template <int bits>
void pack_group(const uint32_t* codes, uint8_t* out) {
  uint32_t words[bits] = {};
#pragma GCC unroll 32
  for (int i = 0; i < static_cast<int>(kGroup); ++i) {
    const int word = i * bits / 32, shift = i * bits % 32;
    words[word] |= codes[i] << shift;
    if (shift + bits > 32) words[word + 1] |= codes[i] >> 1 >> (31 - shift);
  }
  std::memcpy(out, words, sizeof words);
}

template <int bits>
void unpack_group(const uint8_t* in, uint32_t* codes) {
  constexpr uint32_t mask = bits == 32 ? ~uint32_t{0} : (uint32_t{1} << (bits % 32)) - 1;
  uint32_t words[bits];
  std::memcpy(words, in, sizeof words);
#pragma GCC unroll 32
  for (int i = 0; i < static_cast<int>(kGroup); ++i) {
    const int word = i * bits / 32, shift = i * bits % 32;
    uint32_t code = words[word] >> shift;
    if (shift + bits > 32) code |= words[word + 1] << 1 << (31 - shift);
    codes[i] = code & mask;
  }
}

using PackGroup = void (*)(const uint32_t*, uint8_t*);
using UnpackGroup = void (*)(const uint8_t*, uint32_t*);

// One row per width, width 1 first.
template <int... i>
constexpr std::array<PackGroup, sizeof...(i)> pack_table(std::integer_sequence<int, i...>) {
  return {pack_group<i + 1>...};
}
template <int... i>
constexpr std::array<UnpackGroup, sizeof...(i)> unpack_table(std::integer_sequence<int, i...>) {
  return {unpack_group<i + 1>...};
}
constexpr auto kPack = pack_table(std::make_integer_sequence<int, 32>());
constexpr auto kUnpack = unpack_table(std::make_integer_sequence<int, 32>());

}  // namespace

void pack_bits(const uint32_t* codes, size_t n, int bits, uint8_t* out) {
  const auto width = static_cast<size_t>(bits);
  const PackGroup pack = kPack[width - 1];
  for (; n >= kGroup; n -= kGroup, codes += kGroup, out += 4 * width) pack(codes, out);
  if (n == 0) return;
  // The rest, padded to a group.
  uint32_t rest[kGroup] = {};
  uint8_t bytes[4 * 32];
  std::memcpy(rest, codes, n * sizeof(uint32_t));
  pack(rest, bytes);
  std::memcpy(out, bytes, (n * width + 7) / 8);
}

void unpack_bits(const uint8_t* in, size_t n, int bits, uint32_t* codes) {
  const auto width = static_cast<size_t>(bits);
  const UnpackGroup unpack = kUnpack[width - 1];
  for (; n >= kGroup; n -= kGroup, codes += kGroup, in += 4 * width) unpack(in, codes);
  if (n == 0) return;
  uint32_t rest[kGroup];
  uint8_t bytes[4 * 32] = {};
  std::memcpy(bytes, in, (n * width + 7) / 8);
  unpack(bytes, rest);
  std::memcpy(codes, rest, n * sizeof(uint32_t));
}

}  // namespace ulp
