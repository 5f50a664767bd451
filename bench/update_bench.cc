// What optimizer steps cost under every update rule: time and bytes for each parameter, the share
// of the rate of a plain copy, and time against AdamW in fp32. Arrays are far larger than the
// cache. All is measured in one run, in turns, since machines are shared; ratios count.
//
//   update_bench [MILLIONS OF PARAMETERS [ROUNDS]]
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/optim/rule.h"
#include "ulp/tensor/memory.h"
#include "ulp/tensor/stored.h"

namespace ulp {
namespace {

constexpr int kThreads = 2;

struct Bytes {
  explicit Bytes(size_t size)
      : memory(static_cast<uint8_t*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)), std::free) {}
  std::unique_ptr<uint8_t, void (*)(void*)> memory;
};

// Tensors by what they are and how they are stored: cases share them, as all of their values are alike.
class Pool {
 public:
  uint8_t* get(const std::string& role, const TensorInfo& tensor, const Storage& storage) {
    const auto [found, fresh] =
        made_.try_emplace(role + " " + storage_name(storage), tensor_bytes(tensor, storage));
    uint8_t* data = found->second.memory.get();
    if (fresh) fill(role, data, tensor.elements(), storage);
    return data;
  }

 private:
  // One block of values over and over: they need only be ordinary.
  static void fill(const std::string& role, uint8_t* data, size_t n, const Storage& storage) {
    constexpr size_t kBlock = size_t{1} << 16;
    std::vector<float> values(kBlock);
    const float scale = role == "weight"         ? 0.1f
                        : role == "exp_avg_sq"   ? 1e-6f
                        : role == "compensation" ? 1e-5f
                                                 : 1e-3f;
    for (size_t i = 0; i < kBlock; ++i) {
      const uint32_t word = philox({{static_cast<uint32_t>(i), 0, 0, 0}}, {{7, 11}}).word[role.size() % 4];
      values[i] = scale * static_cast<float>(static_cast<int32_t>(word)) * 0x1p-31f;
      if (role == "exp_avg_sq") values[i] = values[i] < 0 ? -values[i] : values[i];
    }
    for (size_t first = 0; first < n; first += kBlock) {
      const StoredParts parts = stored_slice(storage, data, n, first);
      encode(storage, {}, std::span(values).first(std::min(kBlock, n - first)), parts.codes, parts.side,
             first);
    }
  }

  std::map<std::string, Bytes> made_;
};

// One parameter and its update.
struct Case {
  std::string optimizer, weight, rule;
  Graph graph;
  std::vector<TensorFormat> formats;
  std::unique_ptr<PlanContext> plan;
  std::unique_ptr<Task> task;
  std::vector<uint8_t*> data;
  std::vector<uint8_t> workspace;
  StepState state;
  std::vector<EncodeStats> stats;
  std::vector<UpdateCounts> updates;
  double bytes = 0;  // read and written for each parameter
  std::vector<double> seconds;

  void run() {
    RunContext context;
    context.data = data;
    context.state = &state;
    context.workspace = workspace.data();
    context.stats = stats.data();
    context.updates = updates.data();
    const double begin = now();
    task->run(context);
    seconds.push_back(now() - begin);
    ++state.step;
  }
};

// None where the rule is not for the format.
std::unique_ptr<Case> make_case(Pool& pool, int64_t n, const OptimizerConfig& config,
                                const std::string& weight, const UpdateRule& rule) {
  Storage stored;
  try {
    stored = stored_weight(rule, parse_storage(weight));
  } catch (const Error&) {
    return nullptr;
  }
  auto made = std::make_unique<Case>();
  made->optimizer =
      config.kind == OptimizerKind::sgd ? "sgd+momentum" : std::string(optimizer_name(config.kind));
  made->weight = weight;
  made->rule = update_rule_text(rule);
  Graph& graph = made->graph;
  TensorInfo info;
  info.name = "weight";
  info.shape = {n};
  info.kind = Kind::weight;
  const TensorId id = graph.add_tensor(info);
  info.name = "grad";
  info.kind = Kind::weight_grad;
  graph.edit(id).grad = graph.add_tensor(info);
  add_updates(graph, update_spec(ParameterUpdate{config, rule.compensated(), rule.stochastic()}));
  const Storage beside = parse_storage(weight == "fp32" ? "fp32" : "bf16");
  for (const TensorInfo& tensor : graph.tensors()) {
    const std::string role = tensor.name.substr(tensor.name.rfind('.') + 1);
    const Storage storage = role == "weight"         ? stored
                            : role == "compensation" ? parse_storage(weight)
                                                     : beside;
    made->formats.push_back({storage, {}});
    made->data.push_back(pool.get(role, tensor, storage));
    const auto bytes = static_cast<double>(storage_size(storage, 1 << 20).bytes()) / (1 << 20);
    made->bytes += (role == "grad" ? 1 : 2) * bytes;
  }
  made->plan = std::make_unique<PlanContext>(PlanContext{graph, made->formats});
  const Problem problem{*made->plan, {}, {NodeId{0}}, {}};
  made->task = KernelChoice().pick(cpu_backend(), problem)->make(problem);
  made->workspace.resize(made->task->workspace());
  made->stats.resize(graph.tensor_count());
  made->updates.resize(graph.tensor_count());
  made->state.update = update_scalars(config, 100, 1e-4);
  return made;
}

void measure(int64_t millions, int rounds) {
  set_thread_count(kThreads);
  const int64_t n = millions << 20;
  OptimizerConfig sgd, adamw;
  sgd.momentum = 0.9;
  sgd.weight_decay = 1e-4;
  adamw.kind = OptimizerKind::adamw;
  adamw.weight_decay = 0.01;
  Pool pool;
  std::vector<std::unique_ptr<Case>> cases;
  for (const OptimizerConfig& config : {adamw, sgd}) {
    cases.push_back(make_case(pool, n, config, "fp32", {}));
    for (const char* weight : {"bf16", "fp16"}) {
      for (const UpdateRule& rule : update_rules()) {
        if (auto made = make_case(pool, n, config, weight, rule)) cases.push_back(std::move(made));
      }
    }
  }
  const size_t copied = static_cast<size_t>(n) * 4;
  const Bytes from(copied), to(copied);
  std::memset(from.memory.get(), 1, copied);
  std::memset(to.memory.get(), 2, copied);
  std::vector<double> copies;
  for (int round = 0; round <= rounds; ++round) {
    for (const auto& one : cases) {
      // Beside every case, so that what disturbs the machine disturbs both.
      const double begin = now();
      parallel_for(copied, copied / kThreads, [&](size_t first, size_t end) {
        std::memcpy(to.memory.get() + first, from.memory.get() + first, end - first);
      });
      copies.push_back(now() - begin);
      one->run();
    }
    if (round > 0) continue;
    copies.clear();
    for (const auto& one : cases) one->seconds.clear();
  }
  const double copy = 2 * static_cast<double>(copied) / median(copies) * 1e-9,
               base = median(cases[0]->seconds);
  fmt::print(
      "{} M parameters, {} threads, medians of {} rounds in turns; plain copy {:.1f} GB/s (read and "
      "written)\n",
      millions, kThreads, rounds, copy);
  fmt::print("{:<14}{:<9}{:<18}{:>10}{:>10}{:>9}{:>12}{:>15}\n", "optimizer", "weights", "rule", "ns/param",
             "bytes", "GB/s", "of a copy", "of fp32 adamw");
  for (const auto& one : cases) {
    const double each = median(one->seconds) / static_cast<double>(n), rate = one->bytes / each * 1e-9;
    fmt::print("{:<14}{:<9}{:<18}{:>10.3f}{:>10.2f}{:>9.1f}{:>12.2f}{:>15.2f}\n", one->optimizer, one->weight,
               one->rule, each * 1e9, one->bytes, rate, rate / copy, median(one->seconds) / base);
  }
}

}  // namespace
}  // namespace ulp

int main(int argc, char** argv) {
  try {
    ulp::use_simd_of_environment();
    ulp::measure(argc > 1 ? std::atoll(argv[1]) : 64, argc > 2 ? std::atoi(argv[2]) : 9);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
  return 0;
}
