#include "ulp/run/predict.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/models/model.h"
#include "ulp/precision/sensitivities.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

// Numbers between single spaces.
std::vector<float> numbers(const Facts& facts, const std::string& name) {
  std::vector<float> values;
  const auto found = facts.find(name);
  const std::string text = found == facts.end() ? "" : found->second;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const auto [rest, error] = std::from_chars(at, end, values.emplace_back());
    if (error != std::errc{}) fail("checkpoint", "'{}' is no list of numbers, as {} should be", text, name);
    at = rest + 1;
  }
  return values;
}

TaskOptions with_scores(const RunConfig& config) {
  TaskOptions options = task_options(config);
  options.scores = true;
  options.resident = false;  // pictures are fed
  return options;
}

std::vector<double> softmax(const std::vector<float>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float score : scores) sum += shares.emplace_back(std::exp(double{score} - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

size_t Prediction::best() const {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

Predictor::Predictor(const SavedRun& run, size_t images, const std::string& device)
    : config_(with_older_defaults(run.config, run.checkpoint)) {
  if (images == 0) throw std::logic_error("a prediction of no images");
  if (config_.threads > 0) set_thread_count(static_cast<int>(config_.threads));
  start_threads();
  facts_ = facts_of(run, CheckpointFile(run.checkpoint));
  task_ = task_without_data(with_scores(config_), facts_);
  scores_ = task_->scores();
  if (scores_.empty()) {
    fail("predict", "{} is a run of the task {}: only networks that put images into classes predict",
         config_.out, config_.task);
  }
  mean_ = numbers(facts_, "mean");
  deviation_ = numbers(facts_, "deviation");
  const std::vector<float> border = numbers(facts_, "border");
  const ImageSize size = parse_image_size(task_->id().input);
  form_ = {static_cast<size_t>(size.height), static_cast<size_t>(size.width),
           static_cast<size_t>(size.channels), 0};
  const float widest = static_cast<float>(std::min(form_.height, form_.width) - 1) / 2;
  if (mean_.size() != form_.channels || deviation_.size() != form_.channels || border.size() != 1 ||
      !(border[0] >= 0 && border[0] <= widest)) {
    fail("checkpoint", "{} does not say how its images were normalised", run.checkpoint);
  }
  form_.border = static_cast<size_t>(border[0]);
  RunConfig here = config_;
  if (!device.empty() && device != here.device) {
    here.device = device;
    here.kernels.clear();  // those of the other device
  }
  EngineOptions options = engine_options(here, *task_);
  options.sensitivities = [&] { return load_sensitivities(config_.out + "/sensitivity.json").errors; };
  engine_ = std::make_unique<Engine>(options);
  stepper_ = std::make_unique<Stepper>(here, *engine_, 1);
  // No more at a time than training has, so that prediction does not decide the memory.
  const int64_t most = std::min<int64_t>(config_.batch / config_.grad_accum, static_cast<int64_t>(images));
  const auto rest = static_cast<int64_t>(images) % most;
  piece_ = static_cast<size_t>(most);
  engine_->plan_evaluation({most});
  if (rest > 0) engine_->plan_evaluation({rest});
  engine_->allocate();
  const std::string identity = run_identity(config_, *task_, *engine_);
  const std::string metric(task_->metrics().front().name);
  step_ =
      load_run_checkpoint(
          run.checkpoint, identity, metric,
          [&](const StepProgress& progress) -> State& { return stepper_->prepare(progress, run.checkpoint); },
          LoadFor::evaluation)
          .step;
}

Predictor::~Predictor() = default;

std::string Predictor::class_name(size_t label) const {
  const auto found = facts_.find(fmt::format("class {}", label));
  return found == facts_.end() ? std::to_string(label) : found->second;
}

std::vector<Prediction> Predictor::predict(const std::vector<std::string>& files, bool fp32) {
  const size_t classes = static_cast<size_t>(task_->id().classes);
  std::vector<Prediction> all;
  for (size_t begin = 0; begin < files.size(); begin += piece_) {
    const size_t count = std::min(piece_, files.size() - begin);
    std::vector<float> images;
    for (size_t i = 0; i < count; ++i) append(files[begin + i], images);
    const std::vector<int32_t> labels(count);  // of no meaning, but the graph has them
    FeedBatch batch;
    batch.shape = {static_cast<int64_t>(count)};
    batch.feeds = {feed_of("input", images), feed_of("labels", labels)};
    const OutputReader read = [&](const Outputs& outputs) {
      const std::span<const float> scores = outputs[scores_];
      for (int64_t i = 0; i < outputs.count(); ++i) {
        const std::span<const float> own = scores.subspan(static_cast<size_t>(i) * classes, classes);
        Prediction made{{own.begin(), own.end()}, {}};
        made.probabilities = softmax(made.scores);
        all.push_back(std::move(made));
      }
    };
    const StepState state = evaluation_state(config_, step_);
    fp32 ? engine_->evaluate_fp32(state, batch, read) : engine_->evaluate(state, batch, read);
  }
  return all;
}

void Predictor::append(const std::string& file, std::vector<float>& images) const {
  const std::vector<uint8_t> bytes = read_example(file, form_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t c = i % form_.channels;
    images.push_back(normalised(bytes[i], make_normalise(mean_[c], deviation_[c])));
  }
}

}  // namespace ulp
