// What a run looks at beside its steps: ranges of tensors, promotions, and evaluation.
#include <algorithm>

#include "ulp/run/setup.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

// The worst ones by name, the rest by number: all of them stand in the metrics.
std::string promotion_text(std::span<const Promotion> promotions, uint64_t step, size_t bytes) {
  constexpr size_t kShown = 3;
  std::vector<Promotion> worst(promotions.begin(), promotions.end());
  std::stable_sort(worst.begin(), worst.end(), [](const Promotion& a, const Promotion& b) {
    return a.overflow_ratio > b.overflow_ratio;
  });
  std::string text;
  for (size_t i = 0; i < std::min(kShown, worst.size()); ++i) {
    text += fmt::format("{}{} to {} ({:.2g}% overflowed)", i == 0 ? "" : ", ", worst[i].tensor,
                        storage_name(worst[i].to), 100 * worst[i].overflow_ratio);
  }
  if (worst.size() > kShown) text += fmt::format(" and {} more", worst.size() - kShown);
  return fmt::format("step {}: promoted {}; memory {:.1f} MiB", step, text,
                     static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void Trainer::open_ranges() {
  const Graph& graph = engine_->graph();
  std::vector<RangedTensor> tensors;
  const Assignment& first = engine_->first_assignment();
  for (const CountedTensor& tensor : engine_->counted()) {
    const Storage storage = first.storage_of(tensor.name);
    const TensorId id = graph.find(tensor.name);
    if (is_fp32(storage) || !id) continue;
    ranged_.push_back(id);
    tensors.push_back({tensor.name, tensor.kind, tensor.elements, storage_name(storage),
                       storage_name(first.high_of(tensor.name))});
  }
  if (tensors.empty()) return;
  const RangedModel model{task_->id().input, task_->id().classes};
  ranges_ = std::make_unique<RangeFile>(path("ranges.bin"), model, tensors, progress_.step);
}

RangeRecord Trainer::range_record(const StepReport& report) const {
  RangeRecord record;
  record.step = report.step;
  record.loss = report.loss;
  record.scale = report.scale;
  record.skipped = report.skipped;
  for (const TensorId id : ranged_) {
    const auto at = static_cast<size_t>(id.index);
    record.tensors.push_back(tensor_range(engine_->stats()[at], engine_->elements()[at]));
  }
  return record;
}

void Trainer::promote(std::span<const Promotion> promotions) {
  try {
    stepper_->promote(promotions, progress_);
  } catch (const std::exception&) {
    // More memory than there is. What was trained is not lost; the resumed run promotes after its
    // next step. Weights that were to be stored otherwise may be half-way: there the last
    // checkpoint must do.
    if (!engine_->weights_follow()) save("last.safetensors");
    throw;
  }
  for (const Promotion& promotion : promotions) {
    metrics_->write({{"event", "promote"},
                     {"step", progress_.step},
                     {"tensor", promotion.tensor},
                     {"from", storage_name(promotion.from)},
                     {"to", storage_name(promotion.to)},
                     {"overflow_ratio", promotion.overflow_ratio}});
  }
  observer_.on_note(promotion_text(promotions, progress_.step, engine_->memory().in_use()));
}

bool Trainer::evaluate_all(const std::atomic<bool>* stop, Evaluation& result) {
  test_->seek(0, 0);
  const StepState state = evaluation_state(config_, progress_.step);
  double loss = 0, weight = 0;
  const std::unique_ptr<Meter> own = task_->meter(), fp32 = task_->meter();
  size_t done = 0;
  const bool in_fp32 = task_->evaluates_fp32(), same = engine_->computes_in_fp32();
  for (uint64_t i = 0; i < test_->batches(); ++i) {
    if (stop != nullptr && *stop) return false;
    const FeedBatch& batch = test_->next();
    const StepResult part = engine_->evaluate(state, batch, [&](const Outputs& outputs) {
      own->add(outputs, batch);
      if (in_fp32 && same) fp32->add(outputs, batch);
    });
    if (in_fp32 && !same) {
      engine_->evaluate_fp32(state, batch, [&](const Outputs& outputs) { fp32->add(outputs, batch); });
    }
    loss += part.loss;
    weight += part.weight;
    done += static_cast<size_t>(batch.shape.examples);
    observer_.on_evaluate(done, test_->examples());
  }
  result.loss = loss / weight;
  result.metrics = named(own->values(), Part::test);
  result.classes = own->by_class();
  if (in_fp32) {
    result.metrics_fp32 = named(fp32->values(), Part::test);
    result.classes_fp32 = fp32->by_class();
  }
  return true;
}

Evaluation Trainer::evaluate(const std::string& which) {
  load(path(which + ".safetensors"), LoadFor::evaluation);
  Evaluation result;
  evaluate_all(nullptr, result);
  return result;
}

}  // namespace ulp
