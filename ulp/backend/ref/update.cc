// The end of a step: the norm of all gradients, and optimizer steps. State is read as it is stored
// (a weight's operand is rounded for operators, not for its update), changed, and written where it
// was.
#include "ulp/backend/update.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <variant>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/numeric/nearest.h"

namespace ulp::ref {
namespace {

class SquaresTask : public Task {
 public:
  explicit SquaresTask(const Problem& problem) {
    size_t space = 0;
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      sums_.push_back({Reader(problem, node.in[0]), node.out[0]});
      space = std::max(space, sums_.back().grad.space());
    }
    Workspace workspace;
    workspace.book(space);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (const auto& [reader, out] : sums_) {
      const float* grad = reader.all(context, floats(context, 0));
      double squares = 0;
      for (size_t i = 0; i < reader.elements(); ++i) squares += static_cast<double>(grad[i]) * grad[i];
      *context.as<double>(out) = squares;
    }
  }

 private:
  struct Sum {
    Reader grad;
    TensorId out;
  };
  std::vector<Sum> sums_;
};

class NormTask : public Task {
 public:
  explicit NormTask(const Problem& problem)
      : squares_(problem.root().in),
        out_(problem.root().out[0]),
        max_norm_(problem.root().attrs.real("max_norm")) {}

  void run(const RunContext& context) override {
    double squares = 0;
    for (const TensorId id : squares_) squares += *context.as<const double>(id);
    const NormAndFactor result = norm_and_factor(squares, context.state->update.grad_scale, max_norm_);
    context.as<float>(out_)[0] = result.norm;
    context.as<float>(out_)[1] = result.factor;
  }

 private:
  const std::vector<TensorId> squares_;
  const TensorId out_;
  const double max_norm_;
};

// A tensor that a step changes, decoded.
struct Changed {
  TensorId id;
  Reader reader;
  Writer writer;
};

struct Step {
  UpdateNode node;
  Reader grad;
  std::vector<Changed> changed;  // the weight, its states, its compensation
  std::optional<Nearest> near;   // of the weight's format, with compensation
  CodecSpec spec = {};           // the same format
};

class UpdateTask : public Task {
 public:
  explicit UpdateTask(const Problem& problem) : plan_(problem.plan) {
    if (plan_.options.arithmetic) arithmetic_ = make_nearest(*plan_.options.arithmetic);
    size_t most = 0;
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      Step step{UpdateNode(plan_, node), Reader(problem, node.in[0]), {}, {}, {}};
      const auto add = [&](TensorId tensor, Round mode) {
        step.changed.push_back(
            {tensor, Reader::stored(problem, tensor), Writer(problem, node, tensor, mode)});
      };
      // A compensated weight is rounded by its rule, to a number that its storage has.
      add(step.node.weight, step.node.compensation ? Round::nearest_even : step.node.weight_round());
      for (const TensorId state : step.node.states) add(state, step.node.state_round());
      if (step.node.compensation) {
        add(step.node.compensation, Round::nearest_even);
        const Plain& format = std::get<Plain>(problem.format(step.node.weight).storage);
        const Overflow overflow =
            tensor_rounding(plan_, problem.tensor(step.node.weight), format, {}).overflow;
        step.near = make_nearest(format.format, overflow);
        step.spec = make_spec(format.format, overflow);
      }
      most = std::max(most, problem.tensor(step.node.weight).elements());
      steps_.push_back(std::move(step));
    }
    Workspace workspace;
    grad_ = workspace.book(most);
    before_ = workspace.book(most);
    for (size_t& space : space_) space = workspace.book(most);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (const Step& step : steps_) run(context, step);
  }

 private:
  static constexpr size_t kMost = 4;  // a weight, Adam's two moments, a compensation

  void run(const RunContext& context, const Step& step) {
    const UpdateScalars scalars = step.node.scalars(
        plan_, *context.state, step.node.norm ? context.as<const float>(step.node.norm)[1] : 1.0f);
    const TensorInfo& table = plan_.graph[step.node.weight];
    const size_t n = table.elements();
    const float* grad = step.grad.all(context, floats(context, grad_));
    // By element of the weight: its gradient's; none for the rows that have none.
    std::vector<std::optional<size_t>> of(n);
    if (step.node.rows) {
      const size_t width = table.shape.back();
      const int32_t* rows = context.as<const int32_t>(step.node.rows);
      for (size_t j = 0; j < step.grad.elements(); ++j)
        if (rows[j / width] >= 0) of[static_cast<size_t>(rows[j / width]) * width + j % width] = j;
    } else {
      for (size_t i = 0; i < n; ++i) of[i] = i;
    }
    std::array<float*, kMost> values{};
    for (size_t k = 0; k < step.changed.size(); ++k) {
      values[k] = floats(context, space_[k]);
      const float* stored = step.changed[k].reader.all(context, values[k]);
      if (stored != values[k]) std::copy_n(stored, n, values[k]);
    }
    float* weight = values[0];
    float* before = floats(context, before_);
    std::copy_n(weight, n, before);
    UpdateCounts counts;
    EncodeStats events;
    std::vector<bool> moved(n);  // or zero: not lost
    for (size_t i = 0; i < n; ++i) {
      moved[i] = !of[i];
      if (!of[i]) continue;
      std::array<float, kMost> state{};
      const size_t states = step.node.states.size();
      for (size_t k = 0; k < states; ++k) state[k] = values[1 + k][i];
      const float decrease = std::visit(
          [&](const auto& optimizer) {
            return arithmetic_
                       ? optimizer.decrease(scalars, weight[i], grad[*of[i]], state.data(), *arithmetic_)
                       : optimizer.decrease(scalars, weight[i], grad[*of[i]], state.data());
          },
          step.node.optimizer);
      for (size_t k = 0; k < states; ++k) values[1 + k][i] = state[k];
      counts.updates += decrease != 0 ? 1 : 0;
      moved[i] = decrease == 0;
      if (!step.near) {
        weight[i] = direct_update(weight[i], decrease);
        continue;
      }
      float* compensation = values[1 + states] + i;
      const Compensated made = kahan_update(weight[i], decrease, *compensation, *step.near, [&](float sum) {
        return rounded_sum(context, step, i, sum, events);
      });
      moved[i] = moved[i] || made.compensation != *compensation;
      weight[i] = made.weight;
      *compensation = made.compensation;
    }
    for (size_t k = 0; k < step.changed.size(); ++k) {
      const Changed& one = step.changed[k];
      const bool sums = k == 0 && step.near;
      EncodeStats written;
      if (step.node.rows) {
        const size_t width = table.shape.back();
        for (size_t first = 0; first < n; first += width)
          if (of[first]) one.writer.write(context, first, {values[k] + first, width}, written);
      } else if (sums) {
        one.writer.write(context, 0, {values[k], n}, written);
      } else {
        one.writer.all(context, values[k]);
        continue;
      }
      // The events of a compensated weight are those of the sum.
      context.report(one.id, sums ? events : written);
    }
    const float* after = step.changed[0].reader.all(context, values[0]);
    for (size_t i = 0; i < n; ++i) counts.cancelled += !moved[i] && after[i] == before[i] ? 1 : 0;
    context.report(step.node.weight, counts);
  }

  // Kahan's sum in the weight's format: to nearest, or at random by the words of the weight.
  float rounded_sum(const RunContext& context, const Step& step, size_t i, float sum,
                    EncodeStats& events) const {
    const TensorInfo& weight = plan_.graph[step.node.weight];
    const Round mode = step.node.weight_round();
    const Rounding rounding =
        tensor_rounding(plan_, weight, plan_.formats[static_cast<size_t>(step.node.weight.index)].storage,
                        *context.state, mode);
    const uint32_t word = mode == Round::stochastic ? random_word(rounding.key, i) : 0;
    const Encoded made = encode_scalar(step.spec, mode, float_bits(settle_nan(sum)), word);
    events.overflow += made.event == RangeEvent::overflow ? 1 : 0;
    events.underflow += made.event == RangeEvent::underflow ? 1 : 0;
    events.nan += made.event == RangeEvent::nan ? 1 : 0;
    if (std::abs(sum) > events.amax) events.amax = std::abs(sum);
    return bits_float(decode_scalar(step.spec, made.code));
  }

  const PlanContext& plan_;
  std::optional<Nearest> arithmetic_;
  std::vector<Step> steps_;
  size_t grad_ = 0, before_ = 0;
  std::array<size_t, kMost> space_{};
};

}  // namespace

std::span<const KernelDef> update_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"grad_squares", "reference", takes_no_inlined, make_one<SquaresTask>},
      {"grad_norm", "reference", takes_one_node, make_one<NormTask>},
      {"update", "reference", takes_no_inlined, make_one<UpdateTask>},
  };
  return kKernels;
}

}  // namespace ulp::ref
