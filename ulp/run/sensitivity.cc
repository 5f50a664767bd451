#include "ulp/run/sensitivity.h"

#include <cmath>
#include <limits>

#include "ulp/backend/found_inf.h"
#include "ulp/base/error.h"
#include "ulp/run/scaling.h"

namespace ulp {
namespace {

double squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return sum;
}

double relative_error(std::span<const float> values, std::span<const float> reference) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = double{values[i]} - double{reference[i]};
    sum += difference * difference;
  }
  const double error = sum / squares(reference);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

const SensitivityOptions& checked(const SensitivityOptions& options) {
  if (options.batches < 1) {
    fail("sensitivity", "gradients must be compared on 1 batch or more, got {}", options.batches);
  }
  if (options.warmup < 0) {
    fail("sensitivity", "there must be 0 steps or more before the measurement, got {}", options.warmup);
  }
  return options;
}

std::string candidates_text(const RunConfig& config) {
  std::string text = config.candidates;
  for (const char* name : {"hi", "lo", "lo_grad", "weight_grad"}) {
    const std::string value = find_config_field(name).get(config);
    if (!value.empty()) text += fmt::format(" {}={}", name, value);
  }
  return text;
}

}  // namespace

GradientErrors::GradientErrors(const RunConfig& config, const LearningTask& task,
                               const SensitivityOptions& options)
    : options_(checked(options)), pilot_(config, task, {.keep_gradients = true}) {}

void GradientErrors::prepare(const std::function<void()>& progress) {
  for (int64_t i = 0; i < options_.warmup; ++i) {
    if (!pilot_.train(1)) {
      fail("sensitivity",
           "with every group high the gradients of {} steps in a row overflowed: choose a lower --lr, a "
           "smaller "
           "--loss-scale, or high formats with more range",
           LossScaler::kMaxSkips);
    }
    if (progress) progress();
  }
  const Graph& graph = pilot_.engine().graph();
  for (const auto& [name, slot] : pilot_.engine().state().slots()) {
    if (slot.kind == Kind::weight && graph[graph.find(name)].grad) weights_.push_back(name);
  }
  if (pilot_.engine().weights_follow()) {
    kept_weights_ = pilot_.engine().state().copy(Kind::weight);
  }
  keep_batches();
  choose_scale();
  for (KeptBatch& batch : batches_) {
    compute(batch);
    batch.gradient = gradient();
    const double norm = squares(batch.gradient);
    if (!std::isfinite(norm) || norm == 0) {
      fail("sensitivity",
           "with every group high the gradients after {} steps {}: there is nothing to compare with; choose "
           "a lower --lr "
           "or other high formats",
           options_.warmup, norm == 0 ? "are all zero" : "are not finite");
    }
    if (progress) progress();
  }
}

// The batches that the run would train on next.
void GradientErrors::keep_batches() {
  for (int64_t i = 0; i < options_.batches; ++i) {
    KeptBatch& kept = batches_.emplace_back();
    kept.batch = pilot_.batches().next();
    for (Feed& feed : kept.batch.feeds) {
      const auto* from = static_cast<const uint8_t*>(feed.values);
      feed.values = kept.arrays.emplace_back(from, from + feed.elements * element_bytes(feed.element)).data();
    }
  }
}

void GradientErrors::choose_scale() {
  const LossScale kind = choose_loss_scale(pilot_.config(), pilot_.engine());
  scale_ = pilot_.scaler().scale();
  if (!kind.adapts()) return;
  for (size_t fine = 0; fine < batches_.size() && scale_ > LossScaler::kLowest;) {
    if (compute(batches_[fine])) {
      ++fine;
    } else {
      scale_ /= 2;
      fine = 0;
    }
  }
}

bool GradientErrors::compute(const KeptBatch& batch) {
  Engine& engine = pilot_.engine();
  // Forward moves the running statistics of batch norms.
  const StateCopy before = engine.state().copy(Kind::statistic);
  StepState state;
  state.seed = pilot_.config().seed;
  state.step = static_cast<uint32_t>(pilot_.step() + static_cast<uint64_t>(&batch - batches_.data()));
  state.loss_scale = static_cast<float>(scale_);
  bool fine = true;
  engine.train(state, batch.batch, [&](double loss, const Graph& graph, std::span<const EncodeStats> stats) {
    fine = !gradients_overflowed(loss, graph, stats);
    return false;  // the weights stay
  });
  engine.state().restore(before);
  return fine;
}

std::vector<float> GradientErrors::gradient() {
  std::vector<float> all;
  for (const std::string& name : weights_) {
    const std::vector<float> part = pilot_.engine().gradient(name);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

double GradientErrors::of(const std::vector<int>& groups) {
  Engine& engine = pilot_.engine();
  if (!kept_weights_.empty()) {
    // Restores the weights that the last choice rounded.
    engine.set_assignment(pilot_.low({}));
    engine.state().restore(kept_weights_);
  }
  engine.set_assignment(pilot_.low(groups));
  double sum = 0;
  for (const KeptBatch& batch : batches_) {
    compute(batch);
    sum += relative_error(gradient(), batch.gradient);
  }
  return sum / static_cast<double>(batches_.size());
}

Sensitivities measure_sensitivities(const RunConfig& config, const LearningTask& task,
                                    const SensitivityOptions& options, const SensitivityProgress& progress) {
  GradientErrors errors(config, task, options);
  const NetworkId id = task.id();
  Sensitivities made;
  made.network = id.items();
  made.candidates = candidates_text(config);
  made.elements = group_elements(errors.pilot().engine().counted());
  const auto each = static_cast<size_t>(options.batches);
  const size_t all = static_cast<size_t>(options.warmup) + each * (1 + made.elements.size());
  size_t done = 0;
  const auto tell = [&](size_t more) {
    done += more;
    if (progress) progress(done, all);
  };
  errors.prepare([&] { tell(1); });
  for (size_t i = 0; i < made.elements.size(); ++i) {
    made.errors.push_back(errors.of({static_cast<int>(i)}));
    tell(each);
  }
  return made;
}

}  // namespace ulp
