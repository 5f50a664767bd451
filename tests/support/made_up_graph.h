// Graphs to plan with, of operators that nobody runs.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp::harness {

class Random;

extern const OpDef kMadeUp;         // general
extern const OpDef kMadeUpMap;      // elementwise
extern const OpDef kMadeUpColumns;  // a reduction
extern const OpDef kMadeUpMove;     // moves codes, so that nobody sees values
extern const OpDef kMadeUpCopies;   // may copy codes

// A node NAME with one output of the same name.
class GraphMaker {
 public:
  Graph graph;
  Phase phase = Phase::forward;  // of what is added next

  // Anything, from anything.
  TensorId any(const std::string& name, std::vector<TensorId> in, const Shape& shape,
               Kind kind = Kind::activation, Element element = Element::real);
  // With the shape of the first input.
  TensorId map(const std::string& name, std::vector<TensorId> in);
  TensorId columns(const std::string& name, TensorId in);
  TensorId view(const std::string& name, TensorId in, const Shape& shape);
  TensorId copy(const std::string& name, TensorId in, Kind kind = Kind::activation);
  TensorId state(const std::string& name, const Shape& shape, Kind kind = Kind::weight);
  // Nodes that write what is there already.
  void write(const OpDef& op, const std::string& name, std::vector<TensorId> in, std::vector<TensorId> out,
             bool adds = false);

 private:
  TensorId add(const OpDef& op, const std::string& name, std::vector<TensorId> in, TensorInfo out);
};

// Every node that can stand in a graph: views, copies, states that are read and written in every
// phase, sums that are added to, and sizes around the alignment. The same graph for a seed on every
// machine.
Graph random_made_up_graph(Random& random);
Graph random_made_up_graph(uint64_t seed);

}  // namespace ulp::harness
