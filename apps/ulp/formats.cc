// `ulp formats` and `ulp format`: what the formats hold.
#include <fmt/format.h>

#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/scalar.h"

namespace ulp {
namespace {

constexpr int kMostListedBits = 16;

Json facts(const FloatFormat& format) {
  return {{"name", format_name(format)},
          {"bits", format.bits()},
          {"exp", format.exp},
          {"man", format.man},
          {"bias", format.bias},
          {"extra_bias", format.extra_bias()},
          {"specials", specials_name(format.specials)},
          {"codes", uint64_t{1} << format.bits()},
          {"max", json_number(largest(format))},
          {"min_normal", json_number(smallest_normal(format))},
          {"min_subnormal", json_number(smallest_positive(format))},
          {"epsilon", json_number(epsilon(format))}};
}

struct FormatOptions {
  std::string name;
  bool values = false;
  bool json = false;
};

void print_format(const FormatOptions& options) {
  const FloatFormat format = parse_format(options.name);
  if (options.values && format.bits() > kMostListedBits) {
    fail("format", "--values lists formats of at most {} bits; {} has {}", kMostListedBits,
         format_name(format), format.bits());
  }
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  const uint32_t codes = options.values ? uint32_t{1} << format.bits() : 0;
  auto value = [&](uint32_t code) { return bits_float(decode_scalar(spec, code)); };
  Json object = facts(format);
  if (options.json) {
    if (options.values) {
      object["values"] = Json::array();
      for (uint32_t code = 0; code < codes; ++code) {
        object["values"].push_back({{"code", code}, {"value", json_number(value(code))}});
      }
    }
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{}: 1 sign, {} exponent, {} mantissa bits; bias {}\n", format_name(format), format.exp,
             format.man, format.bias);
  const char* top[] = {"every code is a finite number", "infinity and NaN in the top exponent",
                       "one NaN of each sign, no infinity"};
  fmt::print("  {:<16}{}\n", "bits", format.bits());
  fmt::print("  {:<16}{}\n", "codes", uint64_t{1} << format.bits());
  fmt::print("  {:<16}{} ({})\n", "specials", specials_name(format.specials),
             top[static_cast<int>(format.specials)]);
  fmt::print("  {:<16}{}\n", "max", number_text(largest(format)));
  fmt::print("  {:<16}{}\n", "min normal", number_text(smallest_normal(format)));
  fmt::print("  {:<16}{}\n", "min subnormal",
             format.man > 0 ? number_text(smallest_positive(format)) : "none (m = 0)");
  fmt::print("  {:<16}{}\n", "epsilon", number_text(epsilon(format)));
  const int digits = (format.bits() + 3) / 4;
  for (uint32_t code = 0; code < codes; ++code) {
    fmt::print("  0x{:0{}x}  {}\n", code, digits, number_text(value(code)));
  }
}

void print_formats(bool json) {
  if (json) {
    Json list = Json::array();
    for (const Preset& preset : presets()) {
      Json object = facts(preset.format);
      object["note"] = preset.note;
      list.push_back(object);
    }
    fmt::print("{}\n", list.dump());
    return;
  }
  fmt::print("{:<11}{:>5}{:>5}{:>5}{:>6}  {:<6}{:>15}{:>15}{:>15}{:>15}  {}\n", "name", "bits", "exp", "man",
             "bias", "top", "max", "min normal", "min subnormal", "epsilon", "");
  for (const Preset& preset : presets()) {
    const FloatFormat& f = preset.format;
    fmt::print("{:<11}{:>5}{:>5}{:>5}{:>6}  {:<6}{:>15}{:>15}{:>15}{:>15}  {}\n", preset.name, f.bits(),
               f.exp, f.man, f.bias, specials_name(f.specials), number_text(largest(f)),
               number_text(smallest_normal(f)), number_text(smallest_positive(f)), number_text(epsilon(f)),
               preset.note);
  }
  fmt::print(
      "\nAny eEmM (IEEE-like, e5m10 is fp16), any fp(e,m,b) (no specials, b moves the range down by 2^b).\n"
      "Storages that keep something beside the codes: bf16+8 (extra bits), fp16+13sr (stochastic high "
      "part),\n"
      "s2fp8 (e5m2 with a shift and a squeeze per tensor), scaled(e4m3) (a scale per 256 elements).\n");
}

}  // namespace

void add_formats_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("formats", "The named formats and what they hold");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->footer("Example:\n  ulp formats");
  command->callback([json] { print_formats(*json); });
}

void add_format_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("format", "One format: range, precision, and every value it has");
  auto options = std::make_shared<FormatOptions>();
  command->add_option("FORMAT", options->name, "Such as fp16, e4m3, e8m5, 'fp(4,3,4)'")->required();
  command->add_flag("--values", options->values, "List every code with its value (at most 16 bits)");
  command->add_flag("--json", options->json, "Print JSON; infinities and NaN are the strings inf, -inf, nan");
  command->footer("Examples:\n  ulp format bf16\n  ulp format 'fp(4,3,4)' --values --json");
  command->callback([options] { print_format(*options); });
}

}  // namespace ulp
