// Tasks for conv_wgrad.h: which problems the kernels take, and how they are launched.
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/described.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kUnit = 16;  // channels that a warp sums
constexpr size_t kShared = 227 * 1024,
                 // Bytes of shared memory: alone on a multiprocessor, and one of two.
    kSharedOfTwo = 113 * 1024;
constexpr uint32_t kMostGradStages = 6;

bool is_bf16(const FloatFormat& format) { return format == operand_format(Unit::bf16); }

// Why codes do not become operands of the unit by a shift and a power of two.
std::string why_not_placed(Unit unit, const Operand& operand) {
  const FloatFormat& format = *operand.format();
  if (is_bf16(format)) return "";
  if (format.specials != Specials::none)
    return fmt::format("codes of {} may be special", format_name(format));
  // 8-bit codes become bf16 first for either unit. 16-bit codes must fit fp32's position
  // completely.
  const QuickCodec& codec = operand.form().stored.codec;
  const bool narrow = format.bits() == 8;
  if (!narrow && (unit != Unit::tf32 || format.bits() != 16))
    return fmt::format("{} is not of 8 or 16 bits", format_name(format));
  if (!codec.short_out || (!narrow && codec.shift > 16))
    return fmt::format("{} is no part of a{} pattern", format_name(format), narrow ? " bf16" : "n fp32");
  return why_not_held(narrow ? Unit::bf16 : unit, format);
}

// Why products of the two formats, summed in fp32, might not be exact. tf32 operands have their
// true values: fp(6,9,0) reaches from 2^-39 to 2^33, fp(4,3,4) from 2^-13 to 2^5. All are normal in
// fp32, and so are products, from 2^-78 to 2^66, with room for sums of more terms than there are
// pixels. So nothing depends on how a tensor core treats subnormals. bf16 operands are exempt, as
// in products of bf16.
std::string why_not_normal(const FloatFormat& in, const FloatFormat& out) {
  constexpr int kLowest = -126;  // exponent of the smallest normal fp32 number
  const auto smallest = [](const FloatFormat& format) {
    return is_bf16(format) ? 0 : format.emin() - static_cast<int>(format.man);
  };
  if (std::min(smallest(in), smallest(out)) >= kLowest && smallest(in) + smallest(out) >= kLowest) return "";
  return fmt::format("products of {} and {} may be subnormal", format_name(in), format_name(out));
}

// Chooses the operand type and the bytes of codes, or returns why not.
std::string choose_operands(const Operand& in, const Operand& out, GradCall& made) {
  if (!in.plain() || !out.plain()) return "an operand is not stored as plain codes";
  made.in_bytes = static_cast<uint32_t>(in.format()->bits()) / 8;
  made.out_bytes = static_cast<uint32_t>(out.format()->bits()) / 8;
  const auto obstacle = [&](Unit unit) {
    std::string why = why_not_placed(unit, in);
    return why.empty() ? why_not_placed(unit, out) : why;
  };
  // The power of two that an 8-bit input lacks goes to the gradient. A bf16 gradient has no range
  // for it: products would be subnormal.
  const std::string as_bf16 =
      made.in_bytes == 1 && made.out_bytes == 2 ? "8-bit inputs want 8-bit gradients" : obstacle(Unit::bf16);
  if (as_bf16.empty()) return "";
  if (made.in_bytes == 1 && made.out_bytes == 1) return as_bf16;
  made.tf32 = true;
  std::string why = obstacle(Unit::tf32);
  return why.empty() ? why_not_normal(*in.format(), *out.format()) : why;
}

struct Described {
  GradCall call;
  std::optional<Gathered> few;
};

std::string describe(const Problem& problem, Described& all) {
  GradCall& made = all.call;
  std::optional<Gathered>& few = all.few;
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "it adds up in fp32 alone";
  if (!problem.plan.options.tensor_core) return "tensor cores are off";
  const uint32_t processors = igemm_processors();
  if (processors == 0) return "the GPU has no such tensor cores";
  const Node& node = problem.root();
  const ConvExtents whole = conv_extents(problem.graph(), node);
  if (whole.groups != 1) return "it has groups";
  if (whole.kernel_h > kGradTaps || whole.kernel_w > kGradTaps)
    return fmt::format("its kernel is larger than {}x{}", kGradTaps, kGradTaps);
  if (std::max(whole.pixels(), whole.out_pixels()) >> 31 != 0) return "it has too many pixels";
  auto conv = whole.as<uint32_t>();
  const Operand in(problem, node.in[0]), out(problem, node.in[1]);
  if (std::string why = choose_operands(in, out, made); !why.empty()) return why;
  if (conv.c % kUnit != 0) {
    few = gathered(conv);
    if (few && few->bytes(made.in_bytes) > problem.plan.options.workspace)
      return "what is gathered takes too much workspace";
    if (few) conv = few->conv;
  }
  made.shape = forward_part(conv).shape;
  if (conv.c % kUnit != 0 || conv.out_c % (16 / made.out_bytes) != 0) {
    return fmt::format("{} and {} channels are not multiples of {} and {}", conv.c, conv.out_c, kUnit,
                       16 / made.out_bytes);
  }
  if (!Result(problem, node, node.out[0]).in_groups()) return "the result is not stored by groups";
  const std::optional<GradTiling> tiling =
      make_grad_tiling(made.shape, made.in_bytes, made.out_bytes, made.tf32, processors);
  if (!tiling) return "the pixels of a tile do not fit in shared memory, or are not in order";
  made.tiling = *tiling;
  return "";
}

class GradTask : public Task {
 public:
  GradTask(const Problem& problem, const Described& made)
      : call_(made.call),
        gathered_(made.few),
        in_(problem, problem.root().in[0]),
        grad_(problem, problem.root().in[1]),
        result_(problem, problem.root(), problem.root().out[0]) {
    complete(call_, in_.form().stored.codec, grad_.form().stored.codec);
    Workspace book;
    elements_ = uint64_t{call_.shape.out_c} * call_.shape.taps() * call_.shape.in_c;
    parts_ = book.book(call_.tiling.pieces * elements_);
    if (gathered_) {
      codes_ = book.book(gathered_->conv.x_elements(), call_.in_bytes);
      padded_ = book.book(elements_);
      convert_ = book.book(1, convert_bytes(problem));
    }
    workspace_ = book.bytes();
    note_ = fmt::format("{}: {} and {} as they lie; {} pieces of the batch",
                        unit_name(call_.tf32 ? Unit::tf32 : Unit::bf16), format_name(*in_.format()),
                        format_name(*grad_.format()), call_.tiling.pieces);
  }

  void run(const RunContext& context) override {
    GradCall call = call_;
    call.parts = floats(context, parts_);
    const uint8_t* in = context.bytes(in_.id());
    if (gathered_) {
      uint8_t* codes = context.workspace + codes_;
      gather_codes(in, call.in_bytes, gathered_->window, gathered_->conv.n, gathered_->padded, codes,
                   context.stream);
      in = codes;
    }
    run_grad(call, in, context.bytes(grad_.id()), context.stream);
    SplitKSums sums{call.parts, call.tiling.pieces, elements_, result_.view(context), context.state};
    if (gathered_) {
      sums.out = {};
      sums.out.stored = array_view(floats(context, padded_), elements_);
    }
    add_split_k(sums, context.stream);
    if (gathered_) {
      encode(result_.view(context), context.state,
             {0, call.shape.out_c, gathered_->channels, gathered_->padded}, floats(context, padded_),
             context.workspace + convert_, context.stream);
    }
  }

  std::string note() const override { return note_; }

 private:
  GradCall call_;
  std::optional<Gathered> gathered_;
  Operand in_, grad_;
  Result result_;
  uint64_t elements_ = 0;
  size_t parts_ = 0, codes_ = 0, padded_ = 0, convert_ = 0;
  std::string note_;
};

uint32_t twice(int power) { return (static_cast<uint32_t>(power + 127) << 7) * 0x00010001u; }

// Shifts 8-bit codes to bf16's position, two at a time.
void place_narrow(const QuickCodec& codec, uint32_t& shift, uint32_t& mask) {
  shift = static_cast<uint32_t>(7 - codec.spec.man);
  mask = (0x8000u | 0x7Fu << shift) * 0x00010001u;
}

void complete_bf16(GradCall& call, const QuickCodec& in, const QuickCodec& out) {
  // 8-bit codes in bf16's position lack a power of two. The gradients' is applied when they are
  // converted, together with as much of the inputs' as bf16 has range for above the largest
  // gradient. The rest is applied to the sums.
  int of_in = 0, of_out = 0, now = 0;
  if (call.in_bytes == 1) {
    place_narrow(in, call.in_shift, call.in_mask);
    of_in = in.spec.emin + 126;
  }
  if (call.out_bytes == 1) {
    place_narrow(out, call.out_shift, call.out_mask);
    of_out = out.spec.emin + 126;
    const int largest = static_cast<int>(out.spec.max_code >> out.spec.man) - 1 + out.spec.emin;
    now = std::min(of_in, 126 - largest);
  }
  call.lift[0] = twice(of_out);
  call.lift[1] = twice(now);
  call.factor = bits_float(static_cast<uint32_t>(of_in - now + 127) << 23);
}

// Each side applies the power that its codes lack.
void complete_tf32(GradCall& call, const QuickCodec& in, const QuickCodec& out) {
  const auto place = [](const QuickCodec& codec, uint32_t bytes, uint32_t& shift, uint32_t& mask,
                        uint32_t& lift, float& factor) {
    if (bytes == 1) {
      place_narrow(codec, shift, mask);
      lift = twice(codec.spec.emin + 126);
    } else {
      shift = 16 - codec.shift;
      mask = (0x80000000u | 0x7FFFFFFFu >> shift) & ~((uint32_t{1} << codec.shift) - 1);
      factor = codec.lift;
    }
  };
  place(in, call.in_bytes, call.in_shift, call.in_mask, call.lift[0], call.in_factor);
  place(out, call.out_bytes, call.out_shift, call.out_mask, call.lift[1], call.out_factor);
  call.factor = 1;
}

}  // namespace

namespace {

// Cycles of a multiprocessor's blocks: products, then the piece's sums written and read back. With
// few tiles per block and many channels the sums dominate; then fewer outputs per block, with
// larger pieces, are better. The 64 by 64 tile is measured on an H200, the other figures are
// estimates. They suffice where the sums decide, which is the only case in which several widths are
// tried.
double cost(const IgemmShape& shape, const GradTiling& tiling, uint32_t processors) {
  const double products = tiling.outputs == 64 ? 570 : tiling.outputs == 32 ? 330 : 200;
  const uint32_t units = tiling.inputs / 16, blocks = (3 * units + 3) / 4;
  const double sums = 4.0 * tiling.inputs * tiling.outputs * shape.taps();  // bytes
  const uint32_t turns = (tiling.grid() + processors - 1) / processors;
  return turns * (tiling.each * (300 + blocks * products) + 2 * sums / 24);
}

}  // namespace

std::optional<GradTiling> make_grad_tiling(const IgemmShape& shape, uint32_t in_bytes, uint32_t out_bytes,
                                           bool tf32, uint32_t processors) {
  const std::optional<uint32_t> rows = input_rows(shape, kGradPixels);
  if (!rows) return std::nullopt;
  const auto width = [](uint32_t channels) { return channels > 32 ? 64u : channels > 16 ? 32u : 16u; };
  GradTiling tiling;
  double least = 0;
  for (uint32_t outputs = width(shape.out_c); outputs >= 16; outputs /= 2) {
    GradTiling tried;
    tried.inputs = width(shape.in_c);
    tried.outputs = outputs;
    tried.input_tiles = (shape.in_c + tried.inputs - 1) / tried.inputs;
    tried.output_tiles = (shape.out_c + outputs - 1) / outputs;
    tried.tiles = static_cast<uint32_t>((shape.results() + kGradPixels - 1) / kGradPixels);
    // One block per multiprocessor.
    const uint32_t wanted =
        std::clamp(processors / (tried.input_tiles * tried.output_tiles), 1u, tried.tiles);
    tried.each = (tried.tiles + wanted - 1) / wanted;
    tried.pieces = (tried.tiles + tried.each - 1) / tried.each;
    const double takes = cost(shape, tried, processors);
    if (least != 0 && takes >= least) continue;
    tiling = tried;
    least = takes;
    // If blocks have many tiles, products dominate.
    if (tf32 || tiling.each > 2) break;
  }
  const uint32_t boxes = (*rows + 255) / 256, each = (*rows + boxes - 1) / boxes;
  tiling.input_rows = (each + 7) / 8 * 8 * boxes;
  if (tiling.input_rows > 0xFFFF) return std::nullopt;  // tables have 16 bits for a row
  const auto whole = [](size_t bytes) { return (bytes + 1023) / 1024 * 1024; };
  const size_t stage = whole(size_t{tiling.input_rows} * tiling.inputs * in_bytes) +
                       whole(size_t{kGradPixels} * tiling.outputs * out_bytes) +
                       kGradPixels * sizeof(uint32_t);
  // Gradients as operands, a row of zeros, barriers.
  const size_t beside = size_t{kGradCopies} * kGradPixels * tiling.outputs * (tf32 ? 4 : 2) + 16 + 1024;
  const bool shares = grad_shares(tiling.inputs, tiling.outputs, tf32);
  const size_t room = shares && beside + 2 * stage <= kSharedOfTwo ? kSharedOfTwo : kShared;
  if (beside + 2 * stage > room) return std::nullopt;
  tiling.stages = static_cast<uint32_t>(std::min<size_t>((room - beside) / stage, kMostGradStages));
  tiling.shared = beside + tiling.stages * stage;
  return tiling;
}

void complete(GradCall& call, const QuickCodec& in, const QuickCodec& out) {
  const IgemmShape& shape = call.shape;
  call.tf32 ? complete_tf32(call, in, out) : complete_bf16(call, in, out);
  call.area = Divisor::of(shape.out_h * shape.out_w);
  call.width = Divisor::of(shape.out_w);
  call.lowest = lowest_offset(shape);
}

std::span<const KernelDef> conv_wgrad_kernels() {
  static constexpr KernelDef kKernels[] = {
      described<GradTask, describe, Described>("conv2d_grad_weight", "conv_igemm", true)};
  return kKernels;
}

}  // namespace ulp::cuda
