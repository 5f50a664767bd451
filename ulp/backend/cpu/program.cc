#include "ulp/backend/cpu/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "ulp/backend/elementwise.h"
#include "ulp/backend/recorder.h"
#include "ulp/graph/ops/activation.h"
#include "ulp/graph/ops/arithmetic.h"
#include "ulp/graph/ops/norm.h"
#include "ulp/numeric/codec.h"

namespace ulp {
namespace {

const Shape& domain(const Problem& problem, const Node& root) {
  return root.op->form == Form::reduction ? problem.shape(root.in[0]) : problem.shape(root.out[0]);
}

// How many of a node's inputs have a value per element; the others have one per channel.
size_t full_inputs(const Node& node) {
  if (node.op == &kBatchNorm) return 1;
  if (node.op == &kBatchNormGrad) return 2;
  return node.in.size();
}

// Channel values that an operator's loop needs.
size_t tile_count(const Node& node) {
  if (node.op == &kBatchNorm) return 3;
  if (node.op == &kBatchNormGrad) return 5;
  return 0;
}

// Whether something is per channel, so that blocks must be whole rows.
bool has_channels(const Problem& problem) {
  const auto tiles = [&](NodeId id) { return tile_count(problem.graph()[id]) > 0; };
  return problem.root().op->form == Form::reduction ||
         std::any_of(problem.roots.begin(), problem.roots.end(), tiles) ||
         std::any_of(problem.inlined.begin(), problem.inlined.end(), tiles);
}

}  // namespace

std::string Program::why_not(const Problem& problem) {
  if (problem.roots.size() != 1) return "takes one operator and what is inlined in it";
  const Node& root = problem.root();
  const Shape& shape = domain(problem, root);
  if (has_channels(problem) && std::lcm(static_cast<size_t>(shape.back()), size_t{8}) > kMaxBlock) {
    return fmt::format("rows of {} channels do not fit in blocks of whole bytes", shape.back());
  }
  size_t values = 2;
  for (const auto* nodes : {&problem.inlined, &problem.roots}) {
    for (const NodeId id : *nodes) {
      const Node& node = problem.graph()[id];
      if (node.op->form == Form::elementwise && blocks::stage_loop(node.op->name) == nullptr)
        return "no loop for it";
      if (node.in.size() > blocks::kMaxInputs) return "more than 8 inputs";
      values += 1 + full_inputs(node);
      for (const TensorId in : node.in) {
        if (problem.tensor(in).element != Element::real) return "reads no real numbers";
        if (problem.shape(in) == shape && Reader(problem, in).granule() == 0)
          return "an input is stored as a whole";
      }
    }
  }
  if (values > kMaxValues) return "too many values";
  return "";
}

Program::Program(const Problem& problem, Workspace& workspace) : plan_(&problem.plan) {
  const Node& root = problem.root();
  const Shape& shape = domain(problem, root);
  elements_ = shape.elements();
  channels_ = has_channels(problem) ? static_cast<size_t>(shape.back()) : 1;
  // Whole rows, and a multiple of 8 elements: whole bytes in any format, and whole draws of random
  // words.
  const size_t unit = std::lcm(channels_, size_t{8});
  period_ = channels_ * ((kMinPeriod + channels_ - 1) / channels_);
  block_ = std::lcm(period_, size_t{8}) <= kBlock
               ? kBlock / std::lcm(period_, size_t{8}) * std::lcm(period_, size_t{8})
               : std::max(unit, kBlock / unit * unit);
  if (block_ % period_ != 0) period_ = channels_;

  for (const NodeId id : problem.inlined) add_stage(problem, id, true, workspace);
  if (root.op->form == Form::elementwise) {
    add_stage(problem, problem.roots[0], false, workspace);
    output_ = stages_.back().out;
    return;
  }
  for (const TensorId in : root.in) {
    root_inputs_.push_back(problem.shape(in) == shape ? value_of(problem, in) : -1);
  }
}

int Program::value_of(const Problem& problem, TensorId id) {
  const TensorId stored = problem.plan.base_of(id);
  for (const auto& [tensor, value] : values_) {
    if (tensor == stored) return value;
  }
  const int value = static_cast<int>(values_.size());
  values_.emplace_back(stored, value);
  leaves_.push_back({Reader(problem, stored), value});
  return value;
}

void Program::add_stage(const Problem& problem, NodeId id, bool inlined, Workspace& workspace) {
  const Node& node = problem.graph()[id];
  Stage stage;
  stage.node = id;
  stage.loop = blocks::stage_loop(node.op->name);
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (i < full_inputs(node)) {
      stage.in.push_back(value_of(problem, node.in[i]));
    } else {
      stage.channel_inputs.emplace_back(problem, node.in[i]);
    }
  }
  for (size_t i = 0; i < tile_count(node); ++i) stage.params.push_back(workspace.book(period_));
  stage.scalars[0] = activation_attribute(node);
  if (node.op == &kDropout || node.op == &kDropoutGrad) {
    const elementwise::DropoutRule rule = elementwise::dropout_rule(node.attrs.real("p"));
    stage.scalars[0] = rule.scale;
    stage.threshold = rule.threshold;
    stage.words = static_cast<uint32_t>(node.attrs.real("tensor"));
  }
  stage.tensor = node.out[0];
  stage.silent = std::find(problem.silent.begin(), problem.silent.end(), id) != problem.silent.end();
  const Storage& storage = problem.format(node.out[0]).storage;
  if (inlined && !is_fp32(storage)) {
    stage.rounds = true;
    stage.format = std::get<Plain>(storage).format;
  }
  // What is stored is recorded by whoever writes it.
  stage.recorded = inlined;
  stage.out = static_cast<int>(values_.size());
  values_.emplace_back(problem.plan.base_of(node.out[0]), stage.out);
  stages_.push_back(std::move(stage));
}

void Program::prepare(const RunContext& context) const {
  for (const Stage& stage : stages_) {
    if (stage.params.empty()) continue;
    const Node& node = plan_->graph[stage.node];
    std::array<std::array<float, kMaxBlock>, blocks::kMaxParams + 1> values;
    for (size_t i = 0; i < stage.channel_inputs.size(); ++i) {
      stage.channel_inputs[i].read(context, 0, {values[i].data(), channels_});
    }
    const auto epsilon = static_cast<float>(node.attrs.real("epsilon"));
    const auto tile = [&](size_t param, size_t channel, float value) {
      float* tiles = floats(context, stage.params[param]);
      for (size_t i = channel; i < period_; i += channels_) tiles[i] = value;
    };
    for (size_t c = 0; c < channels_; ++c) {
      if (node.op == &kBatchNorm) {  // gamma, beta, mean, variance
        tile(0, c, values[2][c]);
        tile(1, c,
             elementwise::Multiply::forward(values[0][c], elementwise::batch_inv(values[3][c], epsilon)));
        tile(2, c, values[1][c]);
      } else {  // gamma, mean, variance, the two sums
        const float inv = elementwise::batch_inv(values[2][c], epsilon);
        const auto rows = static_cast<float>(node.attrs.real("rows"));
        tile(0, c, values[1][c]);
        tile(1, c, inv);
        tile(2, c, elementwise::Multiply::forward(values[0][c], inv));
        tile(3, c, elementwise::batch_mean(values[3][c], rows));
        tile(4, c, elementwise::batch_mean(values[4][c], rows));
      }
    }
  }
}

Program::Worker::Worker(const Program& program, const RunContext& context)
    : program_(program), context_(context) {}

void Program::Worker::run(size_t block, float* out) {
  first_ = block * program_.block_;
  count_ = std::min(program_.block_, program_.elements_ - first_);
  for (const Leaf& leaf : program_.leaves_) {
    const float* direct = leaf.reader.direct(context_);
    if (direct != nullptr) {
      value_[leaf.value] = direct + first_;
    } else {
      leaf.reader.read(context_, first_, {space_[leaf.value], count_});
      value_[leaf.value] = space_[leaf.value];
    }
  }
  for (const Stage& stage : program_.stages_) {
    blocks::StageArgs args{};
    args.out = stage.out == program_.output_ && out != nullptr ? out : space_[stage.out];
    args.inputs = stage.in.size();
    for (size_t i = 0; i < stage.in.size(); ++i) args.in[i] = value_[stage.in[i]];
    for (size_t i = 0; i < stage.params.size(); ++i) args.param[i] = floats(context_, stage.params[i]);
    std::copy(std::begin(stage.scalars), std::end(stage.scalars), args.scalar);
    if (program_.plan_->graph[stage.node].op == &kSeed) {
      args.scalar[0] =
          elementwise::seed(static_cast<float>(program_.plan_->graph[stage.node].attrs.real("value")),
                            context_.state->loss_scale);
    }
    args.n = count_;
    args.period = program_.period_;
    args.first = first_;
    args.threshold = stage.threshold;
    args.words = elementwise::dropout_key(*context_.state, stage.words);
    stage.loop(args);
    value_[stage.out] = args.out;
    if (stage.recorded && !stage.silent && context_.recorder != nullptr &&
        context_.recorder->wants(stage.tensor)) {
      context_.recorder->add(stage.tensor, {args.out, count_});
    }
    if (!stage.rounds) continue;
    // A value that is not stored is rounded here, as if it were.
    std::array<uint8_t, 4 * kMaxBlock> codes;
    const std::span<uint8_t> packed(codes.data(), packed_bytes(stage.format.bits(), count_));
    const Rounding rounding = tensor_rounding(*program_.plan_, program_.plan_->graph[stage.tensor],
                                              Plain{stage.format}, *context_.state);
    const EncodeStats stats = encode(stage.format, rounding, {args.out, count_}, packed, first_);
    decode(stage.format, packed, {args.out, count_});
    if (!stage.silent) stats_[stage.out].merge(stats);
  }
}

void Program::Worker::report() const {
  for (const Stage& stage : program_.stages_) {
    if (stage.rounds && !stage.silent) context_.report(stage.tensor, stats_[stage.out]);
  }
}

}  // namespace ulp
