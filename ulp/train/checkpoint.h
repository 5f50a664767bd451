// Where a run stands, in one file: all state tensors, bit for bit, and the counts that go with them. A safetensors file;
// tensors in formats that it knows are readable by others as they are.
#pragma once

#include <cstdint>
#include <string>

#include "ulp/train/state.h"

namespace ulp {

struct RunProgress {
  uint64_t step = 0;         // steps completed
  uint64_t updates = 0;      // of them, those that changed the weights
  uint64_t epochs_done = 0;  // epochs whose evaluation is done too
  // Of the epoch that has begun, so far.
  double epoch_loss = 0;
  uint64_t epoch_correct = 0, epoch_examples = 0;
  double best_test_acc = 0, final_test_acc = 0;
  bool finished = false;

  bool operator==(const RunProgress&) const = default;
};

// Atomic. `model` says whose weights they are (name, width, classes, input): a file of another is refused when loaded.
void save_checkpoint(const std::string& path, const std::string& model, const State& state,
                     const RunProgress& progress);

// Reads the file, compares all of it with the state (names, shapes, storages), and only then changes anything. Throws an Error
// for a file that is damaged, foreign, or of another model.
RunProgress load_checkpoint(const std::string& path, const std::string& model, State& state);

}  // namespace ulp
