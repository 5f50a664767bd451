// One table for every operator on every backend. A case is a small graph; a scheme says how its
// tensors are stored. The reference runs the graph, and each of its nodes is given, with the very
// bytes that the reference read, to every kernel of a backend that takes it. So no error is carried
// from node to node, and each kernel answers for itself.
//
// What is demanded of a kernel (rule_of):
//   exact    the stored bytes and the range events of the reference: elementwise operators, moves,
//            updates, and products where the scheme names an accumulator
//   bounded  a number within a bound of the reference's unrounded result, encoded once; or a sum in
//            double within one
// and of all but libraries' products: the same bits on one and on two threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/backend/update.h"
#include "ulp/graph/builder.h"
#include "ulp/graph/ops.h"

namespace ulp::conformance {

// How the tensors of a case are stored: each in the storage of the list that its number picks.
struct Scheme {
  std::string_view name;
  std::vector<std::string_view> storages;
  KernelOptions compute = {};
  bool required = false;  // every kernel must have been checked in it
};
std::span<const Scheme> schemes();

// A graph under construction, and how it is to be run. Tensors that no node makes get random
// values.
class Sketch {
 public:
  Graph graph;
  Builder b{graph, Mode::training};

  TensorId input(const Shape& shape);
  // The same, with a weight before it, so that gradients flow back to it.
  TensorId operand(const Shape& shape);
  TensorId target(const Shape& shape);
  TensorId indices(const Shape& shape, int64_t below);
  // Differentiates the mean squared distance of y (n, ...) from a target, or a loss (n).
  void train(TensorId y, int micro_batches = 1);
  void train_loss(TensorId loss, int micro_batches = 1);

  bool specials = false;  // among the values: NaN, infinities, subnormals, both zeros
  // Weights and optimizer state are stored in the scheme's formats, not in fp32.
  bool narrow_state = false;
  // How they are stored, whatever the scheme. A compensation is stored as its weight.
  std::string weights = "", states = "";
  bool by_rows = false;              // gradients of tables have the rows that are looked up
  float scale = 1;                   // of values
  uint16_t micro_batch = 0;          // above 0 sums are added to
  std::map<int32_t, int64_t> below;  // the numbers that an index tensor may hold

 private:
  std::string fresh(std::string_view what);
  int names_ = 0;
};

// Those that this program is linked with (conformance_host.cc, conformance_emulated.cc,
// cuda/conformance_cuda.cc).
using BackendOf = const Backend& (*)();
std::span<const BackendOf> tested_backends();

struct Case {
  std::string name;
  std::function<void(Sketch&)> build;
  bool large = false;  // checked in the required schemes only
};
const std::vector<Case>& cases();

using Build = std::function<void(Sketch&)>;
using Cases = std::vector<Case>;
// Adds a case with ordinary numbers, and one with NaN, infinities, subnormals and zeros among them.
void add_both(Cases& cases, const std::string& name, const Build& build);
// Sums of gradients, and the end of a step (conformance_steps.cc).
void add_steps(Cases& cases);

// What a bound looks at: a node and the numbers that it reads, decoded, weights as their operands.
struct View {
  const Graph& graph;
  const Node& node;
  std::vector<std::vector<float>> real;
  std::vector<const int32_t*> integers;
  double grad_scale;

  const Shape& in(size_t i) const { return graph[node.in[i]].shape; }
  const Shape& out(size_t i = 0) const { return graph[node.out[i]].shape; }
  int64_t integer(std::string_view name) const { return node.attrs.integer(name); }
};

// By output and element: how far an fp32 result may be from the reference's; infinity: it may be
// anything.
using Allowed = std::vector<std::vector<double>>;
struct Rule {
  std::string_view op;
  Allowed (*allowed)(const View& view);  // null: exact
};
// None for an operator that nobody has thought about.
std::optional<Rule> rule_of(std::string_view op);
// Whether its sums are the accumulator's.
bool is_product(std::string_view op);

// A kernel that was held to the rule of its operator.
struct Checked {
  std::string_view op, kernel;
  auto operator<=>(const Checked&) const = default;
};

// The kernels that a case in a scheme reaches, by node.
std::vector<Checked> reached(const Case& one, const Scheme& scheme, const Backend& backend);
// Runs them and reports what is wrong to GoogleTest.
void check(const Case& one, const Scheme& scheme, const Backend& backend);

}  // namespace ulp::conformance
