// Tasks for fused_elementwise.h: from a problem to its pattern, and to the arguments of the
// pattern's kernel.
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/batchnorm/batchnorm_grid.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/elementwise.h"
#include "ulp/backend/fusable.h"
#include "ulp/graph/ops/activation.h"
#include "ulp/graph/ops/arithmetic.h"
#include "ulp/graph/ops/norm.h"
#include "ulp/tensor/memory.h"

namespace ulp::cuda {
namespace {

bool reduces(const Node& node) { return node.op->form == Form::reduction; }

// How many of a node's inputs have a value per element; the others have one per channel.
size_t full_inputs(const Node& node) {
  if (node.op == &kBatchNorm) return 1;
  if (node.op == &kBatchNormGrad || node.op == &kBatchNormSums) return 2;
  return node.in.size();
}

bool has_channels(const Node& node) { return reduces(node) || full_inputs(node) < node.in.size(); }

// A problem as an expression.
struct Expression {
  std::string text;
  std::vector<TensorId> leaves;  // distinct by the bytes they read
  std::vector<NodeId> stages;    // children first
  bool tree = true;              // no node is reached twice

  explicit Expression(const Problem& problem) { walk(problem, problem.roots[0]); }

  FusedLaunch find() const { return find_fused(text); }

 private:
  void walk(const Problem& problem, NodeId id) {
    const Node& node = problem.graph()[id];
    text += std::string(node.op->name) + "(";
    const bool many = node.op == &kSum && node.in.size() > 2;
    if (many) text += "many";
    for (size_t i = 0; i < full_inputs(node); ++i) {
      if (i > 0 && !many) text += ",";
      const TensorId in = problem.plan.base_of(node.in[i]);
      const NodeId producer = problem.graph()[in].producer;
      if (std::find(problem.inlined.begin(), problem.inlined.end(), producer) != problem.inlined.end()) {
        walk(problem, producer);
      } else {
        if (!many) text += "x";
        leaves.push_back(in);
      }
    }
    text += ")";
    tree = tree && std::find(stages.begin(), stages.end(), id) == stages.end();
    stages.push_back(id);
  }
};

std::string why_not(const Problem& problem) {
  if (problem.roots.size() != 1) {
    const bool copies = std::all_of(problem.roots.begin(), problem.roots.end(),
                                    [&](NodeId id) { return problem.graph()[id].op == &kCopy; });
    return copies && problem.inlined.empty() ? "" : "takes one operator, or copies";
  }
  const Expression expression(problem);
  if (!expression.tree) return "an inlined node is read twice";
  if (expression.leaves.size() > kMaxLeaves) return "more than 8 inputs";
  if (expression.find() == nullptr) return "no kernel for " + expression.text;
  for (const NodeId id : expression.stages) {
    for (const TensorId in : problem.graph()[id].in) {
      if (problem.tensor(in).element != Element::real) return "reads no real numbers";
    }
  }
  return "";
}

// A tensor that kernels read in place. It is decoded first if reading it rounds (a weight to its
// operand format, which is reported) or needs a pass over the whole tensor.
struct Input {
  Operand operand;
  bool decoded = false;
  size_t space = 0;

  Input(const Problem& problem, TensorId id, bool whole, Workspace& book) : operand(problem, id) {
    decoded = !operand.in_groups() || (whole && operand.form().rounds);
    if (decoded) space = book.book(operand.elements());
  }
};

ReadView fp32_view(float* data, size_t elements) {
  ReadView view;
  view.stored.codes = reinterpret_cast<uint8_t*>(data);
  view.stored.elements = elements;
  return view;
}

WriteView fp32_target(float* data, size_t elements) {
  WriteView view;
  view.stored = fp32_view(data, elements).stored;
  return view;
}

// Whether the result is a value of the first input or 0, both in one plain format, so that writing
// it rounds nothing.
bool chooses_numbers(const Problem& problem, const Node& node) {
  if (node.op != &kActivation<elementwise::Relu> && node.op != &kActivationGrad<elementwise::Relu>)
    return false;
  const TensorFormat in = read_format(problem, node.in[0]);
  return !in.operand && std::holds_alternative<Plain>(in.storage) &&
         in.storage == problem.format(node.out[0]).storage;
}

class FusedTask : public Task {
 public:
  explicit FusedTask(const Problem& problem) {
    const Expression expression(problem);
    const Node& root = problem.root();
    launch_ = expression.find();
    text_ = expression.text;
    convert_ = book_.book(1, convert_bytes(problem));
    const Shape& shape = reduces(root) ? problem.shape(root.in[0]) : problem.shape(root.out[0]);
    call_.elements = shape.elements();
    for (const TensorId id : expression.leaves) add_leaf(problem, id);
    for (const NodeId id : expression.stages) add_stage(problem, id, shape);
    for (const TensorId out : root.out) results_.push_back({out, Result(problem, root, out), 0, false});
    for (Output& output : results_) {
      const WriteView& view = output.result.form();
      // Results that a kernel cannot write by groups, or computes channel by channel, are computed
      // in fp32 and encoded as a whole.
      output.buffered = reduces(root) ? !view.stored.fp32 : !output.result.in_groups();
      if (output.buffered) output.space = book_.book(output.result.elements());
      if (!reduces(root)) {
        call_.rounder =
            make_rounder(view.stored.fp32 || output.buffered, view.stored.codec, view.mode, view.number);
        call_.rounder.exact = chooses_numbers(problem, root);
      }
    }
    if (reduces(root)) {
      static std::atomic<uint32_t> tickets = 0;
      call_.ticket = tickets++;
      partial_ = book_.book(partial_floats(call_.elements, call_.channels));
    }
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    launch_(call_for(context), context.stream);
    for (const Output& output : results_) {
      if (!output.buffered) continue;
      encode(output.result.view(context), context.state, Rows::all(output.result.elements()),
             floats(context, output.space), context.workspace + convert_, context.stream);
    }
  }

  const std::string& text() const { return text_; }
  // Whether the task is a single launch.
  bool plain() const {
    const auto decoded = [](const Input& input) { return input.decoded; };
    return std::none_of(leaf_.begin(), leaf_.end(), decoded) &&
           std::none_of(channel_.begin(), channel_.end(), decoded) &&
           std::none_of(results_.begin(), results_.end(),
                        [](const Output& output) { return output.buffered; });
  }
  // For a plain task: the call without addresses. Placeholders for addresses tell tensors apart.
  FusedCall form() const {
    const auto stands_for = [](TensorId id) { return static_cast<uintptr_t>(id.index + 1) * 64; };
    const auto codes = [&](TensorId id) { return reinterpret_cast<uint8_t*>(stands_for(id)); };
    FusedCall call = call_;
    for (size_t i = 0; i < leaf_.size(); ++i) call.leaf[i].view.stored.codes = codes(leaf_[i].operand.id());
    for (size_t i = 0; i < channel_.size(); ++i) {
      call.view[i] = channel_[i].operand.form();
      call.view[i].stored.codes = codes(channel_[i].operand.id());
    }
    for (size_t i = 0; i < reported_.size(); ++i) {
      if (reported_[i].index >= 0)
        call.stage[i].rounder.stats = reinterpret_cast<EncodeStats*>(stands_for(reported_[i]));
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      call.out[i] = results_[i].result.form();
      call.out[i].stored.codes = codes(results_[i].id);
    }
    return call;
  }

  FusedCall call_for(const RunContext& context) const {
    FusedCall call = call_;
    call.state = context.state;
    for (size_t i = 0; i < leaf_.size(); ++i) {
      const size_t first = first_leaf_[i];
      call.leaf[i].view = first < i ? call.leaf[first].view : view_of(context, leaf_[i]);
    }
    for (size_t i = 0; i < channel_.size(); ++i) call.view[i] = view_of(context, channel_[i]);
    for (int i = 0; i < call.stages; ++i) {
      if (reported_[static_cast<size_t>(i)].index >= 0 && context.stats != nullptr)
        call.stage[i].rounder.stats = context.stats + reported_[static_cast<size_t>(i)].index;
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      const Output& output = results_[i];
      call.out[i] = output.buffered ? fp32_target(floats(context, output.space), output.result.elements())
                                    : output.result.view(context);
    }
    call.partial = floats(context, partial_);
    return call;
  }

 private:
  struct Output {
    TensorId id;
    Result result;
    size_t space;
    bool buffered;
  };

  void add_leaf(const Problem& problem, TensorId id) {
    const size_t index = leaf_.size();
    size_t first = 0;
    while (first < index && leaf_[first].operand.id() != id) ++first;
    first_leaf_.push_back(first);
    // A weight that is read twice is decoded and counted once.
    leaf_.push_back(first < index ? leaf_[first] : Input(problem, id, true, book_));
    const Input& input = leaf_.back();
    call_.leaf[index] =
        make_leaf(input.decoded ? fp32_view(nullptr, input.operand.elements()) : input.operand.form());
    call_.leaves = static_cast<int>(index + 1);
  }

  void add_stage(const Problem& problem, NodeId id, const Shape& shape) {
    const Node& node = problem.graph()[id];
    Stage& stage = call_.stage[call_.stages++];
    if (has_channels(node)) call_.channels = static_cast<uint64_t>(shape.back());
    for (size_t i = full_inputs(node); i < node.in.size(); ++i) {
      channel_.emplace_back(problem, node.in[i], false, book_);
    }
    stage.scalar = activation_attribute(node);
    if (node.op == &kSeed) {
      stage.scalar = static_cast<float>(node.attrs.real("value"));
    } else if (node.op == &kDropout || node.op == &kDropoutGrad) {
      const elementwise::DropoutRule rule = elementwise::dropout_rule(node.attrs.real("p"));
      stage.scalar = rule.scale;
      stage.threshold = rule.threshold;
      stage.words = static_cast<uint32_t>(node.attrs.integer("tensor"));
    } else if (full_inputs(node) < node.in.size()) {
      stage.epsilon = static_cast<float>(node.attrs.real("epsilon"));
      if (node.op == &kBatchNormGrad) stage.rows = static_cast<float>(node.attrs.real("rows"));
    }
    reported_.push_back({});
    if (id == problem.roots[0]) return;
    // A tensor that is not stored is rounded as if it were.
    const Storage& storage = problem.format(node.out[0]).storage;
    const TensorInfo& tensor = problem.tensor(node.out[0]);
    const Rounding rounding = tensor_rounding(problem.plan, tensor, storage, {});
    const StoredView view = stored_view(storage, rounding.overflow, tensor.elements());
    stage.rounder = make_rounder(view.fp32, view.codec, rounding.mode, tensor.number);
    stage.rounder.exact = chooses_numbers(problem, node);
    const bool silent = std::find(problem.silent.begin(), problem.silent.end(), id) != problem.silent.end();
    if (!view.fp32 && !silent) reported_.back() = node.out[0];
  }

  ReadView view_of(const RunContext& context, const Input& input) const {
    if (!input.decoded) return input.operand.view(context);
    float* space = floats(context, input.space);
    input.operand.all(context, space, context.workspace + convert_);
    return fp32_view(space, input.operand.elements());
  }

  FusedLaunch launch_ = nullptr;
  std::string text_;
  Workspace book_;
  FusedCall call_;
  std::vector<Input> leaf_, channel_;
  std::vector<size_t> first_leaf_;  // the first leaf of the same tensor
  std::vector<TensorId> reported_;  // by stage: the tensor whose rounding is reported, or none
  std::vector<Output> results_;
  size_t convert_ = 0, partial_ = 0;
};

// A batch norm's reduction and the step after it, in one launch if possible (batchnorm_grid.h),
// else in two.
class MergedTask : public Task {
 public:
  MergedTask(FusedTask& first, FusedTask& second, GridLaunch launch)
      : Task(aligned_bytes(first.workspace()) + second.workspace()),
        first_(first),
        second_(second),
        launch_(launch) {}

  void run(const RunContext& context) override {
    RunContext after = context;
    after.workspace = context.workspace + aligned_bytes(first_.workspace());
    if (launch_(first_.call_for(context), second_.call_for(after), false, context.stream)) return;
    first_.run(context);
    second_.run(after);
  }

 private:
  FusedTask &first_, &second_;
  GridLaunch launch_;
};

// Several copies: those by groups in few launches, the others one by one.
class CopiesTask : public Task {
 public:
  explicit CopiesTask(const Problem& problem) {
    convert_ = book_.book(1, convert_bytes(problem));
    for (const NodeId id : problem.roots) {
      const Node& node = problem.graph()[id];
      One one{Input(problem, problem.plan.base_of(node.in[0]), true, book_),
              Result(problem, node, node.out[0]), 0};
      if (!one.result.in_groups() && !one.input.decoded) one.space = book_.book(one.input.operand.space());
      copies_.push_back(std::move(one));
    }
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    Copies batch;
    batch.state = context.state;
    void* convert = context.workspace + convert_;
    for (const One& one : copies_) {
      const size_t elements = one.result.elements();
      ReadView in = one.input.operand.view(context);
      if (one.input.decoded || !one.result.in_groups()) {
        const float* decoded = one.input.operand.all(
            context, floats(context, one.input.decoded ? one.input.space : one.space), convert);
        if (!one.result.in_groups()) {
          encode(one.result.view(context), context.state, Rows::all(elements), decoded, convert,
                 context.stream);
          continue;
        }
        in = fp32_view(const_cast<float*>(decoded), elements);
      }
      batch.one[batch.count++] = {in, one.result.view(context), 0};
      if (batch.count == kMaxCopies) {
        launch_copies(batch, context.stream);
        batch.count = 0;
      }
    }
    if (batch.count > 0) launch_copies(batch, context.stream);
  }

 private:
  struct One {
    Input input;
    Result result;
    size_t space;  // of values that are encoded as a whole
  };
  Workspace book_;
  std::vector<One> copies_;
  size_t convert_ = 0;
};

std::unique_ptr<Task> make_copy(const Problem& problem) {
  if (problem.roots.size() > 1) return std::make_unique<CopiesTask>(problem);
  return std::make_unique<FusedTask>(problem);
}

}  // namespace

std::unique_ptr<Task> make_merged(Task& first, Task& second) {
  auto* const reduction = dynamic_cast<FusedTask*>(&first);
  auto* const pass = dynamic_cast<FusedTask*>(&second);
  if (reduction == nullptr || pass == nullptr || !reduction->plain() || !pass->plain()) return nullptr;
  const GridLaunch launch = find_grid_launch(reduction->text(), pass->text());
  if (launch == nullptr || !launch(reduction->form(), pass->form(), true, nullptr)) return nullptr;
  return std::make_unique<MergedTask>(*reduction, *pass, launch);
}

std::span<const KernelDef> fused_elementwise_kernels() {
  static const std::vector<KernelDef> kernels = [] {
    std::vector<KernelDef> made;
    elementwise::for_each_fusable([&](std::string_view op) {
      made.push_back({op, "fused", why_not, make_one<FusedTask>, true});
    });
    made.push_back({"copy", "fused", why_not, make_copy, true});
    for (const std::string_view op : {"batch_stats", "batch_norm_sums"}) {
      made.push_back({op, "fused", why_not, make_one<FusedTask>});
    }
    made.push_back({"channel_sum", "fused", why_not, make_one<FusedTask>, false, true});
    return made;
  }();
  return kernels;
}

}  // namespace ulp::cuda
