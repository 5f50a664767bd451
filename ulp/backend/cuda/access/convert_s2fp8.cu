#include "ulp/backend/cuda/access/convert_s2fp8.h"

#include "ulp/backend/cuda/access/codec.h"

namespace ulp::cuda {
namespace {

// What threads found of a tensor's numbers.
struct LogPart {
  long long sum;             // of log2_fixed
  unsigned long long count;  // of numbers that have a logarithm
  uint32_t most;             // the largest of their magnitudes; infinity is the largest finite one

  __device__ void add(uint32_t x) {
    const uint32_t magnitude = finite_magnitude(x);
    if (magnitude == 0 || magnitude > 0x7F800000u) return;
    sum += log2_fixed(magnitude);
    ++count;
    most = magnitude > most ? magnitude : most;
  }
  __device__ void merge(const LogPart& other) {
    sum += other.sum;
    count += other.count;
    most = other.most > most ? other.most : most;
  }
};
constexpr uint32_t kMostParts = kProcessors;
static_assert(kMostParts * sizeof(LogPart) <= kConvertSpace);

__device__ inline LogPart warp_total(LogPart mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine.sum += __shfl_xor_sync(0xFFFFFFFFu, mine.sum, lanes);
    mine.count += __shfl_xor_sync(0xFFFFFFFFu, mine.count, lanes);
  }
  mine.most = warp_max(mine.most);
  return mine;
}

// The total of a block's threads, for those of the first warp. All threads must call it; their number
// must be a multiple of 32.
__device__ inline LogPart block_total(const LogPart& mine) {
  __shared__ LogPart warps[32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const LogPart own = warp_total(mine);
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  if (warp != 0) return {};
  return warp_total(lane < blockDim.x / 32 ? warps[lane] : LogPart{});
}

__device__ inline uint32_t load_values(const float* in, uint64_t n, uint64_t group, uint32_t (&x)[8]) {
  const uint64_t left = n - group * kGroup;
  const uint32_t count = left < kGroup ? static_cast<uint32_t>(left) : kGroup;
  load_codes(reinterpret_cast<const uint8_t*>(in), 32, group, count, x);
  return count;
}

// Of the groups from `first` on, `step` apart.
__device__ inline LogPart sum_groups(const float* in, uint64_t n, uint64_t first, uint64_t step) {
  LogPart mine{};
  for (uint64_t g = first; g < groups_of(n); g += step) {
    uint32_t x[8];
    load_values(in, n, g, x);  // what is beyond the end is zero and does not count
#pragma unroll
    for (int i = 0; i < 8; ++i) mine.add(x[i]);
  }
  return mine;
}

constexpr uint32_t kWide = 1024;  // threads

__global__ void __launch_bounds__(kWide) sum_logs(const float* in, uint64_t n, LogPart* parts) {
  const LogPart all = block_total(
      sum_groups(in, n, blockIdx.x * uint64_t{blockDim.x} + threadIdx.x, uint64_t{gridDim.x} * blockDim.x));
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

// State stays unchanged if `unless` is a state whose step is skipped.
__device__ inline bool skipped(const StepState* unless) { return unless != nullptr && unless->skip != 0; }

struct Squeeze {
  const LogPart* parts;  // null: there is one block, which sums by itself
  uint32_t count;        // of parts
  const StepState* unless;
  QuickCodec e5m2;
  const float* in;
  uint64_t n;
  uint8_t* codes;  // null: the rounded values go to `back`
  uint32_t* side;
  float* back;
  EncodeStats* stats;
};

// From what the blocks of sum_logs found. The first block of the grid keeps the statistics.
__device__ inline S2fp8Map find_map(const Squeeze& a) {
  __shared__ S2fp8Map map;
  LogPart mine{};
  if (a.parts == nullptr) mine = sum_groups(a.in, a.n, threadIdx.x, blockDim.x);
  for (uint32_t i = threadIdx.x; i < a.count; i += blockDim.x) mine.merge(a.parts[i]);
  const LogPart all = block_total(mine);
  if (threadIdx.x == 0) {
    LogSums sums;
    sums.sum = all.sum;
    sums.count = all.count;
    if (all.count > 0) sums.max = log2_fixed(all.most);
    const S2fp8Stats stats = s2fp8_stats(sums);
    map = s2fp8_map(stats);
    if (blockIdx.x == 0 && a.side != nullptr) {
      a.side[0] = float_bits(stats.alpha);
      a.side[1] = float_bits(stats.beta);
    }
  }
  __syncthreads();
  return map;
}

__global__ void __launch_bounds__(kWide) squeeze(const __grid_constant__ Squeeze a) {
  if (skipped(a.unless)) return;
  const S2fp8Map map = find_map(a);
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(a.n);
       g += uint64_t{gridDim.x} * blockDim.x) {
    uint32_t x[8], code[8];
    const uint32_t count = load_values(a.in, a.n, g, x);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      Encoded made = encode_even(a.e5m2, s2fp8_squeeze(map, x[i]));
      // Y itself never overflows: an overflow is an infinity that was brought down.
      if (made.event != RangeEvent::nan && made.event != RangeEvent::underflow) made.event = RangeEvent::none;
      if ((x[i] & 0x7FFFFFFFu) == 0x7F800000u) made.event = RangeEvent::overflow;
      if (i < count) seen.add(made, x[i]);
      code[i] = made.code;
    }
    if (a.codes != nullptr) {
      store_codes(a.codes, 8, g, count, code);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = s2fp8_restore(map, decode_quick(a.e5m2, code[i]));
    store_codes(reinterpret_cast<uint8_t*>(a.back), 32, g, count, code);
  }
  report(seen, a.stats);
}

// Up to here one block does both, in one launch.
constexpr uint64_t kAloneGroups = 1536;

// Sums and codes of a.in.
void write(Squeeze a, void* space, Stream stream) {
  const uint64_t groups = groups_of(a.n);
  if (groups <= kAloneGroups) {
    const uint64_t threads = (groups + 31) / 32 * 32;
    launch(squeeze,
           {1, threads < 32      ? 32
               : threads < kWide ? static_cast<uint32_t>(threads)
                                 : kWide},
           stream, a);
    return;
  }
  auto* parts = static_cast<LogPart*>(space);
  // Wide blocks where there are numbers for all of them, so that enough loads are in flight.
  const uint32_t threads = groups > uint64_t{kMostParts} * kThreads ? kWide : kThreads;
  a.parts = parts;
  a.count = blocks_for(groups, threads, kMostParts);
  launch(sum_logs, {a.count, threads}, stream, a.in, a.n, parts);
  // Every block adds up all parts first: few blocks.
  launch(squeeze, {blocks_for(groups, kThreads, 4 * kProcessors), kThreads}, stream, a);
}

// Values of codes by table. A warp writes 32 runs of four values beside each other.
__global__ void __launch_bounds__(kThreads)
    decode_by_table(const __grid_constant__ StoredView view, Rows rows, float* out) {
  __shared__ float values[256];
  make_s2fp8_values(view, values);
  __syncthreads();
  const uint8_t* codes = view.codes + rows.first * rows.channels;
  const uint64_t at = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x, all = uint64_t{gridDim.x} * blockDim.x;
  if (rows.padded != rows.channels) {
    for (uint64_t i = at; i < rows.count * rows.padded; i += all) {
      const uint64_t row = i / rows.padded, channel = i % rows.padded;
      out[i] = channel < rows.channels ? values[codes[row * rows.channels + channel]] : 0.0f;
    }
    return;
  }
  // Codes of the rows may begin anywhere; the array is aligned.
  const uint64_t n = rows.elements(), runs = reinterpret_cast<uintptr_t>(codes) % 4 == 0 ? n / 4 : 0;
  for (uint64_t i = at; i < runs; i += all) {
    const uint32_t word = reinterpret_cast<const uint32_t*>(codes)[i];
    reinterpret_cast<float4*>(out)[i] = make_float4(values[word & 0xFFu], values[word >> 8 & 0xFFu],
                                                    values[word >> 16 & 0xFFu], values[word >> 24]);
  }
  for (uint64_t i = 4 * runs + at; i < n; i += all) out[i] = values[codes[i]];
}

}  // namespace

void encode_s2fp8(const WriteView& view, const StepState* state, const float* in, uint64_t n, void* space,
                  Stream stream) {
  Squeeze a{};
  a.unless = view.update ? state : nullptr;
  a.e5m2 = view.stored.codec;
  a.in = in;
  a.n = n;
  a.codes = view.stored.codes;
  a.side = view.stored.side;
  a.stats = view.stats;
  write(a, space, stream);
}

void round_to_s2fp8(const ReadView& view, const float* in, uint64_t n, void* out, void* space,
                    Stream stream) {
  Squeeze a{};
  a.e5m2 = view.operand;
  a.in = in;
  a.n = n;
  a.back = static_cast<float*>(out);
  a.stats = view.stats;
  write(a, space, stream);
}

bool decode_s2fp8(const ReadView& view, const Rows& rows, DecodedType target, void* out, Stream stream) {
  if (target != DecodedType::fp32 || view.rounds || view.rounds_scaled || view.rounds_s2fp8) return false;
  const uint64_t work = rows.padded == rows.channels ? rows.elements() / 4 : rows.count * rows.padded;
  launch(decode_by_table, {blocks_for(work), kThreads}, stream, view.stored, rows, static_cast<float*>(out));
  return true;
}

}  // namespace ulp::cuda
