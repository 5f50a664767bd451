// `ulp quantize`: an .npy file through a storage and back.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <vector>

#include "apps/ulp/commands.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/io/npy.h"
#include "ulp/numeric/quality.h"
#include "ulp/numeric/simd.h"
#include "ulp/numeric/storage.h"

namespace ulp {
namespace {

struct QuantizeOptions {
  std::string in, out, to, round = "even", overflow = "saturate", seed = "0";
  const CLI::Option* seed_option = nullptr;
  bool codes = false, histogram = false, json = false;
};

// Not left to the option parser, which would take -1 for 2^64 - 1.
uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    fail("seed", "--seed must be a whole number from 0 to 2^64 - 1, got '{}'", text);
  }
  return seed;
}

// Codes, then the words beside them, little-endian: the bytes a tensor takes, and nothing else.
std::vector<uint8_t> packed(const std::vector<uint8_t>& codes, const std::vector<uint32_t>& side) {
  std::vector<uint8_t> bytes = codes;
  const auto* words = reinterpret_cast<const uint8_t*>(side.data());
  bytes.insert(bytes.end(), words, words + 4 * side.size());
  return bytes;
}

Json histogram_json(const ExponentHistogram& histogram) {
  Json bins = Json::object();
  for (size_t i = 0; i < histogram.bin.size(); ++i) {
    if (histogram.bin[i] > 0) {
      bins[std::to_string(static_cast<int>(i) + ExponentHistogram::kLowest)] = histogram.bin[i];
    }
  }
  return {{"zero", histogram.zero},
          {"infinite", histogram.infinite},
          {"nan", histogram.nan},
          {"exponents", bins}};
}

void print_histogram(const ExponentHistogram& histogram) {
  uint64_t most = 1;
  for (uint64_t count : histogram.bin) most = std::max(most, count);
  fmt::print("\nelements by exponent, floor(log2|x|) (zero {}, infinite {}, NaN {})\n", histogram.zero,
             histogram.infinite, histogram.nan);
  for (size_t i = histogram.bin.size(); i-- > 0;) {
    if (histogram.bin[i] == 0) continue;
    const auto width = static_cast<size_t>(
        std::ceil(50.0 * static_cast<double>(histogram.bin[i]) / static_cast<double>(most)));
    fmt::print("  2^{:<5}{:>12}  {}\n", static_cast<int>(i) + ExponentHistogram::kLowest, histogram.bin[i],
               std::string(width, '#'));
  }
}

void quantize(const QuantizeOptions& options) {
  // Everything that can be wrong with the request is said before the file is read.
  const Storage storage = parse_storage(options.to);
  const uint64_t seed = parse_seed(options.seed);
  const Rounding rounding{parse_round(options.round), parse_overflow(options.overflow), {seed, 0, 0, 0}};
  check_rounding(storage, rounding);
  if (options.seed_option->count() > 0 && rounding.mode != Round::stochastic) {
    fail("seed", "--seed {} would change nothing: only --round stochastic reads it; leave --seed out", seed);
  }

  const NpyFloats input = read_npy_floats(options.in);
  const size_t n = input.values.size();
  const StorageSize size = storage_size(storage, n);
  std::vector<uint8_t> codes(size.code_bytes);
  std::vector<uint32_t> side(size.side_words);
  ExponentHistogram histogram;
  const EncodeStats stats =
      encode(storage, rounding, input.values, codes, side, 0, options.histogram ? &histogram : nullptr);
  std::vector<float> restored(n);
  decode(storage, codes, side, restored);
  const Quality quality = compare(input.values, restored);

  if (options.codes) {
    const std::vector<uint8_t> bytes = packed(codes, side);
    const size_t shape[] = {bytes.size()};
    write_npy(options.out, shape, std::span<const uint8_t>(bytes));
  } else {
    write_npy(options.out, input.shape, std::span<const float>(restored));
  }

  if (options.json) {
    Json object = {{"to", storage_name(storage)},
                   {"round", options.round},
                   {"overflow_to", options.overflow},
                   {"seed", seed},
                   {"shape", input.shape},
                   {"elements", n},
                   {"overflow", stats.overflow},
                   {"underflow", stats.underflow},
                   {"nan", stats.nan},
                   {"amax", json_number(stats.amax)},
                   {"mse", json_number(quality.mse)},
                   {"snr_db", json_number(quality.snr_db)},
                   {"mean_relative_error", json_number(quality.mean_relative)},
                   {"bytes_before", 4 * n},
                   {"bytes_after", size.bytes()}};
    if (options.histogram) object["histogram"] = histogram_json(histogram);
    fmt::print("{}\n", object.dump());
    return;
  }
  auto line = [](std::string_view name, const std::string& value) { fmt::print("{:<24}{}\n", name, value); };
  auto share = [n](uint64_t count) {
    return n == 0 ? std::to_string(count)
                  : fmt::format("{} ({:.3g}%)", count,
                                100.0 * static_cast<double>(count) / static_cast<double>(n));
  };
  line("storage", storage_name(storage));
  line("elements", std::to_string(n));
  line("overflow", share(stats.overflow));
  line("underflow to zero", share(stats.underflow));
  line("nan", share(stats.nan));
  line("amax", number_text(stats.amax));
  line("mean squared error", fmt::format("{:.6g}", quality.mse));
  line("signal to noise",
       std::isnan(quality.snr_db) ? "none: all zero" : fmt::format("{:.2f} dB", quality.snr_db));
  line("mean relative error", fmt::format("{:.6g}", quality.mean_relative));
  line("bytes before", std::to_string(4 * n));
  line("bytes after", std::to_string(size.bytes()));
  if (options.histogram) print_histogram(histogram);
}

}  // namespace

void add_quantize_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("quantize", "Round the numbers of an .npy file into a format");
  auto options = std::make_shared<QuantizeOptions>();
  command->add_option("IN", options->in, "float32 C-order .npy of any shape")->required();
  command->add_option("OUT", options->out, "Where the rounded float32 .npy goes (whole or not at all)")
      ->required();
  command
      ->add_option("--to", options->to,
                   "Format or storage: e4m3, 'fp(4,3,4)', bf16+8, s2fp8, scaled(e4m3) ...")
      ->required();
  command->add_option("--round", options->round, "even, away, zero or stochastic")->capture_default_str();
  command->add_option("--overflow", options->overflow, "saturate or inf")->capture_default_str();
  options->seed_option =
      command->add_option("--seed", options->seed, "Seed of stochastic rounding")->capture_default_str();
  command->add_flag("--codes", options->codes, "Write the packed bytes as uint8 instead of float32 values");
  command->add_flag("--histogram", options->histogram, "Also print how the exponents are spread");
  command->add_flag("--json", options->json, "Print JSON; infinities and NaN are the strings inf, -inf, nan");
  command->footer(
      "Examples:\n"
      "  ulp quantize weights.npy rounded.npy --to e4m3\n"
      "  ulp quantize grads.npy rounded.npy --to 'fp(5,2,0)' --round stochastic --seed 7 --json\n"
      "  ulp quantize weights.npy packed.npy --to fp16+13sr --codes");
  command->callback([options] { quantize(*options); });
}

}  // namespace ulp
