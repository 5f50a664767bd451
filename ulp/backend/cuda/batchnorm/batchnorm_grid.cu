#include "ulp/backend/cuda/batchnorm/batchnorm_grid.h"

#include "ulp/backend/cuda/batchnorm/batchnorm_forward.h"
#include "ulp/backend/cuda/batchnorm/batchnorm_grad.h"
#include "ulp/backend/cuda/batchnorm/batchnorm_reduce.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kWide = SliceSpread::kWidest * kGroup;  // channels of a slice, at most
constexpr uint32_t kScratch = kSums * kSumThreads * sizeof(float);
constexpr size_t kMostShared = 208 << 10;  // of a block, beyond what every kernel uses

// Arrival counters, by ticket and slice. When all blocks have arrived, the topmost bit flips and
// the rest is 0 again.
constexpr uint32_t kTickets = 256, kTurn = 0x80000000u;
__device__ uint32_t arrived[kTickets][SliceSpread::kMostSlices];

// The two halves of a kernel. On a GPU one launch runs both. Emulated blocks run one after the
// other, so there each half is a launch, and the second loads again what the first would have kept.
enum Part : uint32_t { kBoth, kFirstPart, kSecondPart };
__device__ inline bool runs(uint32_t launched, Part part) {
#if defined(__CUDA_ARCH__)
  return true;
#else
  return launched == part;
#endif
}

// Grid barrier: waits until all blocks of the slice have written their rows; runs `meanwhile`
// before waiting. All threads of the block must call it.
template <typename Work>
__device__ inline void wait_for_rows(const SumArgs& a, uint32_t row, uint32_t slice, const Work& meanwhile) {
  uint32_t* const count = &arrived[a.ticket % kTickets][slice];
  [[maybe_unused]] uint32_t before = 0;
  __syncthreads();
  if (threadIdx.x == 0) before = count_up(count, row == 0 ? kTurn - (a.spread.rows - 1) : 1);
  meanwhile();
  if (threadIdx.x == 0) {
#if defined(__CUDA_ARCH__)
    uint32_t now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
    } while (((before ^ now) & kTurn) == 0);
#endif
  }
  __syncthreads();
}

// Starts the copy of a group's codes to shared memory; the same thread waits for it.
template <Code kCode>
__device__ inline void fetch(uint8_t* to, uint32_t place, const uint8_t* codes, uint32_t group) {
#if defined(__CUDA_ARCH__)
  constexpr uint32_t kBytes = sizeof(Packed<kCode>);
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to + place * kBytes));
  const uint8_t* from = codes + uint64_t{group} * kBytes;
  if constexpr (kHalves<kCode>) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
  }
#else
  store_packed<kCode>(to, place, load_packed<kCode>(codes, group));
#endif
}
__device__ inline void end_batch() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all copy batches but the last n have arrived.
template <int n>
__device__ inline void wait_for_batches() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// A thread's share: groups `group`, group + step, ... below `end`, kept at places threadIdx.x,
// threadIdx.x + kSumThreads, ...
struct Standing {
  uint32_t row, slice, side, group, step, end;

  __device__ explicit Standing(const SliceSpread& spread) {
    row = spread.by_slices(blockIdx.x);
    slice = blockIdx.x - row * spread.slices;
    const uint32_t slot = spread.by_width(threadIdx.x);
    side = threadIdx.x - slot * spread.width;
    end = spread.pixels * spread.period;
    step = spread.rows * spread.slots * spread.period;
    group =
        slot < spread.slots ? (row * spread.slots + slot) * spread.period + slice * spread.width + side : end;
  }
  __device__ uint32_t at(uint32_t k) const { return group + k * step; }
  __device__ uint32_t place(uint32_t k) const { return k * kSumThreads + threadIdx.x; }
  __device__ bool first() const { return threadIdx.x == side; }
};
uint32_t depth_of(const SliceSpread& spread) {
  const uint32_t at_once = spread.rows * spread.slots;
  return (spread.pixels + at_once - 1) / at_once;
}

template <int kLeaves>
struct GridForward {
  SumArgs sums;
  ForwardArgs<kLeaves, 1> forward;
  uint32_t depth;  // groups that a thread keeps
  Part part;
};

template <Code kCode, int kLeaves, bool kRelu>
__global__ void __launch_bounds__(kSumThreads, kLeaves == 1 ? 2 : 1)
    run_grid_forward(const __grid_constant__ GridForward<kLeaves> a) {
  ULP_SHARED(uint8_t, memory);
  __align__(16) __shared__ float pivots[kWide];
  __align__(16) __shared__ float tile[3 * kWide];
  auto* const scratch = reinterpret_cast<float*>(memory);
  uint8_t* const saved = memory + kScratch;
  uint8_t* const added = saved + a.depth * kSumThreads * sizeof(Packed<kCode>);
  const SliceSpread& spread = a.sums.spread;
  const Standing here(spread);
  const uint32_t half = (a.depth + 1) / 2;
  const auto fetch_some = [&](uint8_t* to, const uint8_t* from, uint32_t begin, uint32_t end) {
    for (uint32_t k = begin; k < end && here.at(k) < here.end; ++k)
      fetch<kCode>(to, here.place(k), from, here.at(k));
    end_batch();
  };
  fetch_some(saved, a.sums.x, 0, half);
  fetch_some(saved, a.sums.x, half, a.depth);
  if constexpr (kLeaves > 1) fetch_some(added, a.forward.in[1], 0, a.depth);
  if (here.first())
    choose_pivots<kCode>(a.sums, here.slice * spread.width + here.side, pivots + here.side * kGroup);
  // The first threads load gamma and beta of the block's channels.
  const uint32_t wide = spread.width * kGroup, c = here.slice * wide + threadIdx.x;
  if (threadIdx.x < wide) {
    tile[wide + threadIdx.x] = a.forward.norm[0].gamma.at(c);
    tile[2 * wide + threadIdx.x] = a.forward.norm[0].beta.at(c);
  }
  __syncthreads();

  if (runs(a.part, kFirstPart)) {
    float pivot[8], first[8] = {}, second[8] = {};
    take_eight(pivots + here.side * kGroup, pivot);
    const auto sum = [&](uint32_t begin, uint32_t end) {
      for (uint32_t k = begin; k < end && here.at(k) < here.end; ++k) {
        float x[8];
        unpack_any<kCode>(a.sums.x_codec, a.sums.x_reading, load_packed<kCode>(saved, here.place(k)),
                          a.sums.drop, x);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float rest = x[i] - pivot[i];
          first[i] += rest;
          second[i] = fmaf(rest, rest, second[i]);
        }
      }
    };
    wait_for_batches<kLeaves>();
    sum(0, half);
    wait_for_batches<kLeaves - 1>();
    sum(half, a.depth);
    reduce_threads(a.sums, scratch, first, second);
    wait_for_rows(a.sums, here.row, here.slice, [&] { report_inputs(a.forward); });
  }
  if (!runs(a.part, kSecondPart)) return;

  float made[2];
  reduce_rows<true>(a.sums, scratch, pivots, 0, made);
  if (threadIdx.x < wide) {
    tile[threadIdx.x] = made[0];
    float& scale = tile[wide + threadIdx.x];
    scale = elementwise::Multiply::forward(scale, elementwise::batch_inv(made[1], a.forward.norm[0].epsilon));
    if (here.row == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) a.sums.out[i].data[c] = made[i];
    }
  }
  wait_for_batches<0>();
  __syncthreads();
  const uint32_t channel = here.side * kGroup;
  float mean[1][8], scale[1][8], offset[1][8];
  take_eight(tile + channel, mean[0]);
  take_eight(tile + wide + channel, scale[0]);
  take_eight(tile + 2 * wide + channel, offset[0]);
  ForwardSeen seen;
  for (uint32_t k = 0; here.at(k) < here.end; ++k) {
    const Packed<kCode> x = load_packed<kCode>(saved, here.place(k)),
                        other = kLeaves > 1 ? load_packed<kCode>(added, here.place(k)) : x;
    forward_group<kCode, kCode, kCode, kLeaves, 1, kRelu>(a.forward, tile, wide, here.at(k), channel, x,
                                                          other, mean, scale, offset, seen);
  }
  report_forward<kCode, kLeaves, 1, kRelu, kSumThreads>(a.forward, seen);
}

struct GridGrad {
  SumArgs sums;
  NormGradArgs grad;
  uint32_t depth;
  uint32_t room;  // bytes for the mask, afterwards for scratch
  Part part;
};

// The mask has the code of the normalised input, the result that of the gradient.
template <Code kGrad, Code kSaved, bool kMasked>
__global__ void __launch_bounds__(kSumThreads, 1) run_grid_grad(const __grid_constant__ GridGrad a) {
  ULP_SHARED(uint8_t, memory);
  __align__(16) __shared__ float tile[kGradValues * kWide];
  auto* const scratch = reinterpret_cast<float*>(memory);
  uint8_t *const mask = memory, *const dout = memory + a.room;
  uint8_t* const saved = dout + a.depth * kSumThreads * sizeof(Packed<kGrad>);
  const SliceSpread& spread = a.sums.spread;
  const Standing here(spread);
  const uint32_t half = (a.depth + 1) / 2;
  const auto fetch_some = [&](uint32_t begin, uint32_t end) {
    for (uint32_t k = begin; k < end && here.at(k) < here.end; ++k) {
      fetch<kGrad>(dout, here.place(k), a.sums.dout, here.at(k));
      if constexpr (kMasked) fetch<kSaved>(mask, here.place(k), a.sums.mask, here.at(k));
      fetch<kSaved>(saved, here.place(k), a.sums.x, here.at(k));
    }
    end_batch();
  };
  fetch_some(0, half);
  fetch_some(half, a.depth);
  // The first threads load the statistics and gamma of the block's channels.
  const uint32_t wide = spread.width * kGroup, c = here.slice * wide + threadIdx.x;
  if (threadIdx.x < wide) {
    tile[threadIdx.x] = a.grad.mean[c];
    tile[wide + threadIdx.x] = a.grad.variance[c];
    tile[2 * wide + threadIdx.x] = a.grad.gamma.at(c);
  }
  float mean[8], first[8] = {}, second[8] = {};
  take_eight(a.sums.mean + (here.slice * spread.width + here.side) * kGroup, mean);
#pragma unroll
  for (int i = 0; i < 8; ++i) mean[i] = mean[i] * a.sums.drop;
  uint32_t most_masked = 0;
  const auto sum = [&](uint32_t begin, uint32_t end) {
    for (uint32_t k = begin; k < end && here.at(k) < here.end; ++k) {
      float y[8], x[8];
      Packed<kGrad> one = load_packed<kGrad>(dout, here.place(k));
      if constexpr (kMasked) {
        keep_positive<kGrad, kSaved>(one, load_packed<kSaved>(mask, here.place(k)));
        store_packed<kGrad>(dout, here.place(k), one);
        unpack_units<kGrad>(one, a.sums.dout_reading, y);
        const uint32_t most = most_of<kGrad, true>(0, one);
        if (most_code<kGrad>(most) <= a.sums.top) {
          most_masked = larger_halves(most_masked, most);
        } else if (runs(a.part, kFirstPart)) {
          round_masked<kGrad>(a.sums, one, y);
        }
      } else {
        unpack_any<kGrad>(a.sums.dout_codec, a.sums.dout_reading, one, 1, y);
      }
      unpack_any<kSaved>(a.sums.x_codec, a.sums.x_reading, load_packed<kSaved>(saved, here.place(k)),
                         a.sums.drop, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        first[i] += y[i];
        second[i] = fmaf(y[i], x[i] - mean[i], second[i]);
      }
    }
  };
  wait_for_batches<1>();
  sum(0, half);
  wait_for_batches<0>();
  sum(half, a.depth);
  if constexpr (kMasked) __syncthreads();  // the mask is no longer needed
  if (runs(a.part, kFirstPart)) {
    reduce_threads(a.sums, scratch, first, second);
    wait_for_rows(a.sums, here.row, here.slice, [&] {
      if (blockIdx.x == 0) report_channels(a.grad.gamma, a.grad.channels);
    });
  }
  if (!runs(a.part, kSecondPart)) return;

  float made[2];
  const float variance = threadIdx.x < wide ? tile[wide + threadIdx.x] : 0;
  reduce_rows<false>(a.sums, scratch, nullptr, variance, made);
  if (threadIdx.x < wide) {
    const float inverse = elementwise::batch_inv(variance, a.grad.epsilon);
    tile[wide + threadIdx.x] = inverse;
    tile[2 * wide + threadIdx.x] = elementwise::Multiply::forward(tile[2 * wide + threadIdx.x], inverse);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tile[(3 + i) * wide + threadIdx.x] = elementwise::batch_mean(made[i], a.grad.rows);
      if (here.row == 0) a.sums.out[i].data[c] = made[i];
    }
  }
  __syncthreads();
  const uint32_t channel = here.side * kGroup;
  float value[kGradValues][8];
#pragma unroll
  for (uint32_t k = 0; k < kGradValues; ++k) take_eight(tile + k * wide + channel, value[k]);
  RangeCount seen[2];
  for (uint32_t k = 0; here.at(k) < here.end; ++k) {
    uint32_t unwatched = 0;  // unused: the sums have counted the masked gradients
    norm_grad_group<kGrad, kSaved, kSaved, kGrad, kMasked>(
        a.grad, tile, wide, here.at(k), channel, load_packed<kGrad>(dout, here.place(k)),
        load_packed<kSaved>(saved, here.place(k)), value, false, seen[0], unwatched);
  }
  if constexpr (kMasked) {
    // The order of codes is the order of their values.
    seen[1].amax = number_of(a.sums.masked, most_code<kGrad>(most_masked));
  }
  EncodeStats* const stats[2] = {a.grad.target.stats, kMasked ? a.sums.masked_stats : nullptr};
  report_all<2, kSumThreads>(seen, stats);
}

#if defined(__CUDACC__)
// Whether every block can have a multiprocessor, exclusively: if processes share the GPU block by
// block (MPS), two of these kernels could deadlock. Without a GPU, assumes the one that grids are
// sized for.
template <typename Kernel>
bool fits(Kernel* kernel, const Grid& grid) {
  int device = 0, processors = 0, shared = 0, each = 0;
  const bool there =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  const bool fit =
      !there || (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kMostShared)) == cudaSuccess &&
                 cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, static_cast<int>(grid.threads),
                                                               grid.shared) == cudaSuccess &&
                 cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, device) == cudaSuccess &&
                 shared == 0 && each > 0 && grid.blocks <= static_cast<uint32_t>(processors));
  cudaGetLastError();  // clears the error: declining must not fail the next launch
  return fit;
}
#endif

// Launches the kernel if each block can have a multiprocessor.
template <auto kKernel, typename Args>
bool start(const Grid& grid, Args& a, bool only_asks, Stream stream) {
  if (grid.blocks > kProcessors || grid.shared > kMostShared) return false;
#if defined(__CUDACC__)
  if (!fits(kKernel, grid)) return false;
  if (!only_asks) launch(kKernel, grid, stream, a);
#else
  for (const Part part : {kFirstPart, kSecondPart}) {
    a.part = part;
    if (!only_asks) launch(kKernel, grid, stream, a);
  }
#endif
  return true;
}

bool same_tensors(const SumArgs& sums, const float* first, const float* second) {
  return sums.out[0].data == first && sums.out[1].data == second && !sums.out[0].sums && !sums.out[1].sums;
}
bool same_shape(const FusedCall& first, const FusedCall& second) {
  return !first.general && !second.general && first.elements == second.elements &&
         first.channels == second.channels;
}
Grid grid_of(const SliceSpread& spread, size_t shared) {
  return {spread.rows * spread.slices, kSumThreads, shared};
}
constexpr size_t bytes_of(Code code) { return code == Code::bf16 || code == Code::wide ? 16 : 8; }

// kBegin: the input that is normalised.
template <int kLeaves, bool kRelu, int kBegin>
bool launch_forward(const FusedCall& first, const FusedCall& second, bool only_asks, Stream stream) {
  GridForward<kLeaves> a{};
  const Code code = code_of(first.leaf[0]);
  if (!same_shape(first, second) || !take_stats(first, a.sums) ||
      !take_forward<kLeaves, 1, kRelu, kBegin>(second, a.forward))
    return false;
  // The output must not overlay the tensor from which all blocks choose pivots.
  if (!same_tensors(a.sums, a.forward.norm[0].mean, a.forward.norm[0].variance) ||
      a.forward.in[0] != a.sums.x || a.forward.out == a.sums.x || code_of(second.rounder) != code ||
      code_of(second.leaf[kLeaves - 1 - kBegin]) != code)
    return false;
  a.depth = depth_of(a.sums.spread);
  const size_t shared = kScratch + size_t{kLeaves} * a.depth * kSumThreads * bytes_of(code);
  return choose_code<Code::bf16, Code::e4, Code::wide>(code, [&]<Code kCode> {
    return start<run_grid_forward<kCode, kLeaves, kRelu>>(grid_of(a.sums.spread, shared), a, only_asks,
                                                          stream);
  });
}

template <bool kMasked>
bool launch_grad(const FusedCall& first, const FusedCall& second, bool only_asks, Stream stream) {
  GridGrad a{};
  const Code grad = code_of(first.leaf[0]), saved = code_of(first.leaf[kMasked ? 2 : 1]);
  if (!same_shape(first, second) || !take_norm_sums<kMasked>(first, a.sums) ||
      !take_norm_grad<kMasked>(second, a.grad))
    return false;
  if (!same_tensors(a.sums, a.grad.sum, a.grad.product) || a.grad.dout != a.sums.dout ||
      a.grad.x != a.sums.x || a.grad.mean != a.sums.mean || a.grad.variance != a.sums.variance ||
      code_of(second.rounder) != grad)
    return false;
  // The masked gradient is reported with the sums.
  if (kMasked &&
      (a.grad.mask != a.sums.mask || code_of(first.leaf[1]) != saved || a.grad.masked.stats != nullptr))
    return false;
  a.depth = depth_of(a.sums.spread);
  const size_t each = size_t{a.depth} * kSumThreads, room = kMasked ? each * bytes_of(saved) : 0;
  a.room = static_cast<uint32_t>(room > kScratch ? room : kScratch);
  const size_t shared = a.room + each * (bytes_of(grad) + bytes_of(saved));
  const auto run = [&]<Code kGrad, Code kSaved> {
    return grad == kGrad && saved == kSaved &&
           start<run_grid_grad<kGrad, kSaved, kMasked>>(grid_of(a.sums.spread, shared), a, only_asks, stream);
  };
  return run.template operator()<Code::bf16, Code::bf16>() || run.template operator()<Code::e5, Code::e4>() ||
         run.template operator()<Code::wide, Code::wide>();
}

}  // namespace

GridLaunch find_grid_launch(std::string_view first, std::string_view second) {
  struct Pair {
    std::string_view first, second;
    GridLaunch launch;
  };
  constexpr Pair kPairs[] = {
      {"batch_stats(x)", "batch_norm(x)", launch_forward<1, false, 0>},
      {"batch_stats(x)", "relu(batch_norm(x))", launch_forward<1, true, 0>},
      {"batch_stats(x)", "relu(add(batch_norm(x),x))", launch_forward<2, true, 0>},
      {"batch_stats(x)", "relu(add(x,batch_norm(x)))", launch_forward<2, true, 1>},
      {"batch_norm_sums(x,x)", "batch_norm_grad(x,x)", launch_grad<false>},
      {"batch_norm_sums(relu_grad(x,x),x)", "batch_norm_grad(relu_grad(x,x),x)", launch_grad<true>},
  };
  for (const Pair& pair : kPairs) {
    if (pair.first == first && pair.second == second) return pair.launch;
  }
  return nullptr;
}

}  // namespace ulp::cuda
