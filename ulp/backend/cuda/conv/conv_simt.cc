// Tasks for conv_simt.h, and the choice of their tiling.
#include "ulp/backend/cuda/conv/conv_simt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/igemm/conv_tiling.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/backend/described.h"

namespace ulp::cuda {
namespace {

uint32_t conv_simt_processors() {
  const uint32_t processors = igemm_processors();
  return processors == 0 ? kProcessors : processors;
}

uint32_t quotient_up(uint32_t n, uint32_t divisor) { return (n + divisor - 1) / divisor; }

// ---- cost model ----

// The time of a tile's chunk, relative to a chunk of 128 by 128 on a fully occupied multiprocessor,
// from instruction counts; the warps of a block; and the resident blocks per multiprocessor.
struct Candidate {
  ConvSimtTile tile;
  double chunk;
  uint32_t warps, resident;
};
constexpr Candidate kCandidates[] = {
    {ConvSimtTile::wide, 1, 8, 2}, {ConvSimtTile::narrow, 0.52, 4, 4}, {ConvSimtTile::slim, 0.34, 4, 5}};
// In the same unit: starting and ending a block; the split-K reduction kernel; and the bytes that
// it and the writers of pieces move per unit.
constexpr double kBlock = 3, kReduce = 5, kReduceBytes = 2e6;

struct Amount {
  uint64_t tiles = 0;  // of all parts
  uint64_t work = 0;   // their chunks
  uint64_t most = 0;   // chunks of the largest tile
  uint64_t elements = 0;
};

// The cost with this many pieces.
double cost(const Candidate& candidate, const Amount& amount, uint32_t pieces, uint32_t processors) {
  const double each =
      (static_cast<double>(amount.work) / static_cast<double>(amount.tiles) / pieces + kBlock) *
      candidate.chunk;
  // For the multiprocessor with most blocks; its last blocks run with fewer others.
  const uint64_t blocks = (amount.tiles * pieces + processors - 1) / processors;
  const uint64_t rest = blocks % candidate.resident, warps = rest * candidate.warps;
  const double slower =
      warps == 0 ? 1 : (static_cast<double>(warps) + 3) / static_cast<double>(warps) * 16 / 19;
  const double time =
      each * (static_cast<double>(blocks - rest) + static_cast<double>(rest) * std::max(slower, 1.0));
  // Not shorter than the largest part.
  const double longest = (static_cast<double>(amount.most) / pieces + kBlock) * candidate.chunk *
                         std::min<double>(static_cast<double>(blocks), candidate.resident);
  const double reduce_time =
      pieces == 1 ? 0
                  : kReduce + (2.0 * pieces + 1) * static_cast<double>(amount.elements) * 4 / kReduceBytes;
  return std::max(time, longest) + reduce_time;
}

// `amount_of` tells the amount of work with a tile.
template <typename AmountOf>
ConvSimtTiling choose(const AmountOf& amount_of, uint32_t processors, size_t workspace,
                      std::optional<ConvSimtTile> only) {
  constexpr uint64_t kMostPieces = 512, kLeastChunks = 4;
  ConvSimtTiling best;
  double least = 0;
  for (const Candidate& candidate : kCandidates) {
    if (only && *only != candidate.tile) continue;
    const Amount amount = amount_of(candidate.tile);
    const uint64_t room = workspace / (amount.elements * sizeof(float));
    const uint64_t most = std::clamp<uint64_t>(std::min(amount.most / kLeastChunks, room), 1, kMostPieces);
    for (uint32_t pieces = 1; pieces <= most; ++pieces) {
      const double time = cost(candidate, amount, pieces, processors);
      if (least != 0 && time >= least) continue;
      least = time;
      best = {candidate.tile, pieces};
    }
  }
  return best;
}

// ---- problems ----

// A convolution as the kernels compute it.
struct Described {
  ConvExtents32 conv;
  std::string unit;  // the unit and the reason for it
};

template <ConvKind kind>
std::string describe_operands(const Problem& problem, std::string& unit) {
  const Node& node = problem.root();
  const Operand a(problem, node.in[0]), b(problem, node.in[1]);
  const UnitChoice choice = choose_unit(a.format(), b.format(), problem.plan.options);
  if (choice.unit != Unit::fp32)
    return fmt::format("its products run in {}: {}", unit_name(choice.unit), choice.why);
  if (!a.fp32() || !b.fp32()) return "an operand is not stored in fp32";
  const Result result(problem, node, node.out[0]);
  if (kind == ConvKind::grad_weight ? !result.in_groups() : !result.direct())
    return kind == ConvKind::grad_weight ? "the result is not stored by groups"
                                         : "the result is not stored in fp32";
  unit = fmt::format("{}: {}", unit_name(choice.unit), choice.why);
  return "";
}

template <ConvKind kind>
std::string describe(const Problem& problem, Described& made) {
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "it adds up in fp32 alone";
  const Node& node = problem.root();
  if (kind == ConvKind::forward && node.in.size() > 2) return "it adds no bias";
  const ConvExtents whole = conv_extents(problem.graph(), node);
  if (whole.groups != 1) return "it has groups";
  if (whole.kernel_h > kMostTaps || whole.kernel_w > kMostTaps)
    return fmt::format("its kernel is larger than {}x{}", kMostTaps, kMostTaps);
  if (whole.c % kSimtQuad != 0 || whole.out_c % kSimtQuad != 0)
    return fmt::format("{} and {} channels are not multiples of {}", whole.c, whole.out_c, kSimtQuad);
  if (std::max({whole.x_elements(), whole.weight_elements(), whole.out_elements()}) >> 31 != 0)
    return "it has too many elements";
  made.conv = whole.as<uint32_t>();
  const ConvExtents32& conv = made.conv;
  if (kind == ConvKind::grad_input) {
    if (uint64_t{conv.stride_h} * conv.stride_w > kMostParts) return "its stride is too large";
    if (conv.h < conv.stride_h || conv.w < conv.stride_w) return "its images are smaller than its stride";
  }
  return describe_operands<kind>(problem, made.unit);
}

// A call of either kind, its pieces if there are several, and the result.
template <ConvKind kind>
class ConvSimtTask : public Task {
  static constexpr bool kWeights = kind == ConvKind::grad_weight;
  using Call = std::conditional_t<kWeights, ConvSimtGrad, ConvSimtCall>;

 public:
  ConvSimtTask(const Problem& problem, const Described& made)
      : a_(problem, problem.root().in[0]),
        b_(problem, problem.root().in[1]),
        result_(problem, problem.root(), problem.root().out[0]) {
    const ConvExtents32& conv = made.conv;
    if constexpr (kWeights) {
      call_ = conv_simt_wgrad(forward_part(conv));
    } else {
      const std::vector<IgemmPart> parts =
          kind == ConvKind::grad_input ? gradient_parts(conv) : std::vector{forward_part(conv)};
      call_ = conv_simt_call(parts, conv.taps(), kind == ConvKind::grad_input);
    }
    call_.tiling = choose_tiling(call_, conv_simt_processors(), problem.plan.options.workspace);
    complete(call_);
    reduces_ = call_.tiling.pieces > 1 || !result_.direct();
    if (reduces_) {
      // Groups of eight are read, even if the last one is incomplete.
      Workspace book;
      parts_ = book.book(call_.tiling.pieces * elements() + kGroup);
      workspace_ = book.bytes();
    }
    note_ = fmt::format("{}; tiles of {} by {}{}", made.unit, kSimtRows, tile_columns(call_.tiling.tile),
                        call_.tiling.pieces > 1 ? fmt::format(", {} pieces", call_.tiling.pieces) : "");
  }

  void run(const RunContext& context) override {
    Call call = call_;
    call.images = context.as<const float>(a_.id());
    call.out = reduces_ ? floats(context, parts_) : context.as<float>(result_.id());
    if constexpr (kWeights) {
      call.grad = context.as<const float>(b_.id());
      run_conv_simt_wgrad(call, context.stream);
    } else {
      call.weight = context.as<const float>(b_.id());
      run_conv_simt(call, context.stream);
    }
    if (reduces_) {
      add_split_k({call.out, call.tiling.pieces, elements(), result_.view(context), context.state},
                  context.stream);
    }
  }

  std::string note() const override { return note_; }

 private:
  uint64_t elements() const { return result_.elements(); }

  Operand a_, b_;
  Result result_;
  Call call_;  // without addresses
  bool reduces_ = false;
  size_t parts_ = 0;
  std::string note_;
};

template <ConvKind kind>
constexpr KernelDef kernel(std::string_view op) {
  return described<ConvSimtTask<kind>, describe<kind>, Described>(op, "conv_simt");
}

}  // namespace

ConvSimtCall conv_simt_call(std::span<const IgemmPart> parts, uint32_t weight_taps, bool gradient) {
  ConvSimtCall call;
  call.gradient = gradient;
  call.weight_taps = weight_taps;
  call.parts = static_cast<uint32_t>(parts.size());
  const IgemmShape& shape = parts[0].shape;
  call.in_h = shape.in_h;
  call.in_w = shape.in_w;
  call.in_c = shape.in_c;
  call.out_c = shape.out_c;
  call.elements = shape.images * shape.full_h * shape.full_w * shape.out_c;
  for (size_t i = 0; i < parts.size(); ++i) {
    ConvSimtPart& part = call.part[i];
    part.shape = parts[i].shape;
    std::copy(std::begin(parts[i].source), std::end(parts[i].source), part.source);
    part.area = Divisor::of(part.shape.out_h * part.shape.out_w);
    part.width = Divisor::of(part.shape.out_w);
    part.tap_chunks = quotient_up(part.shape.in_c, kSimtDepth);
    part.chunks = part.shape.taps() * part.tap_chunks;
  }
  // Blocks with most work come first.
  std::stable_sort(call.part, call.part + call.parts,
                   [](const ConvSimtPart& a, const ConvSimtPart& b) { return a.chunks > b.chunks; });
  return call;
}

ConvSimtGrad conv_simt_wgrad(const IgemmPart& forward) {
  ConvSimtGrad call;
  call.shape = forward.shape;
  const uint32_t area = call.shape.out_h * call.shape.out_w;
  call.area = Divisor::of(area);
  call.width = Divisor::of(call.shape.out_w);
  call.step_image = kSimtDepth / area;
  call.step_row = kSimtDepth % area / call.shape.out_w;
  call.step_column = kSimtDepth % area % call.shape.out_w;
  return call;
}

ConvSimtTiling choose_tiling(const ConvSimtCall& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only) {
  const auto amount_of = [&](ConvSimtTile tile) {
    Amount amount{.elements = call.elements};
    for (uint32_t i = 0; i < call.parts; ++i) {
      const ConvSimtPart& part = call.part[i];
      const uint64_t tiles =
          (part.shape.results() + kSimtRows - 1) / kSimtRows * quotient_up(call.out_c, tile_columns(tile));
      amount.tiles += tiles;
      amount.work += tiles * part.chunks;
      amount.most = std::max<uint64_t>(amount.most, part.chunks);
    }
    return amount;
  };
  return choose(amount_of, processors, workspace, only);
}

ConvSimtTiling choose_tiling(const ConvSimtGrad& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only) {
  const auto amount_of = [&](ConvSimtTile tile) {
    const uint64_t chunks = quotient_up(call.pixels(), kSimtDepth);
    const uint64_t tiles = uint64_t{quotient_up(call.shape.taps() * call.shape.in_c, kSimtRows)} *
                           quotient_up(call.shape.out_c, tile_columns(tile));
    return Amount{tiles, tiles * chunks, chunks, call.elements()};
  };
  return choose(amount_of, processors, workspace, only);
}

void complete(ConvSimtCall& call) {
  call.column_tiles = quotient_up(call.out_c, tile_columns(call.tiling.tile));
  // The largest part has no empty piece.
  const uint32_t chunks = std::max(call.part[0].chunks, 1u);
  call.tiling.pieces = quotient_up(chunks, quotient_up(chunks, call.tiling.pieces));
  call.blocks = 0;
  for (uint32_t i = 0; i < call.parts; ++i) {
    ConvSimtPart& part = call.part[i];
    part.row_tiles = quotient_up(static_cast<uint32_t>(part.shape.results()), kSimtRows);
    part.each = quotient_up(part.chunks, call.tiling.pieces);
    part.first_block = call.blocks;
    call.blocks += part.row_tiles * call.column_tiles * call.tiling.pieces;
  }
}

void complete(ConvSimtGrad& call) {
  call.row_tiles = quotient_up(call.shape.taps() * call.shape.in_c, kSimtRows);
  call.column_tiles = quotient_up(call.shape.out_c, tile_columns(call.tiling.tile));
  const uint32_t chunks = quotient_up(call.pixels(), kSimtDepth),
                 each = quotient_up(chunks, call.tiling.pieces);
  call.tiling.pieces = quotient_up(chunks, each);
  call.each = each * kSimtDepth;
}

std::span<const KernelDef> conv_simt_kernels() {
  static constexpr KernelDef kKernels[] = {
      kernel<ConvKind::forward>("conv2d"),
      kernel<ConvKind::grad_input>("conv2d_grad_input"),
      kernel<ConvKind::grad_weight>("conv2d_grad_weight"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
