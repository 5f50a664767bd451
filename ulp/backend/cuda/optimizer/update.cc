// Tasks for update.h: all parameters of a task in few launches. A launch takes the parameters of
// one optimizer whose storages one kernel supports, as many as fit.
#include "ulp/backend/update.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <variant>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/optimizer/grad_norm.h"
#include "ulp/backend/cuda/optimizer/update.h"
#include "ulp/numeric/nearest.h"

namespace ulp::cuda {
namespace {

Storage fp32() { return Plain{parse_format("fp32")}; }

// A tensor of a step. S2FP8 needs a pass over the whole tensor to write it, so it is updated as
// fp32 in the workspace.
struct Part {
  TensorId id;  // none: the step has no such tensor
  Storage storage = fp32();
  Round mode = Round::nearest_even;
  bool whole = false;
  size_t space = 0;
};

struct Step {
  Step(const Problem& problem, const Node& source, Workspace& workspace)
      : node(problem.plan, source),
        elements(problem.tensor(node.weight).elements()),
        width(problem.shape(node.weight).back()) {
    // A compensated weight is stored to nearest: its rule has already rounded the sum.
    set(problem, kWeight, node.weight, node.weight_round(), workspace);
    for (size_t k = 0; k < node.states.size(); ++k)
      set(problem, kState + static_cast<int>(k), node.states[k], node.state_round(), workspace);
    if (node.compensation) set(problem, kCompensation, node.compensation, Round::nearest_even, workspace);
    parts[kGradient] = {node.grad, problem.format(node.grad).storage};
    if (parts[kWeight].whole) before = workspace.book(elements);
    for (int k = 0; k < kChanged; ++k) {
      if (!parts[k].whole) continue;
      reads.push_back(Operand::stored(problem, parts[k].id));
      writes.emplace_back(problem, source, parts[k].id, parts[k].mode);
    }
  }

  UpdateNode node;
  size_t elements;  // of the weight
  int64_t width;
  std::array<Part, kTensors> parts;
  size_t before = 0;
  // The tensors that are stored in S2FP8.
  std::vector<Operand> reads;
  std::vector<Result> writes;

 private:
  void set(const Problem& problem, int which, TensorId id, Round mode, Workspace& workspace) {
    const Storage& storage = problem.format(id).storage;
    Part& part = parts[which];
    part.id = id;
    part.mode = tensor_rounding(problem.plan, problem.tensor(id), storage, {}, mode).mode;
    part.whole = std::holds_alternative<S2fp8>(storage);
    if (part.whole) {
      part.space = workspace.book(elements);
    } else {
      part.storage = storage;
    }
  }
};

// Whether a storage has a specialised kernel.
Quick quick(const Storage& storage, Round mode) {
  static const FloatFormat kBf16 = parse_format("bf16");
  if (is_fp32(storage)) return Quick::fp32;
  if (const Plain* plain = std::get_if<Plain>(&storage)) {
    if (plain->format == kBf16 && mode == Round::nearest_even) return Quick::bf16;
    if (plain->format == kBf16 && mode == Round::stochastic) return Quick::bf16_random;
    return plain->format.bits() == 16 || plain->format.bits() == 8 ? Quick::codes : Quick::none;
  }
  const Split* split = std::get_if<Split>(&storage);
  if (split == nullptr || split->high != kBf16 || split->stochastic) return Quick::none;
  return split->extra == 16 ? Quick::bf16_16 : split->extra == 8 ? Quick::bf16_8 : Quick::none;
}

UpdateKernel kernel_for(const PlanContext& plan, const Step& step) {
  UpdateKernel kernel;
  kernel.optimizer = static_cast<uint8_t>(step.node.optimizer.index());
  kernel.narrow = plan.options.arithmetic.has_value();
  const UpdateKernel any = kernel;
  const Part &weight = step.parts[kWeight], &gradient = step.parts[kGradient];
  if (kernel.narrow || step.node.compensation || weight.whole || step.node.rows ||
      quick(gradient.storage, Round::nearest_even) == Quick::none ||
      !std::holds_alternative<Plain>(gradient.storage)) {
    return any;
  }
  kernel.weight = quick(weight.storage, weight.mode);
  kernel.state = Quick::bf16;  // without states any kernel fits
  for (size_t k = 0; k < step.node.states.size(); ++k) {
    const Part& part = step.parts[kState + k];
    const Quick found = part.whole ? Quick::none : quick(part.storage, part.mode);
    if (k > 0 && found != kernel.state) return any;
    kernel.state = found;
  }
  return has_kernel(kernel.weight, kernel.state) ? kernel : any;
}

OptimizerConstants constants(const Optimizer& optimizer) {
  OptimizerConstants made;
  std::visit(
      [&](const auto& op) {
        static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<decltype(op)>> &&
                      alignof(decltype(op)) <= alignof(OptimizerConstants));
        std::memcpy(made.bytes, &op, sizeof(op));
      },
      optimizer);
  return made;
}

// The properties that steps must share to be in one launch.
struct Sort {
  UpdateKernel kernel;
  TensorId norm;
  bool operator==(const Sort&) const = default;
};

// The steps of one launch.
class Batch {
 public:
  Batch(const PlanContext& plan, const Sort& sort) : plan_(plan), sort_(sort) {
    if (plan.options.arithmetic) batch_.arithmetic = make_nearest(*plan.options.arithmetic);
  }

  const Sort& sort() const { return sort_; }

  // False if there is no room left.
  bool add(const Step& step) {
    if (batch_.count == kBatchTensors) return false;
    std::array<Storage, kTensors> storages;
    std::array<Round, kChanged> modes;
    std::vector<Storage> more = storages_;
    for (size_t k = 0; k < kTensors; ++k) {
      storages[k] = step.parts[k].storage;
      if (k < kChanged) modes[k] = step.parts[k].mode;
      if (std::find(more.begin(), more.end(), storages[k]) == more.end()) more.push_back(storages[k]);
    }
    const Recipe recipe{step.node.update, storages, modes};
    const auto at = std::find(recipes_.begin(), recipes_.end(), recipe);
    if (more.size() > kBatchFormats || (at == recipes_.end() && recipes_.size() == kBatchRecipes))
      return false;
    for (size_t k = storages_.size(); k < more.size(); ++k)
      batch_.formats[k] = stored_view(more[k], overflow_of(plan_, more[k]), 0);
    storages_ = std::move(more);
    UpdateTensor& tensor = batch_.tensors[batch_.count++];
    tensor.recipe = static_cast<uint32_t>(at - recipes_.begin());
    if (at == recipes_.end()) {
      write(step, batch_.recipes[recipes_.size()]);
      recipes_.push_back(recipe);
    }
    tensor.elements = step.elements;
    if (step.node.rows) {
      tensor.row_count = static_cast<uint32_t>(plan_.graph[step.node.grad].shape[0]);
      tensor.row_groups = static_cast<uint32_t>(step.width / kGroup);
      tensor.rows = kSomeRows;
    }
    for (size_t k = 0; k < kChanged; ++k) {
      const Part& part = step.parts[k];
      if (!part.id) continue;
      tensor.number[k] = plan_.graph[part.id].number;
      // A compensated weight reports its sums whatever its storage is.
      const bool reports = !is_fp32(part.storage) || (k == kWeight && step.node.compensation);
      if (reports) tensor.stats[k] = part.id.index;
    }
    tensor.updates = step.node.weight.index;
    steps_.push_back(&step);
    return true;
  }

  void finish() { set_blocks(batch_); }

  void run(const RunContext& context) {
    batch_.state = context.state;
    batch_.norm = sort_.norm ? context.as<const float>(sort_.norm) : nullptr;
    batch_.stats = context.stats;
    batch_.updates = context.updates;
    for (uint32_t i = 0; i < batch_.count; ++i) {
      const Step& step = *steps_[i];
      UpdateTensor& tensor = batch_.tensors[i];
      for (size_t k = 0; k < kTensors; ++k) {
        const Part& part = step.parts[k];
        if (part.id) tensor.data[k] = part.whole ? context.workspace + part.space : context.bytes(part.id);
      }
      if (step.parts[kWeight].whole) tensor.before = floats(context, step.before);
      if (step.node.rows) tensor.rows = context.as<const int32_t>(step.node.rows);
    }
    update(sort_.kernel, batch_, context.stream);
  }

 private:
  // Stands for an address that is not known yet.
  static inline const int32_t* const kSomeRows = reinterpret_cast<const int32_t*>(kMemoryAlignment);

  struct Recipe {
    ParameterUpdate update;
    std::array<Storage, kTensors> storages;
    std::array<Round, kChanged> modes;
    bool operator==(const Recipe&) const = default;
  };

  void write(const Step& step, UpdateRecipe& recipe) const {
    recipe.optimizer = constants(step.node.optimizer);
    recipe.lr_factor = static_cast<float>(step.node.update.lr_factor);
    for (size_t k = 0; k < kTensors; ++k) {
      const auto at = std::find(storages_.begin(), storages_.end(), step.parts[k].storage);
      recipe.format[k] = static_cast<uint8_t>(at - storages_.begin());
      if (k < kChanged) recipe.mode[k] = step.parts[k].mode;
    }
    recipe.compensated = static_cast<bool>(step.node.compensation);
    recipe.gradient = quick(step.parts[kGradient].storage, Round::nearest_even);
    if (!recipe.compensated) return;
    const Plain& format = std::get<Plain>(step.parts[kWeight].storage);
    recipe.near = make_nearest(format.format, overflow_of(plan_, format));
  }

  const PlanContext& plan_;
  Sort sort_;
  UpdateBatch batch_;
  std::vector<const Step*> steps_;
  std::vector<Recipe> recipes_;
  std::vector<Storage> storages_;
};

class UpdateTask : public Task {
 public:
  explicit UpdateTask(const Problem& problem) {
    Workspace workspace;
    convert_space_ = workspace.book(1, convert_bytes(problem));
    steps_.reserve(problem.roots.size());  // batches point to them
    for (const NodeId id : problem.roots) {
      const Step& step = steps_.emplace_back(problem, problem.graph()[id], workspace);
      const Sort sort{kernel_for(problem.plan, step), step.node.norm};
      // The last batch of its sort; those before it are full.
      const auto last = std::find_if(batches_.rbegin(), batches_.rend(),
                                     [&](const auto& batch) { return batch->sort() == sort; });
      if (last != batches_.rend() && (*last)->add(step)) continue;
      batches_.push_back(std::make_unique<Batch>(problem.plan, sort));
      batches_.back()->add(step);
    }
    for (const auto& batch : batches_) batch->finish();
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    for (const Step& step : steps_) decode_whole(context, step);
    for (const auto& batch : batches_) batch->run(context);
    for (const Step& step : steps_) encode_whole(context, step);
  }

 private:
  static void decode_whole(const RunContext& context, const Step& step) {
    for (const Operand& read : step.reads) {
      decode(read.view(context), context.state, Rows::all(step.elements), DecodedType::fp32,
             space_of(context, step, read.id()), nullptr, context.stream);
    }
  }

  void encode_whole(const RunContext& context, const Step& step) const {
    for (const Result& write : step.writes) {
      WriteView view = write.view(context);
      view.update = true;
      encode(view, context.state, Rows::all(step.elements), space_of(context, step, write.id()),
             context.workspace + convert_space_, context.stream);
      if (write.id() == step.node.weight && context.updates != nullptr) {
        count_cancelled(view.stored, floats(context, step.before), context.state,
                        context.updates + step.node.weight.index, context.stream);
      }
    }
  }

  static float* space_of(const RunContext& context, const Step& step, TensorId id) {
    const auto part = std::find_if(step.parts.begin(), step.parts.end(),
                                   [&](const Part& one) { return one.whole && one.id == id; });
    return floats(context, part->space);
  }

  size_t convert_space_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

}  // namespace

std::span<const KernelDef> update_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"update", "multi", takes_no_inlined, make_one<UpdateTask>},
      {"grad_squares", "multi", takes_no_inlined, make_squares},
      {"grad_norm", "multi", takes_one_node, make_norm},
  };
  return kKernels;
}

}  // namespace ulp::cuda
