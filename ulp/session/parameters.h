// Which weight is updated how: by which rule, with what learning rate and decay, and in which
// format it and its optimizer state are stored. One choice for all, and groups of parameters with
// others:
//
//   SELECTOR:KEY=VALUE[,KEY=VALUE ...]   groups are separated by spaces; of several that select a
//                                        weight and set one key the last holds
//
// A selector is norm (scales and shifts of normalisations), bias, matrix (all others), <COUNT or
// >=COUNT (elements), or a weight's name, which may begin or end in '*'. Keys: lr (a factor on the
// learning rate), decay, update, weight, state. Example: "norm:decay=0 bias:decay=0
// >=100000:update=stochastic".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/update.h"
#include "ulp/graph/graph.h"
#include "ulp/numeric/storage.h"
#include "ulp/optim/rule.h"
#include "ulp/precision/assignment.h"

namespace ulp {

// The storage of optimizer state. Sums of squares have over twice the range, and are divided by:
// they may need another format than the rest.
struct StateFormat {
  Storage first = parse_storage("fp32"), squares = parse_storage("fp32");
  bool stochastic = false;  // written by stochastic rounding

  bool operator==(const StateFormat&) const = default;
};

// fp32, bf16, fp16 or any plain format, followed by :sr for stochastic rounding; or 8bit, which
// always has that: scaled(e4m3), and scaled(e5m2,nonzero) for squares. With formats of less range
// than bf16, squares are stored as bf16. Throws an Error for other text.
StateFormat parse_state_format(std::string_view text);
std::string state_format_text(const StateFormat& format);

// A weight's own format: the same for all weights, or each operand's.
struct WeightFormat {
  bool assigned = false;
  Storage format = parse_storage("fp32");  // unless assigned

  Storage of(const Storage& operand) const { return assigned ? operand : format; }
  bool operator==(const WeightFormat&) const = default;
};
// "assigned", or the name of a plain format.
WeightFormat parse_weight_format(std::string_view text);

struct ParameterGroup {
  std::string selector;
  std::optional<double> lr_factor = {}, weight_decay = {};
  std::optional<UpdateRule> rule = {};
  std::optional<WeightFormat> weight = {};
  std::optional<StateFormat> state = {};
};

// Throws an Error for text that is no such list.
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

struct UpdateOptions {
  UpdateRule rule = {};
  WeightFormat weight = {};
  StateFormat state = {};
  std::vector<ParameterGroup> groups = {};
  // The format for a group that switches to a narrow rule where weights are fp32 and names no
  // format.
  Storage narrow = parse_storage("bf16");
  bool promotes = true;  // weights may be promoted to their high format
  // For a machine with one narrow format: what each operation of a step is rounded to, and what
  // running statistics are stored in.
  std::optional<FloatFormat> arithmetic = {};
};

// How one weight is updated and stored.
struct ParameterChoice {
  ParameterUpdate update;
  UpdateRule rule;
  WeightFormat weight;
  StateFormat state;
};
using ParameterChoices = std::map<std::string, ParameterChoice>;

// For every weight of a training graph. Throws an Error for a group that selects none, and for
// state that the optimizer cannot be stored in.
ParameterChoices choose_parameters(const Graph& graph, const OptimizerConfig& optimizer,
                                   const UpdateOptions& options);
// Weights that are stored as assigned, and permanently assigned more than 16 bits, are updated like
// master weights.
void settle_assigned(ParameterChoices& choices, const UpdateOptions& options, const Assignment& assignment);
// Throws an Error if the rule and format of a weight are incompatible, with the format that the
// assignment gives it now or would by promotion.
void check_stored(const ParameterChoices& choices, const UpdateOptions& options,
                  const Assignment& assignment);

// What is stored between steps, by name: weights, their states, running statistics. Everything else
// is fp32.
std::map<std::string, Storage> stored_formats(const Graph& graph, const ParameterChoices& choices,
                                              const UpdateOptions& options, const Assignment& assignment);

}  // namespace ulp
