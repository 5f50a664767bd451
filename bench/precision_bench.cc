// What narrow formats cost in time: steps under several policies beside the step in fp32, and the
// share of what promotion and the record of ranges add. All measured in one run, in turns, since
// machines are shared; ratios count.
//
//   precision_bench [MODEL [BATCH [CHANNELS]]]
//
// What counting overflows and underflows costs is the ratio of two builds: this one and one configured with
// -DULP_COUNT_RANGES=OFF, which counts nothing and serves for nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "ulp/base/parallel.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/ranges.h"
#include "ulp/runtime/init.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/classification.h"

namespace ulp {
namespace {

constexpr int kRounds = 15;
constexpr const char* kPolicies[] = {"fp32", "amp:bf16", "size:0.5", "size:1", "uniform", "op"};

struct Measured {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RangeFile> file;
  std::vector<TensorId> ranged;
  std::vector<double> steps, checks, replans;
};

Measured prepare(const EngineOptions& base, const char* policy, const std::string& folder) {
  EngineOptions options = base;
  options.precision.policy = policy;
  Measured made;
  made.engine = std::make_unique<Engine>(options);
  made.engine->allocate();
  std::vector<RangedTensor> tensors;
  for (const CountedTensor& tensor : made.engine->counted()) {
    const Storage storage = made.engine->assignment().storage_of(tensor.name);
    const TensorId id = made.engine->graph().find(tensor.name);
    if (is_fp32(storage) || !id) continue;
    made.ranged.push_back(id);
    tensors.push_back({tensor.name, tensor.kind, tensor.elements, storage_name(storage), ""});
  }
  if (!tensors.empty()) {
    made.file = std::make_unique<RangeFile>(folder + "/" + policy, RangedModel{}, tensors, 0);
  }
  return made;
}

// What the trainer does after a step.
void check_ranges(Measured& measured, uint64_t step) {
  const Engine& engine = *measured.engine;
  overflowing(engine.graph(), engine.stats(), engine.elements(), 0.01, engine.assignment());
  if (!measured.file) return;
  RangeRecord record;
  record.step = step;
  for (const TensorId id : measured.ranged) {
    const auto at = static_cast<size_t>(id.index);
    record.tensors.push_back(tensor_range(engine.stats()[at], engine.elements()[at]));
  }
  measured.file->write(record, kRounds, false);
}

void measure_policy(const std::string& model, int64_t batch, int64_t channels) {
  EngineOptions options;
  ModelRequest wanted;
  wanted.name = model;
  wanted.image.channels = channels;
  options.build = classifier_build(wanted);
  options.batch = {batch};
  options.optimizer.momentum = 0.9;
  options.optimizer.weight_decay = 5e-4;
  const std::string folder =
      std::filesystem::temp_directory_path() / fmt::format("precision_bench_{}", now());
  std::filesystem::create_directory(folder);
  std::vector<Measured> all;
  for (const char* policy : kPolicies) all.push_back(prepare(options, policy, folder));
  const ImageSize image = wanted.image;
  std::vector<float> images(static_cast<size_t>(batch * image.channels * image.height * image.width));
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  fill_initial(Init::normal(1), 9, 1, images);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  const FeedBatch fed{{batch}, {feed_of("input", images), feed_of("labels", labels)}};
  for (int round = 0; round <= kRounds; ++round) {
    for (Measured& one : all) {
      StepState state;
      state.step = static_cast<uint32_t>(round);
      state.loss_scale = 1024;
      state.update = update_scalars(options.optimizer, static_cast<uint64_t>(round), 0.01, 1.0 / 1024);
      const double begin = now();
      one.engine->train(state, fed);
      const double trained = now();
      check_ranges(one, static_cast<uint64_t>(round) + 1);
      const double checked = now();
      if (round == 0) continue;
      one.steps.push_back(trained - begin);
      one.checks.push_back(checked - trained);
    }
  }
  for (Measured& one : all) {
    const double begin = now();
    one.engine->set_assignment(one.engine->assignment());
    one.replans.push_back(now() - begin);
  }
  std::filesystem::remove_all(folder);
  const double fp32 = median(all[0].steps);
  fmt::print("{}, batch {}, {} threads, medians of {} steps in turns\n", model, batch, thread_count(),
             kRounds);
  fmt::print("{:<10}{:>12}{:>16}{:>26}{:>14}{:>12}\n", "policy", "step", "against fp32",
             "promotion and ranges", "peak", "a new plan");
  for (size_t i = 0; i < all.size(); ++i) {
    const double step = median(all[i].steps), check = median(all[i].checks);
    fmt::print("{:<10}{:>9.1f} ms{:>16.2f}{:>13.3f} ms = {:>5.2f}%{:>10.1f} MiB{:>9.0f} ms\n", kPolicies[i],
               1e3 * step, step / fp32, 1e3 * check, 100 * check / step,
               static_cast<double>(all[i].engine->planned_peak_bytes()) / (1 << 20),
               1e3 * median(all[i].replans));
  }
}

}  // namespace
}  // namespace ulp

int main(int argc, char** argv) { return ulp::run_bench(argc, argv, ulp::measure_policy); }
