// Engines that classify images, fed with arrays: for tests of what holds for any network.
#pragma once

#include <cstdint>
#include <span>

#include "ulp/models/model.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/classification.h"

namespace ulp {

struct ClassifierOptions : EngineOptions {
  ModelRequest model;  // its batch is that of training
};

struct LabelledImages {
  std::span<const float> images;    // (count, height, width, channels)
  std::span<const int32_t> labels;  // (count)

  FeedBatch feeds() const {
    return {{static_cast<int64_t>(labels.size())}, {feed_of("input", images), feed_of("labels", labels)}, 0};
  }
};

struct Classified : StepResult {
  uint64_t correct = 0;
};

class ClassifierEngine : public Engine {
 public:
  explicit ClassifierEngine(const ClassifierOptions& options) : Engine(with_build(options)) {}

  void plan_training(int64_t examples) { Engine::plan_training({examples}); }
  void plan_evaluation(int64_t examples) { Engine::plan_evaluation({examples}); }

  Classified train(const StepState& step, const LabelledImages& batch, const Verdict& verdict = {},
                   Known known = Known::nothing) {
    return with_correct(
        [&](const OutputReader& read) { return Engine::train(step, batch.feeds(), verdict, known, read); });
  }
  Classified evaluate(const StepState& step, const LabelledImages& batch) {
    return with_correct(
        [&](const OutputReader& read) { return Engine::evaluate(step, batch.feeds(), read); });
  }
  Classified evaluate_fp32(const StepState& step, const LabelledImages& batch) {
    return with_correct(
        [&](const OutputReader& read) { return Engine::evaluate_fp32(step, batch.feeds(), read); });
  }

 private:
  static EngineOptions with_build(const ClassifierOptions& options) {
    EngineOptions made = options;
    made.build = classifier_build(options.model);
    made.batch = {options.model.batch};
    return made;
  }
  template <typename Run>
  static Classified with_correct(const Run& run) {
    Classified result;
    static_cast<StepResult&>(result) = run([&](const Outputs& outputs) {
      result.correct += static_cast<uint64_t>(outputs["accuracy.sums"][1]);
    });
    return result;
  }
};

}  // namespace ulp
