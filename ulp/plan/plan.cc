#include "ulp/plan/plan.h"

#include <algorithm>
#include <stdexcept>

#include "ulp/base/error.h"
#include "ulp/graph/ops/arithmetic.h"
#include "ulp/graph/ops/norm.h"
#include "ulp/graph/ops/update.h"
#include "ulp/plan/fusion.h"
#include "ulp/plan/layout.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

// What a step touches, by owner of the bytes. Nodes computed inside count where they run.
struct Touched {
  std::vector<int32_t> read, written;  // sorted
};

Touched touched(const Graph& graph, const Fusion& fusion, const PlanStep& step) {
  Touched made;
  for (const auto* nodes : {&step.inlined, &step.roots}) {
    for (const NodeId id : *nodes) {
      for (const TensorId in : graph[id].in) made.read.push_back(fusion.base[at(in)].index);
    }
  }
  for (const NodeId id : step.roots) {
    for (const TensorId out : graph[id].out) made.written.push_back(fusion.base[at(out)].index);
  }
  std::sort(made.read.begin(), made.read.end());
  std::sort(made.written.begin(), made.written.end());
  return made;
}

bool meet(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int32_t x) { return std::binary_search(b.begin(), b.end(), x); });
}

// Whether the step belongs after the check of its gradients, if there is one.
bool after_check(Phase phase) { return phase >= Phase::recompute; }

// Fused backward: each step that completes a gradient, sums its squares or updates moves to the
// first point where all its inputs are ready and nothing later reads or writes what it changes. If
// gradients are checked before they are recomputed, nothing moves across that check.
void update_early(const Graph& graph, const Fusion& fusion, std::vector<PlanStep>& steps) {
  std::vector<PlanStep> order;
  std::vector<Touched> done;
  const bool checks_inf = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.phase == Phase::recompute || node.phase == Phase::recompute_finish;
  });
  for (PlanStep& step : steps) {
    Touched mine = touched(graph, fusion, step);
    size_t place = order.size();
    if (step.phase >= Phase::finish && step.phase != Phase::recompute) {
      while (place > 0 && !(checks_inf && after_check(step.phase) != after_check(order[place - 1].phase)) &&
             !meet(done[place - 1].written, mine.read) && !meet(done[place - 1].read, mine.written) &&
             !meet(done[place - 1].written, mine.written)) {
        --place;
      }
    }
    order.insert(order.begin() + static_cast<ptrdiff_t>(place), std::move(step));
    done.insert(done.begin() + static_cast<ptrdiff_t>(place), std::move(mine));
  }
  steps = std::move(order);
}

// A copy whose result is a parameter's gradient.
bool copies_gradient(const Graph& graph, const Node& node) {
  const Kind kind = graph[node.out[0]].kind;
  return node.op == &kCopy && (kind == Kind::weight_grad || kind == Kind::grad_sum);
}

// By owner of the bytes: how many nodes of a phase read or write it.
std::vector<int> uses_in(const Graph& graph, Phase phase) {
  std::vector<int> uses(graph.tensor_count());
  for (const Node& node : graph.nodes()) {
    if (node.phase != phase) continue;
    for (const auto* list : {&node.in, &node.out}) {
      for (const TensorId id : *list) ++uses[at(graph.bytes_of(id))];
    }
  }
  return uses;
}

// Nodes that one pass over all parameters handles; for a backend that `merges` also copies of their
// gradients.
bool one_pass(const Graph& graph, bool merges, NodeId a, NodeId b) {
  const OpDef* op = graph[a].op;
  if (graph[b].op != op || graph[a].phase != graph[b].phase) return false;
  if (op == &kUpdate || op == &kGradSquares) return true;
  return merges && copies_gradient(graph, graph[a]) && copies_gradient(graph, graph[b]);
}

// Whether a step writes what the node writes: then they cannot run concurrently in one task.
bool writes_same(const Graph& graph, const PlanStep& step, NodeId id) {
  return std::any_of(step.roots.begin(), step.roots.end(), [&](NodeId root) {
    return graph.bytes_of(graph[root].out[0]) == graph.bytes_of(graph[id].out[0]);
  });
}

// The order in which nodes are considered. If the backend `merges`, small nodes that nothing else
// in their phase reads are collected at the phase's end: running statistics, which are computed
// from values saved for backward anyway, and copies of gradients.
std::vector<NodeId> node_order(const Graph& graph, bool merges) {
  std::vector<NodeId> order, late;
  const std::vector<int> uses = uses_in(graph, Phase::backward);
  Phase phase = Phase::forward;
  for (size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    const Node& node = graph[id];
    if (node.phase != phase) {
      order.insert(order.end(), late.begin(), late.end());
      late.clear();
      phase = node.phase;
    }
    const bool waits = node.op == &kBatchTrack || (phase == Phase::backward && copies_gradient(graph, node) &&
                                                   uses[at(graph.bytes_of(node.out[0]))] == 1);
    (merges && waits ? late : order).push_back(id);
  }
  order.insert(order.end(), late.begin(), late.end());
  return order;
}

template <typename Holds>
bool any_node(const PlanStep& step, Holds&& holds) {
  return std::any_of(step.inlined.begin(), step.inlined.end(), holds) ||
         std::any_of(step.roots.begin(), step.roots.end(), holds);
}

// Whether the node computes a tensor, or reads a weight, which is rounded as it is loaded.
bool computes_or_loads(const Graph& graph, const Node& node, TensorId id) {
  const auto is_among = [&](const std::vector<TensorId>& list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  return is_among(node.out) || (is_state(graph[id].kind) && is_among(node.in));
}

}  // namespace

Plan::Plan(const Graph& graph, std::vector<TensorFormat> formats, const PlanOptions& options)
    : graph_(graph),
      backend_(*options.backend),
      formats_(std::move(formats)),
      results_(options.results),
      places_(graph.tensor_count()) {
  context_.reset(new PlanContext{graph, formats_, options.compute});
  const Backend& backend = backend_;
  std::vector<bool> stored(graph.tensor_count());
  // The caller reads results.
  for (const TensorId id : options.results) stored[at(id)] = true;

  // A problem that no kernel takes whole is split, and fusion is repeated without it.
  Fusion fusion;
  for (bool settled = false; !settled;) {
    settled = true;
    steps_.clear();
    fusion = find_fusion(*context_, options.fuse && backend.fuses, stored);
    bases_ = fusion.base;
    context_->bases = bases_;
    std::vector<bool> reported(graph.node_count());
    const bool merges = options.fuse && backend.merges;
    // With fused backward gradients are needed as early as possible.
    for (const NodeId id : node_order(graph, merges && !options.fused_backward)) {
      if (fusion.absorbed[static_cast<size_t>(id.index)]) continue;
      const bool tracks = merges && graph[id].op == &kBatchTrack;
      std::vector<NodeId> inlined = inlined_nodes(graph, fusion, id);
      if (!steps_.empty() && options.fuse && !options.fused_backward && inlined.empty() &&
          !writes_same(graph, steps_.back(), id) &&
          (tracks ? graph[steps_.back().roots[0]].op == &kBatchTrack
                  : one_pass(graph, merges, steps_.back().roots[0], id))) {
        steps_.back().roots.push_back(id);
        continue;
      }
      PlanStep step;
      step.roots = {id};
      step.inlined = std::move(inlined);
      step.phase = graph[id].phase;
      steps_.push_back(std::move(step));
    }
    if (options.fused_backward) update_early(graph, fusion, steps_);
    for (PlanStep& step : steps_) {
      Problem problem{*context_, step.inlined, step.roots, {}};
      for (const NodeId inlined : step.inlined) {
        if (reported[static_cast<size_t>(inlined.index)]) problem.silent.push_back(inlined);
        reported[static_cast<size_t>(inlined.index)] = true;
      }
      step.kernel = options.kernels.pick(backend, problem, &step.declined);
      if (step.kernel != nullptr) {
        if (settled) step.task = step.kernel->make(problem);
        continue;
      }
      if (step.inlined.empty()) {
        const Node& node = graph[step.roots[0]];
        fail("plan", "no kernel of {} takes {} ({}): {}", backend.name, node.name, node.op->name,
             step.declined);
      }
      settled = false;
      for (const NodeId inlined : step.inlined) stored[at(graph[inlined].out[0])] = true;
    }
  }
  check_ranges();
  lay_out(options);
}

bool Plan::may_report(size_t step, TensorId id) const {
  return any_node(steps_[step], [&](NodeId node) { return computes_or_loads(graph_, graph_[node], id); });
}

bool Plan::surely_reports(size_t step, TensorId id) const {
  return any_node(steps_[step], [&](NodeId node) {
    return graph_[node].op->reports_range() && computes_or_loads(graph_, graph_[node], id);
  });
}

bool Plan::may_report_for(size_t writer, size_t reader) const {
  const std::vector<TensorId> read = steps_[reader].task->reads_range_of();
  return std::any_of(read.begin(), read.end(), [&](TensorId id) { return may_report(writer, id); });
}

// Updates report apart from the rest of a step, so a range is read on the side of them on which it
// is written. A step that may only copy codes does not count: it sees no values then.
void Plan::check_ranges() const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const TensorId id : steps_[i].task->reads_range_of()) {
      const auto reported = [&](const PlanStep& step) {
        return (step.phase == Phase::update) == (steps_[i].phase == Phase::update) &&
               surely_reports(static_cast<size_t>(&step - steps_.data()), id);
      };
      if (std::any_of(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(i), reported)) continue;
      throw std::logic_error("a task reads the range of " + graph_[id].name +
                             ", which no step before it reports");
    }
  }
}

bool Plan::reads(size_t step, TensorId base) const {
  return any_node(steps_[step], [&](NodeId id) {
    const std::vector<TensorId>& in = graph_[id].in;
    return std::any_of(in.begin(), in.end(), [&](TensorId one) { return bases_[at(one)] == base; });
  });
}

Plan::Lives Plan::find_lives(const PlanOptions& options) const {
  const std::vector<TensorId>& bases = bases_;
  const int end = static_cast<int>(steps_.size());
  // Live ranges of tensors that have bytes.
  Lives made{
      std::vector<TensorPlace>(graph_.tensor_count()), std::vector<int>(graph_.tensor_count(), -1), {}};
  std::vector<TensorPlace>& life = made.life;
  std::vector<int>& buffer_of = made.buffer_of;
  auto& buffers = made.buffers;
  const auto touch = [&](TensorId id, int when) {
    TensorPlace& p = life[at(bases[at(id)])];
    if (p.first < 0) p.first = when;
    p.first = std::min(p.first, when);
    p.last = std::max(p.last, when);
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const PlanStep& step = steps_[i];
    for (const auto* nodes : {&step.inlined, &step.roots}) {
      for (const NodeId id : *nodes) {
        for (const TensorId in : graph_[id].in) {
          if (!inlined_[at(bases[at(in)])]) touch(in, moment(i));
        }
      }
    }
    for (const NodeId id : step.roots) {
      for (const TensorId out : graph_[id].out) touch(out, moment(i));
    }
  }
  std::vector<bool> result(graph_.tensor_count());  // read after the last step
  for (const TensorId id : options.results) {
    touch(id, end - 1);
    result[at(bases[at(id)])] = true;
  }
  for (size_t i = 0; i < life.size(); ++i) {
    if (places_[i].home == Home::state || life[i].first < 0 || at(bases[i]) != i) continue;
    buffer_of[i] = static_cast<int>(buffers.size());
    buffers.push_back({tensor_bytes(graph_.tensors()[i], formats_[i].storage), life[i].first, life[i].last});
  }

  // In place: the output takes over the buffer of an input whose live range ends here.
  for (size_t i = 0; i < steps_.size(); ++i) {
    const PlanStep& step = steps_[i];
    const int when = moment(i);
    if (!step.kernel->in_place || step.roots.size() != 1) continue;
    const Node& root = graph_[step.roots[0]];
    if (root.op->form != Form::elementwise || is_state(graph_[root.out[0]].kind)) continue;
    const size_t out = at(bases[at(root.out[0])]);
    if (buffer_of[out] < 0 || life[out].first != when) continue;
    const auto take_over = [&](TensorId in) {
      const size_t from = at(bases[at(in)]);
      if (from == out || buffer_of[from] < 0 || inlined_[from] || result[from] || life[from].last != when ||
          life[from].first == when)
        return false;
      // Of two steps that are one the second still reads when the first has written.
      if (step.merged_task != nullptr && reads(i + 1, bases[from])) return false;
      if (graph_[in].shape != graph_[root.out[0]].shape || formats_[at(in)].storage != formats_[out].storage)
        return false;
      if (graph_[in].element != Element::real || !std::holds_alternative<Plain>(formats_[out].storage))
        return false;
      const int kept = buffer_of[from], freed = buffer_of[out];
      buffers[static_cast<size_t>(kept)].last = life[out].last;
      buffers[static_cast<size_t>(freed)].bytes = 0;
      for (int& buffer : buffer_of) {
        if (buffer == freed) buffer = kept;
      }
      return true;
    };
    bool done = false;
    for (const auto* nodes : {&step.roots, &step.inlined}) {
      for (const NodeId id : *nodes) {
        for (const TensorId in : graph_[id].in) done = done || take_over(in);
      }
    }
  }

  return made;
}

void Plan::lay_out(const PlanOptions& options) {
  const std::vector<TensorId>& bases = bases_;
  const int end = static_cast<int>(steps_.size());
  inlined_.assign(graph_.tensor_count(), false);
  for (const PlanStep& step : steps_) {
    for (const NodeId id : step.inlined) inlined_[at(graph_[id].out[0])] = true;
  }
  // State has slots of its own; the rest shares the arena.
  for (size_t i = 0; i < graph_.tensor_count(); ++i) {
    const TensorInfo& tensor = graph_.tensors()[i];
    // A sum over micro-batches lives from one micro-batch to the next, which may have another size
    // and another plan.
    const bool sum = tensor.kind == Kind::grad_sum && options.micro_batches > 1;
    if (!is_state(tensor.kind) && !sum) continue;
    const size_t bytes = tensor_bytes(tensor, formats_[i].storage);
    places_[i] = {Home::state, bases[i], 0, bytes, 0, end - 1};
    state_bytes_ += bytes;
    if (sum) sum_bytes_ += bytes;
    (sum ? bytes_.gradients : tensor.kind == Kind::optimizer ? bytes_.optimizer : bytes_.weights) += bytes;
  }
  Lives lives = find_lives(options);
  const std::optional<size_t> unmerged_peak = merge_steps(options, lives);
  auto& [life, buffer_of, buffers] = lives;
  const size_t tensors = buffers.size();
  step_bytes_ = lay_out_steps(options, lives, unmerged_peak, buffers);
  step_bytes_bound_ = most_alive(buffers, &peak_step_);
  for (int when = 0; when < end; ++when) {
    steps_[static_cast<size_t>(when)].workspace = buffers[tensors + static_cast<size_t>(when)].offset;
  }
  size_t made = tensors + steps_.size();
  for (const PlanStep& step : steps_) {
    for (const int member : step.prepares)
      steps_[static_cast<size_t>(member)].prepared = buffers[made++].offset;
  }
  for (const PlanStep& step : steps_) {
    if (step.live_until == 0) continue;
    const auto lives_on = [&](TensorId id) {
      TensorPlace& p = lives.life[at(bases[at(id)])];
      p.last = std::max(p.last, step.live_until - 1);
    };
    for (const auto* nodes : {&step.inlined, &step.roots}) {
      for (const NodeId id : *nodes) {
        for (const TensorId in : graph_[id].in) {
          if (!inlined_[at(bases[at(in)])]) lives_on(in);
        }
      }
    }
    for (const NodeId id : step.roots) {
      for (const TensorId out : graph_[id].out) lives_on(out);
    }
  }
  std::vector<bool> counted(buffers.size());
  for (size_t i = 0; i < life.size(); ++i) {
    const size_t base = at(bases[i]);
    if (buffer_of[base] < 0) {
      if (base != i) places_[i] = places_[base];
      continue;
    }
    const Buffer& buffer = buffers[static_cast<size_t>(buffer_of[base])];
    places_[i] = {Home::step,       bases[i],
                  buffer.offset,    tensor_bytes(graph_.tensors()[i], formats_[i].storage),
                  life[base].first, life[base].last};
    // If one tensor takes over another's buffer both are live for a step; they count once.
    if (base != i || life[i].first > peak_step_ || life[i].last < peak_step_ ||
        counted[static_cast<size_t>(buffer_of[i])])
      continue;
    counted[static_cast<size_t>(buffer_of[i])] = true;
    const bool forward = graph_[graph_.tensors()[i].producer].phase == Phase::forward;
    (forward ? bytes_.activations : bytes_.gradients) += places_[i].bytes;
  }
  bytes_.workspace = peak_bytes() - bytes_.total();
}

}  // namespace ulp
