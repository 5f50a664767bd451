// A precision assignment, the papers' central object: which tensor is stored as what. By name, so that it
// holds for every graph of a model (training, inference, other batch sizes) and can be written to a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ulp/graph/format.h"
#include "ulp/graph/graph.h"

namespace ulp {

struct Assignment {
  std::map<std::string, Storage> storage = {};  // a tensor that is not named is fp32
};

// The format of every tensor of the graph, by its number. A view and a part of a gradient follow
// Graph::format_of. Only activations, weights and their gradients can have another format than fp32; a weight
// is stored in fp32 and its assigned format is that of the operand. A name that the graph does not have is
// passed over: an inference graph has no gradients. Throws an Error for a name whose tensor cannot have the
// format that it is given.
std::vector<TensorFormat> resolve_formats(const Graph& graph, const Assignment& assignment);

}  // namespace ulp
