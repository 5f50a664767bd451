#include "ulp/report/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/threads_kept.h"
#include "ulp/lab/jobs.h"
#include "ulp/report/doctor_words.h"
#include "ulp/report/metrics_reader.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// What of a folder a record depends on.
constexpr std::array<std::string_view, 6> kFiles = {"config.toml",      "metrics.jsonl", "ranges.bin",
                                                    "histograms.jsonl", "error.txt",     "last.safetensors"};
// Larger than any run leaves them.
constexpr uintmax_t kMostRanges = uintmax_t{512} << 20, kMostError = uintmax_t{1} << 20;

bool all_fp32(const RunConfig& config) { return config.policy == "fp32" && config.formats.empty(); }

// FNV-1a, 64 bits.
std::string digest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

void read_config(const std::string& path, RunRecord& record) {
  try {
    record.config = load_config(path);
  } catch (const Error& error) {
    record.notes.emplace_back(error.message());
    record.group = digest("no configuration: " + record.id);
    return;
  }
  const RunConfig& config = *record.config;
  for (const ConfigField& field : config_fields())
    record.settings.emplace_back(field.name, field.get(config));
  record.group = digest(run_text(config, [](const ConfigField& field) { return field.name != "seed"; }));
}

std::optional<RangeHistory> load(const std::string& path, RunRecord& record) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return {};
  try {
    if (fs::is_regular_file(status) && fs::file_size(path, error) > kMostRanges)
      fail("report", "{} is larger than any that training writes", path);
    return load_ranges(path);
  } catch (const Error& problem) {
    record.notes.emplace_back(problem.message());
    return {};
  }
}

// As `ulp doctor` has it, but from a log that may be damaged.
void ask_doctor(std::optional<RangeHistory> ranges, const LossHistory& losses, bool remedies,
                RunRecord& record) {
  if (!record.config || record.steps == 0) return;
  const RunConfig& config = *record.config;
  if (!ranges && !all_fp32(config)) return;
  CheckUp found;
  found.folder = record.folder;
  found.losses = losses;
  found.narrow = ranges && !ranges->tensors.empty();
  if (found.narrow) {
    const DoctorHistory history{std::move(*ranges), record.promotions};
    found.diagnosis = diagnose(history);
    if (const Trouble* trouble = main_trouble(found.diagnosis)) {
      found.shown = trouble->name;
      found.moved = trouble->before;
    }
    record.heat->words = words_of(found.diagnosis);
    if (!patients(found.diagnosis).empty()) {
      record.treated = true;
      found.no_remedies = fmt::format("left out of this report; ulp doctor {} has them", record.folder);
    }
  }
  if (record.treated && remedies) {
    const ThreadsKept threads;
    try {
      found = check_up(record.folder);
    } catch (const std::exception& problem) {
      found.no_remedies = problem.what();
    }
  }
  record.doctor = DoctorWords{found.narrow ? found.diagnosis.sentence : wide_sentence(found.losses),
                              check_up_text(found)};
}

int64_t last_change(const std::string& folder) {
  int64_t changed = 0;
  for (const std::string_view name : kFiles) {
    struct stat info {};
    if (::stat(fmt::format("{}/{}", folder, name).c_str(), &info) == 0)
      changed = std::max<int64_t>(changed, info.st_mtime);
  }
  return changed;
}

// The last line of what a failed run said; "": it has not failed.
std::string failure_of(const std::string& folder) {
  std::error_code error;
  const std::string path = folder + "/error.txt";
  const uintmax_t size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  if (error || size == 0) return "";
  return size > kMostError ? "see error.txt" : job_error(folder);
}

RunState state_of(const RunRecord& record, const MetricsEnd& end, bool training, const std::string& failure) {
  if (training) return RunState::running;
  if (end.done) return RunState::done;
  if (!end.losses.diverged.empty()) return RunState::diverged;
  if (!failure.empty()) return RunState::failed;
  return record.steps > 0 ? RunState::stopped : RunState::empty;
}

}  // namespace

std::string_view run_state_name(RunState state) {
  constexpr std::array<std::string_view, 6> names = {"running",  "stopped", "done",
                                                     "diverged", "failed",  "empty"};
  return names[static_cast<size_t>(state)];
}

ReadBudget budget_for(size_t runs) {
  const size_t count = std::max<size_t>(runs, 1);
  ReadBudget budget;
  // An even number, so that two buckets become one without a rest.
  budget.curve = std::clamp<size_t>(400'000 / count, 64, 4000) / 2 * 2;
  budget.heat_cells = std::clamp<size_t>(1'000'000 / count, 2'000, 240 * 400);
  budget.histograms.numbers = std::clamp<size_t>(1'000'000 / count, 2'000, 200'000);
  budget.histograms.points = std::clamp<size_t>(300'000 / count, 1'000, 50'000);
  return budget;
}

RunRecord read_run(const FoundRun& run, const ReadBudget& budget, const HeldLocks& locks) {
  RunRecord record;
  record.id = run.id;
  record.folder = run.folder;
  const bool training = is_training(run.folder, locks);
  record.changed = last_change(run.folder);
  read_config(run.folder + "/config.toml", record);
  const MetricsEnd end = read_metrics(run.folder + "/metrics.jsonl", budget.curve, !training, record);
  const std::string failure = failure_of(run.folder);
  record.state = state_of(record, end, training, failure);
  if (record.state == RunState::failed) record.notes.push_back("it failed: " + failure);
  if (record.state == RunState::diverged) record.notes.push_back(end.losses.diverged);
  std::optional<RangeHistory> ranges = load(run.folder + "/ranges.bin", record);
  if (ranges) {
    record.model = ranges->model;
    if (!ranges->tensors.empty()) record.heat = heat_of(*ranges, budget);
  }
  ask_doctor(std::move(ranges), end.losses, budget.remedies, record);
  Histograms histograms =
      read_histograms(run.folder + "/histograms.jsonl", budget.histograms, !training, record.notes);
  record.histograms = std::move(histograms.histograms);
  record.shifted = std::move(histograms.shifted);
  return record;
}

std::string run_stamp(const FoundRun& run, const HeldLocks& locks) {
  std::string stamp = is_training(run.folder, locks) ? "running" : "";
  for (const std::string_view name : kFiles) {
    struct stat info {};
    if (::stat(fmt::format("{}/{}", run.folder, name).c_str(), &info) != 0) {
      stamp += ";-";
      continue;
    }
    stamp +=
        fmt::format(";{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  return stamp;
}

namespace {

// Options whose value says by itself what it is.
constexpr std::array<std::string_view, 6> kPlain = {"task",   "model",     "data",
                                                    "policy", "optimizer", "candidates"};
// Those that a label begins with, and always has.
constexpr std::array<std::string_view, 4> kLeading = {"task", "model", "data", "policy"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of the two options that end a run one holds.
bool is_overruled(const ConfigField& field, const RunConfig& config) {
  return field.name == (config.steps > 0 ? "epochs" : "steps");
}

std::string label_part(const ConfigField& field, const RunConfig& config) {
  const std::string value = field.get(config);
  if (field.is_switch()) return fmt::format("{}{}", value == "true" ? "" : "no ", field.name);
  if (value.empty()) return fmt::format("{} unset", field.name);
  if (is_one_of(kPlain, field.name)) return value;
  return fmt::format("{} {}", field.name, value);
}

using Groups = std::map<std::string, const RunConfig*>;

// An option in which not all groups are alike, and the value that goes without saying: the one that
// more than half of them have.
struct DifferingOption {
  const ConfigField* field;
  std::optional<std::string> usual;
};

std::vector<DifferingOption> differing_options(const Groups& groups) {
  std::vector<DifferingOption> differing;
  for (const ConfigField& field : config_fields()) {
    if (!decides_bits(field) || field.name == "seed") continue;
    std::map<std::string, size_t> values;
    for (const auto& [group, config] : groups) {
      ++values[is_overruled(field, *config) ? "" : field.get(*config)];
    }
    if (values.size() < 2) continue;
    DifferingOption& option = differing.emplace_back(DifferingOption{&field, std::nullopt});
    if (is_one_of(kLeading, field.name)) continue;
    for (const auto& [value, count] : values) {
      if (2 * count > groups.size()) option.usual = value;
    }
  }
  std::stable_partition(differing.begin(), differing.end(), [](const DifferingOption& option) {
    return is_one_of(kLeading, option.field->name);
  });
  return differing;
}

}  // namespace

void label_groups(std::span<RunRecord> records) {
  // One run of each group speaks for it.
  Groups groups;
  for (const RunRecord& record : records) {
    if (record.config) groups.emplace(record.group, &*record.config);
  }
  const std::vector<DifferingOption> differing = differing_options(groups);
  std::map<std::string, std::string> labels;
  for (const auto& [group, config] : groups) {
    std::vector<std::string> parts;
    for (const DifferingOption& option : differing) {
      if (is_overruled(*option.field, *config) || option.field->get(*config) == option.usual) continue;
      parts.push_back(label_part(*option.field, *config));
    }
    labels[group] =
        parts.empty() ? config->model + ", " + config->policy : fmt::format("{}", fmt::join(parts, ", "));
  }
  for (RunRecord& record : records) {
    record.label = record.config ? labels[record.group] : "no configuration: " + record.id;
  }
}

}  // namespace ulp
