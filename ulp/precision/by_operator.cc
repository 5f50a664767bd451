// Policies that go by the operators around a tensor, and the ends of a network.
#include <algorithm>
#include <optional>
#include <vector>

#include "ulp/graph/op.h"
#include "ulp/graph/ops/loss.h"
#include "ulp/graph/ops/norm.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

using Names = std::set<std::string>;

// A matrix product of forward. Views stand for what they are views of.
struct Product {
  std::vector<std::string> inputs, parameters, outputs;
};

struct Anchors {
  std::vector<std::string> sources;  // the graph's inputs
  std::vector<Product> products;     // in the order they run

  explicit Anchors(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (node.phase != Phase::forward || !node.op->anchors) continue;
      Product product;
      for (const TensorId in : node.in) {
        const TensorInfo& tensor = graph[graph.format_of(in)];
        if (tensor.kind == Kind::fed) continue;  // numbers of examples, rows of a table
        (tensor.kind == Kind::weight ? product.parameters : product.inputs).push_back(tensor.name);
      }
      for (const TensorId out : node.out) product.outputs.push_back(graph[out].name);
      if (product.inputs.empty() && product.parameters.empty()) {
        sources.insert(sources.end(), product.outputs.begin(), product.outputs.end());
      } else {
        products.push_back(std::move(product));
      }
    }
  }
};

void add(Names& names, const std::vector<std::string>& tensors) {
  names.insert(tensors.begin(), tensors.end());
}

void add_grads(Names& names, const std::vector<std::string>& tensors) {
  for (const std::string& name : tensors) names.insert(name + ".grad");
}

void add_all(Names& names, const std::vector<std::string>& tensors) {
  add(names, tensors);
  add_grads(names, tensors);
}

Names ends_of(const Anchors& anchors) {
  Names names;
  add_all(names, anchors.sources);
  if (anchors.products.empty()) return names;
  for (const Product* product : {&anchors.products.front(), &anchors.products.back()}) {
    for (const auto* tensors : {&product->inputs, &product->parameters, &product->outputs}) {
      add_all(names, *tensors);
    }
  }
  return names;
}

class OperatorPolicy : public Policy {
 public:
  OperatorPolicy(bool outputs, const PolicyOptions& options) : outputs_(outputs), options_(options) {
    options_.keep_first_last = true;  // part of the rule
  }

  Assignment assign(const Graph& graph) const override {
    Names low;
    for (const Product& product : Anchors(graph).products) {
      add(low, product.inputs);
      add(low, product.parameters);
      add_grads(low, product.outputs);
      if (!outputs_) continue;
      add(low, product.outputs);
      add_grads(low, product.inputs);
      add_grads(low, product.parameters);
    }
    return assign_low(graph, counted_tensors(graph), options_,
                      [&low](const CountedTensor& tensor) { return low.contains(tensor.name); });
  }

 private:
  const bool outputs_;
  PolicyOptions options_;
};

bool is_parameter(Kind kind) { return kind == Kind::weight || kind == Kind::weight_grad; }

class AmpPolicy : public Policy {
 public:
  AmpPolicy(const FloatFormat& format, const PolicyOptions& options) : options_(options) {
    const Candidates::Pair pair{parse_storage("fp32"), Plain{format}};
    options_.candidates = {pair, pair, pair, pair};
  }

  Assignment assign(const Graph& graph) const override {
    return assign_low(graph, counted_tensors(graph), options_,
                      [](const CountedTensor& tensor) { return !needs_fp32(tensor); });
  }

 private:
  static bool needs_fp32(const CountedTensor& tensor) {
    const auto made_by = [&tensor](std::initializer_list<const OpDef*> ops) {
      return std::any_of(ops.begin(), ops.end(), [&](const OpDef* op) { return op->name == tensor.op; });
    };
    if (is_parameter(tensor.kind)) return made_by({&kBatchNorm, &kLayerNorm});
    return made_by({&kLogSoftmax, &kNll, &kCrossEntropy, &kMse, &kBceWithLogits});
  }

  PolicyOptions options_;
};

}  // namespace

std::set<std::string> end_tensors(const Graph& graph) { return ends_of(Anchors(graph)); }

Assignment assign_low(const Graph& graph, std::span<const CountedTensor> tensors,
                      const PolicyOptions& options, const std::function<bool(const CountedTensor&)>& low) {
  const Names ends = options.keep_first_last ? end_tensors(graph) : Names();
  Assignment assignment;
  for (const CountedTensor& tensor : tensors) {
    const Candidates::Pair& pair = options.candidates[tensor.kind];
    const bool lowered = pair.can_be_low() && !ends.contains(tensor.name) && low(tensor);
    assignment.storage.emplace(tensor.name, lowered ? pair.low : pair.high);
    if (lowered) assignment.high.emplace(tensor.name, pair.high);
  }
  return assignment;
}

// What matrix products read in forward and backward low: inputs, parameters, gradients of outputs.
constinit const PolicyInfo op_policy = {"op", "op", "op",
                                        [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
                                          return std::make_unique<OperatorPolicy>(false, request.options);
                                        }};

// What they write low too: outputs, gradients of inputs and parameters.
constinit const PolicyInfo op_out_policy = {"op-out", "op-out", "op-out",
                                            [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
                                              return std::make_unique<OperatorPolicy>(true, request.options);
                                            }};

// Mixed-precision training: 16 bits where fp32 is not needed.
constinit const PolicyInfo amp_policy = {
    "amp", "amp:bf16, amp:fp16", "amp:bf16",
    [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
      const std::string_view name = request.needed("a format");
      const std::optional<FloatFormat> format = find_format(name);
      if (format != parse_format("bf16") && format != parse_format("fp16"))
        request.refuse("its format must be bf16 or fp16, got '{}'", name);
      return std::make_unique<AmpPolicy>(*format, request.options);
    },
    true};

}  // namespace ulp
