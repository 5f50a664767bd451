// Reverse mode as explicit nodes. Every gradient is a tensor with a name: NAME.grad for the tensor
// NAME.
//
// If several nodes read an activation, each writes one part of its gradient (NAME.grad.0,
// NAME.grad.1 ..., in the order of the readers) in the gradient's format, and a node adds the
// parts. If a parameter is used more than once, or over several micro-batches, each use adds to a
// sum in fp32 (NAME.grad.sum), and one node writes NAME.grad when the sum is complete.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp {

class Gradients {
 public:
  // For the gradient rules of operators:

  // The complete gradient of a tensor that a forward node wrote; none if nothing flows back to it.
  TensorId of(TensorId tensor) const;
  bool wanted(TensorId input) const;
  // The tensor to write as this node's share in the gradient of its input. Once for each wanted
  // input.
  TensorId part(TensorId input);
  // A tensor of the given kind that only backward nodes see: NODE.NAME.
  TensorId temporary(const Node& node, std::string_view name, const Shape& shape, Kind kind = Kind::saved);
  // Adds the backward node NODE.OP to the graph.
  void emit(const OpDef& op, const Node& node, std::vector<TensorId> in, std::vector<TensorId> out,
            Attrs attrs = {});

  const Graph& graph() const { return graph_; }

 private:
  friend void differentiate(Graph& graph, TensorId loss, int micro_batches, TensorId weights);

  Gradients(Graph& graph, int micro_batches);
  void count_readers(TensorId loss);
  void make_gradients();
  void add_up(TensorId tensor);
  void seed(TensorId loss, TensorId weights);
  void run(TensorId loss, TensorId weights);

  struct Flow {
    bool wanted = false;   // a weight lies before it
    bool reached = false;  // the loss depends on it
    // Nodes that the gradient flows back from, counting each input.
    int readers = 0;
    std::vector<TensorId> parts = {};  // by reader, in reverse order while they arrive
    bool complete = false;             // something has been written to its gradient
  };

  Graph& graph_;
  const int micro_batches_;
  std::vector<Flow> flow_;  // by tensor
};

// Adds the nodes that compute the gradient of the mean of `loss` over its elements and the
// micro-batches, times the loss scale. With weights, fp32 numbers of the loss's shape, each element
// counts so often; the division is still by the elements. Throws an Error if a node in between has
// no gradient rule.
void differentiate(Graph& graph, TensorId loss, int micro_batches = 1, TensorId weights = {});

}  // namespace ulp
