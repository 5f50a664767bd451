#include "ulp/backend/access.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "ulp/backend/recorder.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/tensor/stored.h"

namespace ulp {
namespace {

// Elements that a thread takes; a multiple of every granule.
constexpr size_t kGrain = size_t{1} << 16;

// Slices of packed codes begin at whole bytes; 0: no slices.
size_t write_granule(const Storage& storage) {
  if (const Plain* plain = std::get_if<Plain>(&storage)) {
    const auto bits = static_cast<size_t>(plain->format.bits());
    return std::lcm(bits, size_t{8}) / bits;
  }
  return 0;
}

// Of state, which updates go through in pieces as long as they like: packed extra bits begin at
// whole words, blocks at their start. Operators cut tensors by images or rows, which are no
// multiples of that.
size_t state_granule(const Storage& storage) {
  constexpr size_t kWord = 32;
  if (const Split* split = std::get_if<Split>(&storage)) {
    const size_t whole_words = kWord / std::gcd(kWord, static_cast<size_t>(split->side_bits()));
    return std::lcm(whole_words, write_granule(Plain{split->high}));
  }
  return std::holds_alternative<Scaled>(storage) ? kScaledBlock : write_granule(storage);
}

// Of a tensor that was just encoded, if it is recorded and its storage is S2FP8.
void record_shifted(const RunContext& context, TensorId id, const Storage& storage, std::span<const float> x,
                    std::span<const uint32_t> side) {
  if (context.recorder == nullptr || !std::holds_alternative<S2fp8>(storage)) return;
  if (!context.recorder->wants(id)) return;
  context.recorder->add_shifted(id, x, {bits_float(side[0]), bits_float(side[1])});
}

// S2FP8 looks at the whole tensor to write it, not to read it.
size_t read_granule(const Storage& storage, bool state) {
  if (std::holds_alternative<S2fp8>(storage)) return 1;
  return state ? state_granule(storage) : write_granule(storage);
}

size_t code_offset(const FloatFormat& format, uint64_t first) {
  return static_cast<size_t>(first) * static_cast<size_t>(format.bits()) / 8;
}

// Infinities are kept where there are any.
Overflow overflow_of(const PlanContext& plan, const FloatFormat& format) {
  return format.has_inf() ? plan.options.overflow : Overflow::saturate;
}

}  // namespace

Overflow overflow_of(const PlanContext& plan, const Storage& storage) {
  if (const Plain* plain = std::get_if<Plain>(&storage)) return overflow_of(plan, plain->format);
  if (const Scaled* scaled = std::get_if<Scaled>(&storage)) return overflow_of(plan, scaled->element);
  if (const Split* split = std::get_if<Split>(&storage)) return overflow_of(plan, split->high);
  return Overflow::saturate;  // S2FP8 moves everything into range
}

bool first_reader(const Problem& problem, TensorId id) {
  const Graph& graph = problem.graph();
  const TensorId weight = graph.bytes_of(id);
  for (size_t i = 0; i < graph.node_count(); ++i) {
    const Node& node = graph.nodes()[i];
    const NodeId reader{static_cast<int32_t>(i)};
    if (node.op->form == Form::view) continue;
    const bool reads = std::any_of(node.in.begin(), node.in.end(),
                                   [&](TensorId in) { return graph.bytes_of(in) == weight; });
    if (!reads) continue;
    const auto has = [&](const std::vector<NodeId>& nodes) {
      return std::find(nodes.begin(), nodes.end(), reader) != nodes.end();
    };
    return (has(problem.roots) || has(problem.inlined)) && !has(problem.silent);
  }
  return false;
}

Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state) {
  return tensor_rounding(plan, tensor, storage, state, plan.options.round);
}

Rounding tensor_rounding(const PlanContext& plan, const TensorInfo& tensor, const Storage& storage,
                         const StepState& state, Round mode) {
  // A weight's operand is the same for all micro-batches of a step, and state is written once.
  const uint16_t micro_batch = is_state(tensor.kind) ? 0 : state.micro_batch;
  const RoundKey key{state.seed, state.step, tensor.number, micro_batch};
  // Split and S2FP8 round in their own way.
  const bool own = std::holds_alternative<Split>(storage) || std::holds_alternative<S2fp8>(storage);
  return {own ? Round::nearest_even : mode, overflow_of(plan, storage), key};
}

std::optional<CodecSpec> accumulator_spec(const PlanContext& plan) {
  if (!plan.options.accumulator) return {};
  return make_spec(*plan.options.accumulator, overflow_of(plan, *plan.options.accumulator));
}

TensorFormat read_format(const Problem& problem, TensorId id) {
  const TensorFormat& format = problem.format(id);
  const Split* split = std::get_if<Split>(&format.storage);
  if (split == nullptr || format.operand != Storage(Plain{split->high})) return format;
  // What its update reported is all there is to report.
  return {Plain{split->high}, {}};
}

Reader::Reader(const Problem& problem, TensorId id)
    : plan_(&problem.plan),
      id_(id),
      format_(read_format(problem, id)),
      elements_(problem.tensor(id).elements()) {
  if (format_.operand) reports_ = first_reader(problem, id);
  direct_ = is_fp32(format_.storage) && !format_.operand;
  granule_ = read_granule(format_.storage, false);
  if (format_.operand && granule_ != 0) {
    const size_t operand = write_granule(*format_.operand);
    granule_ = operand == 0 ? 0 : std::lcm(granule_, operand);
  }
}

Reader Reader::stored(const Problem& problem, TensorId id) {
  Reader reader;
  reader.plan_ = &problem.plan;
  reader.id_ = id;
  reader.format_ = {problem.format(id).storage, {}};
  reader.elements_ = problem.tensor(id).elements();
  reader.direct_ = is_fp32(reader.format_.storage);
  reader.granule_ = read_granule(reader.format_.storage, true);
  return reader;
}

const float* Reader::direct(const RunContext& context) const {
  return direct_ ? context.as<const float>(id_) : nullptr;
}

void Reader::read(const RunContext& context, uint64_t first, std::span<float> out) const {
  uint8_t* data = context.bytes(id_);
  if (const Plain* plain = std::get_if<Plain>(&format_.storage)) {
    decode(plain->format,
           {data + code_offset(plain->format, first), packed_bytes(plain->format.bits(), out.size())}, out);
  } else {
    const StoredParts parts = stored_slice(format_.storage, data, elements_, granule_ == 0 ? 0 : first);
    decode(format_.storage, parts.codes, parts.side, out);
  }
  if (!format_.operand || is_fp32(*format_.operand)) return;
  const Rounding rounding =
      tensor_rounding(*plan_, plan_->graph[plan_->graph.bytes_of(id_)], *format_.operand, *context.state);
  // The operand is never kept: it is rounded piece by piece through a buffer on the stack.
  if (const Plain* plain = std::get_if<Plain>(&*format_.operand)) {
    constexpr size_t kPiece = 2048;
    std::array<uint8_t, 4 * kPiece> codes;
    EncodeStats stats;
    for (size_t begin = 0; begin < out.size(); begin += kPiece) {
      const std::span<float> piece = out.subspan(begin, std::min(kPiece, out.size() - begin));
      const std::span<uint8_t> packed(codes.data(), packed_bytes(plain->format.bits(), piece.size()));
      stats.merge(encode(plain->format, rounding, piece, packed, first + begin));
      decode(plain->format, packed, piece);
    }
    if (reports_) context.report(plan_->graph.bytes_of(id_), stats);
    return;
  }
  const StorageSize size = storage_size(*format_.operand, out.size());
  std::vector<uint8_t> codes(size.code_bytes);
  std::vector<uint32_t> side(size.side_words);
  const EncodeStats stats = encode(*format_.operand, rounding, out, codes, side);
  if (reports_) record_shifted(context, plan_->graph.bytes_of(id_), *format_.operand, out, side);
  if (reports_) context.report(plan_->graph.bytes_of(id_), stats);
  decode(*format_.operand, codes, side, out);
}

void Reader::read_on_threads(const RunContext& context, uint64_t first, std::span<float> out) const {
  parallel_for(out.size(), kGrain, [&](size_t begin, size_t end) {
    read(context, first + begin, out.subspan(begin, end - begin));
  });
}

const float* Reader::all(const RunContext& context, float* space) const {
  if (direct_) return direct(context);
  if (granule_ == 0) {
    read(context, 0, {space, elements_});
  } else {
    read_on_threads(context, 0, {space, elements_});
  }
  return space;
}

Writer::Writer(const Problem& problem, const Node& node, TensorId id)
    : Writer(problem, node, id,
             is_state(problem.tensor(id).kind) ? Round::nearest_even : problem.plan.options.round) {}

Writer::Writer(const Problem& problem, const Node& node, TensorId id, Round mode)
    : plan_(&problem.plan),
      id_(id),
      storage_(problem.format(id).storage),
      mode_(mode),
      elements_(problem.tensor(id).elements()) {
  const Kind kind = problem.tensor(id).kind;
  sums_ = kind == Kind::grad_sum;
  adds_ = node.adds;
  direct_ = is_fp32(storage_);
  granule_ = is_state(kind) ? state_granule(storage_) : write_granule(storage_);
}

bool Writer::adding(const RunContext& context) const {
  return sums_ && (adds_ || context.state->micro_batch > 0);
}

float* Writer::direct(const RunContext& context) const {
  return direct_ && !adding(context) ? context.as<float>(id_) : nullptr;
}

void Writer::write(const RunContext& context, uint64_t first, std::span<const float> in,
                   EncodeStats& stats) const {
  uint8_t* data = context.bytes(id_);
  if (direct_) {
    float* out = reinterpret_cast<float*>(data) + first;
    if (adding(context)) {
      for (size_t i = 0; i < in.size(); ++i) out[i] += in[i];
    } else if (out != in.data()) {
      std::memcpy(out, in.data(), in.size_bytes());
    }
    return;
  }
  const Rounding rounding = tensor_rounding(*plan_, plan_->graph[id_], storage_, *context.state, mode_);
  const bool recorded = context.recorder != nullptr && context.recorder->wants(id_);
  if (recorded && !is_state(plan_->graph[id_].kind)) context.recorder->add(id_, in);
  if (const Plain* plain = std::get_if<Plain>(&storage_)) {
    stats.merge(encode(
        plain->format, rounding, in,
        {data + code_offset(plain->format, first), packed_bytes(plain->format.bits(), in.size())}, first));
    return;
  }
  const StoredParts parts = stored_slice(storage_, data, elements_, first);
  stats.merge(encode(storage_, rounding, in, parts.codes, parts.side, first));
  record_shifted(context, id_, storage_, in, parts.side);
}

void Writer::all(const RunContext& context, const float* in) const {
  if (granule_ == 0) {
    EncodeStats stats;
    write(context, 0, {in, elements_}, stats);
    context.report(id_, stats);
    return;
  }
  parallel_for(elements_, kGrain, [&](size_t begin, size_t end) {
    EncodeStats stats;
    write(context, begin, {in + begin, end - begin}, stats);
    context.report(id_, stats);
  });
}

size_t Workspace::book(size_t count, size_t size) {
  const size_t offset = bytes_;
  bytes_ += aligned_bytes(count * size);
  return offset;
}

}  // namespace ulp
