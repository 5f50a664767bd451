#include "ulp/lab/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/run/config_toml.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

constexpr size_t kMostRuns = 100'000;     // a list too many, not an experiment
constexpr size_t kMostNameLetters = 200;  // file systems end at 255
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+";

// A key of a table: one value, or those of an axis.
struct Entry {
  toml::source_position place;
  std::string key;
  bool axis = false;
  std::vector<ConfigSetting> values = {};
};

struct Grid {
  std::string name;
  std::vector<Entry> entries;  // in the order of the file
};

void check_key(std::string_view key, uint32_t line, const std::string& path) {
  if (key == "out") fail("sweep", "{}:{}: the sweep gives each run its folder: leave out out", path, line);
}

Entry read_axis(const toml::key& key, const toml::array& list, const std::string& path) {
  const uint32_t line = key.source().begin.line;
  Entry entry{key.source().begin, std::string(key.str()), true};
  std::set<std::string> seen;
  for (const toml::node& node : list) {
    ConfigSetting setting = toml_setting(key.str(), node, node.source().begin.line, path);
    RunConfig config;
    setting.field->set(config, setting.text, setting.label);
    // The text that the field writes, so that 1e3 and 1000 are one value. So are bf16 and bfloat16.
    setting.text = setting.field->get(config);
    const std::string value = setting.field->get(with_shortest_names(config));
    if (!seen.insert(value).second) {
      fail("sweep", "{}:{}: {} has {} twice", path, node.source().begin.line, key.str(), value);
    }
    entry.values.push_back(std::move(setting));
  }
  if (list.empty()) fail("sweep", "{}:{}: {} has no values", path, line, key.str());
  return entry;
}

// Everything in a table but `except`.
std::vector<Entry> read_entries(const toml::table& table, const std::string& path, bool axes,
                                std::string_view except = "") {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) {
    if (key.str() == except) continue;
    const uint32_t line = key.source().begin.line;
    check_key(key.str(), line, path);
    if (const toml::array* list = node.as_array(); list != nullptr) {
      if (!axes)
        fail("sweep", "{}:{}: [base] has one value of {}: a list goes in a [[grid]]", path, line, key.str());
      entries.push_back(read_axis(key, *list, path));
    } else {
      Entry entry{key.source().begin, std::string(key.str())};
      entry.values.push_back(toml_setting(key.str(), node, line, path));
      entries.push_back(std::move(entry));
    }
  }
  // The table is in the order of names.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  return entries;
}

Grid read_grid(const toml::table& table, const std::string& path) {
  const uint32_t line = table.source().begin.line;
  const toml::node* name = table.get("name");
  if (name == nullptr || !name->is_string()) {
    fail("sweep", "{}:{}: a [[grid]] needs a name, as name = \"first\"", path, line);
  }
  Grid grid;
  grid.name = name->as_string()->get();
  if (grid.name.empty() || grid.name.find_first_not_of(kNameLetters) != std::string::npos) {
    fail("sweep", "{}:{}: the name of a grid is one of a folder: letters, digits, - _ and + alone", path,
         name->source().begin.line);
  }
  grid.entries = read_entries(table, path, true, "name");
  return grid;
}

// The part of a folder's name for a value, without the key where the value says enough by itself.
std::string name_part(const AxisValue& axis) {
  constexpr std::string_view known[] = {"model", "data", "policy", "optimizer", "candidates", "schedule"};
  std::string part = axis.value;
  if (axis.key == "seed") {
    part = fmt::format("s{}", axis.value);
  } else if (std::find(std::begin(known), std::end(known), axis.key) == std::end(known)) {
    part = fmt::format("{}_{}", axis.key, axis.value);
  }
  for (char& letter : part) {
    if (letter != '.' && kNameLetters.find(letter) == std::string_view::npos) letter = '_';
  }
  return part;
}

std::string folder_name(const Grid& grid, const std::vector<AxisValue>& axes) {
  std::string name;
  for (const AxisValue& axis : axes) name += fmt::format("{}{}", name.empty() ? "" : "-", name_part(axis));
  if (name.empty()) name = "run";
  if (name.size() > kMostNameLetters || name.starts_with('.')) {
    fail("sweep",
         "the grid '{}' would have a run in a folder '{}', which is no good name: shorten the values",
         grid.name, name);
  }
  return grid.name + "/" + name;
}

class Expansion {
 public:
  Expansion(const std::string& path, RunConfig base, const std::string& kernels)
      : path_(path), base_(std::move(base)), kernels_(kernels) {}

  void add(const Grid& grid) {
    const auto common = std::make_shared<const RunConfig>(common_of(grid));
    size_t count = 1;
    for (const Entry& entry : grid.entries) {
      count *= entry.values.size();
      if (runs_.size() + count <= kMostRuns) continue;
      fail("sweep", "{}: with the grid '{}' there are more than {} runs", path_, grid.name, kMostRuns);
    }
    std::vector<size_t> at(grid.entries.size());  // of each entry's values
    while (true) {
      add_run(grid, at, common);
      size_t i = at.size();
      while (i > 0 && ++at[i - 1] == grid.entries[i - 1].values.size()) at[--i] = 0;
      if (i == 0) return;
    }
  }

  std::vector<SweepRun> runs() && { return std::move(runs_); }

 private:
  // The settings of a grid beside its axes.
  RunConfig common_of(const Grid& grid) const {
    RunConfig config = base_;
    std::vector<ConfigSetting> level;
    bool chosen = false;
    for (const Entry& entry : grid.entries) {
      if (!entry.axis) level.push_back(entry.values[0]);
      chosen = chosen || (entry.axis && entry.key == "kernels");
    }
    apply_level(config, level);
    if (chosen || config.kernels.empty()) config.kernels = kernels_;
    return config;
  }

  void add_run(const Grid& grid, const std::vector<size_t>& at,
               const std::shared_ptr<const RunConfig>& common) {
    SweepRun run;
    run.grid = grid.name;
    run.base = common;
    RunConfig config = base_;
    std::vector<ConfigSetting> level;
    for (size_t i = 0; i < at.size(); ++i) {
      const Entry& entry = grid.entries[i];
      level.push_back(entry.values[at[i]]);
      if (entry.axis) run.axes.push_back({std::string(level.back().field->name), level.back().text});
    }
    // All that the grid says is one level: an axis of steps beside epochs is a mistake.
    apply_level(config, level);
    if (config.kernels.empty()) config.kernels = kernels_;
    try {
      check(config);
      find_backend(config.device);
    } catch (const Error& error) {
      fail("sweep", "{}: grid '{}'{}: {}", path_, grid.name,
           run.axes.empty() ? "" : fmt::format(" with {}", axes_text(run.axes)), error.what());
    }
    run.folder = folder_name(grid, run.axes);
    if (!folders_.insert(run.folder).second) {
      fail("sweep",
           "{}: two runs of the grid '{}' would have the folder {}: rename a file that the values name",
           path_, grid.name, run.folder);
    }
    const auto [same, is_new] =
        by_config_.try_emplace(changed_text(with_shortest_names(config)), runs_.size());
    run.repeats = !is_new;
    if (run.repeats) run.folder = runs_[same->second].folder;
    runs_.push_back(std::move(run));
  }

  // Equal for equal configurations alone: every field that does not have its default.
  static std::string changed_text(const RunConfig& config) {
    static const RunConfig defaults;
    std::string text;
    for (const ConfigField& field : config_fields()) {
      const std::string value = field.get(config);
      if (value != field.get(defaults)) text += fmt::format("{} {} {};", field.name, value.size(), value);
    }
    return text;
  }

  const std::string& path_;
  const RunConfig base_;
  const std::string& kernels_;
  std::vector<SweepRun> runs_;
  std::unordered_set<std::string> folders_;
  std::unordered_map<std::string, size_t> by_config_;  // the first run that has it
};

}  // namespace

std::vector<SweepRun> parse_sweep(std::string_view text, const std::string& path,
                                  const std::string& kernels) {
  const toml::table table = parse_toml(text, path);
  for (const auto& [key, node] : table) {
    const bool fine =
        key.str() == "base" ? node.is_table() : key.str() == "grid" && node.is_array_of_tables();
    if (fine) continue;
    fail("sweep", "{}:{}: '{}' is neither [base] nor [[grid]], which are all that a sweep has", path,
         key.source().begin.line, key.str());
  }
  RunConfig base;
  if (const toml::node* node = table.get("base"); node != nullptr) {
    std::vector<ConfigSetting> level;
    for (Entry& entry : read_entries(*node->as_table(), path, false)) {
      level.push_back(std::move(entry.values[0]));
    }
    apply_level(base, level);
  }
  const toml::node* grids = table.get("grid");
  if (grids == nullptr) fail("sweep", "{} has no [[grid]]: there is nothing to run", path);
  Expansion expansion(path, base, kernels);
  std::set<std::string> names;
  for (const toml::node& node : *grids->as_array()) {
    const Grid grid = read_grid(*node.as_table(), path);
    if (!names.insert(grid.name).second) {
      fail("sweep", "{}:{}: there is a grid '{}' already", path, node.source().begin.line, grid.name);
    }
    expansion.add(grid);
  }
  return std::move(expansion).runs();
}

std::vector<SweepRun> load_sweep(const std::string& path, const std::string& kernels) {
  return parse_sweep(read_config_text(path), path, kernels);
}

RunConfig SweepRun::config() const {
  RunConfig made = base ? *base : RunConfig{};
  std::vector<ConfigSetting> level;
  for (const AxisValue& axis : axes) level.push_back({&find_config_field(axis.key), axis.value, axis.key});
  const std::string kernels = made.kernels;
  apply_level(made, level);
  if (made.kernels.empty()) made.kernels = kernels;
  return made;
}

std::string axes_text(const std::vector<AxisValue>& axes) {
  std::string text;
  for (const AxisValue& axis : axes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.key, axis.value);
  }
  return text;
}

}  // namespace ulp
