#include "tests/cuda/products_naive.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstdlib>

namespace ulp::cuda {
namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

__device__ uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__device__ double load(Unit unit, const void* p, int64_t i) {
  switch (unit) {
    case Unit::fp32:
    case Unit::tf32:
      return static_cast<const float*>(p)[i];
    case Unit::fp16:
      return __half2float(__ushort_as_half(static_cast<const unsigned short*>(p)[i]));
    case Unit::bf16:
      return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16);
    case Unit::e4m3: {
      const uint32_t code = static_cast<const uint8_t*>(p)[i], field = code >> 3 & 15, man = code & 7;
      const double value =
          field == 0 ? ldexp(double(man), -9) : ldexp(8.0 + man, static_cast<int>(field) - 10);
      return code & 128 ? -value : value;
    }
  }
  return 0;
}

__global__ void fill_kernel(Unit unit, Fill how, void* p, int64_t count, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint64_t r = mix(seed * 0x100000001B3ull + static_cast<uint64_t>(i));
    const uint32_t sign = r >> 63, bits = static_cast<uint32_t>(r), down = r >> 40 & 3;
    const bool subnormal = how == Fill::subnormal, large = how == Fill::large;
    switch (unit) {
      case Unit::fp32:
      case Unit::tf32: {
        const uint32_t keep = unit == Unit::tf32 ? 0x7FE000u : 0x7FFFFFu;
        const uint32_t field = subnormal ? 0 : 126 - down + (large ? 100 : 0);
        static_cast<uint32_t*>(p)[i] = sign << 31 | field << 23 | (bits & keep);
        break;
      }
      case Unit::bf16: {
        const uint32_t field = subnormal ? 0 : 126 - down + (large ? 100 : 0);
        static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(sign << 15 | field << 7 | (bits & 0x7F));
        break;
      }
      case Unit::fp16: {
        const uint32_t field = subnormal ? 0 : 14 - down + (large ? 12 : 0);
        static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(sign << 15 | field << 10 | (bits & 0x3FF));
        break;
      }
      case Unit::e4m3: {
        const uint32_t field = subnormal ? 0 : 6 - down + (large ? 4 : 0);
        static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(sign << 7 | field << 3 | (bits & 7));
        break;
      }
    }
  }
}

struct Sum {
  double value = 0, magnitude = 0;
  __device__ void add(double a, double b) {
    value += a * b;
    magnitude += fabs(a * b);
  }
};

// The numbers that a result stands for: itself, or all that are rounded to its code.
struct Range {
  double low, high;
};

// As if the exponents went on: the code of infinity is the next power of two.
__device__ double magnitude_of(Unit unit, uint32_t code) {
  const int man = unit == Unit::bf16 ? 7 : 10, lowest = unit == Unit::bf16 ? -133 : -24;
  const uint32_t field = code >> man, bits = code & ((1u << man) - 1);
  return field == 0 ? ldexp(double(bits), lowest)
                    : ldexp(double(bits + (1u << man)), lowest + static_cast<int>(field) - 1);
}

__device__ Range range_of(Unit unit, Written written, const void* out, int64_t i) {
  if (written == Written::fp32) {
    const double value = static_cast<const float*>(out)[i];
    return {value, value};
  }
  const uint32_t code = static_cast<const uint16_t*>(out)[i], magnitude = code & 0x7FFFu;
  const uint32_t infinity = unit == Unit::bf16 ? 0x7F80u : 0x7C00u;
  if (magnitude > infinity) return {NAN, NAN};
  const double here = magnitude_of(unit, magnitude);
  const double low =
      magnitude == 0 ? -magnitude_of(unit, 1) / 2 : (magnitude_of(unit, magnitude - 1) + here) / 2;
  const double high = magnitude == infinity ? INFINITY : (here + magnitude_of(unit, magnitude + 1)) / 2;
  return code & 0x8000u ? Range{-high, -low} : Range{low, high};
}

// Joins the lanes of a warp and, in lane 0, compares with what came out.
__device__ void judge(Unit unit, Sum sum, double first, double terms, Range result,
                      unsigned long long* worst) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum.value += __shfl_down_sync(~0u, sum.value, lanes);
    sum.magnitude += __shfl_down_sync(~0u, sum.magnitude, lanes);
  }
  if (threadIdx.x % 32 != 0) return;
  const double value = sum.value + first;
  const double error = value < result.low         ? result.low - value
                       : value > result.high      ? value - result.high
                       : result.low == result.low ? 0
                                                  : INFINITY;
  const double share = unit == Unit::e4m3 ? 0x1p-10 : 2 * (terms + 8) * 0x1p-23;
  const double allowed = share * (sum.magnitude + fabs(first));
  double ratio = error == 0 ? 0 : error / allowed;
  if (!(ratio < INFINITY)) ratio = INFINITY;
  // Doubles that are not negative are ordered as their patterns are.
  atomicMax(worst, static_cast<unsigned long long>(__double_as_longlong(ratio)));
}

__global__ void conv_kernel(ConvKind kind, GroupedConv<int64_t> s, Unit unit, const void* a, const void* b,
                            const void* out, Written written, int64_t outputs, int64_t every,
                            unsigned long long* worst) {
  const int64_t cg = s.group_c, kg = s.group_out, oh = s.out_h, ow = s.out_w;
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t o = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32 * every; o < outputs;
       o += warps * every) {
    Sum sum;
    double terms = 0;
    if (kind == ConvKind::forward) {
      // out (n, oh, ow, k)
      const int64_t k = o % s.out_c, x = o / s.out_c % ow, y = o / s.out_c / ow % oh,
                    n = o / s.out_c / ow / oh;
      terms = static_cast<double>(cg * s.kernel_h * s.kernel_w);
      for (int64_t t = lane; t < cg * s.kernel_h * s.kernel_w; t += 32) {
        const int64_t c = t % cg, kx = t / cg % s.kernel_w, ky = t / cg / s.kernel_w;
        const int64_t iy = y * s.stride_h - s.padding_h + ky, ix = x * s.stride_w - s.padding_w + kx;
        if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
        sum.add(load(unit, a, ((n * s.h + iy) * s.w + ix) * s.c + k / kg * cg + c),
                load(unit, b, ((k * s.kernel_h + ky) * s.kernel_w + kx) * cg + c));
      }
    } else if (kind == ConvKind::grad_input) {
      // out (n, h, w, c)
      const int64_t c = o % s.c, ix = o / s.c % s.w, iy = o / s.c / s.w % s.h, n = o / s.c / s.w / s.h;
      terms = static_cast<double>(kg * s.kernel_h * s.kernel_w);
      for (int64_t t = lane; t < kg * s.kernel_h * s.kernel_w; t += 32) {
        const int64_t k = c / cg * kg + t % kg, kx = t / kg % s.kernel_w, ky = t / kg / s.kernel_w;
        const int64_t y = iy + s.padding_h - ky, x = ix + s.padding_w - kx;
        if (y < 0 || x < 0 || y % s.stride_h != 0 || x % s.stride_w != 0) continue;
        if (y / s.stride_h >= oh || x / s.stride_w >= ow) continue;
        sum.add(load(unit, a, ((n * oh + y / s.stride_h) * ow + x / s.stride_w) * s.out_c + k),
                load(unit, b, ((k * s.kernel_h + ky) * s.kernel_w + kx) * cg + c % cg));
      }
    } else {
      // out (k, kernel_h, kernel_w, c / groups)
      const int64_t c = o % cg, kx = o / cg % s.kernel_w, ky = o / cg / s.kernel_w % s.kernel_h,
                    k = o / cg / s.kernel_w / s.kernel_h;
      terms = static_cast<double>(s.n * oh * ow);
      for (int64_t t = lane; t < s.n * oh * ow; t += 32) {
        const int64_t x = t % ow, y = t / ow % oh, n = t / ow / oh;
        const int64_t iy = y * s.stride_h - s.padding_h + ky, ix = x * s.stride_w - s.padding_w + kx;
        if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
        sum.add(load(unit, a, ((n * s.h + iy) * s.w + ix) * s.c + k / kg * cg + c),
                load(unit, b, t * s.out_c + k));
      }
    }
    judge(unit, sum, 0, terms, range_of(unit, written, out, o), worst);
  }
}

__global__ void matmul_kernel(MatmulShape s, Unit unit, const void* a, const void* b, const float* before,
                              const void* out, Written written, unsigned long long* worst) {
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t o = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; o < s.batch * s.m * s.n;
       o += warps) {
    const int64_t j = o % s.n, i = o / s.n % s.m, n = o / s.n / s.m;
    Sum sum;
    for (int64_t t = lane; t < s.k; t += 32) {
      sum.add(load(unit, a, n * s.stride_a + (s.transpose_a ? t * s.lda + i : i * s.lda + t)),
              load(unit, b, n * s.stride_b + (s.transpose_b ? j * s.ldb + t : t * s.ldb + j)));
    }
    const int64_t at = n * s.stride_c + i * s.ldc + j;
    judge(unit, sum, before == nullptr ? 0 : before[at],
          static_cast<double>(s.k + (before == nullptr ? 0 : 1)), range_of(unit, written, out, at), worst);
  }
}

__global__ void differences_kernel(const uint32_t* a, const uint32_t* b, int64_t words,
                                   unsigned long long* count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) mine += a[i] != b[i];
  if (mine != 0) atomicAdd(count, mine);
}

__global__ void otherwise_kernel(const float* wide, const uint16_t* codes, int64_t count,
                                 unsigned long long* total) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    mine += __bfloat16_as_ushort(__float2bfloat16_rn(wide[i])) != codes[i];
  if (mine != 0) atomicAdd(total, mine);
}

// One zeroed 64-bit word on the device, read back at the end.
struct Word {
  unsigned long long* at = nullptr;
  Word() {
    check(cudaMalloc(&at, sizeof *at));
    check(cudaMemset(at, 0, sizeof *at));
  }
  ~Word() { cudaFree(at); }
  unsigned long long read() const {
    unsigned long long value = 0;
    check(cudaGetLastError());
    check(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost));
    return value;
  }
};

double as_double(unsigned long long pattern) { return __builtin_bit_cast(double, pattern); }

constexpr int kBlocks = 132 * 8, kBlock = 256;

}  // namespace

void fill(Unit unit, Fill how, void* operand, int64_t count, uint64_t seed) {
  fill_kernel<<<kBlocks, kBlock>>>(unit, how, operand, count, seed);
  check(cudaGetLastError());
}

double conv_error(ConvKind kind, const ConvExtents& s, Unit unit, const void* a, const void* b,
                  const void* out, Written written, int64_t every) {
  const auto outputs = static_cast<int64_t>(kind == ConvKind::forward      ? s.out_elements()
                                            : kind == ConvKind::grad_input ? s.x_elements()
                                                                           : s.weight_elements());
  Word worst;
  conv_kernel<<<kBlocks, kBlock>>>(kind, GroupedConv(s), unit, a, b, out, written, outputs, every, worst.at);
  return as_double(worst.read());
}

double matmul_error(const MatmulShape& s, Unit unit, const void* a, const void* b, const float* before,
                    const void* out, Written written) {
  Word worst;
  matmul_kernel<<<kBlocks, kBlock>>>(s, unit, a, b, before, out, written, worst.at);
  return as_double(worst.read());
}

uint64_t differences(const void* a, const void* b, int64_t words) {
  Word count;
  differences_kernel<<<kBlocks, kBlock>>>(static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b),
                                          words, count.at);
  return count.read();
}

uint64_t rounded_otherwise(const float* wide, const void* codes, int64_t count) {
  Word total;
  otherwise_kernel<<<kBlocks, kBlock>>>(wide, static_cast<const uint16_t*>(codes), count, total.at);
  return total.read();
}

}  // namespace ulp::cuda
