#include "ulp/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/optim/schedule.h"
#include "ulp/train/process.h"

namespace ulp {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Where evaluation rounds stochastically, its words are not those of the next step.
constexpr uint64_t kEvaluationSeed = 0x6576616C75617465u;

// Everything that decides a bit, as far as it is chosen. Where the run and its data lie, and what it writes beside, may
// change.
std::string run_text(const RunConfig& config) {
  constexpr std::array<std::string_view, 5> free = {"out", "data_dir", "threads", "checkpoint_every",
                                                    "tensorboard"};
  std::string text;
  for (const ConfigField& field : config_fields()) {
    if (std::find(free.begin(), free.end(), field.name) != free.end()) continue;
    // Of the two that end a run one holds.
    if (field.name == (config.steps > 0 ? "epochs" : "steps")) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", field.name, field.get(config));
  }
  return text;
}

// And what the data decides.
std::string data_text(const ImageSet& set) {
  return fmt::format("; classes {}; input {}x{}x{}", set.classes, set.channels, set.height, set.width);
}

DataRequest data_request(const RunConfig& config) {
  DataRequest request;
  request.dir = config.data_dir;
  if (!config.image_shape.empty()) parse_image_shape(config.image_shape, request);
  request.seed = config.seed;
  return request;
}

LoaderOptions loader_options(const RunConfig& config, Part part) {
  LoaderOptions options;
  options.batch = config.batch;
  options.seed = config.seed;
  if (part == Part::test) {
    // No more examples at a time than training has, so that evaluation does not decide the memory.
    options.batch = config.batch / config.grad_accum;
    options.shuffle = false;
    return options;
  }
  if (config.subset > 0) options.subset = config.subset;
  const AugmentChoice augmentation = augment_of(config);
  options.padding = augmentation.padding;
  options.mirror = augmentation.mirror;
  return options;
}

EngineOptions engine_options(const RunConfig& config, const ImageSet& set) {
  EngineOptions options;
  options.model.name = config.model;
  options.model.width = config.width;
  options.model.batch = config.batch;
  options.model.image = {static_cast<int64_t>(set.channels), static_cast<int64_t>(set.height),
                         static_cast<int64_t>(set.width)};
  options.model.classes = static_cast<int64_t>(set.classes);
  options.model.label_smoothing = config.label_smoothing;
  options.optimizer = optimizer_config(config);
  options.policy = config.policy;
  options.device = config.device;
  options.kernels = config.kernels;
  options.workspace = static_cast<size_t>(config.workspace);
  options.micro_batches = config.grad_accum;
  options.clip_norm = config.clip_norm;
  options.seed = config.seed;
  return options;
}

int64_t last_batch(size_t examples, int64_t batch) {
  const auto rest = static_cast<int64_t>(examples) % batch;
  return rest == 0 ? batch : rest;
}

// What the run says, or what its formats need: gradients that have fewer bits than fp32 get a dynamic scale.
LossScale choose_loss_scale(const RunConfig& config, const Engine& engine) {
  if (const std::optional<LossScale> chosen = loss_scale_of(config)) return *chosen;
  for (const CountedTensor& tensor : engine.counted()) {
    const bool gradient = tensor.kind == Kind::activation_grad || tensor.kind == Kind::weight_grad;
    if (gradient && !is_fp32(engine.assignment().storage_of(tensor.name))) return parse_loss_scale("dynamic");
  }
  return {};
}

// Whether a gradient did not fit in its format.
bool gradients_overflowed(const Graph& graph, std::span<const EncodeStats> stats) {
  for (size_t i = 0; i < stats.size(); ++i) {
    const Kind kind = graph.tensors()[i].kind;
    if (kind != Kind::activation_grad && kind != Kind::weight_grad) continue;
    if (stats[i].overflow > 0 || stats[i].nan > 0) return true;
  }
  return false;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Observer& observer) : config_(config), observer_(observer) {
  check(config);
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  set_ = load_dataset(config.data, data_request(config));
  train_ = std::make_unique<Loader>(set_, Part::train, loader_options(config, Part::train));
  test_ = std::make_unique<Loader>(set_, Part::test, loader_options(config, Part::test));
  total_steps_ = total_steps(config, train_->batches());
  run_ = run_text(config) + data_text(set_);
  engine_ = std::make_unique<Engine>(engine_options(config, set_));
  engine_->plan_training(last_batch(train_->examples(), config.batch));
  scaler_ = std::make_unique<LossScaler>(choose_loss_scale(config, *engine_), train_->batches());
  progress_.loss_scale = scaler_->state();
  const int64_t test_batch =
      std::min(config.batch / config.grad_accum, static_cast<int64_t>(test_->examples()));
  engine_->plan_evaluation(test_batch);
  engine_->plan_evaluation(last_batch(test_->examples(), test_batch));
  rss_forgotten_ = forget_peak_resident();
  rss_start_ = resident_bytes();
  engine_->allocate();
}

Trainer::~Trainer() = default;

std::string Trainer::path(std::string_view file) const { return config_.out + "/" + std::string(file); }

void Trainer::start(bool resume) {
  const std::string last = path("last.safetensors");
  // One that cannot be looked at is not one that is not there: the run would begin again.
  std::error_code error;
  const bool saved = std::filesystem::exists(last, error);
  if (error) fail("train", "cannot read {}: {}", last, error.message());
  if (resume && saved) progress_ = load_checkpoint(last, run_, engine_->state());
  if (progress_.finished) return;
  scaler_->restore(progress_.loss_scale);
  cut_metrics(path("metrics.jsonl"), progress_.step, progress_.epochs_done);
  metrics_ = std::make_unique<MetricsFile>(path("metrics.jsonl"));
  if (config_.tensorboard) events_ = std::make_unique<EventWriter>(config_.out);
  const uint64_t batches = train_->batches();
  train_->seek(static_cast<uint32_t>(progress_.step / batches), progress_.step % batches);

  StartReport report;
  report.model = config_.model;
  report.data = config_.data;
  report.out = config_.out;
  report.parameters = engine_->training_plan().graph().parameters();
  report.train_examples = train_->examples();
  report.test_examples = test_->examples();
  report.first_step = progress_.step;
  report.total_steps = total_steps_;
  report.steps_per_epoch = batches;
  report.bytes = engine_->planned_bytes();
  report.threads = thread_count();
  observer_.on_start(report);
  if (const unsigned cores = std::thread::hardware_concurrency();
      cores > 0 && report.threads > static_cast<int>(cores)) {
    observer_.on_note(fmt::format("{} threads on {} cores wait for each other: --threads {} is faster",
                                  report.threads, cores, cores));
  }
}

Outcome Trainer::run(bool resume, const std::atomic<bool>& stop) {
  start(resume);
  if (progress_.finished) return Outcome::was_finished;
  started_ = epoch_started_ = now();
  const uint64_t batches = train_->batches();
  while (true) {
    // An epoch ends after its last step, also where the run stopped between the two.
    const bool complete = progress_.step > 0 && progress_.step > progress_.epochs_done * batches &&
                          (progress_.step % batches == 0 || progress_.step == total_steps_);
    if (complete && !end_epoch(stop)) return Outcome::interrupted;
    if (progress_.step == total_steps_) break;
    if (!step(stop)) return Outcome::interrupted;
  }
  finish();
  return Outcome::finished;
}

// False where it was stopped.
bool Trainer::step(const std::atomic<bool>& stop) {
  if (stop) {
    save("last.safetensors");
    return false;
  }
  const double begin = now();
  const Batch& batch = train_->next();
  const double lr = rate(schedule_of(config_), optimizer_config(config_).lr, progress_.step,
                         train_->batches(), total_steps_);
  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(progress_.step);
  const double clip = config_.clip_value > 0 ? config_.clip_value : std::numeric_limits<double>::infinity();
  const double scale = scaler_->scale();
  state.loss_scale = static_cast<float>(scale);
  state.update = update_scalars(optimizer_config(config_), progress_.updates, lr, 1 / scale, clip);
  const auto verdict = [&](const Graph& graph, std::span<const EncodeStats> stats) {
    return scaler_->accept(gradients_overflowed(graph, stats));
  };
  const BatchResult result = engine_->train(state, {batch.images, batch.labels}, verdict);
  const size_t count = batch.count();
  ++progress_.step;
  progress_.updates += result.updated ? 1 : 0;
  progress_.loss_scale = scaler_->state();
  progress_.epoch_loss += result.loss;
  progress_.epoch_correct += result.correct;
  progress_.epoch_examples += count;
  epoch_examples_here_ += count;
  const double here = static_cast<double>(count) / std::max(now() - begin, 1e-9);
  rate_ = rate_ == 0 ? here : 0.9 * rate_ + 0.1 * here;
  if (!rss_forgotten_) rss_peak_ = std::max(rss_peak_, resident_bytes());

  StepReport report;
  report.step = progress_.step;
  report.total_steps = total_steps_;
  report.steps_per_epoch = train_->batches();
  report.epoch = (progress_.step - 1) / report.steps_per_epoch + 1;
  report.step_in_epoch = (progress_.step - 1) % report.steps_per_epoch + 1;
  report.loss = result.loss / static_cast<double>(count);
  report.lr = lr;
  report.scale = scale;
  report.skipped = !result.updated;
  report.epoch_loss = progress_.epoch_loss / static_cast<double>(progress_.epoch_examples);
  report.epoch_accuracy =
      static_cast<double>(progress_.epoch_correct) / static_cast<double>(progress_.epoch_examples);
  report.examples_per_second = rate_;
  report.memory_bytes = engine_->memory().in_use();
  metrics_->write({{"event", "step"},
                   {"step", report.step},
                   {"loss", report.loss},
                   {"lr", report.lr},
                   {"scale", report.scale},
                   {"skipped", report.skipped}});
  if (events_) {
    events_->scalar("train/loss", report.step, static_cast<float>(report.loss), wall_time());
    events_->scalar("train/lr", report.step, static_cast<float>(report.lr), wall_time());
  }
  observer_.on_step(report);
  if (!std::isfinite(report.loss)) {
    observer_.on_note(fmt::format("the loss of step {} is {}", report.step, report.loss));
  }
  if (scaler_->stuck()) {
    save("last.safetensors");
    fail("train",
         "the gradients of {} steps in a row overflowed, the last at a loss scale of {}: choose a lower "
         "--lr, a smaller "
         "--loss-scale, or formats with more range",
         LossScaler::kMaxSkips, scale);
  }
  const bool epoch_ends = progress_.step % train_->batches() == 0 || progress_.step == total_steps_;
  if (config_.checkpoint_every > 0 && progress_.step % static_cast<uint64_t>(config_.checkpoint_every) == 0 &&
      !epoch_ends) {
    save("last.safetensors");
  }
  return true;
}

bool Trainer::end_epoch(const std::atomic<bool>& stop) {
  const double trained = now() - epoch_started_;
  Evaluation evaluation;
  if (!evaluate_all(&stop, evaluation)) {
    save("last.safetensors");
    return false;
  }
  EpochReport report;
  report.epoch = progress_.epochs_done + 1;
  report.step = progress_.step;
  report.train_loss = progress_.epoch_loss / static_cast<double>(progress_.epoch_examples);
  report.train_acc =
      static_cast<double>(progress_.epoch_correct) / static_cast<double>(progress_.epoch_examples);
  report.test_loss = evaluation.loss;
  report.test_acc = evaluation.accuracy;
  report.low_ratio = engine_->low_ratio();
  report.peak_bytes = engine_->memory().peak();
  report.seconds = now() - epoch_started_;
  report.examples_per_second = static_cast<double>(epoch_examples_here_) / std::max(trained, 1e-9);
  report.best = report.test_acc > progress_.best_test_acc || progress_.epochs_done == 0;
  metrics_->write({{"event", "epoch"},
                   {"epoch", report.epoch},
                   {"train_loss", report.train_loss},
                   {"train_acc", report.train_acc},
                   {"test_loss", report.test_loss},
                   {"test_acc", report.test_acc},
                   {"low_ratio", report.low_ratio},
                   {"peak_bytes", report.peak_bytes},
                   {"seconds", report.seconds},
                   {"examples_per_second", report.examples_per_second}});
  if (events_) {
    events_->scalar("train/accuracy", report.step, static_cast<float>(report.train_acc), wall_time());
    events_->scalar("test/loss", report.step, static_cast<float>(report.test_loss), wall_time());
    events_->scalar("test/accuracy", report.step, static_cast<float>(report.test_acc), wall_time());
    events_->flush();
  }
  progress_.epochs_done = report.epoch;
  progress_.epoch_loss = 0;
  progress_.epoch_correct = progress_.epoch_examples = 0;
  progress_.final_test_acc = report.test_acc;
  progress_.best_test_acc = report.best ? report.test_acc : progress_.best_test_acc;
  progress_.finished = progress_.step == total_steps_;
  observer_.on_epoch(report);
  if (report.best) save("best.safetensors");
  // The last one after all else of the epoch: a run killed before it does the epoch's end again.
  if (!progress_.finished) save("last.safetensors");
  epoch_started_ = now();
  epoch_examples_here_ = 0;
  return true;
}

void Trainer::finish() {
  if (rss_forgotten_) rss_peak_ = peak_resident_bytes();
  DoneReport report;
  report.best_test_acc = progress_.best_test_acc;
  report.final_test_acc = progress_.final_test_acc;
  report.peak_bytes = engine_->memory().peak();
  report.planned_peak_bytes = engine_->planned_peak_bytes();
  report.rss_start_bytes = rss_start_;
  report.rss_peak_bytes = rss_peak_;
  report.seconds = now() - started_;
  metrics_->write({{"event", "done"},
                   {"best_test_acc", report.best_test_acc},
                   {"final_test_acc", report.final_test_acc},
                   {"peak_bytes", report.peak_bytes},
                   {"planned_peak_bytes", report.planned_peak_bytes},
                   {"rss_start_bytes", report.rss_start_bytes},
                   {"rss_peak_bytes", report.rss_peak_bytes},
                   {"seconds", report.seconds}});
  // Only now is the run finished: killed before, it writes the line again.
  progress_.finished = true;
  save("last.safetensors");
  observer_.on_done(report);
}

bool Trainer::evaluate_all(const std::atomic<bool>* stop, Evaluation& result) {
  test_->seek(0, 0);
  StepState state;
  state.seed = config_.seed ^ kEvaluationSeed;
  state.step = static_cast<uint32_t>(progress_.step);
  double loss = 0;
  uint64_t correct = 0;
  size_t done = 0;
  for (uint64_t i = 0; i < test_->batches(); ++i) {
    if (stop != nullptr && *stop) return false;
    const Batch& batch = test_->next();
    const BatchResult part = engine_->evaluate(state, {batch.images, batch.labels});
    loss += part.loss;
    correct += part.correct;
    done += batch.count();
    observer_.on_evaluate(done, test_->examples());
  }
  result.loss = loss / static_cast<double>(test_->examples());
  result.accuracy = static_cast<double>(correct) / static_cast<double>(test_->examples());
  return true;
}

Evaluation Trainer::evaluate(const std::string& which) {
  progress_ = load_checkpoint(path(which + ".safetensors"), run_, engine_->state());
  Evaluation result;
  evaluate_all(nullptr, result);
  return result;
}

void Trainer::save(std::string_view file) {
  save_checkpoint(path(file), run_, engine_->state(), progress_);
  observer_.on_checkpoint(path(file), progress_.step);
}

Outcome train(const RunConfig& config, bool resume, Observer& observer, const std::atomic<bool>& stop) {
  check(config);
  namespace fs = std::filesystem;
  const fs::path folder(config.out);
  if (!resume) {
    std::error_code error;
    for (const char* file : {"last.safetensors", "metrics.jsonl"}) {
      // A path that leads nowhere fails below, where the folder is made.
      if (fs::exists(folder / file, error)) {
        fail("train",
             "{} holds a run already: go on with it by --resume {}, or name another folder with --out",
             config.out, config.out);
      }
    }
    fs::create_directories(folder, error);
    if (error) fail("train", "cannot make the folder {}: {}", config.out, error.message());
    const std::string text = config_text(config);
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    write_file_atomically((folder / "config.toml").string(), {&bytes, 1});
  }
  const std::string file = (folder / "config.toml").string(), last = (folder / "last.safetensors").string();
  const FileLock lock(file);
  if (!lock.held()) fail("train", "another process is training in {}: stop it first", config.out);
  // Asked before the data is looked for, which may be gone by now.
  if (std::error_code error; resume && fs::exists(last, error) && checkpoint_finished(last, run_text(config)))
    return Outcome::was_finished;
  Trainer trainer(config, observer);
  return trainer.run(resume, stop);
}

}  // namespace ulp
