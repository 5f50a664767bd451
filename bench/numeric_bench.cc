// How fast the codecs are, as ratios measured in one run: against a plain copy loop that moves the same
// number of bytes where arrays are far larger than the cache, and in elements per second where they fit.
//
//   build/release/numeric_bench [--benchmark_filter=REGEX ...]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/simd.h"
#include "ulp/numeric/storage.h"

namespace ulp {
namespace {

constexpr size_t kLarge = size_t{64} << 20;  // elements: 256 MiB of fp32
constexpr size_t kSmall = size_t{16} << 10;  // elements: 64 KiB of fp32, in the second-level cache

const std::vector<std::string> kFormats = {"e4m3", "e5m2", "fp(4,3,4)", "fp(5,2,0)",
                                           "bf16", "fp16", "fp(6,9,0)"};

// Normal numbers of many sizes, a few subnormal and a few too large for the 8-bit formats, as a tensor has.
const std::vector<float>& inputs() {
  static const std::vector<float> values = [] {
    std::vector<float> v(kLarge);
    parallel_for(v.size(), 1 << 20, [&](size_t begin, size_t end) {
      std::minstd_rand generator(static_cast<unsigned>(begin + 1));
      std::normal_distribution<float> normal(0, 1);
      for (size_t i = begin; i < end; ++i) v[i] = normal(generator) * (i % 8 == 0 ? 1e-3f : 1.0f);
    });
    return v;
  }();
  return values;
}

// The yardstick: vector loads and stores, no streaming, no call into the C library.
__attribute__((optimize("O3,no-tree-loop-distribute-patterns"), noinline)) void plain_copy(
    const uint64_t* __restrict from, uint64_t* __restrict to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = from[i];
}

// Outputs of every benchmark, touched once: page faults and page sizes are the same for all.
std::vector<float>& output_floats() {
  static std::vector<float> out(kLarge, 1);
  return out;
}

std::span<uint8_t> output_bytes(size_t n) { return {reinterpret_cast<uint8_t*>(output_floats().data()), n}; }

std::string copy_name(size_t bytes_per_element) { return fmt::format("large/copy/{}B", bytes_per_element); }

// Moves the bytes that `kLarge` elements of code plus fp32 take: half read, half written.
void copy_large(benchmark::State& state, size_t bytes_per_element) {
  const size_t words = kLarge * bytes_per_element / 2 / sizeof(uint64_t);
  const uint64_t* from = reinterpret_cast<const uint64_t*>(inputs().data());
  uint64_t* to = reinterpret_cast<uint64_t*>(output_floats().data());
  for (auto _ : state) {
    parallel_for(words, 4096,
                 [&](size_t begin, size_t end) { plain_copy(from + begin, to + begin, end - begin); });
    benchmark::ClobberMemory();
  }
}

void encode_bench(benchmark::State& state, const std::string& name, Round mode, size_t n, int threads) {
  const FloatFormat format = parse_format(name);
  const std::span<const float> in(inputs().data(), n);
  const std::span<uint8_t> out = output_bytes(packed_bytes(format.bits(), n));
  const int saved = thread_count();
  set_thread_count(threads);
  for (auto _ : state) {
    EncodeStats stats = encode(format, {mode, Overflow::saturate, {}}, in, out);
    benchmark::DoNotOptimize(stats);
  }
  set_thread_count(saved);
}

void decode_bench(benchmark::State& state, const std::string& name, size_t n, int threads) {
  const FloatFormat format = parse_format(name);
  std::vector<uint8_t> codes(packed_bytes(format.bits(), n));
  const std::span<float> out(output_floats().data(), n);
  encode(format, {}, std::span<const float>(inputs().data(), n), codes);
  const int saved = thread_count();
  set_thread_count(threads);
  for (auto _ : state) {
    decode(format, codes, out);
    benchmark::ClobberMemory();
  }
  set_thread_count(saved);
}

// Formats whose codes are packed bit by bit, and storages that keep something beside the codes.
const std::vector<std::string> kStorages = {"fp(2,1,0)", "fp(3,2,0)", "e8m3",         "tf32", "bf16+8",
                                            "bf16+16",   "fp16+13sr", "scaled(e4m3)", "s2fp8"};

// S2FP8 beside e5m2, whose codes it has, from tensors of a few rows to far larger than the cache.
const std::vector<size_t> kSizes = {256, 1024, 4096, kSmall, size_t{256} << 10};
const std::vector<std::string> kSized = {"e5m2", "s2fp8"};

void storage_bench(benchmark::State& state, const std::string& name, bool writing, size_t n, int threads) {
  const Storage storage = parse_storage(name);
  const StorageSize size = storage_size(storage, n);
  std::vector<uint8_t> codes(size.code_bytes);
  std::vector<uint32_t> side(size.side_words);
  const std::span<float> out(output_floats().data(), n);
  const std::span<const float> in(inputs().data(), n);
  encode(storage, {}, in, codes, side);
  const int saved = thread_count();
  set_thread_count(threads);
  for (auto _ : state) {
    if (writing) {
      EncodeStats stats = encode(storage, {}, in, codes, side);
      benchmark::DoNotOptimize(stats);
    } else {
      decode(storage, codes, side, out);
      benchmark::ClobberMemory();
    }
  }
  set_thread_count(saved);
}

// Keeps the times for the tables, and shows that something is going on.
class Keeper : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    fmt::print(stderr, ".");
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      times_[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
    }
  }

  // Milliseconds; 0 if the benchmark was filtered out.
  double median(const std::string& name) const {
    const auto found = times_.find(name);
    if (found == times_.end()) return 0;
    std::vector<double> times = found->second;
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

// "-" where the benchmark was filtered out.
std::string ratio(double time, double to) {
  return time > 0 && to > 0 ? fmt::format("{:.2f}", time / to) : "-";
}

void print_large(const Keeper& kept) {
  fmt::print(
      "\nArrays of {} M elements, {} threads, vector unit {}. Time over the time of a plain copy loop\n"
      "that moves the same bytes (target: at most 1.25). Medians.\n\n",
      kLarge >> 20, thread_count(), simd_in_use());
  fmt::print("{:<12}{:>10}{:>10}{:>12}{:>10}{:>12}{:>10}\n", "format", "copy ms", "encode ms", "ratio",
             "decode ms", "ratio", "GB/s copy");
  for (const std::string& name : kFormats) {
    const size_t bytes = 4 + static_cast<size_t>(parse_format(name).bits()) / 8;
    const double copy = kept.median(copy_name(bytes));
    const double encode = kept.median("large/encode/" + name), decode = kept.median("large/decode/" + name);
    if (copy == 0 || encode == 0 || decode == 0) continue;
    fmt::print("{:<12}{:>10.2f}{:>10.2f}{:>12.2f}{:>10.2f}{:>12.2f}{:>10.1f}\n", name, copy, encode,
               encode / copy, decode, decode / copy, static_cast<double>(kLarge * bytes) / copy * 1e-6);
  }
}

// "-" where the benchmark was filtered out.
std::string rate(double time, size_t n = kSmall) {
  return time > 0 ? fmt::format("{:.2f}", static_cast<double>(n) / time * 1e-6) : "-";
}

void print_small(const Keeper& kept) {
  fmt::print("\nArrays of {} K elements, one thread, G elements/s (targets: even 2, stochastic 0.7).\n\n",
             kSmall >> 10);
  fmt::print("{:<12}{:>10}{:>12}{:>10}{:>10}{:>10}\n", "format", "even", "stochastic", "away", "zero",
             "decode");
  for (const std::string& name : kFormats) {
    fmt::print("{:<12}", name);
    for (const char* what : {"even", "stochastic", "away", "zero", "decode"}) {
      const double time = kept.median(fmt::format("cache/{}/{}", what, name));
      const int width = std::string_view(what) == "stochastic" ? 12 : 10;
      fmt::print("{:>{}}", rate(time), width);
    }
    fmt::print("\n");
  }
}

void print_storages(const Keeper& kept) {
  fmt::print("\nThe same for packed widths and storages, nearest-even.\n\n{:<14}{:>10}{:>10}\n", "storage",
             "encode", "decode");
  for (const std::string& name : kStorages) {
    fmt::print("{:<14}", name);
    for (const char* what : {"encode", "decode"}) {
      const double time = kept.median(fmt::format("storage/{}/{}", what, name));
      fmt::print("{:>10}", rate(time));
    }
    fmt::print("\n");
  }
}

void print_s2fp8(const Keeper& kept) {
  const double copy = kept.median(copy_name(5));
  fmt::print(
      "\ns2fp8 and e5m2, {} M elements, {} threads: times of a copy that moves the bytes of one pass\n"
      "(targets: s2fp8 encodes in at most 2.5), and s2fp8 times e5m2.\n\n{:<10}{:>10}{:>10}{:>10}\n",
      kLarge >> 20, thread_count(), "", "e5m2", "s2fp8", "ratio");
  for (const char* what : {"encode", "decode"}) {
    const double plain = kept.median(fmt::format("large/{}/e5m2", what));
    const double shifted = kept.median(fmt::format("large/{}/s2fp8", what));
    fmt::print("{:<10}{:>10}{:>10}{:>10}\n", what, ratio(plain, copy), ratio(shifted, copy),
               ratio(shifted, plain));
  }
  fmt::print("\nThe same by size, one thread, G elements/s.\n\n{:<12}{:>14}{:>14}{:>14}{:>14}\n", "elements",
             "e5m2 encode", "s2fp8 encode", "e5m2 decode", "s2fp8 decode");
  for (const size_t n : kSizes) {
    fmt::print("{:<12}", n);
    for (const char* what : {"encode", "decode"}) {
      for (const std::string& name : kSized)
        fmt::print("{:>14}", rate(kept.median(fmt::format("size/{}/{}/{}", what, name, n)), n));
    }
    fmt::print("\n");
  }
}

template <typename F>
void add(const std::string& name, F body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond)->UseRealTime();
}

int run(int argc, char** argv) {
  set_thread_count(2);
  // Repetitions of all benchmarks in turn, so that a slow spell of the machine falls on all of them.
  std::vector<char*> args(argv, argv + argc);
  std::string repetitions = "--benchmark_repetitions=9",
              interleave = "--benchmark_enable_random_interleaving=true",
              shortest = "--benchmark_min_time=0.02";
  args.insert(args.begin() + 1, {repetitions.data(), interleave.data(), shortest.data()});
  int count = static_cast<int>(args.size());

  for (size_t bytes : {5, 6}) add(copy_name(bytes), [=](benchmark::State& s) { copy_large(s, bytes); });
  const int threads = thread_count();
  for (const std::string& name : kFormats) {
    add("large/encode/" + name,
        [=](benchmark::State& s) { encode_bench(s, name, Round::nearest_even, kLarge, threads); });
    add("large/decode/" + name, [=](benchmark::State& s) { decode_bench(s, name, kLarge, threads); });
    for (Round mode : {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic}) {
      add(fmt::format("cache/{}/{}", round_name(mode), name),
          [=](benchmark::State& s) { encode_bench(s, name, mode, kSmall, 1); });
    }
    add("cache/decode/" + name, [=](benchmark::State& s) { decode_bench(s, name, kSmall, 1); });
  }

  for (const std::string& name : kStorages) {
    add("storage/encode/" + name, [=](benchmark::State& s) { storage_bench(s, name, true, kSmall, 1); });
    add("storage/decode/" + name, [=](benchmark::State& s) { storage_bench(s, name, false, kSmall, 1); });
  }
  for (const bool writing : {true, false}) {
    const char* what = writing ? "encode" : "decode";
    add(fmt::format("large/{}/s2fp8", what),
        [=](benchmark::State& s) { storage_bench(s, "s2fp8", writing, kLarge, threads); });
    for (const std::string& name : kSized) {
      for (const size_t n : kSizes) {
        add(fmt::format("size/{}/{}/{}", what, name, n),
            [=](benchmark::State& s) { storage_bench(s, name, writing, n, 1); });
      }
    }
  }

  benchmark::Initialize(&count, args.data());
  if (benchmark::ReportUnrecognizedArguments(count, args.data())) return 2;
  Keeper kept;
  benchmark::RunSpecifiedBenchmarks(&kept);
  print_large(kept);
  print_small(kept);
  print_storages(kept);
  print_s2fp8(kept);
  return 0;
}

}  // namespace
}  // namespace ulp

int main(int argc, char** argv) {
  try {
    ulp::use_simd_of_environment();
    return ulp::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}
