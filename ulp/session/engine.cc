#include "ulp/session/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/batch.h"
#include "ulp/graph/ops/update.h"
#include "ulp/precision/policy.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

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
  const int64_t examples = options.batch.examples;
  if (examples < 1) fail("train", "the batch must be positive, got {}", examples);
  if (options.micro_batches < 1 || examples % options.micro_batches != 0) {
    fail("train", "{} micro-batches do not divide a batch of {}", options.micro_batches, examples);
  }
  // The papers' groups are those of the whole batch, so it alone decides the assignment.
  BuiltNetwork whole = build(options.batch, Mode::training);
  differentiate(whole.graph, whole.network.loss, 1, whole.network.weights);
  counted_ = counted_tensors(whole.graph);
  parameters_ = choose_parameters(whole.graph, options.optimizer, options.precision.updates);
  first_assignment_ = assignment_ = choose_assignment(whole.graph);
  settle_assigned(parameters_, options.precision.updates, assignment_);
  check_stored(parameters_, options.precision.updates, assignment_);
  waiting_ = waiting_for(assignment_);
  plan_training(options.batch);
}

BuiltNetwork Engine::build(const BatchShape& shape, Mode mode) const {
  BuiltNetwork made = build_network(options_.build, shape, mode);
  const uint64_t fingerprint = graph_fingerprint(made.graph);
  const auto [entry, fresh] = fingerprints_.try_emplace({shape, mode}, fingerprint);
  if (!fresh && entry->second != fingerprint) {
    fail("session",
         "the build function made two different graphs for one batch shape ({}): it must depend "
         "on the shape and the mode alone",
         batch_shape_text(shape));
  }
  return made;
}

Assignment Engine::choose_assignment(const Graph& whole) const {
  if (options_.assignment) return *options_.assignment;
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
  const std::unique_ptr<Program> program = make_program(piece(), Use::training, assignment);
  const Plan& plan = *program->plan;
  PeakUse use;
  use.bytes = plan.peak_bytes() + Executor::device_bytes(plan) +
              (waiting_for(assignment).snapshot ? Snapshot::bytes(plan) : 0);
  for (const CountedTensor& tensor : counted_) {
    const TensorId id = program->graph().find(tensor.name);
    if (!id) continue;
    const TensorPlace& place = plan.place(id);
    const bool there = place.first <= plan.peak_step() && place.last >= plan.peak_step();
    if (place.home == Home::step && there) use.live.push_back(tensor.name);
  }
  return use;
}

std::unique_ptr<Engine::Program> Engine::make_program(const BatchShape& shape, Use use,
                                                      const Assignment& assignment) const {
  auto program = std::make_unique<Program>();
  const bool training = use == Use::training;
  program->shape = shape;
  program->net = build(shape, training ? Mode::training : Mode::inference);
  Graph& graph = program->net.graph;
  const Network& network = program->net.network;
  if (training) {
    differentiate(graph, network.loss, static_cast<int>(options_.micro_batches), network.weights);
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
  plan.compute.cold_shape = shape != piece();
  plan.fused_backward = options_.fused_backward;
  plan.tight = options_.precision.policy.starts_with("peak:");
  plan.micro_batches = static_cast<int>(options_.micro_batches);
  plan.results = {network.loss_sum};
  for (const TensorId id : network.outputs) {
    if (training && graph[id].elements() * sizeof(float) > kSmallOutput) continue;
    program->kept.push_back(id);
    if (id != network.loss_sum) plan.results.push_back(id);
  }
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
  if (training) program->executor->check_overflow_of(network.loss_sum);
  match_names(*program, training);
  return program;
}

// Names join graphs. What another shape has beside the largest one would have no format, and what
// evaluation has beside training no values.
void Engine::match_names(Program& program, bool training) const {
  const auto main = training_.find(piece());
  if (main == training_.end()) {  // this is the largest
    for (size_t i = 0; i < program.graph().tensor_count(); ++i) {
      const TensorId first = program.graph().tensors()[i].step_of;
      program.slots.push_back(first ? first.index : static_cast<int32_t>(i));
    }
    return;
  }
  const Graph& largest = main->second->graph();
  for (const TensorInfo& tensor : program.graph().tensors()) {
    const TensorId slot = largest.find(tensor.name);
    const bool matters = tensor.kind == Kind::activation || is_state(tensor.kind);
    if (!slot && (training || matters)) {
      fail("session",
           "'{}' exists {} for a batch of {} only, not in training at the largest shape ({}): graphs of all "
           "shapes and modes must have the same tensors",
           tensor.name, training ? "in training" : "in evaluation", batch_shape_text(program.shape),
           batch_shape_text(piece()));
    }
    const TensorId first = slot ? largest[slot].step_of : TensorId{};
    program.slots.push_back(first ? first.index : slot.index);
  }
}

void Engine::add_program(Programs& programs, const BatchShape& shape, Use use,
                         const Assignment& assignment) const {
  if (shape.examples > 0 && !programs.contains(shape)) {
    programs.emplace(shape, make_program(shape, use, assignment));
  }
}

void Engine::plan_training(const BatchShape& shape) {
  if (shape.examples < 1) fail("train", "a batch must have an example, got {}", shape.examples);
  const int64_t most = piece().examples;
  for (const int64_t count : {std::min(most, shape.examples), shape.examples % most}) {
    add_program(training_, shape.of(count), Use::training, assignment_);
  }
}

void Engine::plan_evaluation(const BatchShape& shape) {
  add_program(evaluation_, shape, Use::evaluation, assignment_);
  if (!computes_in_fp32()) plan_evaluation_fp32(shape);
}

void Engine::plan_evaluation_fp32(const BatchShape& shape) {
  size_t most = 0;
  for (const auto& [size, program] : training_) most = std::max(most, program->plan->step_bytes());
  for (int64_t count = shape.examples;; count = (count + 1) / 2) {
    const BatchShape part = shape.of(count);
    const bool had = evaluation_fp32_.contains(part);
    add_program(evaluation_fp32_, part, Use::evaluation_fp32, assignment_);
    if (count == 1 || evaluation_fp32_.at(part)->plan->step_bytes() <= most) {
      add_program(evaluation_fp32_, shape.of(shape.examples % count), Use::evaluation_fp32, assignment_);
      pieces_[shape] = count;
      return;
    }
    if (!had) evaluation_fp32_.erase(part);
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
    for (const auto& [shape, program] : *programs) bytes = std::max(bytes, program->plan->step_bytes());
  }
  return bytes;
}

size_t Engine::device_bytes() const {
  size_t bytes = 0;
  for (const auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (const auto& [shape, program] : *programs) bytes += Executor::device_bytes(*program->plan);
  }
  return bytes;
}

void Engine::bind() {
  for (auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    const Mode mode = programs == &training_ ? Mode::training : Mode::inference;
    for (auto& [shape, program] : *programs) {
      program->executor->bind(*state_, arena_.data());
      for (const TensorId id : program->net.resident) {
        const std::string& node = program->graph()[program->graph()[id].producer].name;
        const auto found = std::find_if(resident_.begin(), resident_.end(), [&](const Resident& array) {
          return array.mode == mode && array.node == node;
        });
        if (found == resident_.end())
          fail("session", "'{}' reads resident data, and none is kept for it", node);
        const size_t needed =
            resident_bytes(program->graph(), program->graph()[program->graph()[id].producer]);
        if (found->bytes != needed)
          fail("session", "{} bytes are kept for '{}', which reads {}", found->bytes, node, needed);
        program->executor->feed_resident(id, found->block.data());
      }
    }
  }
}

std::optional<size_t> Engine::resident_bytes_of(Mode mode, std::string_view node) const {
  for (const auto& [shape, program] : mode == Mode::training ? training_ : evaluation_) {
    for (const TensorId id : program->net.resident) {
      const Node& reader = program->graph()[program->graph()[id].producer];
      if (reader.name == node) return ulp::resident_bytes(program->graph(), reader);
    }
  }
  return std::nullopt;
}

void Engine::keep_resident(Mode mode, std::string node, std::span<const uint8_t> bytes) {
  Block block = memory_->allocate(bytes.size());
  memory_->device().upload(block.data(), bytes.data(), bytes.size());
  resident_bytes_ += aligned_bytes(bytes.size());
  resident_.push_back({mode, std::move(node), bytes.size(), std::move(block)});
}

void Engine::check_free(size_t more) const {
  const size_t needed = planned_peak_bytes() + more - memory_->in_use();
  const size_t free = device_of(backend_).free_bytes();
  if (needed <= free) return;
  fail("train",
       "{:.1f} MiB are needed on the device and {:.1f} MiB are free: take a smaller --batch, more "
       "--grad-accum or narrower formats",
       static_cast<double>(needed) / (1 << 20), static_cast<double>(free) / (1 << 20));
}

void Engine::allocate() {
  check_free(0);
  for (auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (auto& [shape, program] : *programs) state_->add(*program->plan, options_.seed);
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
  for (const auto& [shape, program] : training_) add_program(training, shape, Use::training, assignment);
  for (const auto& [shape, program] : evaluation_)
    add_program(evaluation, shape, Use::evaluation, assignment);
  // Plans in fp32 differ only if weights are stored differently.
  const bool follow = weights_follow();
  for (const auto& [shape, program] : evaluation_fp32_) {
    if (follow) add_program(evaluation_fp32, shape, Use::evaluation_fp32, assignment);
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

const Plan& Engine::training_plan() const { return *training_.at(piece())->plan; }

PlanBytes Engine::planned_bytes() const {
  const Plan& training = training_plan();
  const Plan* most = &training;
  for (const auto* programs : {&training_, &evaluation_, &evaluation_fp32_}) {
    for (const auto& [shape, program] : *programs) {
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

Engine::Program& Engine::find_program(const Programs& programs, const BatchShape& shape,
                                      std::string_view what) {
  const auto found = programs.find(shape);
  if (found != programs.end()) return *found->second;
  std::vector<std::string> known;
  for (const auto& [planned, program] : programs)
    known.push_back(fmt::format("({})", batch_shape_text(planned)));
  fail("session", "{} is not planned for a batch of ({}): planned are {}", what, batch_shape_text(shape),
       fmt::join(known, ", "));
}

void Engine::check_batch(const Programs& programs, const FeedBatch& batch, int64_t whole,
                         std::string_view what) {
  const int64_t total = batch.shape.examples;
  if (total < 1) fail("session", "a batch must have at least 1 example, got {}", total);
  for (const int64_t count : {std::min(whole, total), total % whole}) {
    if (count == 0) continue;
    if (!programs.contains(batch.shape.of(count))) find_program(programs, batch.shape, what);  // says so
    const Program& program = find_program(programs, batch.shape.of(count), what);
    check_feeds(program.net, program.shape, batch);
    weight_of(program, batch);
  }
}

// What lies before the first example of this program belongs to micro-batches before it.
void Engine::feed(Program& program, const FeedBatch& batch, int64_t first) {
  const Graph& graph = program.graph();
  for (const TensorId id : program.net.sources) {
    const TensorInfo& tensor = graph[id];
    const Feed& fed = *batch.find(graph[tensor.producer].name);
    const size_t each = tensor.elements() / static_cast<size_t>(program.shape.examples);
    program.executor->feed(id, static_cast<const uint8_t*>(fed.values) +
                                   static_cast<size_t>(first) * each * element_bytes(tensor.element));
  }
}

double Engine::weight_of(const Program& program, const FeedBatch& batch) {
  const Graph& graph = program.graph();
  const Network& network = program.net.network;
  if (!network.weights) {
    return static_cast<double>(graph[network.loss].elements() / static_cast<size_t>(program.shape.examples)) *
           static_cast<double>(batch.shape.examples);
  }
  const std::string& name = graph[graph[network.weights].producer].name;
  const Feed* fed = batch.find(name);
  if (fed == nullptr || fed->element != Element::real)
    fail("session", "nothing is fed to '{}', the weights of the loss", name);
  double sum = 0;
  for (size_t i = 0; i < fed->elements; ++i) sum += static_cast<const float*>(fed->values)[i];
  if (!(sum > 0) || !std::isfinite(sum))
    fail("session", "the weights of the loss, '{}', add up to {}: their sum must be above 0 and finite", name,
         sum);
  return sum;
}

double Engine::run(Program& program, const StepState& step, const Course& course, int64_t first,
                   const OutputReader& read) {
  program.executor->clear_stats();
  if (course.checks_inf) {
    program.executor->run_checked(step);
  } else {
    program.executor->run(step, Phase::forward, course.last);
  }
  if (read) {
    const Executor& executor = *program.executor;
    const Plan& plan = *program.plan;
    const auto values = [&](TensorId id) {
      if (!is_fp32(plan.formats()[static_cast<size_t>(id.index)].storage)) return executor.values(id);
      const std::span<const float> result = executor.result(id);
      return std::vector<float>(result.begin(), result.end());
    };
    std::vector<Outputs::Source> sources;
    for (const TensorId id : program.net.network.outputs) {
      const bool kept = std::find(program.kept.begin(), program.kept.end(), id) != program.kept.end();
      Outputs::Source& source = sources.emplace_back(Outputs::Source{program.graph()[id].name, {}});
      if (kept) source.read = [&values, id] { return values(id); };
    }
    read(Outputs(std::move(sources), first, program.shape.examples));
  }
  return program.executor->result(program.net.network.loss_sum)[0];
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

StepResult Engine::train(const StepState& step, const FeedBatch& batch, const Verdict& verdict, Known known,
                         const OutputReader& read) {
  const int64_t total = batch.shape.examples, whole = std::min(piece().examples, total);
  check_batch(training_, batch, std::max<int64_t>(whole, 1), "training");
  // With fused backward and no check to wait for, updates run among the rest of the step.
  const bool at_once = options_.fused_backward && !makes_gradients_twice();
  StepResult result;
  StepState state = step;
  state.skip = 0;
  state.epoch = batch.epoch;
  next_step_ = step.step + 1;
  stats_.assign(graph().tensor_count(), {});
  elements_.assign(graph().tensor_count(), 0);
  updates_.assign(graph().tensor_count(), {});
  for (int64_t first = 0; first < total; first += whole, ++state.micro_batch) {
    const int64_t count = std::min(whole, total - first);
    Program& program = find_program(training_, batch.shape.of(count), "training");
    const bool last = first + count == total;
    feed(program, batch, first);
    if (first == 0) result.weight = weight_of(program, batch);
    // The graph divides by its own terms times the micro-batches; the mean must be over the weight
    // of the whole step.
    const double terms = static_cast<double>(program.graph()[program.net.network.loss].elements());
    const double share = terms * static_cast<double>(options_.micro_batches) / result.weight;
    state.loss_scale = static_cast<float>(step.loss_scale * share);
    if (last && snapshot_) snapshot_->take();
    const bool asked = verdict && (!at_once || snapshot_);
    const Course course = last ? course_of(program, asked, known) : Course{Phase::backward};
    result.loss += run(program, state, course, first, read);
    for (size_t i = 0; i < program.slots.size(); ++i) {
      const TensorInfo& tensor = program.graph().tensors()[i];
      const auto slot = static_cast<size_t>(program.slots[i]);
      const EncodeStats& reported = program.executor->stats()[i];
      // A weight is rounded for each micro-batch, in the same way, and its gradient once per step.
      const bool once = tensor.kind == Kind::weight || tensor.kind == Kind::weight_grad;
      if (tensor.kind != Kind::weight || first == 0) stats_[slot].merge(reported);
      elements_[slot] = tensor.elements() + (once ? 0 : elements_[slot]);
    }
    last_run_ = &program;
    if (!last) continue;
    result.updated = !asked || verdict(result.loss, graph(), stats_);
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
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const TensorInfo& tensor = program.graph().tensors()[i];
    const auto slot = static_cast<size_t>(program.slots[i]);
    if (updated) updates_[slot] = program.executor->updates()[i];
    if (tensor.kind != Kind::weight || !read_as_stored(program.plan->formats()[i])) continue;
    const EncodeStats written = updated ? program.executor->update_stats()[i] : EncodeStats{};
    const EncodeStats initial = first_step ? state_->find(tensor.name).initial : EncodeStats{};
    stats_[slot] = initial.overflow > written.overflow || !updated ? initial : written;
    stats_[slot].amax = std::max(written.amax, initial.amax);
  }
}

std::vector<float> Engine::gradient(const std::string& weight) const {
  if (last_run_ == nullptr || !options_.keep_gradients) {
    throw std::logic_error("no gradients are kept, or there was no step");
  }
  const Graph& graph = last_run_->graph();
  const TensorId id = graph[graph.find(weight)].grad;
  return last_run_->executor->values(id);
}

void Engine::time_plan(PlanClock* clock) {
  for (auto& [shape, program] : training_) program->executor->time_plan(clock);
}

StepResult Engine::evaluate(const StepState& step, const FeedBatch& batch, const OutputReader& read) {
  check_batch(evaluation_, batch, std::max<int64_t>(batch.shape.examples, 1), "evaluation");
  Program& program = find_program(evaluation_, batch.shape, "evaluation");
  feed(program, batch, 0);
  StepState state = step;
  state.epoch = batch.epoch;
  return {run(program, state, {}, 0, read), weight_of(program, batch), false};
}

StepResult Engine::evaluate_fp32(const StepState& step, const FeedBatch& batch, const OutputReader& read) {
  if (computes_in_fp32()) return evaluate(step, batch, read);
  const auto planned = pieces_.find(batch.shape);
  const int64_t total = batch.shape.examples, whole = planned == pieces_.end() ? total : planned->second;
  check_batch(evaluation_fp32_, batch, std::max<int64_t>(whole, 1), "evaluation in fp32");
  StepResult result;
  StepState state = step;
  state.epoch = batch.epoch;
  for (int64_t first = 0; first < total; first += whole) {
    const int64_t count = std::min(whole, total - first);
    Program& program = find_program(evaluation_fp32_, batch.shape.of(count), "evaluation in fp32");
    feed(program, batch, first);
    result.loss += run(program, state, {}, first, read);
    if (first == 0) result.weight = weight_of(program, batch);
  }
  return result;
}

}  // namespace ulp
