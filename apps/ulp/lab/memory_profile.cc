// `ulp lab memory-profile`: the memory of a few steps over time, by what it is for, in mixed
// precision and with weights that carry extra bits.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/pilot_options.h"
#include "apps/ulp/stop.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/lab/memory_profile.h"

namespace ulp {
namespace {

struct MemoryProfileCommandOptions {
  std::string parameters = "200M", out;
  int64_t batch = 8, steps = 3;
};

// 200M: thousands, millions and billions.
int64_t parse_parameters(const std::string& text) {
  int64_t number = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int64_t factor = unit.empty() ? 1 : unit == "K" ? 1'000 : unit == "M" ? 1'000'000 : 1'000'000'000;
  const bool known = unit.empty() || unit == "K" || unit == "M" || unit == "B";
  if (error != std::errc() || !known || number < 1 || number > INT64_MAX / factor) {
    fail("lab",
         "--parameters must be a positive number such as 200M (K, M and B are powers of 1000), got '{}'",
         text);
  }
  return number * factor;
}

void memory_profile_command(const MemoryProfileCommandOptions& command) {
  const DummyModel model = dummy_model(parse_parameters(command.parameters), command.batch);
  const std::filesystem::path folder(command.out);
  if (!command.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("lab", "cannot make the folder {}: {}", command.out, error.message());
  }
  const std::atomic<bool>& stop = listen_for_stop();
  const MemoryProfiles result = [&] {
    WorkLine line("training");
    return profile_memory(
        model, command.steps, [&](size_t done, size_t all) { line.draw(done, all, done); }, stop);
  }();
  if (!result.complete) {
    fmt::print("stopped\n");
    throw Stopped();
  }
  fmt::print("{} linear layers of {}x{}, batch {}\n{}", model.layers, model.width, model.width, model.batch,
             memory_text(result));
  if (command.out.empty()) return;
  write_file_atomically((folder / "memory-profile.csv").string(), memory_csv(result));
  write_file_atomically((folder / "memory-profile.svg").string(), memory_svg(result));
  fmt::print("\nwritten to {}: memory-profile.csv, memory-profile.svg\n", command.out);
}

}  // namespace

void add_memory_profile_command(CLI::App& lab) {
  CLI::App* command = lab.add_subcommand(
      "memory-profile", "Train a dummy model for some steps and show what its memory is for, over time");
  auto options = std::make_shared<MemoryProfileCommandOptions>();
  command->add_option("--parameters", options->parameters, "About so many, in 48 square linear layers")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Examples in a step")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Steps under each scheme")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--out", options->out, "A folder to write the timeline to, as a table and as a picture")
      ->type_name("DIR");
  command->footer(
      "SGD with momentum in mixed precision (fp32 weights, fp16 copies of them that are kept, fp32 "
      "gradients),\n"
      "against fp16 weights with 8 extra bits and an update fused into backward.\n"
      "Examples:\n"
      "  ulp lab memory-profile --out memory-profile\n"
      "  ulp lab memory-profile --parameters 10M --steps 1");
  command->callback([options] { memory_profile_command(*options); });
}

}  // namespace ulp
