// Sums of gradients, and the end of a step: what becomes of weights and their state.
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/support/optimizers.h"
#include "ulp/backend/update.h"

namespace ulp::conformance {
namespace {

// A weight that is used twice, and a second micro-batch: gradients are added up in fp32 and rounded
// once.
void shared_weights(Sketch& s, int micro_batches) {
  s.micro_batch = static_cast<uint16_t>(micro_batches - 1);
  TensorId x = s.operand({3, 6, 5, 16});
  x = conv2d(s.b, "conv", x, {16, 3, 1, 1, 1, true});
  x = batch_norm(s.b, "batch_norm", x);
  x = flatten(s.b, "flat", max_pool(s.b, "pool", x, {2}));
  x = linear(s.b, "linear", x, {17, true});
  x = layer_norm(s.b, "layer_norm", x);
  const TensorId weight = s.b.weight("shared.weight", {17, 17}, Init::constant(0));
  const TensorId once = nodes(s.b).add_one(kLinear, "once", {x, weight}),
                 twice = nodes(s.b).add_one(kLinear, "twice", {once, weight});
  const TensorId rows = embedding(s.b, "table", s.indices({3}, 5), 5, 17);
  s.train(add(s.b, "total", twice, rows), micro_batches);
}

// Weights of all sizes, from one element to several pieces of a task, with gradients that no node
// makes.
void updates(Sketch& s, const ParameterUpdate& update, double max_norm, bool narrow) {
  s.narrow_state = narrow;
  for (const int64_t n : {1, 17, 130, 8193, 30011}) {
    const std::string name = "weight" + std::to_string(n);
    const TensorId weight = s.b.weight(name, {n}, Init::constant(0));
    TensorInfo grad;
    grad.name = name + ".grad";
    grad.shape = {n};
    grad.kind = Kind::weight_grad;
    const TensorId made = s.graph.add_tensor(std::move(grad));
    s.graph.edit(weight).grad = made;
  }
  add_updates(s.graph, update_spec(update), max_norm);
}

// Tables of which a step looks a few rows up, most of them more than once, or all of them; with
// `many` places gradients have several pieces, which end within rows. Extra bits of a row are whole
// words.
void row_updates(Sketch& s, const ParameterUpdate& update, double max_norm, bool many = false) {
  s.by_rows = true;
  struct Table {
    int64_t rows, width;
    Shape places;
  };
  const int64_t n = many ? 50 : 1, width = s.weights.find('+') == s.weights.npos ? 8 : 32;
  const Shape total{54 * n, width};
  TensorId sum = s.input(total);
  for (const Table& one : {Table{50, width, {6, 9 * n}},
                           {7, width, {54 * n}},
                           {3000, width, {2 * n, 27}},
                           {400, 9 * width, {6 * n}}}) {
    const std::string name = "table" + std::to_string(one.rows);
    const TensorId places = s.indices(one.places, one.rows);
    const TensorId rows = embedding(s.b, name, places, one.rows, one.width);
    sum = add(s.b, name + ".sum", sum, reshape(s.b, name + ".flat", rows, total));
  }
  s.train(sum);
  add_updates(s.graph, update_spec(update), max_norm);
}

// In plain formats and fp32.
void narrow_row_updates(Sketch& s, const ParameterUpdate& update, bool narrow) {
  if (narrow) s.weights = "fp(4,3,0)", s.states = "e8m5";
  s.narrow_state = narrow;
  row_updates(s, update, 0);
}

}  // namespace

void add_steps(Cases& cases) {
  cases.push_back({"shared weights", [](Sketch& s) { shared_weights(s, 1); }});
  cases.push_back({"shared weights, second micro-batch", [](Sketch& s) { shared_weights(s, 2); }});

  for (const auto& [name, config] : optimizer_forms()) {
    for (const bool narrow : {false, true}) {
      const std::string title = name + (narrow ? ", narrow state" : "");
      add_both(cases, title, [config = config, narrow](Sketch& s) { updates(s, {config}, 0, narrow); });
      add_both(cases, title + ", by rows",
               [config = config, narrow](Sketch& s) { narrow_row_updates(s, {config}, narrow); });
    }
  }
  // The rules, with gradients in the scheme's formats.
  struct Written {
    const char *weights, *states;
    bool compensated, stochastic, state_stochastic;
  };
  for (const Written& one : {Written{"bf16", "bf16", false, true, false},
                             {"bf16", "bf16", true, false, false},
                             {"fp16", "fp16", true, true, true},
                             {"bf16+16", "bf16", false, false, false},
                             {"bf16+8sr", "bf16", false, false, true},
                             {"fp(6,9,0)+11", "e8m5", false, false, false},
                             {"fp16+8", "fp32", false, false, false},
                             {"e8m5", "scaled(e4m3)", true, true, false},
                             {"bf16", "scaled(e5m2,nonzero)", false, true, true}}) {
    for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw, OptimizerKind::adagrad}) {
      const OptimizerConfig config = test_optimizer(kind);
      const std::string title = std::string(optimizer_name(kind)) + ", " + one.weights +
                                (one.stochastic ? " stochastic" : "") +
                                (one.compensated ? " compensated" : "") + ", states " + one.states;
      add_both(cases, title, [=](Sketch& s) {
        s.weights = one.weights;
        s.states = one.states;
        updates(s, {config, one.compensated, one.stochastic, one.state_stochastic}, 0, true);
      });
      if (std::string_view(one.states).starts_with("scaled")) continue;
      const auto by_rows = [=](Sketch& s, bool many) {
        s.weights = one.weights;
        s.states = one.states;
        s.narrow_state = true;
        row_updates(s, {config, one.compensated, one.stochastic, one.state_stochastic}, 0, many);
      };
      add_both(cases, title + ", by rows", [=](Sketch& s) { by_rows(s, false); });
      if (kind == OptimizerKind::adagrad)
        cases.push_back({title + ", by many rows", [=](Sketch& s) { by_rows(s, true); }});
    }
  }
  // Above and below the norm of these gradients.
  const OptimizerConfig momentum = test_optimizer(OptimizerKind::sgd);
  const OptimizerConfig adam = test_optimizer(OptimizerKind::adam);
  cases.push_back({"momentum clipped", [=](Sketch& s) { updates(s, {momentum}, 0.01, false); }});
  cases.push_back({"adam not clipped", [=](Sketch& s) { updates(s, {adam}, 1e6, true); }});
  cases.push_back({"momentum by rows, clipped", [=](Sketch& s) { row_updates(s, {momentum}, 0.01); }});
}

}  // namespace ulp::conformance
