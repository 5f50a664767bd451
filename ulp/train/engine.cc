#include "ulp/train/engine.h"

#include <algorithm>
#include <cstdlib>

#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/update.h"
#include "ulp/precision/policy.h"

namespace ulp {

const Backend& find_backend(std::string_view device) {
  if (device == "cpu") return cpu_backend();
  if (device == "reference") return reference_backend();
  fail("device", "unknown device '{}'; known: cpu, reference", device);
}

Engine::Engine(const EngineOptions& options)
    : options_(options), memory_(std::make_unique<Memory>()), state_(std::make_unique<State>(*memory_)) {
  options.optimizer.check();
  if (options.model.batch < 1) fail("train", "the batch must be positive, got {}", options.model.batch);
  if (options.micro_batches < 1 || options.model.batch % options.micro_batches != 0) {
    fail("train", "{} micro-batches do not divide a batch of {}", options.micro_batches, options.model.batch);
  }
  // The papers' groups are those of the whole batch, so it alone decides the assignment.
  ClassifierGraph whole = build_classifier(options.model, Mode::training);
  differentiate(whole.graph, whole.loss);
  counted_ = counted_tensors(whole.graph);
  assignment_ = parse_policy(options.policy)->assign(whole.graph);
  plan_training(options.model.batch);
}

std::unique_ptr<Engine::Program> Engine::make_program(int64_t examples, Mode mode) {
  auto program = std::make_unique<Program>();
  ModelRequest request = options_.model;
  request.batch = examples;
  program->graph = build_classifier(request, mode);
  Graph& graph = program->graph.graph;
  if (mode == Mode::training) {
    differentiate(graph, program->graph.loss, static_cast<int>(options_.micro_batches));
    add_updates(graph, update_attrs(options_.optimizer), state_names(make_optimizer(options_.optimizer)),
                options_.clip_norm);
  }
  PlanOptions plan;
  plan.backend = &find_backend(options_.device);
  const char* environment = std::getenv("ULP_KERNELS");
  const bool ask = options_.kernels.empty() && environment != nullptr;
  plan.kernels = KernelChoice(ask ? environment : options_.kernels, *plan.backend);
  plan.workspace = options_.workspace;
  plan.fused_backward = options_.fused_backward;
  plan.micro_batches = static_cast<int>(options_.micro_batches);
  plan.results = {program->graph.sums};
  program->plan = std::make_unique<Plan>(graph, resolve_formats(graph, assignment_), plan);
  program->executor = std::make_unique<Executor>(*program->plan);
  return program;
}

void Engine::plan_training(int64_t examples) {
  const int64_t piece = options_.model.batch / options_.micro_batches;
  for (const int64_t size : {std::min(piece, examples), examples % piece}) {
    if (size > 0 && !training_.contains(size)) training_.emplace(size, make_program(size, Mode::training));
  }
}

void Engine::plan_evaluation(int64_t examples) {
  if (!evaluation_.contains(examples)) evaluation_.emplace(examples, make_program(examples, Mode::inference));
}

void Engine::allocate() {
  size_t arena = 0;
  for (auto* programs : {&training_, &evaluation_}) {
    for (auto& [examples, program] : *programs) {
      state_->add(*program->plan, options_.seed);
      arena = std::max(arena, program->plan->step_bytes());
    }
  }
  arena_ = memory_->allocate(arena);
  for (auto* programs : {&training_, &evaluation_}) {
    for (auto& [examples, program] : *programs) program->executor->bind(*state_, arena_.data());
  }
}

const Plan& Engine::training_plan() const { return *training_.rbegin()->second->plan; }

PlanBytes Engine::planned_bytes() const {
  const Plan& training = training_plan();
  const Plan* most = &training;
  for (const auto* programs : {&training_, &evaluation_}) {
    for (const auto& [examples, program] : *programs) {
      if (program->plan->step_bytes() > most->step_bytes()) most = program->plan.get();
    }
  }
  // All state is there, whichever plan has the arena.
  PlanBytes bytes = most->bytes();
  bytes.weights = training.bytes().weights;
  bytes.optimizer = training.bytes().optimizer;
  bytes.gradients += training.sum_bytes() - most->sum_bytes();
  return bytes;
}

size_t Engine::planned_peak_bytes() const {
  size_t arena = 0;
  for (const auto* programs : {&training_, &evaluation_}) {
    for (const auto& [examples, program] : *programs) arena = std::max(arena, program->plan->step_bytes());
  }
  return training_plan().state_bytes() + arena;
}

BatchResult Engine::run(Program& program, const StepState& step, const Examples32& examples, size_t first,
                        Phase last) {
  const size_t image = examples.images.size() / examples.labels.size();
  program.executor->feed(program.graph.input, examples.images.data() + first * image);
  program.executor->feed(program.graph.labels, examples.labels.data() + first);
  program.executor->clear_stats();
  program.executor->run(step, Phase::forward, last);
  const std::span<const float> sums = program.executor->result(program.graph.sums);
  return {sums[0], static_cast<uint64_t>(sums[1]), last == Phase::update};
}

BatchResult Engine::train(const StepState& step, const Examples32& examples, const Verdict& verdict) {
  const size_t total = examples.labels.size();
  const auto piece = static_cast<size_t>(options_.model.batch / options_.micro_batches);
  const size_t whole = std::min(piece, total);
  BatchResult result;
  StepState state = step;
  // Graphs of all batch sizes number their tensors alike.
  stats_.assign(training_plan().graph().tensor_count(), {});
  for (size_t first = 0; first < total; first += whole, ++state.micro_batch) {
    const size_t count = std::min(whole, total - first);
    Program& program = *training_.at(static_cast<int64_t>(count));
    const bool last = first + count == total;
    // The graph divides by its own examples times the micro-batches; the mean is over those that there are.
    const double share =
        static_cast<double>(count) * static_cast<double>(options_.micro_batches) / static_cast<double>(total);
    state.loss_scale = static_cast<float>(step.loss_scale * share);
    const Phase until = !last ? Phase::backward : options_.fused_backward ? Phase::update : Phase::finish;
    const BatchResult part = run(program, state, examples, first, until);
    result.loss += part.loss;
    result.correct += part.correct;
    result.updated = part.updated;
    for (size_t i = 0; i < stats_.size(); ++i) stats_[i].merge(program.executor->stats()[i]);
    if (!last || result.updated) continue;
    if (verdict && !verdict(program.graph.graph, stats_)) continue;
    program.executor->run(state, Phase::update, Phase::update);
    result.updated = true;
  }
  return result;
}

BatchResult Engine::evaluate(const StepState& step, const Examples32& examples) {
  return run(*evaluation_.at(static_cast<int64_t>(examples.labels.size())), step, examples, 0,
             Phase::forward);
}

}  // namespace ulp
