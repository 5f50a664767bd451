// The number core on the GPU: every preset, rounding mode and storage gives the bits of the CPU.
// Needs a GPU; built by the cuda preset, run by hand on a machine that has one.
//
//   numeric_bits [MILLIONS]     random floats per format and mode (default 100)
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/s2fp8.h"
#include "ulp/numeric/scaled.h"
#include "ulp/numeric/split.h"

namespace ulp {
namespace {

constexpr size_t kChunk = size_t{1} << 24;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) { check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc"); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() { return data_; }
  void upload(const T* from, size_t n) {
    check(cudaMemcpy(data_, from, n * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> download(size_t n) {
    std::vector<T> host(n);
    check(cudaMemcpy(host.data(), data_, n * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }

 private:
  T* data_ = nullptr;
};

// One element a thread: this checks bits, not speed.
template <typename F>
__global__ void each(size_t n, F f) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    f(i);
}

template <typename F>
void launch(size_t n, F f) {
  each<<<1024, 256>>>(n, f);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "kernel");
}

int failures = 0;

const char* verdict() { return failures == 0 ? "same bits" : "DIFFERS (now or before)"; }

// Compares what the device wrote with expected(i), on all host threads.
template <typename F>
void compare(const std::string& what, const std::vector<uint32_t>& got, F expected) {
  std::vector<size_t> wrong(got.size() / 65536 + 1, SIZE_MAX);
  parallel_for(got.size(), 65536, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (got[i] != expected(i) && wrong[i / 65536] == SIZE_MAX) wrong[i / 65536] = i;
    }
  });
  for (size_t first : wrong) {
    if (first == SIZE_MAX) continue;
    std::printf("FAIL %s: element %zu: device %#x, host %#x\n", what.c_str(), first, got[first],
                expected(first));
    ++failures;
    return;
  }
}

// fp32 patterns: uniform over all 2^32, so every exponent, subnormals, infinities and NaN are
// there.
uint32_t pattern(uint64_t i) { return random_word({0x5eed, 0, 0, 0}, i); }

void check_encode(const Preset& preset, Round mode, Overflow overflow, size_t total,
                  DeviceArray<uint32_t>& in, DeviceArray<uint32_t>& out) {
  const CodecSpec spec = make_spec(preset.format, overflow);
  const RoundKey key{7, 3, 9, 1};
  for (size_t begin = 0; begin < total; begin += kChunk) {
    const size_t n = std::min(kChunk, total - begin);
    uint32_t* codes = out.data();
    const uint32_t* x = in.data();
    launch(n, [=] __device__(size_t i) {
      // Another pattern each chunk from the same uploaded ones.
      const uint32_t value = x[i] + static_cast<uint32_t>(begin / kChunk) * 0x9E3779B9u;
      const Encoded e = encode_scalar(spec, mode, value, random_word(key, begin + i));
      codes[i] = e.code ^ (static_cast<uint32_t>(e.event) << 30);
    });
    compare("encode " + std::string(preset.name) + " " + std::string(round_name(mode)), out.download(n),
            [&](size_t i) {
              const uint32_t value = pattern(i) + static_cast<uint32_t>(begin / kChunk) * 0x9E3779B9u;
              const Encoded e = encode_scalar(spec, mode, value, random_word(key, begin + i));
              return e.code ^ (static_cast<uint32_t>(e.event) << 30);
            });
  }
}

void check_decode(const Preset& preset, DeviceArray<uint32_t>& out) {
  const CodecSpec spec = make_spec(preset.format, Overflow::saturate);
  const uint64_t codes = uint64_t{1} << preset.format.bits();
  for (uint64_t begin = 0; begin < codes; begin += kChunk) {
    const size_t n = std::min<uint64_t>(kChunk, codes - begin);
    uint32_t* values = out.data();
    launch(n,
           [=] __device__(size_t i) { values[i] = decode_scalar(spec, static_cast<uint32_t>(begin + i)); });
    compare("decode " + std::string(preset.name), out.download(n),
            [&](size_t i) { return decode_scalar(spec, static_cast<uint32_t>(begin + i)); });
  }
}

void check_logarithm(DeviceArray<uint32_t>& out) {
  for (uint64_t begin = 1; begin < 0x7F800000u; begin += kChunk) {
    const size_t n = std::min<uint64_t>(kChunk, 0x7F800000u - begin);
    uint32_t* logs = out.data();
    launch(n, [=] __device__(size_t i) {
      logs[i] = static_cast<uint32_t>(log2_fixed(static_cast<uint32_t>(begin + i)));
    });
    compare("log2_fixed", out.download(n),
            [&](size_t i) { return static_cast<uint32_t>(log2_fixed(static_cast<uint32_t>(begin + i))); });
  }
}

void check_s2fp8(DeviceArray<uint32_t>& in, DeviceArray<uint32_t>& out) {
  for (const S2fp8Stats stats : {S2fp8Stats{1, 0}, S2fp8Stats{0.06f, 3}, S2fp8Stats{5.1f, 21.2f},
                                 S2fp8Stats{1024, -100000}, S2fp8Stats{0.37f, -40}}) {
    const uint32_t* x = in.data();
    uint32_t* y = out.data();
    launch(kChunk, [=] __device__(size_t i) { y[i] = s2fp8_squeeze(s2fp8_map(stats), x[i]); });
    compare("s2fp8 squeeze", out.download(kChunk),
            [&](size_t i) { return s2fp8_squeeze(s2fp8_map(stats), pattern(i)); });
    const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
    launch(256, [=] __device__(size_t i) {
      y[i] = s2fp8_restore(s2fp8_map(stats), decode_scalar(e5m2, static_cast<uint32_t>(i)));
    });
    compare("s2fp8 restore", out.download(256), [&](size_t i) {
      return s2fp8_restore(s2fp8_map(stats), decode_scalar(e5m2, static_cast<uint32_t>(i)));
    });
  }
  // The statistics themselves, from many sums.
  uint32_t* words = out.data();
  auto word = [] __host__ __device__(size_t i) {
    const LogSums sums{static_cast<int64_t>(random_word({1, 0, 0, 0}, 2 * i)) * 1000 - (int64_t{1} << 41),
                       1 + random_word({1, 0, 0, 0}, 2 * i + 1) % 4096u, 500 << 22};
    const S2fp8Stats stats = s2fp8_stats(sums);
    return float_bits(stats.alpha) ^ (float_bits(stats.beta) * 3u);
  };
  launch(1 << 20, [=] __device__(size_t i) { words[i] = word(i); });
  compare("s2fp8 statistics", out.download(1 << 20), word);
}

void check_split(DeviceArray<uint32_t>& in, DeviceArray<uint32_t>& out) {
  const RoundKey key{11, 5, 2, 0};
  for (const char* high : {"bf16", "fp16", "e5m2", "e4m3", "fp(4,3,4)"}) {
    for (int extra : {0, 4, 8, 13, 16}) {
      const FloatFormat format = parse_format(high);
      if (extra > std::min(16, 23 - format.man)) continue;
      const Split split = make_split(format, extra, true);
      const CodecSpec wide = make_wide_spec(split, Overflow::saturate);
      const uint32_t* x = in.data();
      uint32_t* words = out.data();
      auto word = [=] __host__ __device__(uint32_t value, size_t i) {
        const uint32_t code = encode_scalar(wide, Round::nearest_even, value, 0).code;
        const SplitCode s = split_code(wide, extra, true, code, random_word(key, i));
        return s.high * 0x20000u + s.side + (join_code(extra, s) == code ? 0u : 0x5A5A5A5Au);
      };
      launch(kChunk, [=] __device__(size_t i) { words[i] = word(x[i], i); });
      compare("split " + std::string(high) + "+" + std::to_string(extra) + "sr", out.download(kChunk),
              [&](size_t i) { return word(pattern(i), i); });
    }
  }
}

// The scale of a block from its largest magnitude, and a code under that scale.
void check_scaled(DeviceArray<uint32_t>& in, DeviceArray<uint32_t>& out) {
  for (const char* name : {"e4m3", "e5m2", "fp(4,3,0)", "fp(7,0,0)"}) {
    for (Round mode : {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
      const CodecSpec element = make_spec(make_scaled(parse_format(name)).element, Overflow::saturate);
      const uint32_t* x = in.data();
      uint32_t* words = out.data();
      auto word = [=] __host__ __device__(uint32_t value, uint32_t r) {
        const uint32_t amax = (value & 0x7FFFFFFFu) < 0x7F800000u ? value & 0x7FFFFFFFu : 0x3F800000u;
        const int k = scale_exponent(element, mode, amax);
        const CodecSpec spec = scaled_spec(element, k);
        const Encoded e = encode_scalar(spec, mode, r ^ (value & 0x00FF00FFu), r);
        return static_cast<uint32_t>(k) * 0x10000u ^ e.code ^ decode_scalar(spec, e.code);
      };
      launch(kChunk, [=] __device__(size_t i) { words[i] = word(x[i], x[kChunk - 1 - i]); });
      compare("scaled " + std::string(name), out.download(kChunk),
              [&](size_t i) { return word(pattern(i), pattern(kChunk - 1 - i)); });
    }
  }
}

int run(size_t total) {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "no GPU");
  std::printf("%s against the CPU, %zu M floats per format and mode\n", device.name, total / 1000000);
  std::vector<uint32_t> patterns(kChunk);
  parallel_for(kChunk, 65536, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) patterns[i] = pattern(i);
  });
  DeviceArray<uint32_t> in(kChunk), out(kChunk);
  in.upload(patterns.data(), kChunk);
  for (const Preset& preset : presets()) {
    check_decode(preset, out);
    for (Round mode : {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
      check_encode(preset, mode, Overflow::saturate, total, in, out);
      if (preset.format.has_inf()) check_encode(preset, mode, Overflow::infinity, kChunk, in, out);
    }
    std::printf("%-12s%s\n", std::string(preset.name).c_str(), verdict());
  }
  check_logarithm(out);
  std::printf("log2 of every positive float: %s\n", verdict());
  check_s2fp8(in, out);
  check_split(in, out);
  check_scaled(in, out);
  std::printf("s2fp8, split, scaled: %s\n", verdict());
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ulp

int main(int argc, char** argv) {
  try {
    const size_t millions = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
    return ulp::run(millions * 1000000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "numeric_bits: %s\n", error.what());
    return 2;
  }
}
