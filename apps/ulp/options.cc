#include "apps/ulp/options.h"

#include "apps/ulp/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {

RunConfig RunOptions::of_file() const {
  const bool has_file = file_option != nullptr && file_option->count() > 0;
  if (has_file && file.empty()) fail("config", "--config is empty: name a file, or leave it out");
  return has_file ? load_config(file) : RunConfig{};
}

std::vector<std::string_view> RunOptions::given() const {
  const RunConfig below = of_file();
  std::vector<std::string_view> names;
  for (const Flag& flag : flags) {
    const ConfigField& field = *flag.field;
    if (flag.option->count() > 0 && field.get(below) == field.default_text()) names.push_back(field.name);
  }
  return names;
}

RunConfig RunOptions::settings() const {
  RunConfig config = of_file();
  std::vector<ConfigSetting> level;
  for (const Flag& flag : flags) {
    if (flag.option->count() == 0) continue;
    const std::string name = flag.field->flag();
    const bool is_switch = flag.field->is_switch();
    // Most likely a variable of the shell that is not set, unless it takes back what the file says.
    const bool takes_back = flag.field->default_text().empty() && !flag.field->get(config).empty();
    if (!is_switch && flag.text.empty() && !takes_back)
      fail("config", "{} is empty: give a value, or leave it out", name);
    level.push_back({flag.field, is_switch ? (flag.is_set ? "true" : "false") : flag.text, name});
  }
  apply_level(config, level);
  // What the environment chooses is part of the run, and its file alone must repeat it.
  if (config.kernels.empty()) config.kernels = kernels_of_environment();
  return config;
}

RunConfig RunOptions::config() const {
  RunConfig config = settings();
  check(config);
  return config;
}

namespace {

void add_field(CLI::App& command, RunOptions& options, const ConfigField& field) {
  RunOptions::Flag& flag = options.flags.emplace_back();
  flag.field = &field;
  const std::string help(field.help), group(field.group), also = field.also_flag();
  const std::string names = field.flag() + (also.empty() ? "" : "," + also);
  CLI::Option* option = nullptr;
  if (field.is_switch()) {
    option = command.add_flag(names, flag.is_set, help);
  } else {
    option = command.add_option(names, flag.text, help);
    option->type_name(std::string(field.value))->default_str(field.default_text());
  }
  flag.option = option->group(group);
}

}  // namespace

void add_config_file(CLI::App& command, RunOptions& options) {
  options.file_option =
      command.add_option("--config", options.file, "TOML file with any of these options; flags go before it")
          ->type_name("FILE");
}

void add_run_options(CLI::App& command, RunOptions& options) {
  add_config_file(command, options);
  for (const ConfigField& field : config_fields()) add_field(command, options, field);
}

void add_run_options(CLI::App& command, RunOptions& options, std::initializer_list<std::string_view> groups) {
  for (const ConfigField& field : config_fields()) {
    if (std::find(groups.begin(), groups.end(), field.group) != groups.end()) {
      add_field(command, options, field);
    }
  }
}

void add_named_options(CLI::App& command, RunOptions& options,
                       std::initializer_list<std::string_view> names) {
  for (const ConfigField& field : config_fields()) {
    if (std::find(names.begin(), names.end(), field.name) != names.end()) add_field(command, options, field);
  }
}

}  // namespace ulp
