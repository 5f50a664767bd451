#include "ulp/session/network.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

constexpr std::string_view kLossSumName = "loss_sum";

void check(const Graph& graph, const Network& network) {
  const auto known = [&](TensorId id) {
    return id.index >= 0 && static_cast<size_t>(id.index) < graph.tensor_count();
  };
  if (!network.loss) fail("session", "the build function returned no loss: set Network::loss to its terms");
  for (const TensorId id : {network.loss, network.weights, network.loss_sum}) {
    if (id && !known(id))
      fail("session", "the build function returned a tensor that its graph does not have");
  }
  if (network.loss_sum) {
    const TensorInfo& sum = graph[network.loss_sum];
    const Node* made = sum.producer ? &graph[sum.producer] : nullptr;
    const TensorId weights =
        made != nullptr && made->op == &kLossSum && made->in.size() > 1 ? made->in[1] : TensorId{};
    if (weights != network.weights) {
      fail("session",
           "'{}' sums the terms {}, but the loss has {}: sum them with loss_sum and the same weights, or "
           "leave "
           "loss_sum out",
           sum.name, weights ? "with weights" : "without weights", network.weights ? "weights" : "none");
    }
    if (sum.kind != Kind::saved || sum.element != Element::real)
      fail("session", "'{}' is no sum of the loss: use loss_sum or classify, or leave it out", sum.name);
    const TensorId terms = made->op == &kClassify ? made->in[2] : made->in[0];
    if (terms != network.loss) {
      fail("session",
           "'{}' sums '{}', but the loss is '{}': sum the terms of the loss, or leave loss_sum out", sum.name,
           graph[terms].name, graph[network.loss].name);
    }
  }
  const TensorInfo& loss = graph[network.loss];
  if (loss.kind == Kind::saved && loss.element == Element::real) {
    fail("session",
         "the loss '{}' is a sum: return its terms, one for each example, and Ulp takes their mean",
         loss.name);
  }
  if (loss.kind != Kind::activation || loss.element != Element::real) {
    fail("session", "the loss '{}' is a {} of {}: it must be computed by the network", loss.name,
         kind_name(loss.kind), element_name(loss.element));
  }
  if (network.weights) {
    const TensorInfo& weights = graph[network.weights];
    const bool is_fed = weights.producer && is_source(graph[weights.producer]);
    if (!is_fed || weights.kind != Kind::fed || weights.element != Element::real ||
        weights.shape != loss.shape) {
      fail("session", "weights of the loss must be a target of its shape {}, '{}' is a {} {} of {}",
           shape_text(loss.shape), weights.name, element_name(weights.element), kind_name(weights.kind),
           shape_text(weights.shape));
    }
  }
  for (size_t i = 0; i < network.outputs.size(); ++i) {
    const TensorId id = network.outputs[i];
    if (!known(id)) fail("session", "output {} of the build function is no tensor of its graph", i);
    if (graph[id].element != Element::real)
      fail("session", "output '{}' is of {}: only real numbers can be read", graph[id].name,
           element_name(graph[id].element));
  }
}

// The operand that a node reads as numbers from 0 on, and their end; none of other operators.
std::pair<TensorId, int64_t> index_limit(const Graph& graph, const Node& node) {
  if (node.op == &kNll || node.op == &kCrossEntropy || node.op == &kClassify)
    return {node.in[1], graph[node.in[0]].shape.back()};
  if (node.op == &kEmbedding) return {node.in[1], graph[node.in[0]].shape[0]};
  if (reads_resident(node)) return {node.in[0], node.attrs.integer("rows")};
  return {};
}

// FNV-1a over words.
class Hash {
 public:
  void add(uint64_t word) {
    for (int i = 0; i < 64; i += 8) value_ = (value_ ^ (word >> i & 0xFF)) * 0x100000001B3u;
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) value_ = (value_ ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace

std::string batch_shape_text(const BatchShape& shape) {
  std::string text = fmt::format("{}", shape.examples);
  for (const int64_t extent : shape.extents) text += fmt::format(", {}", extent);
  return text;
}

BuiltNetwork build_network(const BuildFunction& build, const BatchShape& shape, Mode mode) {
  if (!build) fail("session", "there is no build function");
  if (shape.examples < 1) fail("session", "the batch must be positive, got {}", shape.examples);
  BuiltNetwork made;
  Builder b(made.graph, mode);
  made.network = build(b, shape);
  check(made.graph, made.network);
  if (made.graph[made.network.loss].elements() % static_cast<size_t>(shape.examples) != 0) {
    fail("session", "the loss has {} terms for {} examples: each example must have the same number of them",
         made.graph[made.network.loss].elements(), shape.examples);
  }
  if (!made.network.loss_sum) {
    made.network.loss_sum = loss_sum(b, std::string(kLossSumName), made.network.loss, made.network.weights);
  }
  for (const Node& node : made.graph.nodes()) {
    if (is_source(node)) made.sources.push_back(node.out[0]);
    if (const auto [index, end] = index_limit(made.graph, node); index) {
      const NodeId producer = made.graph[index].producer;
      if (producer && is_source(made.graph[producer])) made.limits.push_back({index, end, node.name});
      if (producer && reads_resident(made.graph[producer]))
        made.resident_limits.push_back({index, end, node.name});
    }
    if (!reads_resident(node)) continue;
    // A device cannot check numbers, so they must come from the host.
    const NodeId numbers = made.graph[node.in[0]].producer;
    if (!numbers || !is_source(made.graph[numbers]))
      fail("session", "the numbers of examples that '{}' reads must be fed", node.name);
    made.resident.push_back(node.out[0]);
  }
  return made;
}

uint64_t graph_fingerprint(const Graph& graph) {
  Hash hash;
  for (const TensorInfo& tensor : graph.tensors()) {
    hash.add(tensor.name);
    hash.add(shape_text(tensor.shape));
    hash.add(static_cast<uint64_t>(tensor.kind));
    hash.add(static_cast<uint64_t>(tensor.element));
    hash.add(static_cast<uint64_t>(tensor.init.law));
    hash.add(std::bit_cast<uint32_t>(tensor.init.value));
  }
  for (const Node& node : graph.nodes()) {
    hash.add(node.op->name);
    hash.add(node.name);
    for (const auto* ids : {&node.in, &node.out}) {
      hash.add(ids->size());
      for (const TensorId id : *ids) hash.add(static_cast<uint64_t>(id.index));
    }
    for (const auto& [name, value] : node.attrs.values()) {
      hash.add(name);
      hash.add(std::bit_cast<uint64_t>(value));
    }
  }
  return hash.value();
}

uint64_t network_fingerprint(const Network& network) {
  Hash hash;
  for (const TensorId id : {network.loss, network.weights, network.loss_sum})
    hash.add(static_cast<uint64_t>(id.index));
  hash.add(network.outputs.size());
  for (const TensorId id : network.outputs) hash.add(static_cast<uint64_t>(id.index));
  return hash.value();
}

const Feed* FeedBatch::find(std::string_view name) const {
  const auto found = std::find_if(feeds.begin(), feeds.end(), [&](const Feed& f) { return f.name == name; });
  return found == feeds.end() ? nullptr : &*found;
}

namespace {

// What a source made for `count` examples takes for `total` of them.
Shape whole_shape(const Shape& piece, int64_t count, int64_t total) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < piece.rank(); ++axis) extents.push_back(piece[axis]);
  if (count != total) extents[0] = extents[0] * total / count;
  return Shape(extents);
}

void check_shape(const std::string& name, const Feed& feed, const Shape& wanted, const BatchShape& batch) {
  if (feed.shape.rank() == 0) return;
  if (feed.shape.elements() != feed.elements) {
    fail("session", "'{}' is fed {} elements as {}, which would be {}", name, feed.elements,
         shape_text(feed.shape), feed.shape.elements());
  }
  if (feed.shape != wanted) {
    fail("session", "'{}' is fed {}, and a batch of ({}) takes {}", name, shape_text(feed.shape),
         batch_shape_text(batch), shape_text(wanted));
  }
}

void check_sizes(const BuiltNetwork& network, const BatchShape& piece, const FeedBatch& batch) {
  const auto count = static_cast<size_t>(piece.examples), total = static_cast<size_t>(batch.shape.examples);
  for (const TensorId id : network.sources) {
    const TensorInfo& tensor = network.graph[id];
    const std::string& name = network.graph[tensor.producer].name;
    const Feed& feed = *batch.find(name);
    const size_t fed = feed.elements;
    const bool per_example = tensor.elements() % count == 0;
    if (!per_example && count != total) {
      fail("session", "'{}' has {} elements for {} examples, so it cannot be cut into micro-batches", name,
           tensor.elements(), count);
    }
    const size_t wanted = per_example ? tensor.elements() / count * total : tensor.elements();
    if (fed != wanted) {
      fail("session", "'{}' is fed {} elements, and a batch of ({}) takes {} ({} for {} examples)", name, fed,
           batch_shape_text(batch.shape), wanted, shape_text(tensor.shape), count);
    }
    check_shape(
        name, feed,
        whole_shape(tensor.shape, piece.examples, per_example ? batch.shape.examples : piece.examples),
        batch.shape);
  }
}

}  // namespace

void check_feeds(const BuiltNetwork& network, const BatchShape& piece, const FeedBatch& batch) {
  const Graph& graph = network.graph;
  const auto names = [&] {
    std::vector<std::string_view> all;
    for (const TensorId id : network.sources) all.push_back(graph[graph[id].producer].name);
    return fmt::format("{}", fmt::join(all, ", "));
  };
  for (const TensorId id : network.sources) {
    const std::string& name = graph[graph[id].producer].name;
    const Feed* feed = batch.find(name);
    if (feed == nullptr) fail("session", "nothing is fed to '{}': a step needs {}", name, names());
    if (feed->values == nullptr) fail("session", "the feed '{}' has no values", name);
    if (feed->element != graph[id].element) {
      fail("session", "'{}' takes {}, and is fed {}", name, element_name(graph[id].element),
           element_name(feed->element));
    }
  }
  for (const Feed& feed : batch.feeds) {
    const bool known = std::any_of(network.sources.begin(), network.sources.end(),
                                   [&](TensorId id) { return graph[graph[id].producer].name == feed.name; });
    if (!known)
      fail("session", "'{}' is fed, but the network has no such source: it has {}", feed.name, names());
  }
  for (size_t i = 0; i < batch.feeds.size(); ++i) {
    if (batch.find(batch.feeds[i].name) != &batch.feeds[i])
      fail("session", "the source '{}' is fed twice", batch.feeds[i].name);
  }
  check_sizes(network, piece, batch);
  for (const BuiltNetwork::IndexLimit& limit : network.limits) {
    const Feed& fed = *batch.find(graph[graph[limit.source].producer].name);
    for (size_t i = 0; i < fed.elements; ++i) {
      const int32_t index = static_cast<const int32_t*>(fed.values)[i];
      if (index >= 0 && index < limit.end) continue;
      fail("session", "element {} of '{}' is {}, and '{}' takes numbers from 0 to {}", i, fed.name, index,
           limit.reader, limit.end - 1);
    }
  }
}

void check_same_state(const Graph& graph, const BatchShape& shape, const Graph& other,
                      const BatchShape& other_shape) {
  for (const TensorInfo& tensor : other.tensors()) {
    const TensorId id = is_state(tensor.kind) ? graph.find(tensor.name) : TensorId{};
    if (!id || graph[id].shape == tensor.shape) continue;
    fail("session",
         "'{}' is {} for a batch of {} and {} for one of {}: what is kept between steps must not depend on "
         "the batch",
         tensor.name, shape_text(graph[id].shape), batch_shape_text(shape), shape_text(tensor.shape),
         batch_shape_text(other_shape));
  }
}

IndexRange index_range(std::span<const uint8_t> bytes) {
  IndexRange range;
  for (size_t i = 0; i < bytes.size() / sizeof(int32_t); ++i) {
    int32_t value = 0;
    std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
    if (i == 0 || value < range.least) {
      range.least = value;
      range.least_at = i;
    }
    if (i == 0 || value > range.most) {
      range.most = value;
      range.most_at = i;
    }
  }
  return range;
}

void check_resident(const BuiltNetwork& network, std::string_view node, const IndexRange& range) {
  for (const BuiltNetwork::IndexLimit& limit : network.resident_limits) {
    if (network.graph[network.graph[limit.source].producer].name != node) continue;
    if (range.least >= 0 && range.most < limit.end) continue;
    const bool below = range.least < 0;
    fail("session", "element {} of the data that is kept for '{}' is {}, and '{}' takes numbers from 0 to {}",
         below ? range.least_at : range.most_at, node, below ? range.least : range.most, limit.reader,
         limit.end - 1);
  }
}

bool Outputs::has(std::string_view tensor) const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [&](const Source& source) { return source.name == tensor && source.read; });
}

std::span<const float> Outputs::operator[](std::string_view tensor) const {
  if (const auto found = values_.find(tensor); found != values_.end()) return found->second;
  for (const Source& source : sources_) {
    if (source.name != tensor) continue;
    if (!source.read) {
      fail("session", "'{}' has more than {} bytes, so it can be read in evaluation only", tensor,
           kSmallOutput);
    }
    return values_[source.name] = source.read();
  }
  fail("session", "'{}' is no output of the network: list it in Network::outputs", tensor);
}

}  // namespace ulp
