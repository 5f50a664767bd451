// How an engine runs what is planned: a training step with its verdict, and evaluation.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

// Whether products read the codes that the update wrote.
bool read_as_stored(const TensorFormat& format) {
  const Split* split = std::get_if<Split>(&format.storage);
  return !format.operand || (split != nullptr && *format.operand == Storage(Plain{split->high}));
}

}  // namespace

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
  for (size_t i = 0; i < fed->elements; ++i) {
    const float weight = static_cast<const float*>(fed->values)[i];
    if (weight < 0)
      fail("session", "element {} of '{}', the weights of the loss, is {}: a weight must be from 0", i, name,
           weight);
    sum += weight;
  }
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
  const bool records = std::exchange(records_next_, false);
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
    if (records) recorder_ = recording_->begin(program.slots);
    program.executor->record(records ? &*recorder_ : nullptr);
    result.loss += run(program, state, course, first, read);
    if (records) recording_->add(*recorder_, program.slots);
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
  const TensorInfo& table = graph[graph.find(weight)];
  const std::vector<float> values = last_run_->executor->values(table.grad);
  const TensorId rows = graph[table.grad].rows;
  if (!rows) return values;
  std::vector<float> all(table.elements());
  const std::vector<uint8_t> bytes = last_run_->executor->bytes(rows);
  std::vector<int32_t> numbers(bytes.size() / sizeof(int32_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  const auto width = static_cast<size_t>(table.shape.back());
  for (size_t i = 0; i < graph[rows].elements() && numbers[i] >= 0; ++i)
    std::copy_n(&values[i * width], width, &all[static_cast<size_t>(numbers[i]) * width]);
  return all;
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
