#include "ulp/library/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/run/setup.h"
#include "ulp/session/network.h"

namespace ulp {
namespace {

// Options that a session has no use for: its network, its data and its files are the caller's.
bool of_runs_alone(const ConfigField& field) {
  constexpr std::array<std::string_view, 3> kGroups = {"Model", "Data", "Output"};
  return std::find(kGroups.begin(), kGroups.end(), field.group) != kGroups.end() || field.name == "batch";
}

}  // namespace

RunConfig config_of(const SessionOptions& options) {
  RunConfig config;
  config.epochs = 0;
  std::vector<ConfigSetting> level;
  for (const auto& [name, value] : options.settings) {
    const ConfigField& field = find_config_field(name);
    if (of_runs_alone(field))
      fail("session", "'{}' is an option of whole runs: a session gets its {} from the caller", name,
           field.name == "batch" ? "shapes" : "network, data and files");
    if (field.name == "stop_not_finite")
      fail("session",
           "'stop_not_finite' ends whole runs: a session does the steps that it is called for, so look at "
           "the loss that each returns");
    level.push_back({&field, value, name});
  }
  apply_level(config, level);
  const bool counted = config.steps > 0 || config.epochs > 0;
  if (!counted && !options.settings.contains("schedule")) config.schedule = "constant";
  const ScheduleKind kind = schedule_of(config).kind;
  if (!counted && (kind == ScheduleKind::cosine || kind == ScheduleKind::linear))
    fail("session", "schedule {} needs to know the end: set steps or epochs too", config.schedule);
  if (options.epoch_steps == 0) fail("session", "epoch_steps must be positive, got 0");
  if (options.batch.examples < 1)
    fail("session", "SessionOptions::batch must have at least 1 example, got {}", options.batch.examples);
  config.batch = options.batch.examples;
  check_training(config);
  return config;
}

std::string session_text(const RunConfig& config, const SessionOptions& options) {
  return fmt::format("{}; epoch_steps {}; batch ({})",
                     run_text(config, [](const ConfigField& field) { return !of_runs_alone(field); }),
                     options.epoch_steps, batch_shape_text(options.batch));
}

Settings settings_of(int argc, const char* const* argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--"))
      fail("settings", "'{}' is no setting: write --NAME VALUE or --NAME=VALUE", argument);
    const size_t equal = argument.find('=');
    std::string name(argument.substr(2, equal == argument.npos ? equal : equal - 2));
    std::replace(name.begin(), name.end(), '-', '_');
    const ConfigField& field = find_config_field(name);
    name = field.name;  // one of two
    if (equal != argument.npos) {
      settings[name] = argument.substr(equal + 1);
    } else if (field.is_switch()) {
      settings[name] = "true";
    } else if (i + 1 < argc) {
      settings[name] = argv[++i];
    } else {
      fail("settings", "{} has no value: write --{} {}", argument, name, field.value);
    }
  }
  return settings;
}

}  // namespace ulp
