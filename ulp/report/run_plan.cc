#include "ulp/report/run_plan.h"

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/threads_kept.h"
#include "ulp/data/dataset.h"
#include "ulp/precision/sensitivities.h"
#include "ulp/run/saved_run.h"
#include "ulp/run/setup.h"
#include "ulp/runtime/registry.h"
#include "ulp/runtime/state.h"

namespace ulp {
namespace {

// A network unrolled over thousands of time steps would fill a page with blocks.
constexpr size_t kMostDetail = 30'000;

// Of options that decide bits, those that no plan depends on.
constexpr std::array<std::string_view, 12> kNotPlanned = {"seed",   "epochs", "steps",      "schedule",
                                                          "warmup", "lr",     "beta1",      "beta2",
                                                          "eps",    "init",   "clip_value", "weight_decay"};

// Its policy takes what was measured before the run's first step.
bool measures(const RunConfig& config) {
  return config.policy.starts_with("sensitivity:") && sensitivity_file(config.policy).empty();
}

std::string key_of(const RunRecord& run) {
  const auto counts = [](const ConfigField& field) {
    return std::find(kNotPlanned.begin(), kNotPlanned.end(), field.name) == kNotPlanned.end();
  };
  // Workspaces depend on the threads.
  std::string key = fmt::format("{}; threads {}; input {}; classes {}", run_text(*run.config, counts),
                                run.config->threads, run.model.input, run.model.classes);
  if (measures(*run.config)) key += "; measured in " + run.folder;
  return key;
}

// Whether the kind of data says how large it is, so that it need not be there.
bool has_published_size(const RunConfig& config) {
  if (config.task != "classification") return false;
  const auto all = datasets();
  return std::any_of(all.begin(), all.end(),
                     [&](const DatasetInfo& info) { return info.name == config.data && info.height > 0; });
}

Facts facts_of_run(const RunRecord& run) {
  if (run.model.classes > 0)
    return {{"input", run.model.input}, {"classes", fmt::format("{}", run.model.classes)}};
  std::error_code error;
  const std::string checkpoint = run.folder + "/last.safetensors";
  if (!std::filesystem::exists(checkpoint, error)) {
    fail("report", "the size of its data is known once there is a checkpoint");
  }
  Facts facts = CheckpointFile(checkpoint).facts();
  if (facts.empty()) fail("report", "its checkpoint does not say of what size its data was");
  return facts;
}

class Planner {
 public:
  Planner(const RunRecord& run, RunPlan& plan) : run_(run), plan_(plan), config_(*run.config) {}

  void make(bool detail) {
    settle_device();
    if (config_.threads > 0) set_thread_count(static_cast<int>(config_.threads));
    const std::unique_ptr<LearningTask> task = make_task();
    plan_.score = score_of(task->metrics().front());
    try {
      fill(Engine(options(*task)), detail);
    } catch (const Error&) {
      // Such as a policy whose file is gone. Its log says what the formats were.
      if (!run_.heat || run_.heat->tensors.empty()) throw;
      fill(Engine(recorded(*task)), detail);
      add_note("its formats are those of its log, as its policy cannot be asked");
    }
  }

 private:
  void add_note(const std::string& text) { plan_.note += (plan_.note.empty() ? "" : "; ") + text; }

  void settle_device() {
    plan_.model = config_.model;
    plan_.device = config_.device;
    try {
      find_backend(config_.device);
    } catch (const Error& error) {
      add_note(
          fmt::format("planned for the CPU, where kernels and workspaces are others: {}", error.message()));
      plan_.device = config_.device = "cpu";
      config_.kernels.clear();
      config_.tensor_core = RunConfig{}.tensor_core;
      config_.tf32 = config_.fp8_native = false;
    }
  }

  std::unique_ptr<LearningTask> make_task() {
    const TaskOptions wanted = task_options(config_);
    if (has_published_size(config_)) {
      std::unique_ptr<LearningTask> task = outline_task(wanted);
      const NetworkId id = task->id();
      if (run_.model.classes == 0 || (run_.model.input == id.input && run_.model.classes == id.classes)) {
        const auto batch = static_cast<uint64_t>(std::max<int64_t>(config_.batch, 1));
        plan_.steps_per_epoch = (task->examples(Part::train) + batch - 1) / batch;
        return task;
      }
    }
    return task_without_data(wanted, facts_of_run(run_));
  }

  EngineOptions options(const LearningTask& task) const {
    EngineOptions made = engine_options(config_, task);
    if (measures(config_)) {
      made.sensitivities = [file = run_.folder + "/sensitivity.json"] {
        return load_sensitivities(file).errors;
      };
    }
    return made;
  }

  // As the doctor plans a run.
  EngineOptions recorded(const LearningTask& task) const {
    RunConfig wide = config_;
    wide.policy = "fp32";
    EngineOptions made = engine_options(wide, task);
    made.precision = precision_options(config_);
    made.precision.policy = "fp32";
    made.precision.overrides.clear();
    for (const RangedTensor& tensor : run_.heat->tensors)
      made.precision.overrides.push_back({tensor.name, parse_storage(tensor.format)});
    return made;
  }

  void fill(const Engine& engine, bool detail) {
    const Plan& plan = engine.training_plan();
    plan_.use = plan.bytes();
    plan_.use.snapshot = engine.keeps_snapshot() ? Snapshot::bytes(plan) : 0;
    plan_.state_bytes = plan.state_bytes() + plan_.use.snapshot;
    plan_.arena_bytes = plan.step_bytes();
    plan_.peak_step = plan.peak_step();
    plan_.low_ratio = engine.low_ratio();
    plan_.assignment = engine.assignment();
    plan_.counted.assign(engine.counted().begin(), engine.counted().end());
    plan_.aggregate_bits = aggregate_bits(plan_.counted, plan_.assignment);
    plan_.tensors.clear();
    for (const CountedTensor& tensor : plan_.counted) {
      const Storage storage = plan_.assignment.storage_of(tensor.name);
      plan_.tensors.push_back({tensor.name, tensor.op, tensor.kind, tensor.elements, element_bits(storage),
                               storage_name(storage), tensor.group, plan_.assignment.is_low(tensor.name)});
    }
    if (!detail) return;
    plan_.detail = detail_of(plan, plan_.use.snapshot);
    const size_t size = plan_.detail->steps.size() + plan_.detail->blocks.size() + plan_.detail->nodes.size();
    if (size <= kMostDetail) return;
    plan_.detail.reset();
    add_note(fmt::format("its {} steps and blocks are more than a page can show", size));
  }

  const RunRecord& run_;
  RunPlan& plan_;
  RunConfig config_;
};

RunPlan make_plan(const RunRecord& run, bool detail) {
  RunPlan plan;
  const ThreadsKept threads;
  try {
    Planner(run, plan).make(detail);
  } catch (const Error& error) {
    plan.problem = error.message();
  } catch (const std::exception& error) {
    // A configuration can ask for more memory than a graph of it may take.
    plan.problem = error.what();
  }
  return plan;
}

}  // namespace

uint64_t RunPlan::aggregate_bits_after(std::span<const PromoteEvent> promotions) const {
  Assignment after = assignment;
  for (const PromoteEvent& event : promotions) after.storage[event.tensor] = parse_storage(event.to);
  return ulp::aggregate_bits(counted, after);
}

const RunPlan& PlanBook::plan_of(const RunRecord& run, bool detail) {
  static const RunPlan none = [] {
    RunPlan plan;
    plan.problem = "it has no configuration";
    return plan;
  }();
  if (!run.config) return none;
  const std::string key = key_of(run);
  const auto found = plans_.find(key);
  const bool there = found != plans_.end();
  // What a run in progress still lacks may be there by now.
  if (there && found->second.problem.empty() && (!detail || found->second.detail_wanted))
    return found->second;
  if (there && !found->second.problem.empty() && found->second.tried_at == run.changed) return found->second;
  RunPlan made = make_plan(run, detail);
  made.detail_wanted = detail;
  made.tried_at = run.changed;
  RunPlan& place = plans_[key];
  place = std::move(made);
  return place;
}

Number PlanBook::aggregate_bits_of(const BenchRecord& bench) {
  if (bench.aggregate_bits || bench.classes == 0 || bench.input.empty()) return bench.aggregate_bits;
  const std::string key =
      fmt::format("{}; threads {}; input {}; classes {}; bytes {}", run_text(bench.config),
                  bench.config.threads, bench.input, bench.classes, bench.planned_bytes);
  const auto [place, fresh] = benches_.try_emplace(key);
  if (!fresh) return place->second;
  const ThreadsKept threads;
  try {
    if (bench.config.threads > 0) set_thread_count(static_cast<int>(bench.config.threads));
    const NetworkId id{.input = bench.input, .classes = static_cast<int64_t>(bench.classes)};
    const std::unique_ptr<LearningTask> task = sketch_task(task_options(bench.config), id);
    const Engine engine(engine_options(bench.config, *task));
    if (static_cast<double>(engine.planned_peak_bytes()) == bench.planned_bytes)
      place->second = static_cast<double>(aggregate_bits(engine.counted(), engine.assignment()));
  } catch (const std::exception&) {
    // Such as a device that this build does not have: it stays unknown.
  }
  return place->second;
}

}  // namespace ulp
