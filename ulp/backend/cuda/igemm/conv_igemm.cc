// Tasks for conv_igemm.h: which problems the kernels take, and how they are launched.
#include "ulp/backend/cuda/igemm/conv_igemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/igemm/conv_halo.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/described.h"

namespace ulp::cuda {
namespace {

// A convolution as the kernels compute it.
struct Described {
  OperandFeed feed = OperandFeed::bf16;
  float factor = 1;  // of weights
  bool gradient = false;
  ConvExtents32 conv;  // after im2col, if there is any
  std::optional<Gathered> gathered;
  std::vector<IgemmPart> parts;
  std::vector<IgemmTiling> tilings;
  // For fp16 products: what recomputes marked tiles, and the power of two by which products differ.
  OperandFeed recompute_feed = OperandFeed::tf32_from_16;
  std::vector<IgemmTiling> recompute_tilings;
  std::vector<uint32_t> mark_shifts;
  int power = 0;
};

// The format with all its values multiplied by 2^power.
FloatFormat scaled_by(FloatFormat format, int power) {
  format.bias = static_cast<int16_t>(format.bias - power);
  return format;
}

// Chooses how codes of x meet weights of format `weight` such that every product is exact.
std::string choose_feed(const Operand& x, const FloatFormat& weight, Described& made) {
  const FloatFormat& format = *x.format();
  const QuickCodec& codec = x.form().stored.codec;
  if (format == operand_format(Unit::bf16)) {
    made.feed = OperandFeed::bf16;
    return why_not_held(Unit::bf16, weight);
  }
  if (format.specials != Specials::none)
    return fmt::format("codes of {} may be special", format_name(format));
  if (format.bits() == 8) {
    // A code shifted to bf16's position has bf16's bias. The missing power of two goes into the
    // weights, which must have range for it.
    const int power = operand_format(Unit::bf16).bias - format.bias;
    if (power >= -126 && power <= 127 && holds(Unit::bf16, weight) &&
        holds(Unit::bf16, scaled_by(weight, power))) {
      made.feed = OperandFeed::bf16_from_8;
      made.factor = bits_float(static_cast<uint32_t>(power + 127) << 23);
      return "";
    }
    made.feed = OperandFeed::tf32_from_8;
  } else if (format.bits() == 16) {
    made.feed = OperandFeed::tf32_from_16;
  } else {
    return "codes are not of 8 or 16 bits";
  }
  if (!codec.short_out || 32 - format.bits() < static_cast<int>(codec.shift))
    return fmt::format("{} is no part of an fp32 pattern", format_name(format));
  if (std::string why = why_not_held(Unit::tf32, format); !why.empty()) return why;
  return why_not_held(Unit::tf32, weight);
}

float power_of_two(int power) { return bits_float(static_cast<uint32_t>(power + 127) << 23); }

// The power of two that turns weights into fp16 numbers. It fits all weights; if there is no such
// power, it fits those below 1 in magnitude, and the others are detected. None if some weights
// would become 0 undetected.
std::optional<int> fp16_power(const FloatFormat& weight) {
  int power = 16;
  for (const int whole : {weight.bias - 15, weight.bias - 16}) {
    if (holds(Unit::fp16, scaled_by(weight, whole))) power = whole;
  }
  // Weights are multiplied by 2^factor, as fp16_of expects them; it and all products must be fp32
  // numbers.
  const int factor = power - 112;
  if (factor < -126 || factor > 127 || weight.emin() - weight.man + factor < -149) return std::nullopt;
  return power;
}

// Chooses fp16 instead of tf32 if fp16's mantissa is long enough and the work is large enough.
void prefer_fp16(const Problem& problem, const Operand& x, const FloatFormat& weight, Described& made) {
  // The window follows the range that the images' writer reports.
  const TensorId base = problem.plan.base_of(problem.graph().bytes_of(x.id()));
  const NodeId producer = problem.tensor(base).producer;
  if (!producer || !problem.graph()[producer].op->reports_range()) return;
  const double operations = 2.0 * static_cast<double>(made.conv.multiply_adds());
  const Fp16Source format = fp16_source(x.form().stored.codec);
  if (!feeds_tf32(made.feed) || operations < fp16_operations() || format.man > 10) return;
  // Parts of a strided gradient have few taps: measured, converting input stages costs as much as
  // their products save.
  if (made.parts.size() > 1) return;
  const bool narrow = made.feed == OperandFeed::tf32_from_8;
  // Codes must fit the exponent field of fp16; its highest field is detected.
  if (narrow && format.top > 31) return;
  const std::optional<int> weight_power = fp16_power(weight);
  if (!weight_power) return;
  // Sums of fp16 products lie between 2^-48 and, with fewer than 2^28 terms, 2^60. They must also
  // be normal fp32 numbers once scaled to their true values.
  const int power = format.bias - 15 + *weight_power,
            most = narrow || format.top <= 30 ? 0 : static_cast<int>(format.top) - 30;
  if (-power - 48 < -126 || most - power + 60 > 127) return;
  std::vector<IgemmTiling> tilings, recompute_tilings;
  std::vector<uint32_t> shifts;
  const OperandFeed feed = narrow ? OperandFeed::fp16_from_8 : OperandFeed::fp16_from_16;
  for (const IgemmPart& part : made.parts) {
    const std::optional<IgemmTiling> tiling = choose_tiling(part.shape, feed, igemm_processors());
    if (!tiling) return;
    const std::optional<Recompute> recompute =
        choose_recompute(part.shape, made.feed, igemm_processors(), *tiling);
    if (!recompute) return;
    tilings.push_back(*tiling);
    recompute_tilings.push_back(recompute->tiling);
    shifts.push_back(recompute->mark_shift);
  }
  made.recompute_feed = made.feed;
  made.feed = feed;
  made.factor = power_of_two(*weight_power - 112);
  made.power = power;
  made.tilings = std::move(tilings);
  made.recompute_tilings = std::move(recompute_tilings);
  made.mark_shifts = std::move(shifts);
}

std::string describe_shape(const Problem& problem, Described& made) {
  const Node& node = problem.root();
  if (node.in.size() > 2) return "it adds no bias";
  const ConvExtents whole = conv_extents(problem.graph(), node);
  if (whole.groups != 1) return "it has groups";
  if (whole.kernel_h > kMostTaps || whole.kernel_w > kMostTaps)
    return fmt::format("its kernel is larger than {}x{}", kMostTaps, kMostTaps);
  if (std::max(whole.pixels(), whole.out_pixels()) >> 31 != 0) return "it has too many pixels";
  made.gradient = conv_kind(node) == ConvKind::grad_input;
  const ConvExtents32& conv = made.conv = whole.as<uint32_t>();
  const uint64_t parts = made.gradient ? uint64_t{conv.stride_h} * conv.stride_w : 1;
  if (parts > kMostParts) return "its stride is too large";
  if (made.gradient && (conv.h < conv.stride_h || conv.w < conv.stride_w))
    return "its images are smaller than its stride";
  return "";
}

// Returns why the kernels cannot do it, or "" and fills in how they do it.
std::string describe(const Problem& problem, Described& made) {
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "it adds up in fp32 alone";
  if (!problem.plan.options.tensor_core) return "tensor cores are off";
  const uint32_t processors = igemm_processors();
  if (processors == 0) return "the GPU has no such tensor cores";
  if (std::string why = describe_shape(problem, made); !why.empty()) return why;
  const Node& node = problem.root();

  const Operand x(problem, node.in[0]), weight(problem, node.in[1]);
  if (!x.plain()) return "images are not stored as plain codes";
  if (!weight.format() || !weight.in_groups()) return "the weight is exact in fp32 alone";
  if (std::string why = choose_feed(x, *weight.format(), made); !why.empty()) return why;

  const Result result(problem, node, node.out[0]);
  const WriteView& out = result.form();
  if (!result.by_vectors()) return "the result is not stored as codes of 8 or 16 bits, or in fp32";
  if (!out.stored.fp32 && !make_rounder(false, out.stored.codec, out.mode, out.number).quick)
    return "the result is not rounded to nearest even in a few steps";

  const uint32_t own_in = made.gradient ? made.conv.out_c : made.conv.c,
                 own_out = made.gradient ? made.conv.c : made.conv.out_c;
  // The copy engine takes multiples of 16 bytes, and threads write groups of eight.
  if (!made.gradient && made.conv.c % (16 / feed_bytes(made.feed)) != 0) {
    made.gathered = gathered(made.conv);
    if (made.gathered && made.gathered->bytes(feed_bytes(made.feed)) > problem.plan.options.workspace)
      return "what is gathered takes too much workspace";
    if (made.gathered) made.conv = made.gathered->conv;
  }
  const uint32_t in_c = made.gradient ? made.conv.out_c : made.conv.c,
                 out_c = made.gradient ? made.conv.c : made.conv.out_c, granule = 16 / feed_bytes(made.feed);
  if (in_c % granule != 0 || out_c % kGroup != 0) {
    return fmt::format("{} and {} channels are not multiples of {} and {}", own_in, own_out, granule, kGroup);
  }
  made.parts = made.gradient ? gradient_parts(made.conv) : std::vector{forward_part(made.conv)};
  if (const auto halo =
          made.parts.size() == 1 ? choose_halo(made.parts[0].shape, made.feed, processors) : std::nullopt) {
    made.tilings = {*halo};
  } else {
    made.tilings = choose_tilings(made.parts, made.feed, processors);
  }
  if (made.tilings.empty()) return "the pixels of a tile do not fit in shared memory, or are not in order";
  prefer_fp16(problem, x, *weight.format(), made);
  return "";
}

class IgemmTask : public Task {
 public:
  IgemmTask(const Problem& problem, const Described& made)
      : feed_(made.feed),
        recompute_feed_(made.recompute_feed),
        x_(problem, problem.root().in[0]),
        weight_(problem, problem.root().in[1]),
        result_(problem, problem.root(), problem.root().out[0]) {
    const ConvExtents32& conv = made.conv;
    weights_.out_c = made.gradient ? conv.c : conv.out_c;
    weights_.in_c = made.gradient ? conv.out_c : conv.c;
    weights_.weight_taps = conv.taps();
    gathered_ = made.gathered;
    weights_.transposed = made.gradient;
    Workspace book;
    recompute_weights_ = weights_;
    fill(made, feed_, made.tilings, weights_, calls_, book);
    weights_.factor = made.factor;
    if (feeds_fp16(feed_)) {
      fill(made, recompute_feed_, made.recompute_tilings, recompute_weights_, recompute_calls_, book);
      for (size_t i = 0; i < recompute_calls_.size(); ++i)
        recompute_calls_[i].call.mark_shift = made.mark_shifts[i];
      outside_words_ = weight_blocks(weights_);
      outside_ = book.book(outside_words_);
      marked_ = book.book(1);
      for (Launch& part : calls_) {
        const IgemmTiling& tiling = part.call.tiling;
        part.call.fp16_power = made.power;
        marks_.push_back(book.book(size_t{tiling.row_tiles} * tiling.column_tiles, 1));
      }
      base_ = problem.plan.base_of(problem.graph().bytes_of(x_.id()));
    }
    if (gathered_) {
      codes_ = book.book(conv.x_elements(), feed_bytes(feed_));
      padded_ = book.book(uint64_t{conv.out_c} * conv.c);
      convert_ = book.book(1, convert_bytes(problem));
    }
    workspace_ = book.bytes();
    // Only packed weights can be prepared early. Padded or marked weights cannot, nor weights that
    // are not part of the state.
    if (!gathered_ && !feeds_fp16(feed_) && is_state(problem.tensor(problem.plan.base_of(weight_.id())).kind))
      prepared_ = workspace_;
    const IgemmTiling& tiling = made.tilings.back();
    note_ = fmt::format("{}: {} as it lies; {}tiles of {} by {}{}", how(feed_), format_name(*x_.format()),
                        tiling.is_halo() ? "halo " : "", tiling.rows, tiling.columns,
                        gathered_               ? ", gathered"
                        : made.parts.size() > 1 ? fmt::format(", {} parts{}", made.parts.size(),
                                                              calls_.size() == 1 ? " in one launch" : "")
                                                : "");
  }

  size_t prepared() const override { return prepared_; }
  // The window of 16-bit codes follows the images' largest magnitude.
  std::vector<TensorId> reads_range_of() const override {
    return feed_ == OperandFeed::fp16_from_16 ? std::vector{base_} : std::vector<TensorId>{};
  }

  // The packing job that writes the weight blocks from `to` on.
  IgemmWeights weights(const RunContext& context, uint8_t* to) const {
    IgemmWeights weights = weights_;
    weights.view = weight_.view(context);
    weights.state = context.state;
    place_images(calls_, to, weights);
    return weights;
  }

  void run(const RunContext& context) override {
    IgemmWeights weights = this->weights(context, context.workspace);
    const uint8_t* in = context.bytes(x_.id());
    if (gathered_) {
      uint8_t* codes = context.workspace + codes_;
      gather_codes(in, feed_bytes(feed_), gathered_->window, gathered_->conv.n, gathered_->padded, codes,
                   context.stream);
      in = codes;
      float* padded = floats(context, padded_);
      decode(weights.view, context.state, {0, weights.out_c, gathered_->channels, gathered_->padded},
             DecodedType::fp32, padded, context.workspace + convert_, context.stream);
      weights.view = {};
      weights.view.stored = array_view(padded, uint64_t{weights.out_c} * weights.in_c);
    }
    start(context, feed_, weights, calls_, in);
    if (!feeds_fp16(feed_)) return;
    // The first pass has already reported the weights' rounding.
    IgemmWeights recompute = recompute_weights_;
    recompute.view = weights.view;
    recompute.view.stats = nullptr;
    recompute.state = context.state;
    start(context, recompute_feed_, recompute, recompute_calls_, in);
  }

  std::string note() const override { return note_; }

 private:
  struct Launch {
    IgemmCall call;  // without addresses
    // For each part of the call: its index in the convolution, and where its weights are.
    struct Source {
      size_t part = 0, image = 0;
    };
    std::vector<Source> sources;
  };

  static void place_images(const std::vector<Launch>& calls, uint8_t* to, IgemmWeights& weights) {
    for (const Launch& launch : calls) {
      for (const Launch::Source& source : launch.sources)
        weights.image[source.part].to = reinterpret_cast<uint32_t*>(to + source.image);
    }
  }

  static std::string_view how(OperandFeed feed) {
    switch (feed) {
      case OperandFeed::fp16_from_8:
        return "fp16, tiles with numbers outside of it again in tf32";
      case OperandFeed::fp16_from_16:
        return "fp16 in a window that follows the largest number, tiles with many numbers outside again in "
               "tf32";
      default:
        return feeds_tf32(feed) ? "tf32" : "bf16";
    }
  }

  void fill(const Described& made, OperandFeed feed, const std::vector<IgemmTiling>& tilings,
            IgemmWeights& weights, std::vector<Launch>& calls, Workspace& book) {
    const WriteView& out = result_.form();
    weights.product = feed_product(feed);
    weights.images = static_cast<uint32_t>(made.parts.size());
    // The last parts usually have most taps; the longest work starts first.
    for (size_t i = made.parts.size(); i-- > 0;) {
      const IgemmPart& part = made.parts[i];
      weights.image[i] = weight_image(part, tilings[i], nullptr);
      IgemmCall call;
      call.shape = part.shape;
      call.tiling = tilings[i];
      call.rounder = make_rounder(out.stored.fp32, out.stored.codec, out.mode, out.number);
      complete(call, feed, x_.form().stored.codec);
      if (calls.empty() || !merge_calls(calls.back().call, call, feed_)) calls.push_back({call, {}});
      calls.back().sources.push_back({i, book.book(tilings[i].image_bytes(feed, part.shape.taps()), 1)});
    }
  }

  // Packs the weights, then launches all parts.
  void start(const RunContext& context, OperandFeed feed, IgemmWeights& weights,
             const std::vector<Launch>& calls, const uint8_t* in) const {
    const auto words = [&](size_t offset) { return reinterpret_cast<uint32_t*>(context.workspace + offset); };
    const bool marks = feeds_fp16(feed_);
    if (marks) {
      weights.outside = words(outside_);
      weights.marked = words(marked_);
    }
    place_images(calls, context.workspace, weights);
    const uint8_t* images = context.prepared != nullptr ? context.prepared : context.workspace;
    if (context.prepared == nullptr) prepare_weights({&weights, 1}, context.stream);
    for (size_t i = 0; i < calls.size(); ++i) {
      IgemmCall call = calls[i].call;
      for (uint32_t k = 0; k < call.parts; ++k) call.part[k].image = images + calls[i].sources[k].image;
      call.out = result_.view(context);
      if (marks) {
        call.marks = context.workspace + marks_[i];
        call.marked = words(marked_);
        call.outside = words(outside_);
        call.outside_words = outside_words_;
        if (context.stats != nullptr) call.most = &(context.stats + base_.index)->amax;
      }
      run_conv_igemm(call, feed, in, context.stream);
    }
  }

  OperandFeed feed_, recompute_feed_;
  Operand x_, weight_;
  Result result_;
  IgemmWeights weights_, recompute_weights_;  // without addresses
  std::optional<Gathered> gathered_;
  // Offsets of the im2col rows and of the weight, padded alike.
  size_t codes_ = 0, padded_ = 0, convert_ = 0;
  std::vector<Launch> calls_, recompute_calls_;  // recompute: of marked tiles
  TensorId base_;                                // the tensor whose largest value the window follows
  size_t outside_ = 0, marked_ = 0;
  uint32_t outside_words_ = 0;
  std::vector<size_t> marks_;
  size_t prepared_ = 0;
  std::string note_;
};

// Prepares the weights of several convolutions.
class PreparationTask : public Task {
 public:
  explicit PreparationTask(std::span<Task* const> tasks) {
    for (Task* task : tasks) tasks_.push_back(&dynamic_cast<const IgemmTask&>(*task));
  }

  void run(const RunContext& context) override {
    std::vector<IgemmWeights> weights;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      weights.push_back(tasks_[i]->weights(context, context.places[i]));
    }
    prepare_weights(weights, context.stream);
  }

 private:
  std::vector<const IgemmTask*> tasks_;
};

}  // namespace

std::unique_ptr<Task> make_preparation(std::span<Task* const> tasks) {
  return std::make_unique<PreparationTask>(tasks);
}

std::span<const KernelDef> conv_igemm_kernels() {
  static constexpr KernelDef kKernels[] = {
      described<IgemmTask, describe, Described>("conv2d", "conv_igemm"),
      described<IgemmTask, describe, Described>("conv2d_grad_input", "conv_igemm"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
