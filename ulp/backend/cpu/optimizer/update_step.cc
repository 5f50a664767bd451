#include "ulp/backend/cpu/optimizer/update_step.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/parallel.h"
#include "ulp/numeric/bitpack.h"
#include "ulp/numeric/kernels.h"
#include "ulp/tensor/stored.h"

namespace ulp {
namespace {

using step::kPiece;

bool is_bf16(const Storage& storage) {
  static const Storage bf16 = Plain{parse_format("bf16")};
  return storage == bf16;
}

// Bytes in which the loops take each element's extra bits.
size_t side_bytes(const Split& split) {
  const int bits = split.side_bits();
  return bits == 8 ? 1 : bits <= 16 ? 2 : 4;
}
// Others are unpacked first.
bool side_in_place(const Split& split) { return split.side_bits() == 8 || split.side_bits() == 16; }

void unpack(const uint8_t* in, size_t n, const Split& split, uint32_t* out) {
  if (side_bytes(split) == 4) return unpack_bits(in, n, split.side_bits(), out);
  step::unpack_side(in, n, split.side_bits(), reinterpret_cast<uint16_t*>(out));
}

void pack(const uint32_t* in, size_t n, const Split& split, uint8_t* out) {
  if (side_bytes(split) == 4) return pack_bits(in, n, split.side_bits(), out);
  step::pack_side(reinterpret_cast<const uint16_t*>(in), n, split.side_bits(), out);
}

}  // namespace

// The buffers of a thread.
struct UpdateStep::Scratch {
  explicit Scratch(uint8_t* bytes)
      : grad(at<float>(bytes, 0)),
        weight(at<float>(bytes, 1)),
        decrease(at<float>(bytes, 2)),
        states{at<float>(bytes, 3), at<float>(bytes, 4), at<float>(bytes, 5)},
        next(at<float>(bytes, 6)),
        compare(at<float>(bytes, 7)),
        random(at<uint32_t>(bytes, 8)),
        side(at<uint32_t>(bytes, 9)) {}

  // One cache line more than a piece, so that equal elements of the arrays do not map to one cache
  // set.
  static constexpr size_t kArrays = 10, kStride = kPiece * 4 + 64;

  template <typename T>
  static T* at(uint8_t* bytes, size_t k) {
    return reinterpret_cast<T*>(bytes + k * kStride);
  }

  float *grad, *weight, *decrease;
  std::array<float*, 3> states;  // and a compensation
  float *next, *compare;         // of weights in any storage
  uint32_t *random, *side;
};

size_t UpdateStep::scratch_bytes() { return Scratch::kArrays * Scratch::kStride; }

void UpdateStep::Found::merge(const Found& other) {
  for (size_t k = 0; k < kMost; ++k) stats[k].merge(other.stats[k]);
  counts.merge(other.counts);
}

UpdateStep::UpdateStep(const Problem& problem, const Node& node, Workspace& workspace)
    : plan_(&problem.plan),
      node_(problem.plan, node),
      elements_(problem.tensor(node.out[0]).elements()),
      width_(static_cast<size_t>(problem.shape(node.out[0]).back())),
      states_(node_.states.size()),
      grad_(Reader::stored(problem, node.in[0])) {
  if (plan_->options.arithmetic) arithmetic_ = make_nearest(*plan_->options.arithmetic);
  const auto overflow = [&](const Storage& storage) {
    return tensor_rounding(*plan_, problem.tensor(node_.weight), storage, {}).overflow;
  };
  const Plain bf16{parse_format("bf16")};
  bf16_ = step::Codes::of(make_spec(bf16.format, overflow(bf16)));
  grad_bf16_ =
      is_bf16(problem.format(node_.grad).storage) && !problem.format(node_.grad).operand && !arithmetic_;
  // A compensated weight is rounded by its rule, to a value that its storage has.
  changed_.push_back(changed(problem, node, node_.weight,
                             node_.compensation ? Round::nearest_even : node_.weight_round(), workspace));
  for (const TensorId state : node_.states) {
    changed_.push_back(changed(problem, node, state, node_.state_round(), workspace));
    Changed& made = changed_.back();
    if (is_bf16(problem.format(state).storage) && !node_.update.state_stochastic && !arithmetic_)
      made.way = Way::codes;
  }
  if (node_.compensation) {
    changed_.push_back(changed(problem, node, node_.compensation, Round::nearest_even, workspace));
    const Plain& format = std::get<Plain>(problem.format(node_.weight).storage);
    spec_ = make_spec(format.format, overflow(format));
    near_ = make_nearest(format.format, overflow(format));
  }
  choose_writing(problem);
  choose_fused();
  if (changed_[0].way == Way::whole) compare_ = workspace.book(elements_);
}

UpdateStep::Changed UpdateStep::changed(const Problem& problem, const Node& node, TensorId id, Round mode,
                                        Workspace& workspace) const {
  Changed made{id, Reader::stored(problem, id), Writer(problem, node, id, mode)};
  if (made.writer.may_be_direct()) made.way = Way::fp32;
  if (made.writer.granule() == 0) {
    made.way = Way::whole;
    made.whole = workspace.book(elements_);
  }
  return made;
}

void UpdateStep::choose_writing(const Problem& problem) {
  const Storage& storage = problem.format(node_.weight).storage;
  random_ = node_.update.stochastic;
  if (near_) {
    const bool alike = problem.format(node_.compensation).storage == storage;
    const bool fits = alike && spec_.sign_shift == 15 && step::Codes::fits(spec_);
    writing_ = fits ? Writing::kahan : Writing::any_kahan;
    if (!fits) return;
    changed_.back().way = Way::codes;
  } else if (changed_[0].way == Way::fp32) {
    writing_ = Writing::fp32;
    return;
  } else if (const Plain* plain = std::get_if<Plain>(&storage)) {
    spec_ =
        make_spec(plain->format, tensor_rounding(*plan_, problem.tensor(node_.weight), storage, {}).overflow);
    if (spec_.sign_shift != 15 || !step::Codes::fits(spec_)) return;
    writing_ = Writing::plain;
  } else if (const Split* split = std::get_if<Split>(&storage)) {
    if (split->high.bits() != 16 || split->extra == 0) return;
    spec_ =
        make_wide_spec(*split, tensor_rounding(*plan_, problem.tensor(node_.weight), storage, {}).overflow);
    if (!step::Codes::fits(spec_)) return;
    split_ = *split;
    random_ = split->stochastic;
    writing_ = Writing::split;
  } else {
    return;
  }
  changed_[0].way = Way::codes;
  codes_ = step::Codes::of(spec_);
  same_ = step::Codes::same_exponents(spec_);
}

void UpdateStep::choose_fused() {
  using Beside = step::FusedKind::Beside;
  if (arithmetic_ || states_ == 0 || (!grad_bf16_ && !grad_.is_direct())) return;
  const Way way = changed_[1].way;
  for (size_t k = 0; k < states_; ++k) {
    if (changed_[1 + k].way != way) return;
  }
  if (way != Way::codes && way != Way::fp32) return;
  if (writing_ == Writing::kahan) {
    fused_kind_.beside = Beside::compensation;
  } else if (writing_ == Writing::split && (split_.extra == 8 || split_.extra == 16)) {
    fused_kind_.beside = split_.extra == 8 ? Beside::extra8 : Beside::extra16;
  } else if (writing_ != Writing::plain) {
    return;
  }
  fused_kind_.same = same_;
  fused_kind_.stochastic = random_;
  fused_kind_.state_bf16 = way == Way::codes;
  fused_kind_.grad_bf16 = grad_bf16_;
  fused_ = step::fused_step(node_.optimizer, fused_kind_);
}

void UpdateStep::begin(const RunContext& context) {
  const float clip = node_.norm ? context.as<const float>(node_.norm)[1] : 1.0f;
  scalars_ = node_.scalars(*plan_, *context.state, clip);
  const Storage& storage = plan_->formats[static_cast<size_t>(node_.weight.index)].storage;
  key_ = tensor_rounding(*plan_, plan_->graph[node_.weight], storage, *context.state).key;
  for (const Changed& one : changed_) {
    if (one.way == Way::whole) one.reader.all(context, floats(context, one.whole));
  }
}

// Where the loops find a tensor's fp32 values from `first` on.
float* UpdateStep::values(const RunContext& context, const Changed& one, size_t first, float* buffer) const {
  if (one.way == Way::fp32) return context.as<float>(one.id) + first;
  return one.way == Way::whole ? floats(context, one.whole) + first : buffer;
}

void UpdateStep::run(const RunContext& context, size_t first, size_t n, uint8_t* bytes, Found& found) const {
  Scratch scratch(bytes);
  const float* read = nullptr;
  if (!grad_bf16_ && !grad_.is_direct()) {
    grad_.read(context, first, {scratch.grad, n});
    read = scratch.grad;
  }
  if (!node_.rows) return run_span(context, {first, n, first, read}, scratch, found);
  const int32_t* rows = context.as<const int32_t>(node_.rows);
  for (size_t at = 0; at < n;) {
    const size_t row = (first + at) / width_, column = (first + at) % width_;
    if (rows[row] < 0) return;  // and none after it
    const size_t count = std::min(width_ - column, n - at);
    const size_t begin = static_cast<size_t>(rows[row]) * width_ + column;
    run_span(context, {begin, count, first + at, read == nullptr ? nullptr : read + at}, scratch, found);
    at += count;
  }
}

void UpdateStep::run_span(const RunContext& context, const Span& span, Scratch& scratch, Found& found) const {
  if (fused_ && run_fused(context, span, scratch, found)) return;
  const size_t first = span.first, n = span.n;
  step::DecreaseRun run{};
  run.optimizer = &node_.optimizer;
  run.scalars = &scalars_;
  run.arithmetic = arithmetic_ ? &*arithmetic_ : nullptr;
  run.n = n;
  run.decrease = scratch.decrease;
  if (grad_bf16_) {
    run.grad = {context.as<uint16_t>(node_.grad) + span.grad, true};
  } else {
    run.grad.data = span.read != nullptr ? span.read : context.as<float>(node_.grad) + span.grad;
  }
  for (size_t k = 0; k < states_; ++k) {
    const Changed& state = changed_[1 + k];
    run.next[k] = values(context, state, first, scratch.states[k]);
    if (state.way == Way::codes) {
      run.state[k] = {context.as<uint16_t>(state.id) + first, true};
      continue;
    }
    if (state.way == Way::buffered) state.reader.read(context, first, {run.next[k], n});
    run.state[k].data = run.next[k];
  }
  run.weight = read_weight(context, first, n, scratch);
  step::decrease(run);
  for (size_t k = 0; k < states_; ++k) {
    const Changed& state = changed_[1 + k];
    EncodeStats& stats = found.stats[1 + k];
    if (state.way == Way::buffered) state.writer.write(context, first, {run.next[k], n}, stats);
    if (state.way == Way::codes)
      step::write_bf16(bf16_, n, run.next[k], context.as<uint16_t>(state.id) + first, stats);
  }
  write_weight(context, first, n, run.weight, scratch, found);
}

bool UpdateStep::run_fused(const RunContext& context, const Span& span, Scratch& scratch,
                           Found& found) const {
  const size_t first = span.first, n = span.n;
  step::FusedKind kind = fused_kind_;
  kind.weight = &codes_;
  kind.bf16 = &bf16_;
  step::FusedRun run{};
  run.n = n;
  run.grad = grad_bf16_ ? static_cast<const void*>(context.as<uint16_t>(node_.grad) + span.grad)
                        : context.as<float>(node_.grad) + span.grad;
  for (size_t k = 0; k < states_; ++k) {
    const TensorId id = node_.states[k];
    run.state[k] = kind.state_bf16 ? static_cast<void*>(context.as<uint16_t>(id) + first)
                                   : context.as<float>(id) + first;
  }
  run.weight = context.as<uint16_t>(node_.weight) + first;
  if (writing_ == Writing::kahan) {
    run.beside = context.as<uint16_t>(node_.compensation) + first;
    run.compensation_stats = &found.stats[compensation()];
  } else if (writing_ == Writing::split) {
    run.beside = split_arrays(context, first, scratch).side;
    read_side(context, first, n, scratch);
  }
  if (random_) kernels::table().random_words(key_, first, n, scratch.random);
  run.random = scratch.random;
  run.counts = &found.counts;
  run.weight_stats = &found.stats[0];
  run.state_stats = &found.stats[1];
  if (!fused_(node_.optimizer, scalars_, kind, run)) return false;
  if (writing_ == Writing::split) write_side(context, first, n, scratch);
  return true;
}

uint8_t* UpdateStep::split_side(const RunContext& context, size_t first) const {
  return reinterpret_cast<uint8_t*>(
      stored_slice(split_, context.bytes(node_.weight), elements_, first).side.data());
}

step::SplitArrays UpdateStep::split_arrays(const RunContext& context, size_t first, Scratch& scratch) const {
  void* side = side_in_place(split_) ? split_side(context, first) : static_cast<void*>(scratch.side);
  return {context.as<uint16_t>(node_.weight) + first, side, side_bytes(split_)};
}

// Converts extra bits between their storage and the layout that the loops use.
void UpdateStep::read_side(const RunContext& context, size_t first, size_t n, Scratch& scratch) const {
  if (!side_in_place(split_)) unpack(split_side(context, first), n, split_, scratch.side);
}

void UpdateStep::write_side(const RunContext& context, size_t first, size_t n, Scratch& scratch) const {
  const auto bits = static_cast<size_t>(split_.side_bits());
  uint8_t* side = split_side(context, first);
  if (!side_in_place(split_)) pack(scratch.side, n, split_, side);
  // Bits past the last value are zero.
  if (const size_t used = (n * bits + 7) / 8, all = (used + 3) / 4 * 4; used < all)
    std::memset(side + used, 0, all - used);
}

const float* UpdateStep::read_weight(const RunContext& context, size_t first, size_t n,
                                     Scratch& scratch) const {
  const Changed& weight = changed_[0];
  if (weight.way == Way::buffered) {
    weight.reader.read(context, first, {scratch.weight, n});
  } else if (weight.way != Way::codes) {
    return values(context, weight, first, nullptr);
  } else if (writing_ == Writing::split) {
    const step::SplitArrays arrays = split_arrays(context, first, scratch);
    read_side(context, first, n, scratch);
    step::read_split(spec_, split_.extra, n, arrays, scratch.weight);
  } else {
    kernels::table().decode({&spec_, context.as<uint16_t>(weight.id) + first, 2, scratch.weight, n, false});
  }
  return scratch.weight;
}

void UpdateStep::write_weight(const RunContext& context, size_t first, size_t n, const float* before,
                              Scratch& scratch, Found& found) const {
  const Changed& weight = changed_[0];
  const bool random = random_ && writing_ != Writing::fp32 && writing_ != Writing::any;
  if (random) kernels::table().random_words(key_, first, n, scratch.random);
  const step::WriteRun run{
      n, before, scratch.decrease, random ? scratch.random : nullptr, &found.counts, &found.stats[0]};
  if (writing_ == Writing::fp32) return step::write_fp32(run, context.as<float>(weight.id) + first);
  if (writing_ == Writing::plain)
    return step::write_plain(run, codes_, same_, context.as<uint16_t>(weight.id) + first);
  if (writing_ == Writing::kahan) {
    return step::write_kahan(
        run, codes_, same_, *near_, context.as<uint16_t>(weight.id) + first,
        {context.as<uint16_t>(node_.compensation) + first, &found.stats[compensation()]});
  }
  if (writing_ == Writing::split) {
    const step::SplitArrays arrays = split_arrays(context, first, scratch);
    step::write_split(run, spec_, split_.extra, arrays);
    write_side(context, first, n, scratch);
    return;
  }
  if (writing_ == Writing::any_kahan) {
    const Changed& lost = changed_[compensation()];
    float* kept = values(context, lost, first, scratch.states[states_]);
    if (lost.way == Way::buffered) lost.reader.read(context, first, {kept, n});
    step::advance_any_kahan(run, spec_, *near_, kept, scratch.next, scratch.compare);
    if (lost.way == Way::buffered) lost.writer.write(context, first, {kept, n}, found.stats[compensation()]);
    // Already rounded, and its events counted.
    EncodeStats none;
    weight.writer.write(context, first, {scratch.next, n}, none);
  } else {
    step::advance_any(run, scratch.next, scratch.compare);
    if (weight.way == Way::whole) {
      std::copy_n(scratch.next, n, floats(context, weight.whole) + first);
      std::copy_n(scratch.compare, n, floats(context, compare_) + first);
      return;
    }
    weight.writer.write(context, first, {scratch.next, n}, found.stats[0]);
  }
  const float* after = scratch.next;
  if (weight.way == Way::buffered) {
    weight.reader.read(context, first, {scratch.next, n});
  } else {
    after = context.as<float>(weight.id) + first;
  }
  found.counts.cancelled += step::count_equal(after, scratch.compare, n);
}

void UpdateStep::end(const RunContext& context, Found found) const {
  for (size_t k = 0; k < changed_.size(); ++k) {
    const Changed& one = changed_[k];
    if (one.way != Way::whole) {
      context.report(one.id, found.stats[k]);
      continue;
    }
    one.writer.all(context, floats(context, one.whole));
    if (k > 0) continue;
    const float *after = one.reader.all(context, floats(context, one.whole)),
                *compare = floats(context, compare_);
    for (size_t first = 0; first < elements_; first += kPiece) {
      found.counts.cancelled +=
          step::count_equal(after + first, compare + first, std::min(kPiece, elements_ - first));
    }
  }
  context.report(node_.weight, found.counts);
}

}  // namespace ulp
