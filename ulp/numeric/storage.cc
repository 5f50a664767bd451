#include "ulp/numeric/storage.h"

#include <charconv>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/s2fp8.h"

namespace ulp {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

Split parse_split(std::string_view name, size_t plus) {
  const FloatFormat high = parse_format(name.substr(0, plus));
  std::string_view count = name.substr(plus + 1);
  const bool stochastic = count.ends_with("sr");
  if (stochastic) count.remove_suffix(2);
  int extra = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), extra);
  if (count.empty() || error != std::errc{} || end != count.data() + count.size()) {
    fail("storage",
         "'{}': after + comes a number of extra bits, with sr for a stochastic high part "
         "(bf16+8, fp16+13sr)",
         name);
  }
  return make_split(high, extra, stochastic);
}

constexpr std::string_view kNonzero = ",nonzero";

void check_side(std::string_view what, size_t words, size_t need) {
  if (words < need) fail("storage", "{} needs {} words beside its codes, got {}", what, need, words);
}

}  // namespace

Storage parse_storage(std::string_view name) {
  if (name == "s2fp8") return S2fp8{};
  constexpr std::string_view scaled = "scaled(";
  if (name.starts_with(scaled) && name.ends_with(')')) {
    std::string_view element = name.substr(scaled.size(), name.size() - scaled.size() - 1);
    const bool nonzero = element.ends_with(kNonzero);
    if (nonzero) element.remove_suffix(kNonzero.size());
    return make_scaled(parse_format(element), nonzero);
  }
  // Within the parentheses of a format a plus is no business of ours.
  const size_t format_end = name.find(')');
  if (const size_t plus = name.find('+', format_end == std::string_view::npos ? 0 : format_end);
      plus != std::string_view::npos)
    return parse_split(name, plus);
  if (const auto format = find_format(name)) return Plain{*format};
  fail("storage",
       "unknown storage '{}'; {}known: {}, any eEmM, any fp(e,m,b), extra bits as in bf16+8 or fp16+13sr, "
       "s2fp8, scaled(e4m3)",
       name, nearest_format(name), preset_names());
}

std::string storage_name(const Storage& storage) {
  return std::visit(
      Overloaded{[](const Plain& s) { return format_name(s.format); },
                 [](const S2fp8&) { return std::string("s2fp8"); },
                 [](const Split& s) {
                   return fmt::format("{}+{}{}", format_name(s.high), s.extra, s.stochastic ? "sr" : "");
                 },
                 [](const Scaled& s) {
                   return fmt::format("scaled({}{})", format_name(s.element), s.nonzero ? kNonzero : "");
                 }},
      storage);
}

StorageSize storage_size(const Storage& storage, size_t n) {
  packed_bytes(32, n);  // refuses more elements than a tensor may have
  return std::visit(Overloaded{[n](const Plain& s) {
                                 return StorageSize{packed_bytes(s.format.bits(), n), 0};
                               },
                               [n](const S2fp8&) {
                                 return StorageSize{n, 2};
                               },
                               [n](const Split& s) {
                                 return StorageSize{packed_bytes(s.high.bits(), n), split_words(s, n)};
                               },
                               [n](const Scaled&) {
                                 return StorageSize{n, scaled_blocks(n)};
                               }},
                    storage);
}

bool has_infinity(const Storage& storage) {
  return std::visit(
      Overloaded{[](const Plain& s) { return s.format.has_inf(); }, [](const S2fp8&) { return false; },
                 [](const Split& s) { return s.high.has_inf(); },
                 [](const Scaled& s) { return s.element.has_inf(); }},
      storage);
}

void check_rounding(const Storage& storage, const Rounding& rounding) {
  const bool even = rounding.mode == Round::nearest_even;
  std::visit(Overloaded{[&](const Plain& s) { make_spec(s.format, rounding.overflow); },
                        [&](const Scaled& s) { make_spec(s.element, rounding.overflow); },
                        [&](const Split& s) {
                          make_spec(s.high, rounding.overflow);
                          if (even) return;
                          fail("storage",
                               "{} rounds to nearest-even before it splits; for a stochastic high "
                               "part write {}+{}sr",
                               storage_name(storage), format_name(s.high), s.extra);
                        },
                        [&](const S2fp8&) {
                          if (even && rounding.overflow == Overflow::saturate) return;
                          fail("storage",
                               "s2fp8 rounds to nearest-even and never overflows to infinity; use "
                               "even and saturate");
                        }},
             storage);
}

EncodeStats encode(const Storage& storage, const Rounding& rounding, std::span<const float> in,
                   std::span<uint8_t> codes, std::span<uint32_t> side, uint64_t first,
                   ExponentHistogram* histogram) {
  check_rounding(storage, rounding);
  return std::visit(
      Overloaded{
          [&](const Plain& s) { return encode(s.format, rounding, in, codes, first, histogram); },
          [&](const S2fp8&) {
            check_side("s2fp8", side.size(), 2);
            S2fp8Stats stats;
            const EncodeStats report = s2fp8_encode(in, codes, stats, histogram);
            side[0] = float_bits(stats.alpha);
            side[1] = float_bits(stats.beta);
            return report;
          },
          [&](const Split& s) {
            return split_encode(s, rounding.overflow, rounding.key, in, codes, side, first, histogram);
          },
          [&](const Scaled& s) { return scaled_encode(s, rounding, in, codes, side, first, histogram); }},
      storage);
}

void decode(const Storage& storage, std::span<const uint8_t> codes, std::span<const uint32_t> side,
            std::span<float> out) {
  std::visit(Overloaded{[&](const Plain& s) { decode(s.format, codes, out); },
                        [&](const S2fp8&) {
                          check_side("s2fp8", side.size(), 2);
                          s2fp8_decode(codes, {bits_float(side[0]), bits_float(side[1])}, out);
                        },
                        [&](const Split& s) { split_decode(s, codes, side, out); },
                        [&](const Scaled& s) { scaled_decode(s, codes, side, out); }},
             storage);
}

}  // namespace ulp
