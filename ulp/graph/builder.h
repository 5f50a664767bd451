// How a Builder (ulp/network.h) and the operators' calls (ulp/operators.h) reach the graph. What
// makes an operator stands in ulp/graph/ops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"
#include "ulp/operators.h"  // IWYU pragma: export

namespace ulp {

// What operators do with a Builder beside what users of the library may.
class NodeBuilder {
 public:
  explicit NodeBuilder(Builder& builder) : b_(builder) {}

  // A node, with outputs NAME.out and so on.
  std::vector<TensorId> add(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                            const Attrs& attrs = {});
  // The same where the first output is all that is wanted.
  TensorId add_one(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                   const Attrs& attrs = {});
  // Running state of that name, which starts at a constant.
  TensorId statistic(const std::string& name, const Shape& shape, float start);
  Graph& graph() { return b_.graph_; }
  // What add will call a node of this name: another in later time steps.
  std::string node_name(const std::string& name) const;

 private:
  Builder& b_;
};

inline NodeBuilder nodes(Builder& b) { return NodeBuilder(b); }

}  // namespace ulp
