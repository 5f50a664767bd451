// What the engine makes of a build function and of batches (ulp/network.h, ulp/session.h). None of
// this knows a task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/builder.h"
#include "ulp/graph/graph.h"
#include "ulp/session.h"  // IWYU pragma: export

namespace ulp {

// "128" or "16, 64".
std::string batch_shape_text(const BatchShape& shape);

// A forward graph with what the engine needs to know of it.
struct BuiltNetwork {
  Graph graph;
  Network network;  // with a loss_sum
  std::vector<TensorId> sources, resident;
  // What an operator reads as numbers from 0 on: a source or resident data, the end of the numbers,
  // and who reads.
  struct IndexLimit {
    TensorId source;
    int64_t end = 0;
    std::string reader;
  };
  std::vector<IndexLimit> limits, resident_limits;
};
// Throws an Error if the function returns no loss, or one with another number of terms for each
// example, and for weights, sums and outputs that are none.
BuiltNetwork build_network(const BuildFunction& build, const BatchShape& shape, Mode mode);
// A number that differs if the nodes, names, shapes or attributes of two graphs do, as far as chance
// allows.
uint64_t graph_fingerprint(const Graph& graph);
// The same of what the build function has returned beside the graph.
uint64_t network_fingerprint(const Network& network);

// Throws an Error unless there is exactly one feed of the right element for every source of the
// graph, of the right size if the graph, made for `piece`, is run over the batch piece by piece, and
// its indices are within their limits: a device could not say so.
void check_feeds(const BuiltNetwork& network, const BatchShape& piece, const FeedBatch& batch);

// Throws an Error if the graphs of two shapes differ in the shape of what is kept between steps.
void check_same_state(const Graph& graph, const BatchShape& shape, const Graph& other,
                      const BatchShape& other_shape);

// The least and the largest of an array of int32, and where each stands first.
struct IndexRange {
  int32_t least = 0, most = 0;
  size_t least_at = 0, most_at = 0;
};
IndexRange index_range(std::span<const uint8_t> bytes);
// Throws an Error if the array that is kept for a node has numbers that an operator does not take.
void check_resident(const BuiltNetwork& network, std::string_view node, const IndexRange& range);

}  // namespace ulp
