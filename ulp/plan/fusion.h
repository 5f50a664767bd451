// Fusion: which tensors need not be stored, and which nodes are computed inside others.
#pragma once

#include <span>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/graph/graph.h"

namespace ulp {

struct Fusion {
  // By tensor: the tensor that owns its bytes; usually itself.
  std::vector<TensorId> base;
  // By tensor: computed inside its readers.
  std::vector<bool> inlined;
  // By node: it runs inside others, or not at all.
  std::vector<bool> absorbed;
};

// Copies that change nothing, and views, share their input's bytes. With `fuse`, tensors are
// inlined except those flagged in `stored`.
Fusion find_fusion(const PlanContext& plan, bool fuse, const std::vector<bool>& stored);

// The nodes computed inside `node`, in graph order.
std::vector<NodeId> inlined_nodes(const Graph& graph, const Fusion& fusion, NodeId node);

}  // namespace ulp
