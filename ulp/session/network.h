// What the engine trains: a function that builds a forward graph, the batches that are fed to it, and
// what is read of it afterwards. None of this knows a task.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/graph/builder.h"
#include "ulp/graph/graph.h"

namespace ulp {

// What a graph is built for. `extents` are what else decides its shapes, such as the length of
// sequences; only the build function knows their meaning.
struct BatchShape {
  int64_t examples = 0;
  std::vector<int64_t> extents = {};

  // The same for another number of examples.
  BatchShape of(int64_t count) const { return {count, extents}; }
  auto operator<=>(const BatchShape&) const = default;
};
// "128" or "16, 64".
std::string batch_shape_text(const BatchShape& shape);

// What a build function has made. Its sources (ulp/graph/ops/source.h) are what must be fed, by the
// names of their nodes.
struct Network {
  // Terms of the loss: one for each example, position, or whatever is learned from. Training takes
  // the gradient of their mean.
  TensorId loss = {};
  // Of the terms: fp32 numbers of their shape, from a source `target`. The mean is then weighted.
  // None: each term counts 1. A weight of 0 leaves a term out, as for padding.
  TensorId weights = {};
  // A tensor whose first number is the sum of the (weighted) terms, if the graph has one anyway;
  // else the engine adds one.
  TensorId loss_sum = {};
  // What metrics read. In training those of more than kSmallOutput bytes are not kept.
  std::vector<TensorId> outputs = {};
};
inline constexpr size_t kSmallOutput = 4096;

// Adds the forward nodes for a shape. It must be a pure function of the shape and the builder's mode.
using BuildFunction = std::function<Network(Builder& b, const BatchShape& shape)>;

// A forward graph with what the engine needs to know of it.
struct BuiltNetwork {
  Graph graph;
  Network network;  // with a loss_sum
  std::vector<TensorId> sources, resident;
};
// Throws an Error if the function returns no loss, or one with another number of terms for each
// example, and for weights, sums and outputs that are none.
BuiltNetwork build_network(const BuildFunction& build, const BatchShape& shape, Mode mode);
// A number that differs if the nodes, names, shapes or attributes of two graphs do, as far as chance
// allows.
uint64_t graph_fingerprint(const Graph& graph);

// An array for one source. The caller keeps it until the step is done.
struct Feed {
  std::string_view name;  // of the source's node
  Element element = Element::real;
  const void* values = nullptr;
  size_t elements = 0;
};
inline Feed feed_of(std::string_view name, std::span<const float> values) {
  return {name, Element::real, values.data(), values.size()};
}
inline Feed feed_of(std::string_view name, std::span<const int32_t> values) {
  return {name, Element::int32, values.data(), values.size()};
}
inline Feed feed_of(std::string_view name, std::span<const uint8_t> values) {
  return {name, Element::byte, values.data(), values.size()};
}

// What one step is fed. The first axis of every feed runs over the examples, or over a multiple of
// them, so that it can be cut into micro-batches.
struct FeedBatch {
  BatchShape shape = {};
  std::vector<Feed> feeds = {};
  uint32_t epoch = 0;  // names the random words of batches made from resident data

  const Feed* find(std::string_view name) const;
};

// Throws an Error unless there is exactly one feed of the right element for every source of the
// graph. The engine checks sizes.
void check_feeds(const BuiltNetwork& network, const FeedBatch& batch);

// What the outputs of a network hold after a run.
class Outputs {
 public:
  using Read = std::function<std::vector<float>(TensorId)>;
  Outputs(const BuiltNetwork& network, std::span<const TensorId> kept, int64_t first, int64_t count,
          Read read)
      : network_(network), kept_(kept), first_(first), count_(count), read_(std::move(read)) {}

  // The examples of the batch that these outputs are of.
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  bool has(std::string_view tensor) const;
  // By tensor name, in fp32. Throws an Error for a tensor that is no output, or was not kept.
  std::span<const float> operator[](std::string_view tensor) const;

 private:
  const BuiltNetwork& network_;
  std::span<const TensorId> kept_;
  int64_t first_, count_;
  Read read_;
  mutable std::map<int32_t, std::vector<float>> values_;
};
// Called after each micro-batch, and after each piece of an evaluation.
using OutputReader = std::function<void(const Outputs& outputs)>;

}  // namespace ulp
