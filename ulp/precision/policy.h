// A policy chooses a precision assignment from a training graph alone. It is pure: the same graph,
// the same answer, before and after reverse mode. Every policy but `fp32` names every counted
// tensor, those that are never computed among them.
//
// Each has a row in the source that defines it, by_*.cc or listed.cc; policies.h lists them.
//
// Two look beyond the graph: sensitivity:R[:FILE] at what pilot steps measured, which stands in the file
// (`ulp sensitivity` writes it) or comes with the options, and peak:BYTES at plans. They are pure
// functions of that.
//
// Low and high are those of the candidates, whose weight gradients are usually always high. R
// counts whole groups, as in the public code of the precision-assignment paper. So size:R can end
// with a ratio of low elements slightly below R, and below 1 at R = 1. Groups of one size are taken
// by number.
//
// The ends are the graph's inputs and the tensors that the first and the last matrix product read
// and write, with parameters and gradients. `op` and `op-out` leave them high, as the paper does
// ("but not the first/last one"). Other policies do so with keep_first_last, which does not change
// the choice of groups.
//
// amp has candidates of its own, fp32 and the named format. As in the paper, activations, weights
// as products read them and all their gradients take 16 bits, rounded once from fp32 sums; weights
// have fp32 master copies. As in common practice, three things that cost next to nothing stay fp32,
// with their gradients: log-softmax, losses, and parameters of normalisations.
//
// products:FORMAT stores in the format what matrix products, convolutions and look-ups read and
// write, in forward and backward, the first and the last layer among them, and gradients of their
// weights. All else is fp32: normalisations, activation functions, additions, biases, losses. s2fp8
// and fp8 (e5m2) are the columns of the S2FP8 paper. A tensor is stored once, also where an addition
// reads it beside a product.
//
// fpu16 is the BF16 paper's 16-bit-FPU training, for any format. A run with it also keeps running
// statistics and optimizer state in the format, and rounds each operation of an optimizer step to
// it. What an operator writes is rounded once; a normalisation or an activation function is one
// operator.
//
// In a file, low is what has fewer bits than the candidates' high format. It is the model's if its
// names are, all of them and no others; batch size and width may differ.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/candidates.h"

namespace ulp {

struct Policy {
  virtual ~Policy() = default;
  virtual Assignment assign(const Graph& graph) const = 0;
};

// What a step takes under an assignment.
struct PeakUse {
  size_t bytes = 0;               // at the peak
  std::vector<std::string> live;  // names of the counted tensors that lie in memory at that moment
};

struct PolicyOptions {
  Candidates candidates = make_candidates();
  bool keep_first_last = false;
  // For peak:BYTES; whoever can plan gives it.
  std::function<PeakUse(const Assignment&)> peak = {};
  // For sensitivity:R without a file: by group, the error in the gradient (ulp/run/sensitivity.h)
  // when it alone is low.
  std::function<std::vector<double>()> sensitivities = {};
};

// By its text, in one of the forms of policy_forms. A file is read here, so that a policy does not
// change afterwards. Throws an Error for any other text, which says what is wrong with it and lists
// the forms.
std::unique_ptr<Policy> parse_policy(std::string_view text, const PolicyOptions& options = {});

// The format of the text fpu16:FORMAT; none for other policies. Throws an Error for one that cannot
// be computed in.
std::optional<FloatFormat> fpu_format(std::string_view policy);

// Whether the policy of a text brings its formats along, so that candidates have no say in it.
bool has_own_formats(std::string_view policy);

// "fp32, uniform, ...", for help and messages.
std::string policy_forms();

// A text of each form that needs no file, for tests that go through the policies.
std::vector<std::string_view> policy_examples();

}  // namespace ulp
