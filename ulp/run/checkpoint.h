// Where a run stands, in one file: all state tensors, bit for bit, and the counts that go with
// them. A safetensors file; tensors in formats that it knows are readable by others as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/io/metrics.h"
#include "ulp/io/safetensors.h"
#include "ulp/precision/loss_scale.h"
#include "ulp/runtime/state.h"
#include "ulp/tasks/task.h"

namespace ulp {

// How far any training has come.
struct StepProgress {
  uint64_t step = 0;     // steps completed
  uint64_t updates = 0;  // of them, those that changed the weights
  LossScaler::State loss_scale;
  std::vector<std::string> promoted;  // tensors that went to their high format, in that order

  bool operator==(const StepProgress&) const = default;
};

// How far a run has come.
struct RunProgress : StepProgress {
  uint64_t epochs_done = 0;  // epochs whose evaluation is done too
  // Sums of the loss and of its weights over the epoch that has begun, and the state of its meter
  // (`epoch_KEY` in the file).
  double epoch_loss = 0, epoch_weight = 0;
  std::map<std::string, std::string> epoch_metrics;
  // The task's first metric; the file has its values as `best_test_NAME` and `final_test_NAME`. The
  // file names a metric and its direction unless the metric is kUnnamedMetric.
  std::string metric = std::string(kUnnamedMetric);
  bool higher_is_better = true;
  double best = 0, last = 0;  // NaN: of no epoch yet that counts
  // Steps in a row up to the last one whose loss was not finite, and which tensor was first.
  uint64_t not_finite = 0;
  std::string first_not_finite = {};
  bool finished = false;
  std::string diverged = {};  // why a finished run was stopped; "": it was not
  bool longer = false;        // it was finished, and now has more epochs; not in the file

  bool operator==(const RunProgress&) const = default;
};

// Atomic. `run` says what decides the bits, as items separated by "; " ("batch 128; seed 0"): a
// file of another run is refused when loaded.
void save_checkpoint(const std::string& path, const std::string& run, const State& state,
                     const StepProgress& progress);
// `facts` is what the task knows of its data set.
void save_run_checkpoint(const std::string& path, const std::string& run, const State& state,
                         const RunProgress& progress, const Facts& facts = {});

// Reads the file, hands what it says to `prepare`, which makes the state that goes with it,
// compares all of it with that state (names, shapes, storages), and only then fills it. Throws an
// Error for a file that is damaged, foreign, or of another run.
using PrepareState = std::function<State&(const StepProgress&)>;
StepProgress load_checkpoint(const std::string& path, const std::string& run, const PrepareState& prepare);
// For evaluation a checkpoint from within a run that has become longer will do, too: its best epoch.
enum class LoadFor : uint8_t { training, evaluation };
RunProgress load_run_checkpoint(const std::string& path, const std::string& run, std::string_view metric,
                                const PrepareState& prepare, LoadFor use = LoadFor::training);

// Whether the file is of a run that is finished; of `run` the first items are enough. A finished
// run that `run` gives more epochs is not. Throws an Error for a file that is damaged, foreign, or
// of another run.
bool checkpoint_finished(const std::string& path, const std::string& run);
// What the file says of its run.
std::string checkpoint_run(const std::string& path);
// Throws an Error that names the first tensor in which the file differs from the state.
void check_tensors(const std::string& path, const State& state);
// Why a finished run was stopped; "" if it was not.
std::string checkpoint_divergence(const std::string& path);

// A tensor of a checkpoint as it is stored; its bytes belong to the file.
struct SavedTensor {
  Storage storage;
  std::span<const uint8_t> codes;
  std::span<const uint32_t> side = {};
};

// A checkpoint without a run around it, for those who use its weights. Throws an Error for a file
// that is damaged or foreign.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);

  uint64_t step() const { return step_; }
  // Files of earlier versions have no facts.
  Facts facts() const;
  // Throws an Error if there is none of this name and shape.
  SavedTensor find(const std::string& name, const Shape& shape) const;

 private:
  const std::string path_;
  const TensorFile file_;
  uint64_t step_ = 0;
};

}  // namespace ulp
