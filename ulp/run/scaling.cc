#include "ulp/run/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ulp {
namespace {

// How many times larger the gradients of the last step could have been: below 1 where one
// overflowed, 0 where one was not finite. Formats that adapt to a tensor's range set no limit.
double gradient_headroom(const Engine& engine) {
  double headroom = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < engine.stats().size(); ++i) {
    const TensorInfo& tensor = engine.graph().tensors()[i];
    const EncodeStats& stats = engine.stats()[i];
    const Storage& storage = engine.training_plan().formats()[i].storage;
    const Plain* plain = std::get_if<Plain>(&storage);
    if (!is_gradient(tensor.kind) || plain == nullptr || is_fp32(storage)) continue;
    if (stats.nan > 0 || std::isinf(stats.amax)) return 0;
    if (stats.amax > 0) headroom = std::min(headroom, double{largest(plain->format)} / double{stats.amax});
  }
  return headroom;
}

// Whether a storage has the exponent range of fp32, as bf16 has.
bool has_fp32_range(const Storage& storage) {
  const Plain* plain = std::get_if<Plain>(&storage);
  return plain != nullptr && plain->format.emin() <= -126 && largest(plain->format) >= 0x1p127f;
}

bool is_s2fp8(const Storage& storage) { return std::holds_alternative<S2fp8>(storage); }

template <typename Is>
bool all_gradients(std::span<const CountedTensor> tensors, const Assignment& assignment, const Is& is) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const CountedTensor& tensor) {
    return !is_gradient(tensor.kind) || is(assignment.storage_of(tensor.name));
  });
}

}  // namespace

LossScale choose_loss_scale(const RunConfig& config, std::span<const CountedTensor> tensors,
                            const Assignment& assignment) {
  if (const std::optional<LossScale> chosen = loss_scale_of(config)) return *chosen;
  if (all_gradients(tensors, assignment, [&](const Storage& storage) {
        return has_fp32_range(storage) || (is_s2fp8(storage) && !config.scales_s2fp8);
      })) {
    return {};
  }
  return parse_loss_scale("dynamic");
}

bool leaves_s2fp8_unscaled(const RunConfig& config, std::span<const CountedTensor> tensors,
                           const Assignment& assignment) {
  return !loss_scale_of(config) && choose_loss_scale(config, tensors, assignment) == LossScale{} &&
         !all_gradients(tensors, assignment, has_fp32_range);
}

LossScale choose_loss_scale(const RunConfig& config, const Engine& engine) {
  return choose_loss_scale(config, engine.counted(), engine.assignment());
}

Engine::Known known_of(const LossScaler& scaler) {
  return scaler.skips() ? Engine::Known::accepts_no_overflow : Engine::Known::accepts;
}

double measure_loss_scale(Engine& engine, BatchStream& batches, uint64_t seed) {
  constexpr uint64_t kBatches = 4;
  constexpr int kTrials = 16;
  // Forward moves the running statistics of batch norms.
  const StateCopy before = engine.state().copy(Kind::statistic);
  double scale = parse_loss_scale("dynamic").initial, fitting = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    double headroom = std::numeric_limits<double>::infinity();
    batches.seek(0, 0);
    for (uint64_t i = 0; i < std::min(kBatches, batches.batches()); ++i) {
      const FeedBatch& batch = batches.next();
      StepState state;
      state.seed = seed;
      state.loss_scale = static_cast<float>(scale);
      engine.train(state, batch, [](auto&&...) { return false; });
      headroom = std::min(headroom, gradient_headroom(engine));
      engine.state().restore(before);
    }
    // Nothing that could overflow needs no scale.
    if (std::isinf(headroom)) return 1;
    if (headroom >= 1) fitting = std::max(fitting, scale);
    const double next = next_trial_scale(scale, headroom);
    if (next == scale) return scale;
    scale = next;
  }
  // No end was found; of what was tried, what fitted.
  return fitting > 0 ? fitting : LossScaler::kLowest;
}

}  // namespace ulp
