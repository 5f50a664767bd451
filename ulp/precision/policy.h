// A policy chooses a precision assignment from a training graph alone. It is pure: the same graph, the same
// answer.
#pragma once

#include <memory>
#include <string_view>

#include "ulp/graph/graph.h"
#include "ulp/precision/assignment.h"

namespace ulp {

struct Policy {
  virtual ~Policy() = default;
  virtual Assignment assign(const Graph& graph) const = 0;
};

// By its text on the command line: `fp32`, where every tensor is fp32. Anything else throws an Error that
// lists the known ones.
std::unique_ptr<Policy> parse_policy(std::string_view text);

}  // namespace ulp
