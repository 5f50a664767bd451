#include "ulp/session/engine.h"

#include <algorithm>
#include <utility>

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
  check_same_state(whole.graph, options.batch, graph(), piece());
}

BuiltNetwork Engine::build(const BatchShape& shape, Mode mode) const {
  BuiltNetwork made = build_network(options_.build, shape, mode);
  const std::pair fingerprint(graph_fingerprint(made.graph), network_fingerprint(made.network));
  const auto [entry, fresh] = fingerprints_.try_emplace({shape, mode}, fingerprint);
  if (!fresh && entry->second != fingerprint) {
    fail("session",
         "the build function made two different {} for one batch shape ({}): it must depend "
         "on the shape and the mode alone",
         entry->second.first != fingerprint.first ? "graphs" : "networks", batch_shape_text(shape));
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
  const std::map<std::string, Storage> stored =
      stored_formats(graph, parameters_, options_.precision.updates, assignment);
  if (training) {
    differentiate(graph, network.loss,
                  {.micro_batches = static_cast<int>(options_.micro_batches),
                   .weights = network.weights,
                   .by_rows = [&](TensorId table, int64_t count) {
                     return has_rows_alone(graph[table], count, stored);
                   }});
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
      const TensorInfo& grad = graph.tensors()[i];
      if (grad.kind != Kind::weight_grad) continue;
      plan.results.push_back({static_cast<int32_t>(i)});
      if (grad.rows) plan.results.push_back(grad.rows);
    }
  }
  std::vector<TensorFormat> formats = resolve_formats(graph, assignment, stored);
  if (use == Use::evaluation_fp32) widen(graph, formats);
  program->plan = std::make_unique<Plan>(graph, std::move(formats), plan);
  program->executor = std::make_unique<Executor>(*program->plan);
  if (training) program->executor->check_overflow_of(network.loss_sum);
  match_names(*program, training);
  return program;
}

bool Engine::has_rows_alone(const TensorInfo& table, int64_t count,
                            const std::map<std::string, Storage>& stored) const {
  using Tables = EngineOptions::TableGradients;
  if (options_.table_gradients == Tables::dense) return false;
  for (const auto& [name, storage] : stored) {
    const bool of_table = name == table.name || name.starts_with(table.name + ".");
    if (of_table && !has_rows(storage, table.shape.back())) return false;
  }
  if (options_.table_gradients == Tables::rows) return true;
  // A compensation is taken into account even if a gradient is 0, and a stochastic high part is drawn
  // anew. Another order of the norm's sum would make another factor.
  const ParameterUpdate& update = parameters_.at(table.name).update;
  const Split* split = std::get_if<Split>(&stored.at(table.name));
  const bool redraws = split != nullptr && split->stochastic;
  return count < table.shape[0] && options_.clip_norm == 0 && !update.compensated && !redraws &&
         rests_without_gradient(update.optimizer);
}

bool Engine::updates_by_rows() const {
  const auto tensors = graph().tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& t) { return bool(t.rows); });
}

// Elements of what forward computes.
size_t activation_elements(const Graph& graph) {
  size_t elements = 0;
  for (const TensorInfo& tensor : graph.tensors())
    elements += tensor.kind == Kind::activation ? tensor.elements() : 0;
  return elements;
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
  check_same_state(largest, piece(), program.graph(), program.shape);
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
  const size_t here = activation_elements(program.graph()), most = activation_elements(largest);
  if (training && here > most) {
    fail("session",
         "a training {} of {} computes {} elements and the largest shape ({}), which decides the formats, "
         "only {}: the batch of the options must be the largest",
         options_.micro_batches > 1 ? "micro-batch" : "batch", batch_shape_text(program.shape), here,
         batch_shape_text(piece()), most);
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

void Engine::plan_evaluation(const BatchShape& shape, bool in_fp32) {
  add_program(evaluation_, shape, Use::evaluation, assignment_);
  if (in_fp32 && !computes_in_fp32()) plan_evaluation_fp32(shape);
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
          fail("session", "'{}' reads resident data in {}, and none is kept for that", node,
               mode == Mode::training ? "training" : "inference");
        const size_t needed =
            resident_bytes(program->graph(), program->graph()[program->graph()[id].producer]);
        if (found->bytes != needed)
          fail("session", "{} bytes are kept for '{}', which reads {}", found->bytes, node, needed);
        if (found->numbers) check_resident(program->net, node, *found->numbers);
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
  std::optional<IndexRange> numbers;
  if (bytes.size() % sizeof(int32_t) == 0) {
    numbers = index_range(bytes);
    for (const auto& [shape, program] : mode == Mode::training ? training_ : evaluation_)
      check_resident(program->net, node, *numbers);
  }
  Block block = memory_->allocate(bytes.size());
  memory_->device().upload(block.data(), bytes.data(), bytes.size());
  resident_bytes_ += aligned_bytes(bytes.size());
  resident_.push_back({mode, std::move(node), bytes.size(), std::move(block), numbers});
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

}  // namespace ulp
