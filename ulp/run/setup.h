// What a configuration means for those who do the work: the data, its loaders, the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/data/dataset.h"
#include "ulp/data/loader.h"
#include "ulp/run/config.h"
#include "ulp/session/engine.h"

namespace ulp {

// Everything that decides a bit, as far as it is chosen, as checkpoints keep it. Where the run and its data lie, and what it
// writes beside, may change.
std::string run_text(const RunConfig& config);
// And what the data decides.
std::string data_text(const ImageSet& set);

DataRequest data_request(const RunConfig& config);
LoaderOptions loader_options(const RunConfig& config, Part part);
EngineOptions engine_options(const RunConfig& config, const ImageSize& image, int64_t classes);
EngineOptions engine_options(const RunConfig& config, const ImageSet& set);

// The parts of that which need no data: how steps are skipped under fused backward, and whether they may be.
EngineOptions::FusedOverflow fused_overflow_of(const RunConfig& config);
std::function<bool(std::span<const CountedTensor>, const Assignment&)> may_skip(const RunConfig& config);

// What a step is told. `updates` is how many were made before it, `lr` its learning rate, `scale` the loss scale.
StepState step_state(const RunConfig& config, uint64_t step, uint64_t updates, double lr, double scale);
// What a machine with one narrow format makes of the optimizer's numbers, where that is worth a warning.
std::vector<std::string> arithmetic_notes(const RunConfig& config);

// Examples in the last batch of an epoch.
int64_t last_batch(size_t examples, int64_t batch);

// Plans for every number of examples that a run will meet, in training and in evaluation.
void plan_run(Engine& engine, const RunConfig& config, size_t train_examples, size_t test_examples);

}  // namespace ulp
