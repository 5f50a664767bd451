// What models are written with: it adds a forward node with its output tensors, and weights by
// name. The operators' own calls (conv2d, relu ...) are in ulp/graph/ops.h.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp {

enum class Mode : uint8_t { training, inference };

class Builder {
 public:
  Builder(Graph& graph, Mode mode) : graph_(graph), mode_(mode) {}

  // A node NAME with outputs NAME.out and so on. Errors of the shape rule name the node.
  std::vector<TensorId> add(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                            Attrs attrs = {});
  // The same where the first output is all that is wanted.
  TensorId add_one(const OpDef& op, const std::string& name, std::vector<TensorId> in, Attrs attrs = {}) {
    return add(op, name, std::move(in), std::move(attrs)).front();
  }

  TensorId weight(const std::string& name, const Shape& shape, Init init);
  TensorId statistic(const std::string& name, const Shape& shape, float start);

  const Shape& shape(TensorId id) const { return graph_[id].shape; }
  bool training() const { return mode_ == Mode::training; }
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  Mode mode_;
};

}  // namespace ulp
