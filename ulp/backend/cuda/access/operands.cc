#include "ulp/backend/cuda/access/operands.h"

#include <algorithm>

#include "ulp/tensor/stored.h"

namespace ulp::cuda {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

uint32_t* side_at(uint8_t* data, size_t offset) { return reinterpret_cast<uint32_t*>(data + offset); }

EncodeStats* stats_of(const RunContext& context, TensorId id) {
  return context.stats == nullptr ? nullptr : context.stats + id.index;
}

}  // namespace

StoredView stored_view(const Storage& storage, Overflow overflow, size_t elements) {
  StoredView view;
  view.elements = elements;
  view.fp32 = is_fp32(storage);
  const auto codec = [&](const FloatFormat& format) {
    view.bits = static_cast<uint8_t>(format.bits());
    return make_quick(make_spec(format, overflow));
  };
  std::visit(Overloaded{[&](const Plain& plain) { view.codec = codec(plain.format); },
                        [&](const S2fp8&) {
                          view.kind = Stored::s2fp8;
                          view.bits = 8;
                          view.codec = make_quick(make_spec(parse_format("e5m2"), Overflow::saturate));
                        },
                        [&](const Split& split) {
                          view.kind = Stored::split;
                          view.bits = static_cast<uint8_t>(split.high.bits());
                          view.extra = static_cast<uint8_t>(split.extra);
                          view.side_bits = static_cast<uint8_t>(split.side_bits());
                          view.random_high = split.stochastic;
                          view.codec = make_quick(make_wide_spec(split, overflow));
                        },
                        [&](const Scaled& scaled) {
                          view.kind = Stored::scaled;
                          view.nonzero = scaled.nonzero;
                          view.codec = codec(scaled.element);
                        }},
             storage);
  return view;
}

Operand::Operand(const Problem& problem, TensorId id) : id_(id) {
  const size_t elements = problem.tensor(id).elements();
  const TensorFormat format = read_format(problem, id);
  view_.stored = stored_view(format.storage, overflow_of(problem.plan, format.storage), elements);
  side_ = aligned_bytes(storage_size(format.storage, elements).code_bytes);
  if (const Plain* plain = std::get_if<Plain>(&format.storage)) format_ = plain->format;
  plain_ = format_.has_value() && !format.operand;
  if (!format.operand || is_fp32(*format.operand)) return;
  reports_ = first_reader(problem, id);
  weight_ = problem.graph().bytes_of(id);
  const TensorInfo& weight = problem.tensor(weight_);
  view_.number = weight.number;
  view_.mode = tensor_rounding(problem.plan, weight, *format.operand, {}).mode;
  if (const Plain* plain = std::get_if<Plain>(&*format.operand)) {
    view_.rounds = true;
    view_.operand = make_quick(make_spec(plain->format, overflow_of(problem.plan, *format.operand)));
    format_ = plain->format;
    return;
  }
  // Split storage is never an operand format.
  format_.reset();
  if (const Scaled* scaled = std::get_if<Scaled>(&*format.operand)) {
    view_.rounds_scaled = true;
    view_.operand_nonzero = scaled->nonzero;
    view_.operand = make_quick(make_spec(scaled->element, overflow_of(problem.plan, *format.operand)));
    return;
  }
  view_.rounds_s2fp8 = true;
  view_.operand = make_quick(make_spec(parse_format("e5m2"), Overflow::saturate));
}

Operand Operand::stored(const Problem& problem, TensorId id) {
  Operand operand;
  const Storage& storage = problem.format(id).storage;
  operand.id_ = id;
  operand.view_.stored =
      stored_view(storage, overflow_of(problem.plan, storage), problem.tensor(id).elements());
  operand.side_ = aligned_bytes(storage_size(storage, problem.tensor(id).elements()).code_bytes);
  if (const Plain* plain = std::get_if<Plain>(&storage)) operand.format_ = plain->format;
  operand.plain_ = operand.format_.has_value();
  return operand;
}

ReadView Operand::view(const RunContext& context) const {
  ReadView view = view_;
  view.stored.codes = context.bytes(id_);
  view.stored.side = side_at(view.stored.codes, side_);
  if (reports_) view.stats = stats_of(context, weight_);
  return view;
}

const float* Operand::all(const RunContext& context, float* space, void* convert_space) const {
  if (fp32()) return context.as<const float>(id_);
  decode(view(context), context.state, Rows::all(elements()), DecodedType::fp32, space, convert_space,
         context.stream);
  return space;
}

Result::Result(const Problem& problem, const Node& node, TensorId id)
    : Result(problem, node, id,
             is_state(problem.tensor(id).kind) ? Round::nearest_even : problem.plan.options.round) {}

Result::Result(const Problem& problem, const Node& node, TensorId id, Round mode) : id_(id) {
  const TensorInfo& tensor = problem.tensor(id);
  const Storage& storage = problem.format(id).storage;
  const Rounding rounding = tensor_rounding(problem.plan, tensor, storage, {}, mode);
  view_.stored = stored_view(storage, rounding.overflow, tensor.elements());
  view_.mode = rounding.mode;
  view_.state = is_state(tensor.kind);
  view_.sums = tensor.kind == Kind::grad_sum;
  view_.adds = node.adds;
  view_.number = tensor.number;
  side_ = aligned_bytes(storage_size(storage, tensor.elements()).code_bytes);
}

WriteView Result::view(const RunContext& context) const {
  WriteView view = view_;
  view.stored.codes = context.bytes(id_);
  view.stored.side = side_at(view.stored.codes, side_);
  if (!view.stored.fp32) view.stats = stats_of(context, id_);
  return view;
}

float* Result::target(const RunContext& context, float* space) const {
  return direct() ? context.as<float>(id_) : space;
}

void Result::write(const RunContext& context, const float* space, void* convert_space) const {
  if (direct()) return;
  encode(view(context), context.state, Rows::all(elements()), space, convert_space, context.stream);
}

size_t convert_bytes(const Problem& problem) {
  const auto shifted = [&](TensorId id) {
    const TensorFormat& format = problem.format(id);
    return std::holds_alternative<S2fp8>(format.storage) ||
           (format.operand && std::holds_alternative<S2fp8>(*format.operand));
  };
  for (const std::vector<NodeId>* nodes : {&problem.inlined, &problem.roots}) {
    for (const NodeId id : *nodes) {
      const Node& node = problem.graph()[id];
      if (std::any_of(node.in.begin(), node.in.end(), shifted) ||
          std::any_of(node.out.begin(), node.out.end(), shifted))
        return kConvertSpace;
    }
  }
  return aligned_bytes(1);
}

ArrayTask::ArrayTask(const Problem& problem) : graph_(problem.graph()), node_(problem.root()) {
  convert_space_ = book_.book(1, convert_bytes(problem));
  for (const TensorId id : node_.in) {
    Input input{id, {}, 0};
    if (problem.tensor(id).element == Element::real) {
      input.operand = Operand(problem, id);
      input.space = book_.book(input.operand->space());
    }
    in_.push_back(std::move(input));
  }
  for (const TensorId id : node_.out) {
    Output output{id, {}, 0};
    if (problem.tensor(id).element == Element::real) {
      output.result = Result(problem, node_, id);
      output.space = book_.book(output.result->space());
    }
    out_.push_back(std::move(output));
  }
  workspace_ = book_.bytes();
}

size_t ArrayTask::book(size_t count, size_t size) {
  const size_t offset = book_.book(count, size);
  workspace_ = book_.bytes();
  return offset;
}

void ArrayTask::run(const RunContext& context) {
  void* convert_space = context.workspace + convert_space_;
  Arrays arrays;
  for (const Input& input : in_) {
    if (input.operand) {
      arrays.in.push_back(input.operand->all(context, floats(context, input.space), convert_space));
    } else {
      arrays.in.push_back(context.bytes(input.id));
    }
  }
  for (const Output& output : out_) {
    if (output.result) {
      arrays.out.push_back(output.result->target(context, floats(context, output.space)));
    } else {
      arrays.out.push_back(context.bytes(output.id));
    }
  }
  launch_on(context, arrays);
  for (size_t i = 0; i < out_.size(); ++i) {
    if (out_[i].result)
      out_[i].result->write(context, static_cast<const float*>(arrays.out[i]), convert_space);
  }
}

}  // namespace ulp::cuda
