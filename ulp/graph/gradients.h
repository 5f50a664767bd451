// Reverse mode as explicit nodes. Every gradient is a tensor with a name: NAME.grad for the tensor
// NAME.
//
// If several nodes read an activation, each writes one part of its gradient (NAME.grad.0,
// NAME.grad.1 ..., in the order of the readers) in the gradient's format, and a node adds the
// parts. If a parameter is used more than once, or over several micro-batches, each use adds to a
// sum in fp32 (NAME.grad.sum), and one node writes NAME.grad when the sum is complete.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp {

struct DifferentiateOptions {
  int micro_batches = 1;
  // fp32 numbers of the loss's shape: each element counts so often. The division is still by the
  // elements.
  TensorId weights = {};
  // Tables whose gradients have only the rows that were looked up, at most `count`; none: no table.
  // A table that is read more than once, over several micro-batches too, has a sum of all rows, and
  // so has one whose rows are no multiple of eight elements.
  std::function<bool(TensorId table, int64_t count)> by_rows = {};
};

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
  // Whether a table's gradient is to have only the rows that were looked up.
  bool by_rows(TensorId table, int64_t count) const;
  // Instead of part(), for a table by rows of which at most `count` are looked up: its gradient
  // (n, width) and the numbers of its rows (n).
  std::pair<TensorId, TensorId> rows_of(TensorId table, int64_t count);
  // Adds the backward node NODE.OP to the graph.
  void emit(const OpDef& op, const Node& node, std::vector<TensorId> in, std::vector<TensorId> out,
            Attrs attrs = {});

  const Graph& graph() const { return graph_; }

 private:
  friend void differentiate(Graph& graph, TensorId loss, const DifferentiateOptions& options);

  Gradients(Graph& graph, const DifferentiateOptions& options);
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
  const std::function<bool(TensorId, int64_t)> by_rows_;
  std::vector<Flow> flow_;  // by tensor
};

// Adds the nodes that compute the gradient of the mean of `loss` over its elements and the
// micro-batches, times the loss scale. Throws an Error if a node in between has no gradient rule.
void differentiate(Graph& graph, TensorId loss, const DifferentiateOptions& options);
void differentiate(Graph& graph, TensorId loss, int micro_batches = 1, TensorId weights = {});

}  // namespace ulp
