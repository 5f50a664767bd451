#include "ulp/backend/cuda/access/decode_around.h"

namespace ulp::cuda {

StoredView array_view(float* data, size_t elements) {
  StoredView view;
  view.codes = reinterpret_cast<uint8_t*>(data);
  view.elements = elements;
  return view;
}

DecodeAroundTask::DecodeAroundTask(const Problem& problem) {
  const Node& node = problem.root();
  Workspace book;
  convert_space_ = book.book(1, convert_bytes(problem));
  for (const TensorId id : node.in) {
    Input input;
    input.id = id;
    if (problem.tensor(id).element == Element::real) {
      input.operand = Operand(problem, id);
      const bool weight = problem.tensor(problem.graph().bytes_of(id)).kind == Kind::weight;
      input.decoded = (weight || read_format(problem, id).operand) && !input.operand->fp32();
      if (input.decoded) input.space = book.book(input.operand->elements());
    }
    in_.push_back(std::move(input));
  }
  for (const TensorId id : node.out) {
    Output output;
    output.id = id;
    if (problem.tensor(id).element == Element::real) {
      output.result = Result(problem, node, id);
      if (!output.result->in_groups()) output.space = book.book(output.result->elements());
    }
    out_.push_back(std::move(output));
  }
  workspace_ = book.bytes();
}

void DecodeAroundTask::run(const RunContext& context) {
  void* convert_space = context.workspace + convert_space_;
  Views views;
  for (const Input& input : in_) {
    if (input.decoded) {
      float* space = floats(context, input.space);
      input.operand->all(context, space, convert_space);
      views.in.push_back(array_view(space, input.operand->elements()));
    } else if (input.operand) {
      views.in.push_back(input.operand->view(context).stored);
    } else {
      views.in.emplace_back().codes = context.bytes(input.id);
    }
  }
  for (const Output& output : out_) {
    if (!output.result) {
      views.out.emplace_back().stored.codes = context.bytes(output.id);
    } else if (output.result->in_groups()) {
      views.out.push_back(output.result->view(context));
    } else {
      views.out.emplace_back().stored = array_view(floats(context, output.space), output.result->elements());
    }
  }
  launch_on(context, views);
  for (const Output& output : out_) {
    if (output.result && !output.result->in_groups())
      output.result->write(context, floats(context, output.space), convert_space);
  }
}

}  // namespace ulp::cuda
