#include "ulp/backend/found_inf.h"

#include <stdexcept>

#include "ulp/graph/graph.h"

namespace ulp {

std::vector<TensorId> checked_gradients(const Graph& graph) {
  std::vector<TensorId> gradients;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    if (is_gradient(tensor.kind) && !tensor.twin) gradients.push_back({static_cast<int32_t>(i)});
  }
  return gradients;
}

bool gradients_overflowed(double loss, const Graph& graph, std::span<const EncodeStats> stats) {
  if (stats.size() < graph.tensor_count())
    throw std::logic_error("range events are one for each tensor of the graph");
  const std::vector<TensorId> gradients = checked_gradients(graph);
  return gradients_overflowed(
      loss, 0, static_cast<uint32_t>(gradients.size()), 1,
      [&](uint32_t i) -> const EncodeStats& { return stats[static_cast<size_t>(gradients[i].index)]; });
}

}  // namespace ulp
