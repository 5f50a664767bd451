// The GPU's codecs against the CPU's: every preset in every rounding mode on random fp32 patterns and the numbers around every code, all
// storages that keep something beside codes, and every code decoded. Then how fast they are beside a plain copy.
//   convert_check [millions of numbers, 100]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ulp/backend/cuda/convert.h"
#include "ulp/backend/cuda/operands.h"
#include "ulp/backend/cuda/runtime.h"
#include "ulp/base/parallel.h"
#include "ulp/base/philox.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/storage.h"
#include "ulp/tensor/stored.h"

namespace {

using namespace ulp;
using namespace ulp::cuda;

int failures = 0;

void verdict(bool fine, const std::string& what) {
  if (!fine) ++failures;
  fmt::print("{} {}\n", fine ? "PASS" : "FAIL", what);
  std::fflush(stdout);
}

class GpuArray {
 public:
  explicit GpuArray(size_t bytes) : bytes_(aligned_bytes(bytes) + 64), data_(gpu().allocate(bytes_)) {}
  ~GpuArray() { gpu().release(data_, bytes_); }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;
  uint8_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

std::vector<float> random_patterns(size_t n) {
  std::vector<float> made(n);
  parallel_for(n / 4, size_t{1} << 16, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const PhiloxWords words = philox({{static_cast<uint32_t>(i), 1, 2, 3}}, {{11, 12}});
      for (size_t k = 0; k < 4; ++k) {
        // Half of them any pattern, half of them near 1, where narrow formats have their numbers.
        const uint32_t near = (words.word[k] & 0x80FFFFFFu) | (112u + (words.word[k] >> 24 & 31u)) << 23;
        made[4 * i + k] = bits_float(k % 2 == 0 ? words.word[k] : near);
      }
    }
  });
  return made;
}

struct Written {
  std::vector<uint8_t> bytes;
  EncodeStats stats;
};

Written on_cpu(const Storage& storage, const Rounding& rounding, const std::vector<float>& in) {
  Written made;
  made.bytes.resize(aligned_bytes(storage_size(storage, in.size()).code_bytes) +
                    4 * storage_size(storage, in.size()).side_words);
  const StoredParts parts = stored_parts(storage, made.bytes.data(), in.size());
  made.stats = encode(storage, rounding, in, parts.codes, parts.side);
  return made;
}

struct OnGpu {
  explicit OnGpu(const std::vector<float>& in)
      : n(in.size()),
        numbers(4 * n),
        codes(8 * n + (size_t{1} << 16)),
        state(sizeof(StepState)),
        stats(sizeof(EncodeStats)),
        space(256) {
    gpu().upload(numbers.data(), in.data(), 4 * n);
  }

  Written write(const Storage& storage, const Rounding& rounding) {
    // Bits past the last one of packed codes are nobody's, and zero on the CPU.
    check(cudaMemset(codes.data(), 0, 8 * n), "clearing");
    StepState step;
    step.seed = rounding.key.seed;
    step.step = rounding.key.step;
    gpu().upload(state.data(), &step, sizeof step);
    const EncodeStats none;
    gpu().upload(stats.data(), &none, sizeof none);
    WriteView view;
    view.stored = stored_view(storage, rounding.overflow, n);
    view.stored.codes = codes.data();
    view.stored.side =
        reinterpret_cast<uint32_t*>(codes.data() + aligned_bytes(storage_size(storage, n).code_bytes));
    view.mode = rounding.mode;
    view.number = rounding.key.tensor;
    view.stats = reinterpret_cast<EncodeStats*>(stats.data());
    ulp::cuda::encode(view, reinterpret_cast<const StepState*>(state.data()), Rows::all(n),
                      reinterpret_cast<const float*>(numbers.data()), space.data(), nullptr);
    check(cudaDeviceSynchronize(), "encoding");
    Written made;
    made.bytes.resize(aligned_bytes(storage_size(storage, n).code_bytes) +
                      4 * storage_size(storage, n).side_words);
    gpu().download(made.bytes.data(), codes.data(), made.bytes.size());
    gpu().download(&made.stats, stats.data(), sizeof made.stats);
    return made;
  }

  // What was written last, decoded.
  std::vector<float> read(const Storage& storage) {
    ReadView view;
    view.stored = stored_view(storage, Overflow::saturate, n);
    view.stored.codes = codes.data();
    view.stored.side =
        reinterpret_cast<uint32_t*>(codes.data() + aligned_bytes(storage_size(storage, n).code_bytes));
    const GpuArray out(4 * n);
    ulp::cuda::decode(view, reinterpret_cast<const StepState*>(state.data()), Rows::all(n), Target::fp32,
                      out.data(), space.data(), nullptr);
    check(cudaDeviceSynchronize(), "decoding");
    std::vector<float> made(n);
    gpu().download(made.data(), out.data(), 4 * n);
    return made;
  }

  size_t n;
  GpuArray numbers, codes, state, stats, space;
};

bool same(const Written& a, const Written& b, const Storage& storage, size_t n) {
  const StorageSize size = storage_size(storage, n);
  return std::memcmp(a.bytes.data(), b.bytes.data(), size.code_bytes) == 0 &&
         std::memcmp(a.bytes.data() + aligned_bytes(size.code_bytes),
                     b.bytes.data() + aligned_bytes(size.code_bytes), 4 * size.side_words) == 0 &&
         a.stats == b.stats;
}

void compare(OnGpu& device, const std::vector<float>& in, const Storage& storage, const Rounding& rounding,
             const std::string& what) {
  const Written expected = on_cpu(storage, rounding, in), made = device.write(storage, rounding);
  verdict(same(expected, made, storage, in.size()), "encode " + what);
  std::vector<float> values(in.size());
  Written copy = expected;
  const StoredParts parts = stored_parts(storage, copy.bytes.data(), in.size());
  ulp::decode(storage, parts.codes, parts.side, values);
  const std::vector<float> read = device.read(storage);
  verdict(std::memcmp(values.data(), read.data(), 4 * in.size()) == 0, "decode " + what);
}

// Median seconds of what `work` launches.
template <typename Work>
double seconds(const Work& work) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(begin, nullptr);
    work();
    cudaEventRecord(end, nullptr);
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 2) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] / 1e3;
}

void speed() {
  const size_t n = size_t{1} << 28;
  const GpuArray from(4 * n), to(4 * n), state(sizeof(StepState)), stats(sizeof(EncodeStats)), space(256);
  std::vector<float> values(size_t{1} << 20);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = philox({{static_cast<uint32_t>(i), 0, 0, 0}}, {{1, 1}}).word[0];
    values[i] = (static_cast<float>(word) * 0x1p-31f - 1) * 4;
  }
  for (size_t at = 0; at < n; at += values.size())
    gpu().upload(from.data() + 4 * at, values.data(), 4 * values.size());
  const double copied =
      seconds([&] { cudaMemcpyAsync(to.data(), from.data(), 4 * n, cudaMemcpyDeviceToDevice, nullptr); });
  const double copy_rate = 8e-9 * static_cast<double>(n) / copied;
  fmt::print("copy of fp32: {:.0f} GB/s, {:.0f} G numbers/s\n", copy_rate,
             1e-9 * static_cast<double>(n) / copied);
  const auto* step = reinterpret_cast<const StepState*>(state.data());
  const auto line = [&](const std::string& what, double bytes, double time) {
    const double rate = 1e-9 * bytes * static_cast<double>(n) / time;
    fmt::print("{:<44}{:>8.0f} GB/s {:>6.2f} of the copy's{:>8.0f} G numbers/s\n", what, rate,
               rate / copy_rate, 1e-9 * static_cast<double>(n) / time);
    std::fflush(stdout);
  };
  for (const char* name : {"fp(4,3,4)", "fp(5,2,0)", "e4m3", "e5m2", "fp16", "bf16", "fp(6,9,0)"}) {
    for (const Round mode : {Round::nearest_even, Round::stochastic}) {
      const Storage storage = parse_storage(name);
      WriteView view;
      view.stored = stored_view(storage, Overflow::saturate, n);
      view.stored.codes = to.data();
      view.mode = mode;
      view.stats = reinterpret_cast<EncodeStats*>(stats.data());
      const double bytes = 4 + static_cast<double>(view.stored.bits) / 8;
      line(fmt::format("encode {} {}", name, round_name(mode)), bytes, seconds([&] {
             ulp::cuda::encode(view, step, Rows::all(n), reinterpret_cast<const float*>(from.data()),
                               space.data(), nullptr);
           }));
      ReadView rounding;
      rounding.stored = stored_view(parse_storage("fp32"), Overflow::saturate, n);
      rounding.stored.codes = from.data();
      rounding.rounds = true;
      rounding.mode = mode;
      rounding.operand = view.stored.codec;
      rounding.stats = view.stats;
      line(fmt::format("round fp32 to fp32, {} {}", name, round_name(mode)), 8, seconds([&] {
             ulp::cuda::decode(rounding, step, Rows::all(n), Target::fp32, to.data(), space.data(), nullptr);
           }));
    }
    ReadView view;
    view.stored = stored_view(parse_storage(name), Overflow::saturate, n);
    view.stored.codes = from.data();
    line(fmt::format("decode {} to fp32", name), 4 + static_cast<double>(view.stored.bits) / 8, seconds([&] {
           ulp::cuda::decode(view, step, Rows::all(n), Target::fp32, to.data(), space.data(), nullptr);
         }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const size_t n = (argc > 1 ? std::stoull(argv[1]) : 100) * 1000000 + 5;  // a last group that is not full
    fmt::print("{}\n", gpu_text());
    std::vector<float> in = random_patterns(n / 4 * 4);
    in.resize(n, -0.5f);
    OnGpu device(in);
    RoundKey key;
    key.seed = 0x123456789ABCDEF0u;
    key.step = 77;
    key.tensor = 4242;
    for (const Preset& preset : presets()) {
      for (const Round mode :
           {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
        if (is_fp32(Storage(Plain{preset.format}))) continue;
        compare(device, in, Plain{preset.format}, {mode, Overflow::saturate, key},
                fmt::format("{} {}", preset.name, round_name(mode)));
      }
      if (!preset.format.has_inf() || is_fp32(Storage(Plain{preset.format}))) continue;
      compare(device, in, Plain{preset.format}, {Round::nearest_even, Overflow::infinity, key},
              fmt::format("{} even, infinities kept", preset.name));
    }
    for (const char* name : {"bf16+8", "bf16+16", "bf16+8sr", "fp16+13sr", "e5m2+4", "s2fp8"}) {
      compare(device, in, parse_storage(name), {Round::nearest_even, Overflow::saturate, key}, name);
    }
    for (const char* name : {"scaled(e4m3)", "scaled(e5m2)", "scaled(e5m2,nonzero)"}) {
      for (const Round mode : {Round::nearest_even, Round::stochastic}) {
        compare(device, in, parse_storage(name), {mode, Overflow::saturate, key},
                fmt::format("{} {}", name, round_name(mode)));
      }
    }
    speed();
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 2;
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}
