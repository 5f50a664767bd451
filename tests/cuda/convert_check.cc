// The GPU's codecs against the CPU's: every preset in every rounding mode on random fp32 patterns,
// written as codes and rounded in place, all storages that keep something beside codes, and every
// code of up to 16 bits decoded. Then how fast they are beside a plain copy.
//   convert_check [millions of numbers, 100]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/runtime/runtime.h"
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

// Memory of the host that a GPU copies to at full speed. Made once: a page's first touch costs more
// than its comparison.
class HostArray {
 public:
  explicit HostArray(size_t bytes) { check(cudaMallocHost(&data_, bytes), "allocating on the host"); }
  ~HostArray() { cudaFreeHost(data_); }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;
  uint8_t* bytes() const { return static_cast<uint8_t*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

void fill_random(float* made, size_t n) {
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
  for (size_t i = n / 4 * 4; i < n; ++i) made[i] = -0.5f;
}

bool same_bytes(const void* a, const void* b, size_t bytes) {
  std::atomic<bool> same = true;
  const auto *left = static_cast<const uint8_t*>(a), *right = static_cast<const uint8_t*>(b);
  parallel_for(bytes, size_t{1} << 20, [&](size_t begin, size_t end) {
    if (std::memcmp(left + begin, right + begin, end - begin) != 0) same = false;
  });
  return same;
}

// The numbers on both sides, and room for what is made of them. The GPU works while the CPU does:
// everything it is asked goes into one stream, and is waited for when the CPU has its own.
class Check {
 public:
  explicit Check(size_t n)
      : n_(n),
        in_(4 * n),
        expected_(room(n)),
        made_(room(n)),
        values_(4 * n),
        read_(4 * n),
        rounded_(4 * n),
        numbers_(4 * n),
        codes_(room(n)),
        out_(4 * n),
        rounds_(4 * n),
        state_(sizeof(StepState)),
        stats_(2 * sizeof(EncodeStats)),
        space_(kConvertSpace) {
    fill_random(in_.floats(), n);
    gpu().upload(numbers_.data(), in_.bytes(), 4 * n);
  }

  void compare(const Storage& storage, const Rounding& rounding, const std::string& what) {
    const StorageSize size = storage_size(storage, n_);
    const size_t side = aligned_bytes(size.code_bytes), bytes = side + 4 * size.side_words;
    const Plain* plain = std::get_if<Plain>(&storage);
    start(storage, rounding, bytes, plain != nullptr);
    const StoredParts parts = stored_parts(storage, expected_.bytes(), n_);
    const std::span<const float> in{in_.floats(), n_};
    const EncodeStats stats = encode(storage, rounding, in, parts.codes, parts.side);
    ulp::decode(storage, parts.codes, parts.side, {values_.floats(), n_});
    check(cudaDeviceSynchronize(), "converting");
    verdict(same_bytes(expected_.bytes(), made_.bytes(), size.code_bytes) &&
                same_bytes(expected_.bytes() + side, made_.bytes() + side, 4 * size.side_words) &&
                stats == seen_[0],
            "encode " + what);
    verdict(same_bytes(values_.bytes(), read_.bytes(), 4 * n_), "decode " + what);
    if (plain != nullptr)
      verdict(same_bytes(values_.bytes(), rounded_.bytes(), 4 * n_) && stats == seen_[1], "round " + what);
  }

  // Every code of a format.
  void compare_codes(const FloatFormat& format, const std::string& what) {
    const size_t count = size_t{1} << format.bits();
    std::vector<uint8_t> codes(packed_bytes(format.bits(), count));
    for (size_t code = 0; code < count; ++code) {
      for (size_t bit = 0; bit < static_cast<size_t>(format.bits()); ++bit) {
        const size_t at = code * static_cast<size_t>(format.bits()) + bit;
        codes[at / 8] = static_cast<uint8_t>(codes[at / 8] | (code >> bit & 1) << at % 8);
      }
    }
    ulp::decode(format, codes, {values_.floats(), count});
    gpu().upload(codes_.data(), codes.data(), codes.size());
    ReadView view;
    view.stored = stored_view(Plain{format}, Overflow::saturate, count);
    view.stored.codes = codes_.data();
    ulp::cuda::decode(view, state(), Rows::all(count), DecodedType::fp32, out_.data(), space_.data(),
                      nullptr);
    gpu().download(read_.bytes(), out_.data(), 4 * count);
    verdict(std::memcmp(values_.bytes(), read_.bytes(), 4 * count) == 0, "every code of " + what);
  }

 private:
  // Codes of four bytes and what may stand beside them.
  static size_t room(size_t n) { return 8 * n + (size_t{1} << 16); }

  const StepState* state() const { return reinterpret_cast<const StepState*>(state_.data()); }
  EncodeStats* stats() const { return reinterpret_cast<EncodeStats*>(stats_.data()); }

  void fetch(void* to, const GpuArray& from, size_t bytes) {
    check(cudaMemcpyAsync(to, from.data(), bytes, cudaMemcpyDeviceToHost, nullptr), "copying");
  }

  void start(const Storage& storage, const Rounding& rounding, size_t bytes, bool rounds) {
    StepState step;
    step.seed = rounding.key.seed;
    step.step = rounding.key.step;
    gpu().upload(state_.data(), &step, sizeof step);
    // Bits past the last one of packed codes are nobody's, and zero on the CPU.
    check(cudaMemsetAsync(codes_.data(), 0, bytes, nullptr), "clearing");
    check(cudaMemsetAsync(stats_.data(), 0, 2 * sizeof(EncodeStats), nullptr), "clearing");
    WriteView view;
    view.stored = stored_view(storage, rounding.overflow, n_);
    view.stored.codes = codes_.data();
    view.stored.side =
        reinterpret_cast<uint32_t*>(codes_.data() + aligned_bytes(storage_size(storage, n_).code_bytes));
    view.mode = rounding.mode;
    view.number = rounding.key.tensor;
    view.stats = stats();
    ulp::cuda::encode(view, state(), Rows::all(n_), reinterpret_cast<const float*>(numbers_.data()),
                      space_.data(), nullptr);
    fetch(made_.bytes(), codes_, bytes);
    ReadView read;
    read.stored = view.stored;
    ulp::cuda::decode(read, state(), Rows::all(n_), DecodedType::fp32, out_.data(), space_.data(), nullptr);
    fetch(read_.bytes(), out_, 4 * n_);
    if (rounds) {
      ReadView rounded;
      rounded.stored = stored_view(parse_storage("fp32"), Overflow::saturate, n_);
      rounded.stored.codes = numbers_.data();
      rounded.rounds = true;
      rounded.mode = rounding.mode;
      rounded.number = rounding.key.tensor;
      rounded.operand = view.stored.codec;
      rounded.stats = stats() + 1;
      ulp::cuda::decode(rounded, state(), Rows::all(n_), DecodedType::fp32, rounds_.data(), space_.data(),
                        nullptr);
      fetch(rounded_.bytes(), rounds_, 4 * n_);
    }
    fetch(seen_, stats_, sizeof seen_);
  }

  size_t n_;
  HostArray in_, expected_, made_, values_, read_, rounded_;
  GpuArray numbers_, codes_, out_, rounds_, state_, stats_, space_;
  EncodeStats seen_[2];
};

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
  const GpuArray from(4 * n), to(4 * n), codes(2 * n), state(sizeof(StepState)), stats(sizeof(EncodeStats)),
      space(kConvertSpace);
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
      view.stored.codes = codes.data();
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
             ulp::cuda::decode(rounding, step, Rows::all(n), DecodedType::fp32, to.data(), space.data(),
                               nullptr);
           }));
    }
    ReadView view;
    view.stored = stored_view(parse_storage(name), Overflow::saturate, n);
    view.stored.codes = codes.data();
    line(fmt::format("decode {} to fp32", name), 4 + static_cast<double>(view.stored.bits) / 8, seconds([&] {
           ulp::cuda::decode(view, step, Rows::all(n), DecodedType::fp32, to.data(), space.data(), nullptr);
         }));
  }
  // S2FP8 reads what it writes twice. Also tensors of the sizes that a small network has, where launches
  // take the time.
  for (const size_t count : {n, size_t{2} << 20, size_t{1} << 18, size_t{36864}, size_t{2304}}) {
    WriteView view;
    view.stored = stored_view(parse_storage("s2fp8"), Overflow::saturate, count);
    view.stored.codes = codes.data();
    view.stored.side = reinterpret_cast<uint32_t*>(codes.data() + aligned_bytes(count));
    view.stats = reinterpret_cast<EncodeStats*>(stats.data());
    ReadView read, rounding;
    read.stored = view.stored;
    rounding.stored = stored_view(parse_storage("fp32"), Overflow::saturate, count);
    rounding.stored.codes = from.data();
    rounding.rounds_s2fp8 = true;
    rounding.operand = view.stored.codec;
    rounding.stats = view.stats;
    const auto report = [&](const char* what, double bytes, double time) {
      const double size = static_cast<double>(count);
      fmt::print("{:<14}{:>12} numbers{:>10.2f} us{:>8.0f} GB/s {:>6.2f} of the copy's{:>8.1f} G numbers/s\n",
                 what, count, time * 1e6, bytes * size / time * 1e-9, bytes * size / time * 1e-9 / copy_rate,
                 size / time * 1e-9);
      std::fflush(stdout);
    };
    report("encode s2fp8", 9, seconds([&] {
             ulp::cuda::encode(view, step, Rows::all(count), reinterpret_cast<const float*>(from.data()),
                               space.data(), nullptr);
           }));
    report("round to s2fp8", 12, seconds([&] {
             ulp::cuda::decode(rounding, step, Rows::all(count), DecodedType::fp32, to.data(), space.data(),
                               nullptr);
           }));
    report("decode s2fp8", 5, seconds([&] {
             ulp::cuda::decode(read, step, Rows::all(count), DecodedType::fp32, to.data(), space.data(),
                               nullptr);
           }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t millions = 100;
  if (argc > 2 || (argc == 2 && (std::sscanf(argv[1], "%zu", &millions) != 1 || millions == 0))) {
    fmt::print(stderr, "usage: convert_check [millions of numbers, 100]\n");
    return 2;
  }
  try {
    fmt::print("{}\n", gpu_text());
    const auto began = std::chrono::steady_clock::now();
    {
      Check all(millions * 1000000 + 5);  // a last group that is not full
      RoundKey key;
      key.seed = 0x123456789ABCDEF0u;
      key.step = 77;
      key.tensor = 4242;
      for (const Preset& preset : presets()) {
        if (is_fp32(Storage(Plain{preset.format}))) continue;
        for (const Round mode :
             {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
          all.compare(Plain{preset.format}, {mode, Overflow::saturate, key},
                      fmt::format("{} {}", preset.name, round_name(mode)));
          if (!preset.format.has_inf()) continue;
          all.compare(Plain{preset.format}, {mode, Overflow::infinity, key},
                      fmt::format("{} {}, infinities kept", preset.name, round_name(mode)));
        }
        if (preset.format.bits() <= 16) all.compare_codes(preset.format, std::string(preset.name));
      }
      for (const char* name : {"bf16+8", "bf16+16", "bf16+8sr", "fp16+13sr", "e5m2+4", "s2fp8"}) {
        all.compare(parse_storage(name), {Round::nearest_even, Overflow::saturate, key}, name);
      }
      for (const char* name : {"scaled(e4m3)", "scaled(e5m2)", "scaled(e5m2,nonzero)"}) {
        for (const Round mode : {Round::nearest_even, Round::stochastic}) {
          all.compare(parse_storage(name), {mode, Overflow::saturate, key},
                      fmt::format("{} {}", name, round_name(mode)));
        }
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fmt::print("{} M numbers each, {:.0f} s\n", millions, took.count());
    speed();
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 2;
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}
