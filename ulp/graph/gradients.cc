#include "ulp/graph/gradients.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

bool differentiable(const TensorInfo& tensor) {
  return tensor.element == Element::real && (tensor.kind == Kind::activation || tensor.kind == Kind::weight);
}

}  // namespace

Gradients::Gradients(Graph& graph, const DifferentiateOptions& options)
    : graph_(graph),
      micro_batches_(options.micro_batches),
      by_rows_(options.by_rows),
      flow_(graph.tensor_count()) {}

TensorId Gradients::of(TensorId tensor) const {
  const Flow& flow = flow_[static_cast<size_t>(tensor.index)];
  return flow.complete ? graph_[tensor].grad : TensorId{};
}

bool Gradients::wanted(TensorId input) const {
  const Flow& flow = flow_[static_cast<size_t>(input.index)];
  return flow.wanted && flow.reached;
}

// Forward: what a weight flows into. Backward: what the loss depends on, and through how many
// readers.
void Gradients::count_readers(TensorId loss) {
  const auto flow = [&](TensorId id) -> Flow& { return flow_[static_cast<size_t>(id.index)]; };
  for (size_t i = 0; i < graph_.tensor_count(); ++i)
    flow_[i].wanted = graph_.tensors()[i].kind == Kind::weight;
  for (const Node& node : graph_.nodes()) {
    const bool any =
        std::any_of(node.in.begin(), node.in.end(), [&](TensorId in) { return flow(in).wanted; });
    if (!any) continue;
    for (const TensorId out : node.out) flow(out).wanted = differentiable(graph_[out]);
  }
  flow(loss).reached = true;
  const auto nodes = graph_.nodes();
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    const bool any = std::any_of(node.out.begin(), node.out.end(), [&](TensorId out) { return wanted(out); });
    if (!any) continue;
    for (const TensorId in : node.in) {
      if (!flow(in).wanted || !differentiable(graph_[in])) continue;
      flow(in).reached = true;
      ++flow(in).readers;
    }
  }
  if (!wanted(loss)) fail("graph", "'{}' depends on no weight: there is nothing to train", graph_[loss].name);
}

// All gradients before the first backward node, in the order of their tensors, so that a view's
// gradient finds the one whose format it has.
void Gradients::make_gradients() {
  for (size_t i = 0; i < flow_.size(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (!wanted(id)) continue;
    const TensorInfo& tensor = graph_[id];
    TensorInfo grad;
    grad.name = tensor.name + ".grad";
    grad.shape = tensor.shape;
    grad.kind = tensor.kind == Kind::weight ? Kind::weight_grad : Kind::activation_grad;
    const bool view = tensor.format_from && tensor.format_from != tensor.step_of;
    if (view) grad.format_from = graph_[tensor.format_from].grad;
    if (tensor.step_of) {
      // The first time step's tensor may have no gradient, for example if its node reads only
      // inputs. Then the gradient of the earliest time step that has one stands for all, under the
      // name that policies know.
      const std::string first = graph_[tensor.step_of].name + ".grad";
      if (const TensorId root = graph_.find(first)) {
        grad.step_of = root;
        if (!view) grad.format_from = root;
      } else {
        grad.name = first;
      }
    }
    const TensorId made = graph_.add_tensor(std::move(grad));
    graph_.edit(id).grad = made;
  }
}

TensorId Gradients::part(TensorId input) {
  Flow& flow = flow_[static_cast<size_t>(input.index)];
  const TensorInfo tensor = graph_[input];
  flow.complete = true;
  TensorInfo made;
  made.shape = tensor.shape;
  if (tensor.kind == Kind::weight) {
    if (flow.readers == 1 && micro_batches_ == 1) return tensor.grad;
    if (flow.parts.empty()) {
      made.name = tensor.name + ".grad.sum";
      made.kind = Kind::grad_sum;
      flow.parts.push_back(graph_.add_tensor(std::move(made)));
    }
    return flow.parts.front();
  }
  if (flow.readers == 1) return tensor.grad;
  made.name = tensor.name + ".grad." + std::to_string(flow.readers - 1 - static_cast<int>(flow.parts.size()));
  made.kind = Kind::activation_grad;
  made.format_from = tensor.grad;
  flow.parts.push_back(graph_.add_tensor(std::move(made)));
  return flow.parts.back();
}

bool Gradients::by_rows(TensorId table, int64_t count) const {
  constexpr int64_t kAtOnce = 8;  // what kernels read and write
  const TensorInfo& info = graph_[table];
  return by_rows_ && info.kind == Kind::weight && micro_batches_ == 1 &&
         flow_[static_cast<size_t>(table.index)].readers == 1 && info.shape.back() % kAtOnce == 0 &&
         by_rows_(table, count);
}

std::pair<TensorId, TensorId> Gradients::rows_of(TensorId table, int64_t count) {
  const TensorId grad = part(table);
  const Shape shape = graph_[table].shape;
  const int64_t n = std::min(count, shape[0]);
  TensorInfo info;
  info.name = graph_[grad].name + ".rows";
  info.shape = {n};
  info.kind = Kind::saved;
  info.element = Element::int32;
  const TensorId rows = graph_.add_tensor(std::move(info));
  graph_.edit(grad).shape = {n, shape.back()};
  graph_.edit(grad).rows = rows;
  return {grad, rows};
}

TensorId Gradients::temporary(const Node& node, std::string_view name, const Shape& shape, Kind kind) {
  TensorInfo info;
  info.name = node.name + "." + std::string(name);
  info.shape = shape;
  info.kind = kind;
  return graph_.add_tensor(std::move(info));
}

// A node adds to all of its outputs or to none, and a view has no bytes to add. So where a node has
// several outputs, or is a view, its share in a sum is a tensor of its own that a copy adds.
void Gradients::emit(const OpDef& op, const Node& node, std::vector<TensorId> in, std::vector<TensorId> out,
                     Attrs attrs) {
  Node made{&op,
            node.name + "." + std::string(op.name),
            std::move(attrs),
            std::move(in),
            std::move(out),
            Phase::backward,
            false};
  const bool view = op.form == Form::view;
  std::vector<std::pair<TensorId, TensorId>> shares;  // and the sums that they go to
  for (size_t i = 0; i < made.out.size(); ++i) {
    const TensorId id = made.out[i];
    if (graph_[id].kind == Kind::grad_sum && (view || made.out.size() > 1)) {
      made.out[i] = temporary(node, "share" + std::to_string(i), graph_[id].shape,
                              view ? Kind::activation_grad : Kind::saved);
      if (view) graph_.edit(made.out[i]).format_from = made.in[0];
      shares.emplace_back(made.out[i], id);
    } else if (graph_[id].kind == Kind::grad_sum) {
      made.adds = static_cast<bool>(graph_[id].producer);
    }
    if (view) graph_.edit(made.out[i]).alias = made.in[0];
  }
  graph_.add_node(std::move(made));
  for (const auto& [share, sum] : shares) emit(kCopy, node, {share}, {sum});
}

// When all parts of an activation's gradient are there: before the backward of the node that made
// it.
void Gradients::add_up(TensorId tensor) {
  Flow& flow = flow_[static_cast<size_t>(tensor.index)];
  if (graph_[tensor].kind == Kind::weight || flow.parts.empty()) return;
  std::vector<TensorId> parts(flow.parts.rbegin(), flow.parts.rend());
  flow.parts.clear();
  graph_.add_node({&kSum,
                   graph_[tensor].name + ".grad.add",
                   {},
                   std::move(parts),
                   {graph_[tensor].grad},
                   Phase::backward,
                   false});
}

void Gradients::seed(TensorId loss, TensorId weights) {
  const std::string name = graph_[loss].name;
  const double elements = static_cast<double>(graph_[loss].elements());
  TensorId made = graph_[loss].grad;
  // Weights multiply the seed in fp32, before the gradient is rounded.
  if (weights) {
    TensorInfo info;
    info.name = name + ".seed.out";
    info.shape = graph_[loss].shape;
    info.kind = Kind::saved;
    made = graph_.add_tensor(std::move(info));
  }
  graph_.add_node({&kSeed,
                   name + ".seed",
                   Attrs{{"value", 1.0 / (elements * micro_batches_)}},
                   {},
                   {made},
                   Phase::backward,
                   false});
  if (!weights) return;
  graph_.add_node(
      {&kMultiply, name + ".weigh", {}, {made, weights}, {graph_[loss].grad}, Phase::backward, false});
}

void Gradients::run(TensorId loss, TensorId weights) {
  const size_t forward_nodes = graph_.node_count();
  seed(loss, weights);
  flow_[static_cast<size_t>(loss.index)].complete = true;
  for (size_t i = forward_nodes; i-- > 0;) {
    const Node node = graph_.nodes()[i];
    bool reached = false;
    for (const TensorId out : node.out) {
      add_up(out);
      reached = reached || static_cast<bool>(of(out));
    }
    if (!reached) continue;
    if (node.op->backward == nullptr) fail("graph", "{} ({}) has no gradient rule", node.name, node.op->name);
    node.op->backward(*this, node);
  }
  for (size_t i = 0; i < flow_.size(); ++i) {
    const TensorInfo tensor = graph_.tensors()[i];
    if (tensor.kind != Kind::weight || flow_[i].parts.empty()) continue;
    graph_.add_node({&kCopy,
                     tensor.grad ? graph_[tensor.grad].name + ".round" : "",
                     {},
                     {flow_[i].parts[0]},
                     {tensor.grad},
                     Phase::finish,
                     false});
  }
}

void differentiate(Graph& graph, TensorId loss, const DifferentiateOptions& options) {
  if (options.micro_batches < 1)
    fail("graph", "the number of micro-batches must be positive, got {}", options.micro_batches);
  Gradients gradients(graph, options);
  gradients.count_readers(loss);
  gradients.make_gradients();
  gradients.run(loss, options.weights);
}

void differentiate(Graph& graph, TensorId loss, int micro_batches, TensorId weights) {
  differentiate(graph, loss, {.micro_batches = micro_batches, .weights = weights});
}

}  // namespace ulp
