// Tasks for pointwise.h.
#include "ulp/backend/cuda/conv/pointwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/described.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kMostStages = 4;
constexpr int kMostRest = 16;  // keeps sums far from subnormal numbers
constexpr size_t kProcessorShared = 228 << 10,
                 kReserved = 2 << 10;  // of a multiprocessor; reserved per block

float two_to(int power) { return bits_float(static_cast<uint32_t>(power + 127) << 23); }

// The extents of a 1x1 convolution, for all three operators.
struct Extents {
  uint32_t pixels = 1, c = 2, k = 2;  // channels of the input, of the output
  uint32_t processors = 1;
};

std::string describe_extents(const Problem& problem, Extents& made) {
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "it adds up in fp32 alone";
  if (!problem.plan.options.tensor_core) return "tensor cores are off";
  made.processors = igemm_processors();
  if (made.processors == 0) return "the GPU has no such tensor cores";
  const ConvExtents conv = conv_extents(problem.graph(), problem.root());
  if (conv.groups != 1) return "it has groups";
  if (conv.taps() != 1) return "its kernel is not 1x1";
  if (conv.stride_h != 1 || conv.stride_w != 1) return "it has a stride";
  if (conv.padding_h != 0 || conv.padding_w != 0) return "it has padding";
  if (conv.pixels() >> 31 != 0) return "it has too many pixels";
  if (conv.c % 2 != 0 || conv.out_c % 2 != 0) return "its channels are odd";
  if (std::max(conv.c, conv.out_c) > kPointMost)
    return fmt::format("it has more than {} channels", kPointMost);
  made.pixels = static_cast<uint32_t>(conv.pixels());
  made.c = static_cast<uint32_t>(conv.c);
  made.k = static_cast<uint32_t>(conv.out_c);
  return "";
}

// The bytes of codes that kernels read as stored, or why not.
std::string code_bytes(const Operand& operand, uint32_t& bytes) {
  if (!operand.plain()) return "an operand is not stored as plain codes";
  const FloatFormat& format = *operand.format();
  bytes = static_cast<uint32_t>(format.bits()) / 8;
  if (format == operand_format(Unit::bf16)) return "";
  if (format.bits() != 8) return fmt::format("{} is neither bf16 nor of 8 bits", format_name(format));
  if (format.specials != Specials::none)
    return fmt::format("codes of {} may be special", format_name(format));
  // The factor that a code in bf16's position lacks must be a power of two.
  if (!operand.form().stored.codec.short_out)
    return fmt::format("{} is no part of a bf16 pattern", format_name(format));
  return why_not_held(Unit::bf16, format);
}

// ---- forward, gradients of inputs ----

struct Described {
  Extents extents;
  bool gradient = false;
  uint32_t bytes = 2;
  int rest = 0;  // the power of two missing in sums
  PointTiling tiling;

  uint32_t in_c() const { return gradient ? extents.k : extents.c; }
  uint32_t out_c() const { return gradient ? extents.c : extents.k; }
};

std::string describe(const Problem& problem, Described& made) {
  const Node& node = problem.root();
  if (node.in.size() > 2) return "it adds no bias";
  made.gradient = conv_kind(node) == ConvKind::grad_input;
  if (std::string why = describe_extents(problem, made.extents); !why.empty()) return why;
  const Operand x(problem, node.in[0]), weight(problem, node.in[1]);
  if (std::string why = code_bytes(x, made.bytes); !why.empty()) return why;
  if (!weight.format() || !weight.in_groups()) return "the weight is exact in fp32 alone";
  if (std::string why = why_not_held(Unit::bf16, *weight.format()); !why.empty()) return why;
  if (made.bytes == 1) {
    // The power of two that codes lack goes into the weights, as far as they have range for it.
    const int power = point_codes(1, x.form().stored.codec).power;
    const auto why_no_room = [&](int rest) {
      FloatFormat format = *weight.format();
      format.bias = static_cast<int16_t>(format.bias - (power - rest));
      return why_not_held(Unit::bf16, format);
    };
    while (!why_no_room(made.rest).empty() && made.rest < kMostRest) ++made.rest;
    if (std::string why = why_no_room(made.rest); !why.empty()) return why;
  }
  const Result result(problem, node, node.out[0]);
  const WriteView& out = result.form();
  if (!result.by_vectors()) return "the result is not stored as codes of 8 or 16 bits, or in fp32";
  if (!out.stored.fp32 && !make_rounder(false, out.stored.codec, out.mode, out.number).quick)
    return "the result is not rounded to nearest even in a few steps";
  const std::optional<PointTiling> tiling =
      make_point_tiling(made.extents.pixels, made.in_c(), made.out_c(), made.bytes, out.stored.bits / 8,
                        made.extents.processors);
  if (!tiling) return "the pixels of a tile do not fit in shared memory";
  made.tiling = *tiling;
  return "";
}

class PointTask : public Task {
 public:
  PointTask(const Problem& problem, const Described& made)
      : x_(problem, problem.root().in[0]),
        weight_(problem, problem.root().in[1]),
        result_(problem, problem.root(), problem.root().out[0]) {
    call_.pixels = made.extents.pixels;
    call_.in_c = made.in_c();
    call_.out_c = made.out_c();
    call_.codes = point_codes(made.bytes, x_.form().stored.codec);
    call_.tiling = made.tiling;
    const WriteView& out = result_.form();
    call_.rounder = make_rounder(out.stored.fp32, out.stored.codec, out.mode, out.number);
    weights_.in_c = call_.in_c;
    weights_.out_c = call_.out_c;
    weights_.transposed = made.gradient;
    weights_.factor = two_to(call_.codes.power - made.rest);
    call_.factor = two_to(made.rest);
    weights_.chunks = made.tiling.chunks;
    weights_.steps = made.tiling.steps;
    Workspace book;
    image_ = book.book(made.tiling.image_words(), sizeof(uint32_t));
    workspace_ = book.bytes();
    note_ =
        fmt::format("bf16: {} as it lies; tiles of {} pixels", format_name(*x_.format()), made.tiling.pixels);
  }

  void run(const RunContext& context) override {
    PointWeights weights = weights_;
    weights.view = weight_.view(context);
    weights.state = context.state;
    weights.to = reinterpret_cast<uint32_t*>(context.workspace + image_);
    prepare_points(weights, context.stream);
    PointCall call = call_;
    call.in = context.bytes(x_.id());
    call.image = weights.to;
    call.out = result_.view(context);
    run_points(call, context.stream);
  }

  std::string note() const override { return note_; }

 private:
  Operand x_, weight_;
  Result result_;
  PointCall call_;        // without addresses
  PointWeights weights_;  // without addresses
  size_t image_ = 0;
  std::string note_;
};

// ---- gradients of weights ----

std::string describe_grad(const Problem& problem, PointGradCall& made) {
  const Node& node = problem.root();
  Extents extents;
  if (std::string why = describe_extents(problem, extents); !why.empty()) return why;
  const Operand in(problem, node.in[0]), grad(problem, node.in[1]);
  uint32_t in_bytes = 0, grad_bytes = 0;
  if (std::string why = code_bytes(in, in_bytes); !why.empty()) return why;
  if (std::string why = code_bytes(grad, grad_bytes); !why.empty()) return why;
  if (!Result(problem, node, node.out[0]).in_groups()) return "the result is not stored by groups";
  made.pixels = extents.pixels;
  made.in_c = extents.c;
  made.out_c = extents.k;
  made.in_codes = point_codes(in_bytes, in.form().stored.codec);
  made.grad_codes = point_codes(grad_bytes, grad.form().stored.codec);
  made.tiling =
      make_point_grad_tiling(made.pixels, made.in_c, made.out_c, in_bytes, grad_bytes, extents.processors);
  return "";
}

class PointGradTask : public Task {
 public:
  PointGradTask(const Problem& problem, const PointGradCall& made)
      : call_(made),
        in_(problem, problem.root().in[0]),
        grad_(problem, problem.root().in[1]),
        result_(problem, problem.root(), problem.root().out[0]) {
    Workspace book;
    // Groups of eight are read, even if the last one is incomplete.
    parts_ = book.book(call_.tiling.pieces * elements() + kGroup);
    workspace_ = book.bytes();
    note_ = fmt::format("bf16: {} and {} as they lie; {} pieces of the batch", format_name(*in_.format()),
                        format_name(*grad_.format()), call_.tiling.pieces);
  }

  void run(const RunContext& context) override {
    PointGradCall call = call_;
    call.in = context.bytes(in_.id());
    call.grad = context.bytes(grad_.id());
    call.parts = floats(context, parts_);
    run_point_grad(call, context.stream);
    add_split_k({call.parts, call.tiling.pieces, elements(), result_.view(context), context.state},
                context.stream);
  }

  std::string note() const override { return note_; }

 private:
  uint64_t elements() const { return uint64_t{call_.out_c} * call_.in_c; }

  PointGradCall call_;  // without addresses
  Operand in_, grad_;
  Result result_;
  size_t parts_ = 0;
  std::string note_;
};

}  // namespace

PointCodes point_codes(uint32_t bytes, const QuickCodec& codec) {
  PointCodes made;
  made.bytes = bytes;
  if (bytes != 1) return made;
  made.shift = static_cast<uint32_t>(7 - codec.spec.man);
  made.mask = (0x8000u | 0x7Fu << made.shift) * 0x00010001u;
  made.power = codec.spec.emin + 126;
  made.lift = (static_cast<uint32_t>(made.power + 127) << 7) * 0x00010001u;
  return made;
}

std::optional<PointTiling> make_point_tiling(uint32_t pixels, uint32_t in_c, uint32_t out_c,
                                             uint32_t in_bytes, uint32_t out_bytes, uint32_t processors,
                                             uint32_t tile) {
  PointTiling tiling;
  tiling.chunks = (out_c + kPointColumns - 1) / kPointColumns;
  tiling.steps = (in_c + kPointStep - 1) / kPointStep;
  tiling.groups = std::min(tiling.chunks, 4u);
  // With `blocks` blocks per multiprocessor, which has registers for kPointThreads threads.
  const auto fits = [&](uint32_t size, bool stationary, uint32_t blocks, uint32_t stages) {
    if (size * tiling.groups * blocks > kPointThreads || (tile != 0 && size != tile)) return false;
    const size_t room = std::min(kPointShared, kProcessorShared / blocks - kReserved);
    const size_t stage = size_t{size} * in_c * in_bytes, made = size_t{size} * out_c * out_bytes;
    const size_t beside = made + (stationary ? size_t{tiling.image_words()} * sizeof(uint32_t) : 0);
    if (beside + stages * stage > room) return false;
    tiling.pixels = size;
    tiling.stationary = stationary;
    tiling.stages = static_cast<uint32_t>(std::min<size_t>((room - beside) / stage, kMostStages));
    tiling.shared = beside + tiling.stages * stage;
    tiling.tiles = (pixels + size - 1) / size;
    tiling.grid = std::min(tiling.tiles, processors * blocks);
    return true;
  };
  // Several blocks, so that one multiplies while another writes, each with tiles prefetched; else
  // one block. Weights that do not fit shared memory are read through the caches.
  constexpr uint32_t kSizes[] = {128, 64, 32};
  // With few pixels tiles are small, so that at least half of the multiprocessors have one, unless
  // a size is asked for.
  const auto few = [&](uint32_t size) {
    return tile == 0 && size > kSizes[2] && 2 * uint64_t{(pixels + size - 1) / size} < processors;
  };
  for (const bool stationary : {true, false}) {
    for (const uint32_t size : kSizes) {
      if (few(size)) continue;
      for (uint32_t blocks = 4; blocks > 1; --blocks) {
        if (fits(size, stationary, blocks, 3)) return tiling;
      }
    }
    for (const uint32_t size : kSizes) {
      if (!few(size) && fits(size, stationary, 1, 2)) return tiling;
    }
  }
  return std::nullopt;
}

PointGradTiling make_point_grad_tiling(uint32_t pixels, uint32_t in_c, uint32_t out_c, uint32_t in_bytes,
                                       uint32_t out_bytes, uint32_t processors) {
  constexpr uint32_t kChannels = 64, kWarps = kPointGradThreads / 32, kMostPixels = 128;
  PointGradTiling tiling;
  const uint32_t in_tiles = (in_c + kChannels - 1) / kChannels,
                 out_tiles = (out_c + kChannels - 1) / kChannels;
  tiling.warps_in = std::min(std::bit_ceil(in_tiles), 4u);
  tiling.warps_out = std::min(std::bit_ceil(out_tiles), kWarps / tiling.warps_in);
  tiling.slices = kWarps / (tiling.warps_in * tiling.warps_out);
  tiling.blocks_in = (in_tiles + tiling.warps_in - 1) / tiling.warps_in;
  tiling.blocks_out = (out_tiles + tiling.warps_out - 1) / tiling.warps_out;
  // Lanes read up to 64 channels whether they exist or not, also beyond the last pixel.
  constexpr size_t kBehind = 2 * kChannels;
  const size_t pixel = size_t{in_c} * in_bytes + size_t{out_c} * out_bytes;
  tiling.pixels = kMostPixels;
  while (3 * pixel * tiling.pixels + kBehind > kPointShared) tiling.pixels /= 2;
  tiling.stages = static_cast<uint32_t>(
      std::min<size_t>((kPointShared - kBehind) / (pixel * tiling.pixels), kMostStages));
  // Half of the slices store their sums there.
  const size_t sums = tiling.slices > 1 ? size_t{kWarps / 2} * kChannels * kChannels * sizeof(float) : 0;
  tiling.shared = std::max(tiling.stages * pixel * tiling.pixels + kBehind, sums);
  tiling.tiles = (pixels + tiling.pixels - 1) / tiling.pixels;
  // One block per multiprocessor.
  const uint32_t wanted = std::clamp(processors / (tiling.blocks_in * tiling.blocks_out), 1u, tiling.tiles);
  tiling.each = (tiling.tiles + wanted - 1) / wanted;
  tiling.pieces = (tiling.tiles + tiling.each - 1) / tiling.each;
  return tiling;
}

std::span<const KernelDef> pointwise_kernels() {
  static constexpr KernelDef kKernels[] = {
      described<PointTask, describe, Described>("conv2d", "pointwise"),
      described<PointTask, describe, Described>("conv2d_grad_input", "pointwise"),
      described<PointGradTask, describe_grad, PointGradCall>("conv2d_grad_weight", "pointwise"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
