// Policies that store what products and look-ups read and write in one narrow format, and nothing
// else: the columns of the S2FP8 paper's tables.
#include <algorithm>
#include <set>
#include <string>

#include "ulp/graph/op.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

// Names of the tensors, with their gradients. A bias, which has one axis, is added and not
// multiplied. A table of rows is read through what is looked up: S2FP8 then has the statistics of
// the rows that occur, and to the other formats it is the same.
std::set<std::string> product_tensors(const Graph& graph) {
  std::set<std::string> names;
  const auto add = [&](const TensorInfo& tensor) {
    names.insert(tensor.name);
    names.insert(tensor.name + ".grad");
  };
  for (const Node& node : graph.nodes()) {
    const bool looks_up = node.op == &kEmbedding;
    if (node.phase != Phase::forward || !(node.op->anchors || looks_up)) continue;
    bool computes = looks_up;  // a source anchors too, but multiplies nothing
    for (const TensorId in : node.in) {
      const TensorInfo& tensor = graph[graph.format_of(in)];
      if (tensor.kind == Kind::fed) continue;
      computes = true;
      if (looks_up) {
        names.insert(tensor.name + ".grad");
      } else if (tensor.kind != Kind::weight || tensor.shape.rank() > 1) {
        add(tensor);
      }
    }
    if (!computes) continue;
    for (const TensorId out : node.out) add(graph[out]);
  }
  return names;
}

class ProductPolicy : public Policy {
 public:
  ProductPolicy(Storage low, const PolicyOptions& options) : options_(options) {
    const Candidates::Pair pair{parse_storage("fp32"), std::move(low)};
    options_.candidates = {pair, pair, pair, pair};
  }

  Assignment assign(const Graph& graph) const override {
    const std::set<std::string> names = product_tensors(graph);
    return assign_low(graph, counted_tensors(graph), options_,
                      [&names](const CountedTensor& tensor) { return names.contains(tensor.name); });
  }

 private:
  PolicyOptions options_;
};

std::unique_ptr<Policy> products_in(std::string_view storage, const PolicyRequest& request) {
  return std::make_unique<ProductPolicy>(parse_storage(storage), request.options);
}

}  // namespace

constinit const PolicyInfo products_policy = {
    .name = "products",
    .form = "products:FORMAT",
    .example = "products:bf16",
    .make = [](const PolicyRequest& request) { return products_in(request.needed("a format"), request); },
    .own_formats = true};

constinit const PolicyInfo s2fp8_policy = {
    .name = "s2fp8",
    .form = "s2fp8",
    .example = "s2fp8",
    .make = [](const PolicyRequest& request) { return products_in("s2fp8", request); },
    .own_formats = true};

constinit const PolicyInfo fp8_policy = {
    .name = "fp8",
    .form = "fp8",
    .example = "fp8",
    .make = [](const PolicyRequest& request) { return products_in("e5m2", request); },
    .own_formats = true};

}  // namespace ulp
