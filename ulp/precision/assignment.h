// A precision assignment, the papers' central object: which tensor is stored as what. By name, so
// that it holds for every graph of a model (training, inference, other batch sizes) and can be
// written to a file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ulp/graph/format.h"
#include "ulp/graph/graph.h"
#include "ulp/precision/groups.h"

namespace ulp {

struct Assignment {
  // A tensor that is not named is fp32.
  std::map<std::string, Storage> storage = {};
  // The high format of each tensor that is stored low, and of no other. Promotion gives it to them.
  std::map<std::string, Storage> high = {};
  // The groups that a policy demoted, in its order. Promotion and kept ends do not change it.
  std::vector<int> low_groups = {};

  bool is_low(const std::string& name) const { return high.contains(name); }
  // The format of the tensor, fp32 if it is not named; and its high format.
  Storage storage_of(const std::string& name) const;
  Storage high_of(const std::string& name) const;
  // To the high format, for good. False where the tensor is not low and nothing changes.
  bool promote(const std::string& name);
};

// A hash of the assignment: eight hexadecimal digits.
std::string assignment_digest(const Assignment& assignment);

// The paper's low-precision ratio: elements stored low among all that are counted, from 0 to 1.
// Weight gradients that are always high keep it below 1.
double low_ratio(std::span<const CountedTensor> tensors, const Assignment& assignment);

// The paper's model aggregate: bits of all counted tensors. Codes of plain formats are counted as
// if they were packed without a gap; other storages with what lies beside their codes.
uint64_t aggregate_bits(std::span<const CountedTensor> tensors, const Assignment& assignment);

// The format of every tensor of the graph, by its number. A view and a part of a gradient follow
// Graph::format_of. Only activations, weights and their gradients can be assigned another format
// than fp32. A name that the graph does not have is passed over: an inference graph has no
// gradients. Throws an Error for a name whose tensor cannot have the format that it is given.
//
// `stored` says what state is kept as between steps: weights, optimizer state, running statistics;
// fp32 where it says nothing. The assignment's format of a weight is that of its operand, what
// products read of it.
std::vector<TensorFormat> resolve_formats(const Graph& graph, const Assignment& assignment,
                                          const std::map<std::string, Storage>& stored = {});

}  // namespace ulp
