#include "ulp/backend/ref/reference_task.h"

namespace ulp::ref {

ReferenceTask::ReferenceTask(const Problem& problem, Function function, Outputs outputs)
    : graph_(problem.graph()),
      node_(problem.root()),
      function_(function),
      outputs_(outputs),
      accumulator_(accumulator_spec(problem.plan)) {
  Workspace workspace;
  for (const TensorId id : node_.in) {
    Input input{id, problem.tensor(id).element == Element::real, {}, 0};
    if (input.real) {
      input.reader = Reader(problem, id);
      input.space = workspace.book(input.reader.space());
    }
    in_.push_back(input);
  }
  for (const TensorId id : node_.out) {
    Output output{id, problem.tensor(id).element == Element::real, {}, {}, 0};
    if (output.real) {
      output.reader = Reader(problem, id);
      output.writer = Writer(problem, node_, id);
      const bool always_direct = output.writer.may_be_direct() && problem.tensor(id).kind != Kind::grad_sum;
      output.space = workspace.book(always_direct ? 0 : output.writer.elements());
    }
    out_.push_back(output);
  }
  in_data_.resize(in_.size());
  out_data_.resize(out_.size());
  workspace_ = workspace.bytes();
}

void ReferenceTask::run(const RunContext& context) {
  for (size_t i = 0; i < in_.size(); ++i) {
    const Input& input = in_[i];
    if (input.real) {
      in_data_[i] = input.reader.all(context, floats(context, input.space));
    } else {
      in_data_[i] = context.bytes(input.id);
    }
  }
  for (size_t i = 0; i < out_.size(); ++i) {
    const Output& output = out_[i];
    if (!output.real) {
      out_data_[i] = context.bytes(output.id);
      continue;
    }
    float* direct = output.writer.direct(context);
    out_data_[i] = direct != nullptr ? direct : floats(context, output.space);
    if (outputs_ == Outputs::in_place && direct == nullptr) {
      output.reader.all(context, floats(context, output.space));
    }
  }
  function_({{graph_, node_, in_data_, out_data_}, *context.state, accumulator_ ? &*accumulator_ : nullptr});
  for (size_t i = 0; i < out_.size(); ++i) {
    const Output& output = out_[i];
    if (output.real && output.writer.direct(context) == nullptr) {
      output.writer.all(context, static_cast<const float*>(out_data_[i]));
    }
  }
}

}  // namespace ulp::ref
