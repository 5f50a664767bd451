#include "ulp/lab/memory_profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/base/process.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/lab/chart.h"
#include "ulp/lab/table.h"
#include "ulp/numeric/storage.h"
#include "ulp/optim/rule.h"
#include "ulp/precision/assignment.h"
#include "ulp/runtime/executor.h"
#include "ulp/runtime/init.h"
#include "ulp/runtime/state.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

using Copies = MemoryScheme::Copies;

constexpr double kMebi = 0x1p20;
constexpr uint64_t kSeed = 1;

constexpr MemoryScheme kSchemes[] = {
    {"mixed precision", "fp32", "master", "fp32", "fp32", Copies::to_end, false},
    {"mixed, copies dropped", "fp32", "master", "fp32", "fp32", Copies::to_last_use, false},
    {"fp16+8", "fp16", "extra:8", "fp16", "fp32", Copies::none, true},
    {"fp16+8, bf16 momentum", "fp16", "extra:8", "fp16", "bf16", Copies::none, true},
};

constexpr std::string_view kUseNames[kMemoryUses] = {"weights",   "extra bits",  "momentum", "fp16 copies",
                                                     "gradients", "activations", "workspace"};

OptimizerConfig optimizer() {
  OptimizerConfig config;
  config.lr = 0.01;
  config.momentum = 0.9;
  return config;
}

struct DummyGraph {
  Graph graph;
  TensorId input, target, loss;
  std::vector<TensorId> copies;
};

DummyGraph build(const DummyModel& model) {
  DummyGraph made;
  Builder b(made.graph, Mode::training);
  const Shape shape{model.batch, model.width};
  // Such that neither activations nor gradients grow or shrink from layer to layer.
  const auto init = Init::uniform(static_cast<float>(std::sqrt(6.0 / static_cast<double>(model.width))));
  TensorId x = made.input = input(b, "input", shape);
  for (int64_t i = 0; i < model.layers; ++i) {
    if (i > 0) x = relu(b, fmt::format("relu{}", i), x);
    x = linear(b, fmt::format("layer{}", i), x, {.out = model.width, .bias = false, .init = init});
  }
  made.target = target(b, "target", shape);
  made.loss = mse(b, "loss", x, made.target);
  differentiate(made.graph, made.loss);
  add_updates(made.graph, update_spec(optimizer()));
  return made;
}

// The same step, but everything that reads a weight reads a copy of it, which is made just before
// the first does.
DummyGraph with_copies(const DummyGraph& plain) {
  DummyGraph made{{}, plain.input, plain.target, plain.loss, {}};
  Graph& graph = made.graph;
  std::map<int32_t, TensorId> copy_of;
  for (TensorInfo tensor : plain.graph.tensors()) {
    tensor.producer = {};  // nodes get other numbers
    graph.add_tensor(std::move(tensor));
  }
  for (Node node : plain.graph.nodes()) {
    for (TensorId& in : node.in) {
      if (graph[in].kind != Kind::weight) continue;
      TensorId& copy = copy_of[in.index];
      if (!copy) {
        TensorInfo info;
        info.name = graph[in].name + ".copy";
        info.shape = graph[in].shape;
        copy = graph.add_tensor(std::move(info));
        made.copies.push_back(copy);
        graph.add_node({&kCopy, graph[copy].name, {}, {in}, {copy}, Phase::forward, false});
      }
      in = copy;
    }
    graph.add_node(std::move(node));
  }
  return made;
}

std::vector<TensorFormat> formats(const Graph& graph, const MemoryScheme& scheme) {
  const Storage weight = parse_storage(scheme.weight);
  Assignment assignment;
  std::map<std::string, Storage> stored;
  for (const TensorInfo& tensor : graph.tensors()) {
    if (tensor.kind == Kind::weight) {
      assignment.storage[tensor.name] = weight;
      stored[tensor.name] = stored_weight(parse_update_rule(scheme.rule), weight);
    } else if (tensor.kind == Kind::optimizer) {
      stored[tensor.name] = parse_storage(scheme.momentum);
    } else if (tensor.kind == Kind::weight_grad) {
      assignment.storage[tensor.name] = parse_storage(scheme.gradient);
    } else if ((tensor.kind == Kind::activation || tensor.kind == Kind::activation_grad) &&
               tensor.shape.rank() > 1) {  // the loss stays what it is
      assignment.storage[tensor.name] = parse_storage("fp16");
    }
  }
  return resolve_formats(graph, assignment, stored);
}

MemoryUse use_of(const TensorInfo& tensor) {
  if (tensor.kind == Kind::weight) return MemoryUse::weights;
  if (tensor.kind == Kind::optimizer) return MemoryUse::momentum;
  return is_gradient(tensor.kind) ? MemoryUse::gradients : MemoryUse::activations;
}

std::vector<MemoryMoment> moments(const Plan& plan, const std::vector<TensorId>& copies) {
  const Graph& graph = plan.graph();
  std::vector<MemoryMoment> made(plan.steps().size());
  for (size_t i = 0; i < made.size(); ++i) {
    const PlanStep& step = plan.steps()[i];
    made[i].node = graph[step.roots[0]].name;
    if (step.roots.size() > 1) made[i].node += fmt::format(" and {} more", step.roots.size() - 1);
    made[i].bytes[static_cast<size_t>(MemoryUse::workspace)] = aligned_bytes(step.workspace_bytes());
  }
  // Where one tensor takes over another's bytes, both are alive for a step at one offset.
  std::set<std::pair<int, size_t>> taken;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan.place(id);
    if (place.home == Home::nowhere || place.base != id) continue;
    const bool copy = std::find(copies.begin(), copies.end(), id) != copies.end();
    const auto use = static_cast<size_t>(copy ? MemoryUse::copies : use_of(graph[id]));
    const Storage& storage = plan.formats()[i].storage;
    const size_t extra =
        std::holds_alternative<Split>(storage)
            ? place.bytes - aligned_bytes(storage_size(storage, graph[id].elements()).code_bytes)
            : 0;
    for (int when = place.first; when <= place.last; ++when) {
      if (place.home == Home::step && !taken.emplace(when, place.offset).second) continue;
      auto& bytes = made[static_cast<size_t>(when)].bytes;
      bytes[use] += place.bytes - extra;
      bytes[static_cast<size_t>(MemoryUse::extra_bits)] += extra;
    }
  }
  return made;
}

void check_machine(size_t bytes) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return;
  const double there = static_cast<double>(pages) * static_cast<double>(page);
  if (static_cast<double>(bytes) > 0.95 * there) {
    fail("lab", "a step takes {:.0f} MiB and this machine has {:.0f}: use fewer parameters",
         static_cast<double>(bytes) / kMebi, there / kMebi);
  }
}

// Calls `done` after each step, and goes on where it says so.
MemoryProfile run_scheme(const MemoryScheme& scheme, const DummyModel& model, int64_t steps,
                         const std::function<bool()>& done) {
  const DummyGraph plain = build(model);
  const DummyGraph dummy = scheme.copies == Copies::none ? plain : with_copies(plain);
  PlanOptions options;
  options.backend = &cpu_backend();
  options.fused_backward = scheme.fused;
  options.results = {dummy.loss};
  if (scheme.copies == Copies::to_end) {
    options.results.insert(options.results.end(), dummy.copies.begin(), dummy.copies.end());
  }
  const Plan plan(dummy.graph, formats(dummy.graph, scheme), options);
  check_machine(plan.peak_bytes());

  MemoryProfile profile;
  profile.scheme = &scheme;
  profile.parameters = dummy.graph.parameters();
  profile.moments = moments(plan, dummy.copies);
  profile.planned_peak = plan.peak_bytes();

  std::vector<float> in(dummy.graph[dummy.input].elements()), out(in.size());
  fill_initial(Init::normal(1), kSeed, 1, in);
  fill_initial(Init::normal(1), kSeed, 2, out);
  ResidentGrowth growth;
  Memory memory;
  State state(memory);
  state.add(plan, kSeed);
  const Block arena = memory.allocate(plan.step_bytes());
  Executor executor(plan);
  executor.bind(state, arena.data());
  executor.feed(dummy.input, in.data());
  executor.feed(dummy.target, out.data());
  for (int64_t i = 0; i < steps; ++i) {
    StepState step;
    step.seed = kSeed;
    step.step = static_cast<uint32_t>(i);
    // The gradients of a mean over so many numbers would be subnormal in fp16.
    step.loss_scale = 0x1p12F;
    step.update = update_scalars(optimizer(), static_cast<uint64_t>(i), optimizer().lr, 1 / step.loss_scale);
    executor.run(step, true);
    const std::span<const float> loss = executor.result(dummy.loss);
    profile.losses.push_back(std::accumulate(loss.begin(), loss.end(), 0.0) /
                             static_cast<double>(loss.size()));
    growth.look();
    if (!done()) break;
  }
  profile.allocated_peak = memory.peak();
  profile.resident_growth = growth.bytes();
  return profile;
}

}  // namespace

DummyModel dummy_model(int64_t parameters, int64_t batch) {
  DummyModel model;
  constexpr int64_t kMultiple = 16, kLeast = 32, kMost = int64_t{1} << 15;
  const double width = std::sqrt(static_cast<double>(parameters) / static_cast<double>(model.layers));
  const auto least = model.layers * kLeast * kLeast, most = model.layers * kMost * kMost;
  if (parameters < least || parameters > most) {
    fail("lab", "the dummy model can have {} to {} parameters, not {}", least, most, parameters);
  }
  if (batch < 1 || batch > 65536) fail("lab", "the batch must be from 1 to 65536, got {}", batch);
  model.width = std::max(kLeast, static_cast<int64_t>(std::lround(width / kMultiple)) * kMultiple);
  model.batch = batch;
  return model;
}

std::span<const MemoryScheme> memory_schemes() { return kSchemes; }

std::string_view memory_use_name(size_t use) { return kUseNames[use]; }

size_t MemoryMoment::total() const { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

const MemoryMoment& MemoryProfile::peak() const {
  return *std::max_element(moments.begin(), moments.end(), [](const MemoryMoment& a, const MemoryMoment& b) {
    return a.total() < b.total();
  });
}

MemoryProfiles profile_memory(const DummyModel& model, int64_t steps, const MemoryProgress& progress,
                              const std::atomic<bool>& stop) {
  if (steps < 1 || steps > 1000) fail("lab", "the number of steps must be from 1 to 1000, got {}", steps);
  MemoryProfiles result;
  result.steps = steps;
  const size_t all = std::size(kSchemes) * static_cast<size_t>(steps);
  size_t done = 0;
  for (const MemoryScheme& scheme : kSchemes) {
    result.profiles.push_back(run_scheme(scheme, model, steps, [&] {
      progress(++done, all);
      return !stop;
    }));
    if (stop) return result;
  }
  result.complete = true;
  return result;
}

std::string memory_csv(const MemoryProfiles& result) {
  TextTable table;
  table.columns = {{"scheme"}, {"step"}, {"moment"}, {"node"}};
  for (const std::string_view name : kUseNames) table.columns.push_back({std::string(name) + " bytes"});
  table.columns.push_back({"total bytes"});
  for (const MemoryProfile& profile : result.profiles) {
    for (int64_t step = 0; step < result.steps; ++step) {
      for (size_t i = 0; i < profile.moments.size(); ++i) {
        const MemoryMoment& moment = profile.moments[i];
        std::vector<std::string> row{std::string(profile.scheme->name), fmt::format("{}", step),
                                     fmt::format("{}", i), moment.node};
        for (const size_t bytes : moment.bytes) row.push_back(fmt::format("{}", bytes));
        row.push_back(fmt::format("{}", moment.total()));
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table.csv();
}

namespace {

// Up to and with each use, as stairs: memory jumps from one moment to the next.
Panel panel_of(const MemoryProfile& profile, int64_t steps, double highest) {
  constexpr std::string_view kColors[kMemoryUses] = {"#0072b2", "#004466", "#e69f00", "#56b4e9",
                                                     "#d55e00", "#009e73", "#999999"};
  Panel panel;
  panel.title = profile.scheme->name;
  panel.x_label = "training step";
  panel.y_label = "MiB";
  const auto count = profile.moments.size() * static_cast<size_t>(steps);
  // The highest first: each use covers what is below it, and shows what is its own.
  for (size_t use = kMemoryUses; use-- > 0;) {
    Series series{std::string(kUseNames[use]), std::string(kColors[use]), {}, false, 0, true};
    for (size_t i = 0; i <= count; ++i) {
      const auto& bytes = profile.moments[std::min(i, count - 1) % profile.moments.size()].bytes;
      const double y =
          static_cast<double>(std::accumulate(bytes.begin(), bytes.begin() + use + 1, size_t{0})) / kMebi;
      const double x = static_cast<double>(i) / static_cast<double>(profile.moments.size());
      if (i > 0 && i < count && y == series.points.back().second) continue;
      if (i > 0) series.points.emplace_back(x, series.points.back().second);
      if (i < count) series.points.emplace_back(x, y);
    }
    panel.series.push_back(std::move(series));
  }
  if (profile.resident_growth > 0) {
    const double resident = static_cast<double>(profile.resident_growth) / kMebi;
    panel.series.push_back(
        {"process, measured", "#000000", {{0, resident}, {static_cast<double>(steps), resident}}, true, 0});
  }
  // One scale for all panels.
  panel.series.push_back({"", "none", {{0, highest}}, false, 0});
  return panel;
}

std::string percent_less(size_t bytes, size_t than) {
  if (bytes == 0 || than == 0) return "-";
  return fmt::format("{:.1f}%", 100 * (1 - static_cast<double>(bytes) / static_cast<double>(than)));
}

std::string mebi_text(size_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes) / kMebi);
}

// Bytes per parameter at the peak: first the uses that every parameter has, then those of a few at a
// time.
std::string arithmetic_text(const MemoryProfile& profile) {
  std::string sum, rest;
  double whole = 0;
  const auto add_rest = [&](std::string_view name, double share) {
    if (share >= 0.0005) rest += fmt::format("{}{} {:.3f}", rest.empty() ? "" : ", ", name, share);
  };
  for (size_t use = 0; use < kMemoryUses; ++use) {
    const double share = profile.per_parameter(profile.peak().bytes[use]);
    if (share >= 0.75) {
      sum += fmt::format("{}{:.0f} {}", sum.empty() ? "" : " + ", share, kUseNames[use]);
      whole += std::round(share);
    } else {
      add_rest(kUseNames[use], share);
    }
  }
  // Tensors of several sizes do not always fit between each other.
  add_rest("gaps", profile.per_parameter(profile.planned_peak - profile.peak().total()));
  return fmt::format("{}: {} = {:.0f} bytes a parameter; the rest: {}\n", profile.scheme->name, sum, whole,
                     rest.empty() ? "nothing" : rest);
}

}  // namespace

std::string memory_svg(const MemoryProfiles& result) {
  size_t highest = 0;
  for (const MemoryProfile& profile : result.profiles)
    highest = std::max({highest, profile.planned_peak, profile.resident_growth});
  std::vector<Panel> panels;
  for (const MemoryProfile& profile : result.profiles) {
    if (profile.scheme->copies == Copies::to_last_use) continue;
    panels.push_back(panel_of(profile, result.steps, static_cast<double>(highest) / kMebi));
  }
  return svg_chart(panels);
}

std::string memory_text(const MemoryProfiles& result) {
  const MemoryProfile& base = result.profiles.front();
  TextTable peaks, shares;
  peaks.columns = {{"scheme", true}, {"planned MiB"},    {"allocated MiB"}, {"process grew by MiB"},
                   {"planned less"}, {"allocated less"}, {"process less"}};
  shares.columns = {{"bytes a parameter at the peak", true}};
  for (const std::string_view name : kUseNames) shares.columns.push_back({std::string(name)});
  shares.columns.push_back({"all"});
  std::string sums;
  for (const MemoryProfile& profile : result.profiles) {
    const std::string name(profile.scheme->name);
    peaks.rows.push_back({name, mebi_text(profile.planned_peak), mebi_text(profile.allocated_peak),
                          mebi_text(profile.resident_growth),
                          percent_less(profile.planned_peak, base.planned_peak),
                          percent_less(profile.allocated_peak, base.allocated_peak),
                          percent_less(profile.resident_growth, base.resident_growth)});
    std::vector<std::string> row{name};
    for (const size_t bytes : profile.peak().bytes)
      row.push_back(fmt::format("{:.3f}", profile.per_parameter(bytes)));
    row.push_back(fmt::format("{:.3f}", profile.per_parameter(profile.planned_peak)));
    shares.rows.push_back(std::move(row));
    sums += arithmetic_text(profile);
  }
  return fmt::format("{} parameters, {} steps each\n\n{}\n{}\n{}", base.parameters, result.steps,
                     peaks.markdown(), shares.markdown(), sums);
}

}  // namespace ulp
