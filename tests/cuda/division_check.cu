// Divisions and square roots of optimizer steps on ordinary numbers (update_unchecked.h) against
// IEEE's, on the GPU. Needs one; built by the cuda preset, run by hand on a machine that has a GPU.
//
//   division_check [all]     2^36 quotients of random numbers; with all, those of every pair of
//                            significands (minutes)
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ulp/backend/cuda/optimizer/update_unchecked.h"

namespace ulp::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

struct Wrong {
  unsigned long long count;
  uint32_t a, b;  // one of them
};

__device__ void expect(Wrong* wrong, float found, float right, float a, float b) {
  if (float_bits(found) == float_bits(right)) return;
  if (atomicAdd(&wrong->count, 1ull) == 0) {
    wrong->a = float_bits(a);
    wrong->b = float_bits(b);
  }
}

// All patterns from `first` to `last`.
__global__ void roots(uint32_t first, uint32_t last, Wrong* wrong) {
  for (uint64_t i = first + blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i <= last;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const float x = bits_float(static_cast<uint32_t>(i));
    expect(wrong, Unchecked::square_root(x), sqrtf(x), x, 0);
  }
}

// Numbers between 2^-80 and 2^60 by numbers between 2^-51 and 2^37.
__global__ void random_quotients(uint64_t count, Wrong* wrong) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const PhiloxWords words =
        philox({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}}, {{3, 5}});
    const uint32_t a = (words.word[0] & 0x807FFFFFu) | (127 - 80 + words.word[1] % 140) << 23,
                   b = (words.word[2] & 0x007FFFFFu) | (127 - 51 + words.word[3] % 88) << 23;
    const float x = bits_float(a), y = bits_float(b);
    expect(wrong, Unchecked::quotient(x, y), x / y, x, y);
  }
}

// Every number between 1 and 2 by some such numbers: more exponents would only scale all that is
// computed.
__global__ void all_quotients(uint32_t first, uint32_t count, Wrong* wrong) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < uint64_t{count} << 23;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const float x = bits_float(0x3F800000u | static_cast<uint32_t>(i & 0x7FFFFFu)),
                y = bits_float(0x3F800000u + first + static_cast<uint32_t>(i >> 23));
    expect(wrong, Unchecked::quotient(x, y), x / y, x, y);
  }
}

bool told(const char* what, Wrong* wrong) {
  Wrong found;
  check(cudaDeviceSynchronize(), what);
  check(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost), what);
  check(cudaMemset(wrong, 0, sizeof found), what);
  if (found.count == 0) {
    std::printf("%s: as IEEE has them\n", what);
  } else {
    std::printf("%s: %llu DIFFER, such as of %08x and %08x\n", what, found.count, found.a, found.b);
  }
  std::fflush(stdout);
  return found.count == 0;
}

int run(bool all) {
  constexpr uint32_t kBlocks = 132 * 16;
  Wrong* wrong = nullptr;
  check(cudaMalloc(&wrong, sizeof(Wrong)), "no GPU");
  check(cudaMemset(wrong, 0, sizeof(Wrong)), "no GPU");
  roots<<<kBlocks, kThreads>>>(float_bits(0x1p-100f), float_bits(0x1p40f), wrong);
  bool right = told("roots of all numbers from 2^-100 to 2^40", wrong);
  random_quotients<<<kBlocks, kThreads>>>(uint64_t{1} << 36, wrong);
  right = told("2^36 random quotients", wrong) && right;
  if (all) {
    constexpr uint32_t kSome = 1 << 17;  // a kernel of seconds
    for (uint32_t first = 0; first < 1u << 23; first += kSome)
      all_quotients<<<kBlocks, kThreads>>>(first, kSome, wrong);
    right = told("quotients of all significands", wrong) && right;
  }
  cudaFree(wrong);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace ulp::cuda

int main(int argc, char** argv) {
  try {
    return ulp::cuda::run(argc > 1 && std::strcmp(argv[1], "all") == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "division_check: %s\n", error.what());
    return 2;
  }
}
