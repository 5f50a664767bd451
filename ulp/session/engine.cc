#include "ulp/session/engine.h"

#include <algorithm>
#include <stdexcept>

#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/update.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/sensitivities.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

// A graph does not know its model, so the policy itself can only count groups.
void check_sensitivity_file(const ModelRequest& model, const std::string& policy) {
  const std::string file = sensitivity_file(policy);
  if (file.empty()) return;
  const Sensitivities measured = load_sensitivities(file);
  const std::string input =
      fmt::format("{}x{}x{}", model.image.channels, model.image.height, model.image.width);
  if (measured.model.empty()) return;
  if (measured.model == model.name && measured.width == model.width && measured.input == input &&
      measured.classes == model.classes)
    return;
  fail("precision",
       "sensitivity file '{}' is of {} at width {} ({}, {} classes), this is {} at width {} ({}, {} classes)",
       file, measured.model, measured.width, measured.input, measured.classes, model.name, model.width, input,
       model.classes);
}

void widen(const Graph& graph, std::vector<TensorFormat>& formats) {
  for (size_t i = 0; i < formats.size(); ++i) {
    const TensorInfo& own = graph[graph.format_of({static_cast<int32_t>(i)})];
    formats[i].operand.reset();
    if (!is_state(own.kind)) formats[i].storage = parse_storage("fp32");
  }
}

// Whether products read the codes that the update wrote.
bool read_as_stored(const TensorFormat& format) {
  const Split* split = std::get_if<Split>(&format.storage);
  return !format.operand || (split != nullptr && *format.operand == Storage(Plain{split->high}));
}

}  // namespace

Engine::Engine(const EngineOptions& options)
    : options_(options),
      backend_(find_backend(options.device)),
      memory_(std::make_unique<Memory>(device_of(backend_))),
      state_(std::make_unique<State>(*memory_)) {
  options.optimizer.check();
  if (options.model.batch < 1) fail("train", "the batch must be positive, got {}", options.model.batch);
  if (options.micro_batches < 1 || options.model.batch % options.micro_batches != 0) {
    fail("train", "{} micro-batches do not divide a batch of {}", options.micro_batches, options.model.batch);
  }
  // The papers' groups are those of the whole batch, so it alone decides the assignment.
  ClassifierGraph whole = build_classifier(options.model, Mode::training);
  differentiate(whole.graph, whole.loss);
  counted_ = counted_tensors(whole.graph);
  parameters_ = choose_parameters(whole.graph, options.optimizer, options.precision.updates);
  first_assignment_ = assignment_ = choose_assignment(whole.graph);
  settle_assigned(parameters_, options.precision.updates, assignment_);
  check_stored(parameters_, options.precision.updates, assignment_);
  waiting_ = waiting_for(assignment_);
  plan_training(options.model.batch);
}

Assignment Engine::choose_assignment(const Graph& whole) const {
  const PrecisionOptions& precision = options_.precision;
  PolicyOptions options;
  options.candidates = precision.candidates;
  options.keep_first_last = precision.keep_first_last;
  // Plans include the formats that are given to single tensors.
  options.peak = [&](Assignment assignment) {
    apply_overrides(precision.overrides, counted_, precision.candidates, assignment);
    return peak_of(assignment);
  };
  options.sensitivities = options_.sensitivities;
  check_sensitivity_file(options_.model, precision.policy);
  Assignment chosen = parse_policy(precision.policy, options)->assign(whole);
  apply_overrides(precision.overrides, counted_, precision.candidates, chosen);
  return chosen;
}

// Loss scales are chosen by the first assignment, and promotion does not change them.
Engine::Waiting Engine::waiting_for(const Assignment& assignment) const {
  if (waiting_) return *waiting_;
  if (!options_.fused_backward) return {};
  const bool checks_inf = options_.may_skip && options_.may_skip(counted_, assignment);
  const bool snapshot = options_.fused_overflow_of == EngineOptions::FusedOverflow::snapshot;
  if (snapshot && options_.clip_norm > 0) {
    fail("train",
         "a snapshot cannot serve clipping by norm, which must be known before the first update: make "
         "gradients twice");
  }
  const bool twice = options_.clip_norm > 0 || (checks_inf && !snapshot);
  return {twice, checks_inf && !twice};
}

PeakUse Engine::peak_of(const Assignment& assignment) const {
  const int64_t piece = options_.model.batch / options_.micro_batches;
  const std::unique_ptr<Program> program = make_program(piece, Use::training, assignment);
  const Plan& plan = *program->plan;
  PeakUse use;
  use.bytes = plan.peak_bytes() + Executor::device_bytes(plan) +
              (waiting_for(assignment).snapshot ? Snapshot::bytes(plan) : 0);
  for (const CountedTensor& tensor : counted_) {
    const TensorId id = program->graph.graph.find(tensor.name);
    if (!id) continue;
    const TensorPlace& place = plan.place(id);
    const bool there = place.first <= plan.peak_step() && place.last >= plan.peak_step();
    if (place.home == Home::step && there) use.live.push_back(tensor.name);
  }
  return use;
}

std::unique_ptr<Engine::Program> Engine::make_program(int64_t examples, Use use,
                                                      const Assignment& assignment) const {
  auto program = std::make_unique<Program>();
  ModelRequest request = options_.model;
  request.batch = examples;
  const bool training = use == Use::training;
  program->graph = build_classifier(request, training ? Mode::training : Mode::inference);
  Graph& graph = program->graph.graph;
  if (training) {
    differentiate(graph, program->graph.loss, static_cast<int>(options_.micro_batches));
    add_updates(graph,
                [&](TensorId weight) { return update_spec(parameters_.at(graph[weight].name).update); },
                {.max_norm = options_.clip_norm, .twice = waiting_for(assignment).twice});
  }
  PlanOptions plan;
  plan.backend = &backend_;
  plan.kernels = KernelChoice(options_.kernels, *plan.backend);
  plan.compute = options_.compute;
  plan.compute.arithmetic = options_.precision.updates.arithmetic;
  if (use == Use::evaluation_fp32) plan.compute.accumulator.reset();
  // Usually the last batch of an epoch.
  plan.compute.cold_shape = examples != options_.model.batch / options_.micro_batches;
  plan.fused_backward = options_.fused_backward;
  plan.tight = options_.precision.policy.starts_with("peak:");
  plan.micro_batches = static_cast<int>(options_.micro_batches);
  plan.results = {program->graph.sums};
  if (options_.keep_gradients) {
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      if (graph.tensors()[i].kind == Kind::weight_grad) plan.results.push_back({static_cast<int32_t>(i)});
    }
  }
  std::vector<TensorFormat> formats = resolve_formats(
      graph, assignment, stored_formats(graph, parameters_, options_.precision.updates, assignment));
  if (use == Use::evaluation_fp32) widen(graph, formats);
  program->plan = std::make_unique<Plan>(graph, std::move(formats), plan);
  program->executor = std::make_unique<Executor>(*program->plan);
  if (training) program->executor->check_overflow_of(program->graph.sums);
  return program;
}

void Engine::add_program(Programs& programs, int64_t examples, Use use, const Assignment& assignment) const {
  if (examples > 0 && !programs.contains(examples)) {
    programs.emplace(examples, make_program(examples, use, assignment));
  }
}

void Engine::plan_training(int64_t examples) {
  const int64_t piece = options_.model.batch / options_.micro_batches;
  for (const int64_t size : {std::min(piece, examples), examples % piece}) {
    add_program(training_, size, Use::training, assignment_);
  }
}

void Engine::plan_evaluation(int64_t examples) {
  add_program(evaluation_, examples, Use::evaluation, assignment_);
  if (!computes_in_fp32()) plan_evaluation_fp32(examples);
}

void Engine::plan_evaluation_fp32(int64_t examples) {
  size_t most = 0;
  for (const auto& [size, program] : training_) most = std::max(most, program->plan->step_bytes());
  for (int64_t piece = examples;; piece = (piece + 1) / 2) {
    const bool had = evaluation_fp32_.contains(piece);
    add_program(evaluation_fp32_, piece, Use::evaluation_fp32, assignment_);
    if (piece == 1 || evaluation_fp32_.at(piece)->plan->step_bytes() <= most) {
      add_program(evaluation_fp32_, examples % piece, Use::evaluation_fp32, assignment_);
      pieces_[examples] = piece;
      return;
    }
    if (!had) evaluation_fp32_.erase(piece);
  }
}

bool Engine::computes_in_fp32() const {
  if (options_.compute.accumulator) return false;
  return std::all_of(assignment_.storage.begin(), assignment_.storage.end(),
                     [](const auto& entry) { return is_fp32(entry.second); });
}

size_t Engine::arena_bytes() const {
  size_t bytes = 0;
  for (const auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (const auto& [examples, program] : *programs) bytes = std::max(bytes, program->plan->step_bytes());
  }
  return bytes;
}

size_t Engine::device_bytes() const {
  size_t bytes = 0;
  for (const auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (const auto& [examples, program] : *programs) bytes += Executor::device_bytes(*program->plan);
  }
  return bytes;
}

void Engine::bind() {
  for (auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    const Part part = programs == &training_ ? Part::train : Part::test;
    for (auto& [examples, program] : *programs) {
      program->executor->bind(*state_, arena_.data());
      if (resident_) program->executor->set_filler(resident_->filler(part, examples));
    }
  }
}

void Engine::keep_resident(const ImageSet& set, const LoaderOptions& train, const LoaderOptions& test) {
  resident_ = std::make_unique<ResidentSet>(*memory_, backend_, set, train, test);
  resident_bytes_ = ResidentSet::bytes(set);
}

void Engine::allocate() {
  const size_t needed = planned_peak_bytes() - memory_->in_use(), free = device_of(backend_).free_bytes();
  if (needed > free) {
    fail("train",
         "{:.1f} MiB are needed on the device and {:.1f} MiB are free: take a smaller --batch, more "
         "--grad-accum or "
         "narrower formats",
         static_cast<double>(needed) / (1 << 20), static_cast<double>(free) / (1 << 20));
  }
  for (auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (auto& [examples, program] : *programs) state_->add(*program->plan, options_.seed);
  }
  if (keeps_snapshot()) snapshot_ = std::make_unique<Snapshot>(*memory_, *state_, training_plan());
  arena_ = memory_->allocate(arena_bytes());
  bind();
}

bool Engine::weights_follow() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const auto& entry) { return entry.second.weight.assigned; });
}

void Engine::set_assignment(Assignment assignment) {
  // All new plans first: if one cannot be made, nothing has changed.
  Programs training, evaluation, evaluation_fp32;
  for (const auto& [examples, program] : training_)
    add_program(training, examples, Use::training, assignment);
  for (const auto& [examples, program] : evaluation_)
    add_program(evaluation, examples, Use::evaluation, assignment);
  // Plans in fp32 differ only if weights are stored differently.
  const bool follow = weights_follow();
  for (const auto& [examples, program] : evaluation_fp32_) {
    if (follow) add_program(evaluation_fp32, examples, Use::evaluation_fp32, assignment);
  }
  earlier_peak_ = planned_peak_bytes();
  assignment_ = std::move(assignment);
  training_.swap(training);
  evaluation_.swap(evaluation);
  last_run_ = nullptr;
  if (follow) evaluation_fp32_.swap(evaluation_fp32);
  // The old programs release their device memory before the new ones allocate theirs.
  for (Programs* old : {&training, &evaluation, &evaluation_fp32}) old->clear();
  // Between steps the arena holds nothing. It is freed before a larger one is allocated, and before
  // weights are converted.
  if (follow || arena_bytes() > arena_.bytes()) {
    arena_ = {};
    if (follow) {
      snapshot_.reset();
      earlier_peak_ = std::max(earlier_peak_, state_->convert(training_plan(), options_.seed, next_step_));
      if (keeps_snapshot()) snapshot_ = std::make_unique<Snapshot>(*memory_, *state_, training_plan());
    }
    arena_ = memory_->allocate(arena_bytes());
  }
  bind();
}

const Plan& Engine::training_plan() const { return *training_.rbegin()->second->plan; }

PlanBytes Engine::planned_bytes() const {
  const Plan& training = training_plan();
  const Plan* most = &training;
  for (const auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (const auto& [examples, program] : *programs) {
      if (program->plan->step_bytes() > most->step_bytes()) most = program->plan.get();
    }
  }
  // All state is allocated, whichever plan has the arena.
  PlanBytes bytes = most->bytes();
  bytes.weights = training.bytes().weights;
  bytes.optimizer = training.bytes().optimizer;
  bytes.gradients += training.sum_bytes() - most->sum_bytes();
  bytes.snapshot = snapshot_bytes();
  bytes.workspace += device_bytes() + resident_bytes_;
  return bytes;
}

double Engine::bytes_per_parameter() const {
  const Plan& plan = training_plan();
  size_t bytes = 0;
  for (size_t i = 0; i < graph().tensor_count(); ++i) {
    const TensorInfo& tensor = graph().tensors()[i];
    if (tensor.kind == Kind::weight || tensor.kind == Kind::optimizer)
      bytes += plan.place({static_cast<int32_t>(i)}).bytes;
  }
  return static_cast<double>(bytes) / static_cast<double>(std::max<size_t>(graph().parameters(), 1));
}

size_t Engine::snapshot_bytes() const { return keeps_snapshot() ? Snapshot::bytes(training_plan()) : 0; }

size_t Engine::planned_peak_bytes() const {
  return std::max(earlier_peak_, training_plan().state_bytes() + snapshot_bytes() + arena_bytes() +
                                     device_bytes() + resident_bytes_);
}

Examples32 examples_of(const Batch& batch) {
  return {batch.images, batch.labels, batch.epoch, batch.examples};
}

void Engine::feed(Program& program, const Examples32& examples, size_t first) {
  if (examples.images.empty()) {
    const auto count = static_cast<size_t>(program.graph.graph[program.graph.labels].elements());
    program.executor->feed_examples(examples.epoch, examples.numbers.subspan(first, count));
    return;
  }
  const size_t image = examples.images.size() / examples.labels.size();
  program.executor->feed(program.graph.input, examples.images.data() + first * image);
  program.executor->feed(program.graph.labels, examples.labels.data() + first);
}

BatchResult Engine::run(Program& program, const StepState& step, const Course& course) {
  program.executor->clear_stats();
  if (course.checks_inf) {
    program.executor->run_checked(step);
  } else {
    program.executor->run(step, Phase::forward, course.last);
  }
  const std::span<const float> sums = program.executor->result(program.graph.sums);
  return {sums[0], static_cast<uint64_t>(sums[1]), false};
}

// On a device a step is a single launch if the host need not be asked between gradients and
// updates.
Engine::Course Engine::course_of(const Program& program, bool asked, Known known) const {
  if (options_.fused_backward && !makes_gradients_twice()) return {Phase::update};
  if (device_of(backend_).on_host() || options_.micro_batches > 1) return {Phase::finish};
  if (!asked || known == Known::accepts) return {Phase::update, true};
  if (known == Known::accepts_no_overflow && program.executor->checks_overflow())
    return {Phase::update, true, true};
  return {Phase::finish};
}

BatchResult Engine::train(const StepState& step, const Examples32& examples, const Verdict& verdict,
                          Known known) {
  const size_t total = examples.labels.size();
  const auto piece = static_cast<size_t>(options_.model.batch / options_.micro_batches);
  const size_t whole = std::min(piece, total);
  // With fused backward and no check to wait for, updates run among the rest of the step.
  const bool at_once = options_.fused_backward && !makes_gradients_twice();
  BatchResult result;
  StepState state = step;
  state.skip = 0;
  next_step_ = step.step + 1;
  // Graphs of all batch sizes number their tensors alike.
  stats_.assign(graph().tensor_count(), {});
  elements_.assign(graph().tensor_count(), 0);
  updates_.assign(graph().tensor_count(), {});
  for (size_t first = 0; first < total; first += whole, ++state.micro_batch) {
    const size_t count = std::min(whole, total - first);
    Program& program = *training_.at(static_cast<int64_t>(count));
    const bool last = first + count == total;
    // The graph divides by its own examples times the micro-batches; the mean must be over the
    // actual examples.
    const double share =
        static_cast<double>(count) * static_cast<double>(options_.micro_batches) / static_cast<double>(total);
    state.loss_scale = static_cast<float>(step.loss_scale * share);
    if (last && snapshot_) snapshot_->take();
    const bool asked = verdict && (!at_once || snapshot_);
    const Course course = last ? course_of(program, asked, known) : Course{Phase::backward};
    feed(program, examples, first);
    const BatchResult part = run(program, state, course);
    result.loss += part.loss;
    result.correct += part.correct;
    for (size_t i = 0; i < stats_.size(); ++i) {
      const TensorInfo& tensor = program.graph.graph.tensors()[i];
      const EncodeStats& reported = program.executor->stats()[i];
      // A weight is rounded for each micro-batch, in the same way, and its gradient once per step.
      const bool once = tensor.kind == Kind::weight || tensor.kind == Kind::weight_grad;
      if (tensor.kind != Kind::weight || first == 0) stats_[i].merge(reported);
      elements_[i] = tensor.elements() + (once ? 0 : elements_[i]);
    }
    last_run_ = &program;
    if (!last) continue;
    result.updated = !asked || verdict(result.loss, program.graph.graph, stats_);
    if (course.whole) {
      if (result.updated != !(course.checks_inf && program.executor->skipped()))
        throw std::logic_error("the verdict on a step is not what was known of it");
    } else if (at_once) {
      if (!result.updated) snapshot_->put_back();
    } else if (result.updated) {
      program.executor->run(state, Phase::recompute, Phase::update);
    }
    merge_updates(program, step.step == 0, result.updated);
  }
  return result;
}

// A weight that products read as stored is rounded by its update, not by its readers, and before
// the first step by its initialisation. Of the two, the one that overflowed more counts, since
// shares refer to one write. An update that was undone wrote nothing.
void Engine::merge_updates(const Program& program, bool first_step, bool updated) {
  if (updated) updates_.assign(program.executor->updates().begin(), program.executor->updates().end());
  for (size_t i = 0; i < stats_.size(); ++i) {
    const TensorInfo& tensor = program.graph.graph.tensors()[i];
    if (tensor.kind != Kind::weight || !read_as_stored(program.plan->formats()[i])) continue;
    const EncodeStats written = updated ? program.executor->update_stats()[i] : EncodeStats{};
    const EncodeStats initial = first_step ? state_->find(tensor.name).initial : EncodeStats{};
    stats_[i] = initial.overflow > written.overflow || !updated ? initial : written;
    stats_[i].amax = std::max(written.amax, initial.amax);
  }
}

std::vector<float> Engine::gradient(const std::string& weight) const {
  if (last_run_ == nullptr || !options_.keep_gradients) {
    throw std::logic_error("no gradients are kept, or there was no step");
  }
  const Graph& graph = last_run_->graph.graph;
  const TensorId id = graph[graph.find(weight)].grad;
  return last_run_->executor->values(id);
}

void Engine::time_plan(PlanClock* clock) {
  for (auto& [examples, program] : training_) program->executor->time_plan(clock);
}

BatchResult Engine::evaluate(const StepState& step, const Examples32& examples) {
  Program& program = *evaluation_.at(static_cast<int64_t>(examples.labels.size()));
  feed(program, examples, 0);
  return run(program, step, {});
}

BatchResult Engine::evaluate_fp32(const StepState& step, const Examples32& examples) {
  if (computes_in_fp32()) return evaluate(step, examples);
  const size_t total = examples.labels.size();
  const auto piece = static_cast<size_t>(pieces_.at(static_cast<int64_t>(total)));
  BatchResult result;
  for (size_t first = 0; first < total; first += piece) {
    const size_t count = std::min(piece, total - first);
    Program& program = *evaluation_fp32_.at(static_cast<int64_t>(count));
    feed(program, examples, first);
    const BatchResult part = run(program, step, {});
    result.loss += part.loss;
    result.correct += part.correct;
  }
  return result;
}

}  // namespace ulp
