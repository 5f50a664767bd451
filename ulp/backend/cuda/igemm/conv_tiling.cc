#include "ulp/backend/cuda/igemm/conv_tiling.h"

#include <algorithm>
#include <bit>

namespace ulp::cuda {
namespace {

// Shared memory of a block, in bytes: alone on a multiprocessor, or one of two.
constexpr size_t kSharedOfOne = 227 * 1024, kSharedOfTwo = 113 * 1024;
// Reserved in it: a row of zeros, two barriers per stage, three per input stage, and eight bytes
// per input stage for the converters' findings.
constexpr size_t kZeros = 128, kBarriers = 1024;
constexpr uint32_t kMostInputStages = 3, kMostStages = kBarriers / 16 - 2 * kMostInputStages;

// Whether two blocks share a multiprocessor.
bool in_pairs(const IgemmTiling& tiling) { return tiling.columns * (tiling.rows / 128) <= 64; }

// A result's input pixel, without a tap.
int64_t pixel_of(const IgemmShape& shape, int64_t result) {
  const int64_t area = int64_t{shape.out_h} * shape.out_w;
  const int64_t image = result / area, p = result % area / shape.out_w, q = result % shape.out_w;
  return (image * shape.in_h + p * shape.stride_h) * shape.in_w + q * shape.stride_w;
}

// Whether a result's pixel never precedes that of the result before it. Then the first and last
// result of a tile determine which pixels it reads.
bool in_order(const IgemmShape& shape) {
  const int64_t w = shape.in_w, right = int64_t{shape.out_w - 1} * shape.stride_w;
  return right <= w * shape.stride_h &&
         int64_t{shape.out_h - 1} * shape.stride_h * w + right <= w * shape.in_h;
}

int32_t offset_of(const IgemmShape& shape, uint32_t tap) {
  return shape.row[tap / shape.columns] * static_cast<int32_t>(shape.in_w) +
         shape.column[tap % shape.columns];
}

uint32_t up(uint32_t x, uint32_t granule) { return (x + granule - 1) / granule * granule; }

// Tiles worth trying and their cost in time: alone on a multiprocessor, and two at once. Measured
// on an H200, relative to 128 by 128. Two tiles of 64 columns slow each other less if nothing has
// to be decoded.
struct Candidate {
  uint32_t rows, columns;
  double alone, pair, pair_of_bf16;
};
constexpr Candidate kCandidates[] = {
    {256, 128, 1.75, 3.5, 3.5}, {128, 128, 1, 2, 2},         {128, 64, 0.82, 1.25, 1.02},
    {256, 32, 1.4, 1.9, 1.9},   {128, 32, 0.75, 1.05, 1.05},
};

double cost(const Candidate& candidate, uint32_t tiles, OperandFeed feed, uint32_t processors) {
  const uint32_t each = (tiles + processors - 1) / processors;
  const bool ready = feed == OperandFeed::bf16 || feed == OperandFeed::fp16_from_16;
  return each / 2 * (ready ? candidate.pair_of_bf16 : candidate.pair) + each % 2 * candidate.alone;
}

// Whether one launch can do both.
bool alike(const IgemmTiling& a, const IgemmTiling& b) {
  return a.rows == b.rows && a.columns == b.columns && a.channels == b.channels &&
         a.input_stages == b.input_stages && a.boxes == b.boxes && a.box_rows == b.box_rows &&
         a.row_tiles == b.row_tiles;
}

bool alike_all(const std::vector<IgemmTiling>& tilings) {
  return std::all_of(tilings.begin(), tilings.end(),
                     [&](const IgemmTiling& tiling) { return alike(tiling, tilings[0]); });
}

// No more idle columns than working ones. Few columns only if there are few channels or nothing
// else fits.
bool worth_trying(const Candidate& candidate, uint32_t out_c, bool others) {
  if (candidate.columns > 32 && candidate.columns / 2 >= out_c) return false;
  return candidate.columns > 32 || out_c <= 64 || !others;
}

// Completes a tiling with this many input stages of this many channels. False if it does not fit.
bool fill_input_stages(const IgemmShape& shape, OperandFeed feed, uint32_t processors, uint32_t input_pixels,
                       uint32_t channels, uint32_t input_stages, IgemmTiling& tiling) {
  tiling.channels = channels;
  tiling.chunks = (shape.in_c + tiling.channels - 1) / tiling.channels;
  tiling.column_tiles = (shape.out_c + tiling.columns - 1) / tiling.columns;
  tiling.row_tiles = static_cast<uint32_t>((shape.results() + tiling.rows - 1) / tiling.rows);
  tiling.input_rows = input_pixels;
  tiling.boxes = (tiling.input_rows + 255) / 256;
  tiling.box_rows = up((tiling.input_rows + tiling.boxes - 1) / tiling.boxes, 8);
  tiling.input_stages = input_stages;
  const size_t limit = in_pairs(tiling) ? kSharedOfTwo : kSharedOfOne;
  const size_t input_stage = size_t{tiling.boxes} * tiling.box_rows * tiling.channels * feed_bytes(feed);
  const size_t block = tiling.block_bytes(feed), beside = kZeros + kBarriers + input_stages * input_stage;
  if (beside + 2 * block > limit) return false;
  const uint32_t steps = tiling.chunks * std::max(shape.taps(), 1u);
  tiling.stages =
      static_cast<uint32_t>(std::min({(limit - beside) / block, size_t{steps}, size_t{kMostStages}}));
  tiling.stationary = tiling.stages == steps && tiling.column_tiles == 1;
  if (!tiling.stationary) tiling.stages = std::clamp(tiling.stages, 2u, 8u);
  tiling.shared = beside + tiling.stages * block;
  tiling.grid = std::min(tiling.row_tiles * tiling.column_tiles, processors * (in_pairs(tiling) ? 2u : 1u));
  return true;
}

// Two input stages: one is copied while the other is read. If input stages are converted in
// between, a third is used, provided that weights keep the stages they need.
bool fill_tiling(const IgemmShape& shape, OperandFeed feed, uint32_t processors, uint32_t input_pixels,
                 uint32_t channels, IgemmTiling& tiling) {
  if (!fill_input_stages(shape, feed, processors, input_pixels, channels, 2, tiling)) return false;
  IgemmTiling three = tiling;
  if (feed == OperandFeed::fp16_from_16 &&
      fill_input_stages(shape, feed, processors, input_pixels, channels, kMostInputStages, three) &&
      three.stationary == tiling.stationary &&
      (three.stationary || three.stages >= std::min(tiling.stages, 4u)))
    tiling = three;
  return true;
}

// Completes a tiling whose rows and columns are set, with input stages of `input_pixels` pixels.
bool fill_widest(const IgemmShape& shape, OperandFeed feed, uint32_t processors, uint32_t input_pixels,
                 IgemmTiling& tiling) {
  // A thread writes a quarter of the columns, or none.
  if (shape.out_c % (tiling.columns / 4) != 0) return false;
  // With 16-bit codes, 64 channels of operands fit the registers only if the block is alone on a
  // multiprocessor.
  const bool wide =
      feed == OperandFeed::bf16_from_8 || feed == OperandFeed::fp16_from_8 ||
      ((feed == OperandFeed::bf16 || feed == OperandFeed::fp16_from_16) && tiling.columns == 128);
  const uint32_t widest = wide ? 64 : 32;
  const uint32_t channels = shape.in_c >= widest ? widest : shape.in_c > 16 ? 32 : 16;
  // Wide input stages need fewer steps, but must leave room for enough weight stages.
  if (channels == 64 && fill_tiling(shape, feed, processors, input_pixels, 64, tiling) && tiling.stages >= 4)
    return true;
  return fill_tiling(shape, feed, processors, input_pixels, channels == 64 ? 32 : channels, tiling) ||
         fill_tiling(shape, feed, processors, input_pixels, channels, tiling);
}

}  // namespace

std::optional<uint32_t> input_rows(const IgemmShape& shape, uint32_t rows) {
  if (!in_order(shape)) return std::nullopt;
  int64_t low = 0, high = 0, most = 0;
  for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
    low = std::min<int64_t>(low, offset_of(shape, tap));
    high = std::max<int64_t>(high, offset_of(shape, tap));
  }
  const auto results = static_cast<int64_t>(shape.results());
  const int64_t area = int64_t{shape.out_h} * shape.out_w;
  // Tiles repeat after a number of images; only a result's position in its image matters.
  for (int64_t first = 0; first < std::min<int64_t>(results, area * rows); first += rows) {
    const int64_t last = std::min<int64_t>(first + rows, results) - 1;
    most = std::max(most, pixel_of(shape, last) - pixel_of(shape, first));
  }
  return static_cast<uint32_t>(most + high - low + 1);
}

std::optional<Gathered> gathered(const ConvExtents32& conv) {
  Gathered made;
  made.channels = conv.c * conv.taps();
  made.padded = std::max(std::bit_ceil(made.channels), 16u);
  if (made.padded > 64) return std::nullopt;
  made.window = conv;
  made.conv = {.n = conv.n,
               .h = conv.out_h,
               .w = conv.out_w,
               .c = made.padded,
               .out_h = conv.out_h,
               .out_w = conv.out_w,
               .out_c = conv.out_c};
  return made;
}

IgemmPart forward_part(const ConvExtents32& conv) {
  IgemmPart part;
  IgemmShape& shape = part.shape;
  shape = {.images = conv.n,
           .in_h = conv.h,
           .in_w = conv.w,
           .in_c = conv.c,
           .out_h = conv.out_h,
           .out_w = conv.out_w,
           .out_c = conv.out_c,
           .stride_h = conv.stride_h,
           .stride_w = conv.stride_w,
           .full_h = conv.out_h,
           .full_w = conv.out_w,
           .rows = conv.kernel_h,
           .columns = conv.kernel_w};
  for (uint32_t i = 0; i < conv.kernel_h; ++i) shape.row[i] = static_cast<int16_t>(i - conv.padding_h);
  for (uint32_t i = 0; i < conv.kernel_w; ++i) shape.column[i] = static_cast<int16_t>(i - conv.padding_w);
  for (uint32_t i = 0; i < shape.taps(); ++i) part.source[i] = static_cast<uint8_t>(i);
  return part;
}

std::vector<IgemmPart> gradient_parts(const ConvExtents32& conv) {
  // The taps that meet pixels at `place`, and by how many strides they shift: tap i multiplied
  // pixel y for result (y + padding - i) / stride.
  const auto taps_at = [](uint32_t place, uint32_t kernel, uint32_t stride, uint32_t padding) {
    std::vector<std::pair<uint32_t, int16_t>> taps;
    for (uint32_t i = 0; i < kernel; ++i) {
      const int32_t moved = static_cast<int32_t>(place + padding) - static_cast<int32_t>(i);
      if (moved % static_cast<int32_t>(stride) == 0) {
        taps.emplace_back(i, static_cast<int16_t>(moved / static_cast<int32_t>(stride)));
      }
    }
    return taps;
  };
  std::vector<IgemmPart> parts;
  for (uint32_t a = 0; a < conv.stride_h; ++a) {
    for (uint32_t b = 0; b < conv.stride_w; ++b) {
      const auto rows = taps_at(a, conv.kernel_h, conv.stride_h, conv.padding_h);
      const auto columns = taps_at(b, conv.kernel_w, conv.stride_w, conv.padding_w);
      IgemmPart part;
      part.shape = {.images = conv.n,
                    .in_h = conv.out_h,
                    .in_w = conv.out_w,
                    .in_c = conv.out_c,
                    .out_h = (conv.h - a + conv.stride_h - 1) / conv.stride_h,
                    .out_w = (conv.w - b + conv.stride_w - 1) / conv.stride_w,
                    .out_c = conv.c,
                    .full_h = conv.h,
                    .full_w = conv.w,
                    .step_h = conv.stride_h,
                    .step_w = conv.stride_w,
                    .first_h = a,
                    .first_w = b,
                    .rows = static_cast<uint32_t>(rows.size()),
                    .columns = static_cast<uint32_t>(columns.size())};
      for (size_t i = 0; i < rows.size(); ++i) part.shape.row[i] = rows[i].second;
      for (size_t j = 0; j < columns.size(); ++j) part.shape.column[j] = columns[j].second;
      for (size_t i = 0; i < rows.size(); ++i) {
        for (size_t j = 0; j < columns.size(); ++j) {
          part.source[i * columns.size() + j] =
              static_cast<uint8_t>(rows[i].first * conv.kernel_w + columns[j].first);
        }
      }
      parts.push_back(part);
    }
  }
  return parts;
}

int32_t lowest_offset(const IgemmShape& shape) {
  int32_t lowest = 0;
  for (uint32_t tap = 0; tap < shape.taps(); ++tap) lowest = std::min(lowest, offset_of(shape, tap));
  return lowest;
}

bool make_tiling(const IgemmShape& shape, OperandFeed feed, uint32_t processors, IgemmTiling& tiling) {
  const std::optional<uint32_t> input_pixels = input_rows(shape, tiling.rows);
  return input_pixels && fill_widest(shape, feed, processors, *input_pixels, tiling);
}

std::vector<IgemmTiling> make_tilings(std::span<const IgemmPart> parts, OperandFeed feed, uint32_t processors,
                                      uint32_t rows, uint32_t columns) {
  IgemmTiling empty;
  empty.rows = rows;
  empty.columns = columns;
  std::vector<IgemmTiling> made(parts.size(), empty);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!make_tiling(parts[i].shape, feed, processors, made[i])) return {};
  }
  // All parts get input stages of the largest part's size, with channels as for the part with most
  // taps.
  size_t most = 0;
  uint32_t pixels = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const IgemmShape &shape = parts[i].shape, &first = parts[0].shape;
    if (shape.out_h != first.out_h || shape.out_w != first.out_w) return made;
    if (shape.taps() > parts[most].shape.taps()) most = i;
    pixels = std::max(pixels, made[i].input_rows);
  }
  std::vector<IgemmTiling> together(parts.size(), empty);
  if (!fill_widest(parts[most].shape, feed, processors, pixels, together[most])) return made;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!fill_input_stages(parts[i].shape, feed, processors, pixels, together[most].channels,
                           together[most].input_stages, together[i]))
      return made;
  }
  return together;
}

std::vector<IgemmTiling> choose_tilings(std::span<const IgemmPart> parts, OperandFeed feed,
                                        uint32_t processors) {
  std::vector<IgemmTiling> best;
  double least = 0;
  const uint32_t out_c = parts[0].shape.out_c;
  for (const Candidate& candidate : kCandidates) {
    if (!worth_trying(candidate, out_c, !best.empty())) continue;
    std::vector<IgemmTiling> made = make_tilings(parts, feed, processors, candidate.rows, candidate.columns);
    if (made.empty()) continue;
    // In one launch the tiles of all parts share the multiprocessors. A tile's time is proportional
    // to its taps.
    const bool together = alike_all(made);
    double takes = 0, taps = 0;
    uint32_t all = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint32_t tiles = made[i].row_tiles * made[i].column_tiles;
      const double own = std::max(parts[i].shape.taps(), 1u);
      takes += cost(candidate, tiles, feed, processors) * own;
      taps += own;
      all += tiles;
    }
    if (together) takes = cost(candidate, all, feed, processors) * taps / static_cast<double>(parts.size());
    if (!best.empty() && takes >= least) continue;
    best = std::move(made);
    least = takes;
  }
  if (best.empty() || alike_all(best)) return best;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (const auto own = choose_tiling(parts[i].shape, feed, processors)) best[i] = *own;
  }
  return best;
}

std::optional<IgemmTiling> choose_tiling(const IgemmShape& shape, OperandFeed feed, uint32_t processors) {
  std::optional<IgemmTiling> best;
  double least = 0;
  for (const Candidate& candidate : kCandidates) {
    if (!worth_trying(candidate, shape.out_c, best.has_value())) continue;
    IgemmTiling tiling;
    tiling.rows = candidate.rows;
    tiling.columns = candidate.columns;
    if (!make_tiling(shape, feed, processors, tiling)) continue;
    const double takes = cost(candidate, tiling.row_tiles * tiling.column_tiles, feed, processors);
    if (best && takes >= least) continue;
    best = tiling;
    least = takes;
  }
  return best;
}

std::optional<Recompute> choose_recompute(const IgemmShape& shape, OperandFeed feed, uint32_t processors,
                                          const IgemmTiling& marked) {
  Recompute recompute;
  recompute.tiling.rows = 128;
  recompute.tiling.columns = marked.columns;
  if (!make_tiling(shape, feed, processors, recompute.tiling)) return std::nullopt;
  recompute.mark_shift = marked.rows == 256 ? 1 : 0;
  return recompute;
}

Fp16Source fp16_source(const QuickCodec& codec) {
  const auto man = static_cast<uint32_t>(codec.spec.man);
  return {man, 1 - codec.spec.emin, codec.spec.max_code >> man};
}

void complete(IgemmCall& call, OperandFeed feed, const QuickCodec& codec) {
  const IgemmShape& shape = call.shape;
  const uint32_t bits = 8 * feed_bytes(feed);
  if (feed == OperandFeed::bf16_from_8) {
    call.shift = static_cast<uint32_t>(7 - codec.spec.man);
    call.mask = (0x8000u | 0x7Fu << call.shift) * 0x00010001u;
  } else if (feeds_fp16(feed)) {
    call.fp16_source = fp16_source(codec);
    if (feed == OperandFeed::fp16_from_8) {
      call.shift = 10 - call.fp16_source.man;
      call.mask = (0x8000u | 0x7Fu << call.shift) * 0x00010001u;
      // fp16's highest exponent field is no number.
      if (call.fp16_source.top == 31)
        call.highest = (0x7Fu >> call.fp16_source.man << call.fp16_source.man) * 0x01010101u;
    }
  } else if (feeds_tf32(feed)) {
    call.shift = 32 - bits - codec.shift;
    call.mask = (0x80000000u | 0x7FFFFFFFu >> call.shift) & ~((uint32_t{1} << codec.shift) - 1);
    call.factor = codec.lift;
  }
  call.parts = 1;
  IgemmTaps& part = call.part[0];
  if (const HaloTiles& halo = call.tiling.halo; call.tiling.is_halo()) {
    call.area = Divisor::of(halo.image_pitch);
    call.width = Divisor::of(halo.pitch);
    for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
      part.offset[tap] = (shape.row[tap / shape.columns] - halo.row) * static_cast<int32_t>(halo.pitch) +
                         shape.column[tap % shape.columns] - halo.column;
    }
    return;
  }
  call.area = Divisor::of(shape.out_h * shape.out_w);
  call.width = Divisor::of(shape.out_w);
  part.stages = call.tiling.stages;
  part.stationary = call.tiling.stationary;
  part.first_h = shape.first_h;
  part.first_w = shape.first_w;
  part.rows = shape.rows;
  part.columns = shape.columns;
  std::copy(std::begin(shape.row), std::end(shape.row), part.row);
  std::copy(std::begin(shape.column), std::end(shape.column), part.column);
  part.lowest = lowest_offset(shape);
  for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
    part.offset[tap] = offset_of(shape, tap) * static_cast<int32_t>(call.tiling.channels * feed_bytes(feed));
  }
}

bool merge_calls(IgemmCall& call, const IgemmCall& other, OperandFeed feed) {
  if (call.parts == kMostParts || other.parts != 1 || feeds_fp16(feed) || call.tiling.is_halo() ||
      other.tiling.is_halo() || call.shape.out_h != other.shape.out_h ||
      call.shape.out_w != other.shape.out_w || !alike(call.tiling, other.tiling))
    return false;
  call.tiling.shared = std::max(call.tiling.shared, other.tiling.shared);
  call.part[call.parts++] = other.part[0];
  return true;
}

IgemmWeights::Image weight_image(const IgemmPart& part, const IgemmTiling& tiling, uint32_t* to) {
  IgemmWeights::Image image;
  image.to = to;
  image.blocks = tiling.column_tiles * tiling.chunks * part.shape.taps();
  image.column_bits = static_cast<uint8_t>(std::bit_width(tiling.columns) - 1);
  image.channel_bits = static_cast<uint8_t>(std::bit_width(tiling.channels) - 1);
  image.natural = tiling.is_halo();
  image.taps = Divisor::of(std::max(part.shape.taps(), 1u));
  image.chunks = Divisor::of(tiling.chunks);
  std::copy(std::begin(part.source), std::end(part.source), std::begin(image.source));
  return image;
}

}  // namespace ulp::cuda
