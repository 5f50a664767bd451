#include "apps/ulp/plan_choices.h"

#include <fmt/format.h>

#include "apps/ulp/text.h"
#include "ulp/graph/products.h"

namespace ulp {
namespace {

using OverflowCheck = EngineOptions::FusedOverflow;

// With what aligning each tensor adds.
std::string per_parameter(const Engine& engine) {
  const Graph& graph = engine.graph();
  const Plan& plan = engine.training_plan();
  size_t weights = 0, states = 0;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const size_t bytes = plan.place({static_cast<int32_t>(i)}).bytes;
    if (graph.tensors()[i].kind == Kind::weight) weights += bytes;
    if (graph.tensors()[i].kind == Kind::optimizer) states += bytes;
  }
  const auto n = static_cast<double>(std::max<size_t>(graph.parameters(), 1));
  return fmt::format("bytes of a parameter between steps: {:.2f} (weights {:.2f}, optimizer state {:.2f})\n",
                     engine.bytes_per_parameter(), static_cast<double>(weights) / n,
                     static_cast<double>(states) / n);
}

// A policy would choose other formats for each row, or find none that fit.
EngineOptions with_formats_of(const Engine& engine, EngineOptions options) {
  options.assignment = engine.assignment();
  return options;
}

std::string fused_line(EngineOptions options, std::string_view name, bool fused, OverflowCheck overflow_check,
                       bool checks_inf) {
  options.fused_backward = fused;
  options.fused_overflow_of = overflow_check;
  options.may_skip = [checks_inf](auto&&...) { return checks_inf; };
  if (overflow_check == OverflowCheck::snapshot) options.clip_norm = 0;
  const Engine engine(options);
  std::string extra = "none";
  if (engine.makes_gradients_twice()) {
    const Graph& graph = engine.graph();
    const uint64_t again = multiply_adds(graph, Phase::recompute);
    const uint64_t once = multiply_adds(graph, Phase::forward) + multiply_adds(graph, Phase::backward);
    extra = again == 0 ? "sums are rounded twice"
                       : fmt::format("{:.2f} G multiply-adds more, {:.0f}% of a step's",
                                     static_cast<double>(again) * 1e-9,
                                     100 * static_cast<double>(again) / static_cast<double>(once));
  } else if (engine.keeps_snapshot()) {
    extra =
        fmt::format("{} copied each step", bytes_text(static_cast<double>(engine.planned_bytes().snapshot)));
  }
  return fmt::format("  {:<46}{:>12}  {}\n", name,
                     bytes_text(static_cast<double>(engine.planned_peak_bytes())), extra);
}

}  // namespace

std::string update_summary(const EngineOptions& chosen, const Engine& engine) {
  const EngineOptions options = with_formats_of(engine, chosen);
  const bool checks_inf = options.may_skip && options.may_skip(engine.counted(), engine.assignment());
  const bool norm = options.clip_norm > 0;
  std::string text = per_parameter(engine);
  text += fmt::format("backward and updates{:<28}{:>12}  {}\n", "", "peak", "extra work a step");
  text += fused_line(options, "all gradients, then all updates", false, OverflowCheck::twice, checks_inf);
  if (!norm && !checks_inf) text += fused_line(options, "fused", true, OverflowCheck::twice, false);
  text += fused_line(
      options,
      norm ? "fused, gradients made twice for their norm" : "fused, gradients made twice to skip overflows",
      true, OverflowCheck::twice, true);
  if (!norm)
    text +=
        fused_line(options, "fused, with a snapshot to skip overflows", true, OverflowCheck::snapshot, true);
  return text;
}

std::string update_table(const EngineOptions& chosen, const Engine& engine) {
  const EngineOptions options = with_formats_of(engine, chosen);
  constexpr const char* kStates[] = {"fp32", "bf16", "8bit"};
  const bool has_state = !optimizer_states(make_optimizer(options.optimizer)).empty();
  std::string text = fmt::format(
      "bytes of a parameter with {}, by rule and format of state (weights in bf16 but for "
      "master)\n{:<20}",
      optimizer_name(options.optimizer.kind), "rule");
  for (const char* state : kStates) text += fmt::format("{:>8}", state);
  text += '\n';
  for (const UpdateRule& rule : update_rules()) {
    text += fmt::format("{:<20}", update_rule_text(rule));
    for (const char* state : kStates) {
      EngineOptions other = options;
      UpdateOptions& updates = other.precision.updates;
      updates = {.rule = rule, .state = parse_state_format(state)};
      if (rule.kind != UpdateRule::Kind::master) updates.weight = parse_weight_format("bf16");
      const bool possible = !has_state || !optimizer_traits(options.optimizer.kind).only_grows ||
                            std::string_view(state) != "8bit";
      text +=
          possible ? fmt::format("{:>8.2f}", Engine(other).bytes_per_parameter()) : fmt::format("{:>8}", "-");
    }
    text += '\n';
  }
  return text;
}

}  // namespace ulp
