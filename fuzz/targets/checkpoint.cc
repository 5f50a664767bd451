// Checkpoints whose file is sound, but says something else than a run has saved. Lines "key=value"
// replace entries of the metadata, or take them away ("key"); "@tensor=dtype" and "@tensor" do the
// same with tensors.
#include "ulp/run/checkpoint.h"

#include <map>

#include "fuzz/fuzz.h"
#include "tests/support/harness.h"
#include "tests/support/made_up_backend.h"
#include "tests/support/made_up_graph.h"
#include "ulp/io/safetensors.h"
#include "ulp/tasks/task.h"

namespace ulp::fuzz {
namespace {

constexpr const char* kRun = "epochs 2; batch 128; seed 1";

// Weights of several storages, and a checkpoint of them.
class Run {
 public:
  Run() : state_(memory_) {
    harness::GraphMaker maker;
    maker.any("input", {maker.state("a", {3, 4}), maker.state("b", {5}), maker.state("c", {300})}, {2, 2});
    const std::map<std::string, std::string> storages = {{"b", "bf16+8"}, {"c", "scaled(e4m3)"}};
    const auto formats = harness::choose_formats(maker.graph, [&](const TensorInfo& tensor) -> std::string {
      const auto found = storages.find(tensor.name);
      return found == storages.end() ? "fp32" : found->second;
    });
    const harness::MadeUpPlan plan(maker.graph, {}, {}, formats);
    state_.add(*plan, 1);
    RunProgress progress;
    progress.step = 7;
    progress.updates = 6;
    progress.promoted = {"a", "b"};
    progress.epochs_done = 1;
    progress.epoch_weight = 5;
    progress.epoch_metrics = {{"correct", "3"}, {"examples", "5"}};
    saved_ = folder() + "/saved";
    save_run_checkpoint(saved_, kRun, state_, progress);
    TaskOptions options;
    options.model = "mlp";
    meter_ = sketch_task(options, {.input = "1x28x28", .classes = 10})->meter();
  }

  const std::string& saved() const { return saved_; }
  State& state() { return state_; }
  Meter& meter() { return *meter_; }

 private:
  Memory memory_;
  State state_;
  std::string saved_;
  std::unique_ptr<Meter> meter_;
};

}  // namespace

void try_input(std::string_view input) {
  static Run run;
  const TensorFile saved(run.saved());
  TensorMetadata metadata = saved.metadata();
  std::map<std::string, StoredTensor> tensors;
  for (const StoredTensor& tensor : saved.tensors()) tensors[tensor.name] = tensor;
  for (Cutter cutter(input); !cutter.empty();) {
    const std::string_view line = cutter.until('\n');
    Cutter parts(line);
    const std::string key(parts.until('='));
    const bool replaces = line.find('=') != std::string_view::npos;
    if (!key.starts_with('@')) {
      metadata.erase(key);
      if (replaces) metadata[key] = parts.rest();
    } else if (const auto found = tensors.find(key.substr(1)); found != tensors.end()) {
      if (replaces) {
        found->second.dtype = parts.rest();
      } else {
        tensors.erase(found);
      }
    }
  }
  std::vector<StoredTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back(tensor);
  const std::string path = folder() + "/checkpoint";
  metadata.erase("checksum");
  save_tensors(path, list, metadata);
  const auto prepare = [&](const StepProgress&) -> State& { return run.state(); };
  tried([&] { checkpoint_finished(path, kRun); });
  tried([&] { checkpoint_finished(path, "epochs 3; batch 128"); });
  tried([&] { load_checkpoint(path, kRun, prepare); });
  const RunProgress progress = load_run_checkpoint(path, kRun, "acc", prepare);
  run.meter().restore(progress.epoch_metrics);
}

}  // namespace ulp::fuzz
