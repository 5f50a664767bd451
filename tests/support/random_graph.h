// Training graphs that no one would write: a seed, or bytes, decide which operators there are, what
// reads what, and all shapes. The same ones give the same graph on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>

#include "tests/support/harness.h"
#include "ulp/graph/graph.h"

namespace ulp::harness {

// The engine's words are the same everywhere; the distributions of the standard library are not, so
// there are none here. Draw into a variable, never twice in the arguments of one call: their order
// is the compiler's choice.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // What is drawn is a byte each, as long as there are some: for a fuzzer, which changes one choice
  // with one byte. They must outlive this.
  explicit Random(std::span<const uint8_t> bytes) : bytes_(bytes), engine_(1) {}

  uint64_t word() {
    if (bytes_.empty()) return engine_();
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  // Both ends included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(word() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t many) { return between(1, many) == 1; }
  template <typename List>
  const auto& among(const List& list) {
    return list[word() % std::size(list)];
  }

 private:
  std::span<const uint8_t> bytes_ = {};
  std::mt19937_64 engine_;
};

struct GraphOptions {
  // Rows are about as long as the pipeline's blocks, or longer. Most are no multiple of a vector.
  bool wide = false;
  int micro_batches = 1;
  double clip_norm = 0;
};

TrainingGraph random_graph(Random& random, const GraphOptions& options);

// The forward nodes, one a line: what a failing test prints. The others follow from them.
std::string forward_nodes(const Graph& graph);

}  // namespace ulp::harness
