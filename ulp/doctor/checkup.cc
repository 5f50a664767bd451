#include "ulp/doctor/checkup.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/io/metrics.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

struct Events {
  std::vector<PromoteEvent> promotions;
  LossHistory losses;
};

void add_loss(LossHistory& losses, const Json& line) {
  ++losses.steps;
  if (line.at("loss").is_number()) return;
  line.at("loss").get_ref<const std::string&>();  // "nan", "inf": JSON has no such numbers
  if (losses.not_finite++ == 0) losses.first = count_of(line, "step");
}

// What happened in a run up to a step, from its metrics. A torn last line is one that is being written.
Events load_events(const std::string& path, uint64_t until) {
  Events events;
  std::error_code error;
  if (!fs::exists(path, error)) return events;
  // A pipe could hang.
  if (!fs::is_regular_file(path, error)) fail("doctor", "cannot read {}: it is not a file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("doctor", "cannot read {}: {}", path, std::strerror(errno));
  size_t number = 1;
  for (std::string line; std::getline(in, line); ++number) {
    const std::optional<Json> object = object_on(line);
    if (!object && in.eof()) break;
    const auto damaged = [&] { fail("doctor", "line {} of {} is damaged", number, path); };
    if (!object) damaged();
    const Json& json = *object;
    try {
      const Json kind = json.value("event", Json());
      if (kind == "step" && count_of(json, "step") <= until) add_loss(events.losses, json);
      if (kind == "diverged" && count_of(json, "until") <= until)
        events.losses.diverged = json.at("why").get<std::string>();
      if (kind != "promote") continue;
      PromoteEvent event;
      event.step = count_of(json, "step");
      event.tensor = json.at("tensor").get<std::string>();
      event.from = json.at("from").get<std::string>();
      event.to = json.at("to").get<std::string>();
      parse_storage(event.to);
      event.overflow_ratio = json.at("overflow_ratio").get<double>();
      events.promotions.push_back(std::move(event));
    } catch (const Json::exception&) {
      damaged();
    } catch (const Error&) {
      damaged();
    }
  }
  return events;
}

bool all_fp32(const RunConfig& config) { return config.policy == "fp32" && config.formats.empty(); }

// What the run's formats were is taken from its records, not from its policy: that may have
// measured something, or read a file that is gone.
StepPlanner planner_of(const RunConfig& config, const RangeHistory& ranges) {
  // Workspaces depend on it.
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  NetworkId id;
  id.input = ranges.model.input;
  id.classes = ranges.model.classes;
  const std::unique_ptr<LearningTask> task = sketch_task(task_options(config), id);
  RunConfig wide = config;  // the policy may name a file that is gone
  wide.policy = "fp32";
  EngineOptions options = engine_options(wide, *task);
  options.precision = precision_options(config);
  options.precision.policy = "fp32";
  options.precision.overrides.clear();
  options.precision.updates.promotes = false;  // the formats are what they came to
  for (const RangedTensor& tensor : ranges.tensors) {
    options.precision.overrides.push_back({tensor.name, parse_storage(tensor.format)});
  }
  return [options](std::span<const FormatOverride> formats) {
    EngineOptions changed = options;
    changed.precision.overrides.insert(changed.precision.overrides.end(), formats.begin(), formats.end());
    const Engine engine(changed);
    return StepBytes{aggregate_bits(engine.counted(), engine.assignment()), engine.planned_peak_bytes()};
  };
}

}  // namespace

CheckUp check_up(const std::string& folder, uint64_t until) {
  if (folder.empty()) fail("doctor", "DIR is empty: name the folder of a run");
  const fs::path place(folder);
  std::error_code error;
  if (!fs::exists(place / "config.toml", error)) {
    fail("doctor", "{} holds no run: there is no {}", folder, (place / "config.toml").string());
  }
  const RunConfig config = load_config((place / "config.toml").string());
  CheckUp result;
  result.folder = folder;
  Events events = load_events((place / "metrics.jsonl").string(), until);
  result.losses = std::move(events.losses);
  const std::string ranges = (place / "ranges.bin").string();
  if (!fs::exists(ranges, error)) {
    if (!all_fp32(config)) fail("doctor", "there is no {}: the run has not taken a step yet", ranges);
    result.narrow = false;
    return result;
  }
  DoctorHistory history;
  history.ranges = load_ranges(ranges);
  history.promotions = std::move(events.promotions);
  result.narrow = !history.ranges.tensors.empty();
  result.diagnosis = diagnose(history, until);
  if (const Trouble* trouble = main_trouble(result.diagnosis)) {
    result.shown = trouble->name;
    result.moved = until == UINT64_MAX ? trouble->before : range_points(history, trouble->tensor, until);
  }
  if (!result.narrow || patients(result.diagnosis).empty()) return result;
  try {
    const StepPlanner plan = planner_of(config, history.ranges);
    result.step = plan({});
    result.treatments = find_remedies(history, result.diagnosis, config, plan);
  } catch (const Error& problem) {
    // Such as a device that this machine does not have. What was found stays true.
    result.no_remedies = problem.what();
  }
  return result;
}

std::string doctor_report(const std::string& run_folder) {
  try {
    return short_check_up_text(check_up(run_folder));
  } catch (const std::exception& problem) {
    return fmt::format("The doctor cannot tell why: {}\n", problem.what());
  }
}

}  // namespace ulp
