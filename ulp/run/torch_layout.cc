#include "ulp/run/torch_layout.h"

#include "ulp/graph/op.h"
#include "ulp/graph/ops/conv.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/graph/ops/move.h"

namespace ulp {
namespace {

// The image whose elements, flattened, are the columns of this tensor; none if it is not one. What
// works element by element keeps the order.
TensorId flattened_image(const Graph& graph, TensorId columns) {
  while (graph[columns].producer) {
    const Node& node = graph[graph[columns].producer];
    if (node.in.empty()) break;
    const TensorId from = node.in[0];
    const Shape &in = graph[from].shape, &out = graph[columns].shape;
    if (node.op == &kReshape) {
      const bool flattens = in.rank() == Shape::kMaxRank && out.rank() == 2 && in[0] == out[0];
      return flattens ? from : TensorId{};
    }
    if (node.op->form != Form::elementwise || in != out) break;
    columns = from;
  }
  return {};
}

size_t size(int64_t extent) { return static_cast<size_t>(extent); }

}  // namespace

std::vector<size_t> TorchLayout::places() const {
  std::vector<size_t> places;
  places.reserve(rows * pixels * channels);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t c = 0; c < channels; ++c) {
      for (size_t pixel = 0; pixel < pixels; ++pixel) places.push_back((row * pixels + pixel) * channels + c);
    }
  }
  return places;
}

std::map<std::string, TorchLayout> torch_layouts(const Graph& graph) {
  std::map<std::string, TorchLayout> layouts;
  for (const TensorInfo& tensor : graph.tensors()) {
    if (tensor.kind != Kind::weight && tensor.kind != Kind::statistic) continue;
    TorchLayout& layout = layouts[tensor.name];
    layout.rows = tensor.elements();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) layout.shape.push_back(size(tensor.shape[axis]));
  }
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::forward || (node.op != &kConv2d && node.op != &kLinear)) continue;
    const TensorInfo& weight = graph[node.in[1]];
    const auto found = layouts.find(weight.name);
    if (found == layouts.end()) continue;  // not a weight, but computed
    TorchLayout& layout = found->second;
    if (node.op == &kConv2d) {
      layout.rows = size(weight.shape.n());
      layout.pixels = size(weight.shape.h() * weight.shape.w());
      layout.channels = size(weight.shape.c());
      layout.shape = {layout.rows, layout.channels, size(weight.shape.h()), size(weight.shape.w())};
    } else if (const TensorId image = flattened_image(graph, node.in[0])) {
      layout.rows = size(weight.shape[0]);
      layout.pixels = size(graph[image].shape.h() * graph[image].shape.w());
      layout.channels = size(graph[image].shape.c());
    }
  }
  return layouts;
}

}  // namespace ulp
