#include "ulp/backend/cuda/library/cudnn_heuristics.h"

#include <cudnn.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

constexpr int64_t kSum = 4;

std::string_view kind_name(ConvKind kind) {
  constexpr std::array<std::string_view, 3> names{"forward", "grad_input", "grad_weight"};
  return names[static_cast<size_t>(kind)];
}

cudnnDataType_t data_type(Unit unit) {
  switch (unit) {
    case Unit::fp32:
    case Unit::tf32:
      return CUDNN_DATA_FLOAT;
    case Unit::fp16:
      return CUDNN_DATA_HALF;
    case Unit::bf16:
      return CUDNN_DATA_BFLOAT16;
    case Unit::e4m3:
      return CUDNN_DATA_FP8_E4M3;
  }
  fail("cuda", "no such unit: {}", static_cast<int>(unit));
}

// Logical (n, c, h, w) over memory (n, h, w, c).
Descriptor tensor(int64_t id, cudnnDataType_t type, const std::array<int64_t, 4>& dims,
                  bool is_virtual = false) {
  const auto [n, c, h, w] = dims;
  const std::array<int64_t, 4> strides{h * w * c, 1, w * c, c};
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(dims))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(strides))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .seal();
  return d;
}

// Native fp8 uses its unit's own sums, of about 14 bits: promoting partial sums to fp32 would take
// as long as bf16.
Descriptor convolution(const ConvExtents& s, Unit unit) {
  const std::array<int64_t, 2> dilations{1, 1}, strides{s.stride_h, s.stride_w},
      padding{s.padding_h, s.padding_w};
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
           unit == Unit::e4m3 ? CUDNN_DATA_FAST_FLOAT_FOR_FP8 : CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const int64_t>(dilations))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const int64_t>(strides))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const int64_t>(padding))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const int64_t>(padding))
      .seal();
  return d;
}

// The operation of a kind, and which attributes take a, b and the result.
struct KindRow {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, a, b, out, alpha, beta;
};

constexpr std::array<KindRow, 3> kKinds{{
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
}};

struct ModeRow {
  cudnnBackendHeurMode_t mode;
  std::string_view name;
};
constexpr size_t kModeA = 0, kModeB = 1, kFallback = 2;
constexpr std::array<ModeRow, 3> kModeRows{
    {{CUDNN_HEUR_MODE_A, "A"}, {CUDNN_HEUR_MODE_B, "B"}, {CUDNN_HEUR_MODE_FALLBACK, "fallback"}}};

struct EngineFacts {
  int64_t index = -1;
  std::vector<cudnnBackendNumericalNote_t> notes;

  bool has(cudnnBackendNumericalNote_t note) const { return std::ranges::count(notes, note) != 0; }
};

// None if cuDNN does not tell: such an engine cannot be assessed.
std::optional<EngineFacts> facts_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  if (!config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw)) return std::nullopt;
  EngineFacts facts;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &facts.index);
  facts.notes.resize(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  if (!engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                  CUDNN_NUMERICAL_NOTE_TYPE_COUNT, facts.notes.data(), &count)) {
    return std::nullopt;
  }
  facts.notes.resize(static_cast<size_t>(std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return facts;
}

// Why an engine does not qualify, or empty. `strict`: a tf32 product must run on tensor cores.
std::string_view why_declined(const std::optional<EngineFacts>& facts, Unit unit, bool strict) {
  if (!facts) return "says nothing of itself";
  constexpr std::array<std::pair<cudnnBackendNumericalNote_t, std::string_view>, 8> refused{{
      {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "not deterministic"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD, "Winograd"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, "Winograd"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, "Winograd"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, "Winograd"},
      {CUDNN_NUMERICAL_NOTE_FFT, "FFT"},
      {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, "sums in fewer bits"},
      {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds its operands"},
  }};
  for (const auto& [note, why] : refused) {
    if (facts->has(note)) return why;
  }
  const bool tensor_core = facts->has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (unit == Unit::fp32 && tensor_core) return "rounds to tf32";
  if (unit == Unit::tf32 && strict && !tensor_core) return "not on tensor cores";
  return "";
}

// None if the configuration does not compile.
std::optional<Descriptor> compile_config(const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, cudnn_handle())
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (plan.try_seal() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  return plan;
}

size_t plan_workspace(const Descriptor& plan) {
  int64_t bytes = 0;
  if (!plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) || bytes < 0) {
    fail("cuda", "cuDNN: a plan without a workspace size");
  }
  return static_cast<size_t>(bytes);
}

std::optional<size_t> config_workspace(const Descriptor& config) {
  int64_t bytes = -1;
  if (!config.get(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) || bytes < 0) {
    return std::nullopt;
  }
  return static_cast<size_t>(bytes);
}

// Sets the workspace, compiling only if cuDNN does not tell it otherwise. Returns what is wrong.
std::string_view measure(Candidate& candidate, size_t limit) {
  const std::optional<size_t> told = config_workspace(*candidate.config);
  if (!told) {
    candidate.plan = compile_config(*candidate.config);
    if (!candidate.plan) return "does not compile";
  }
  candidate.workspace = told ? *told : plan_workspace(*candidate.plan);
  return candidate.workspace > limit ? "workspace too small" : "";
}

}  // namespace

std::string conv_name(ConvKind kind, const ConvExtents& s, Unit unit, const ConvEnding& ending) {
  return fmt::format("{} of {}x{}x{}x{} by {} filters {}x{}, stride {}x{}, padding {}x{}, {} groups, in {}{}",
                     kind_name(kind), s.n, s.h, s.w, s.c, s.out_c, s.kernel_h, s.kernel_w, s.stride_h,
                     s.stride_w, s.padding_h, s.padding_w, s.groups, unit_name(unit),
                     ending.written == Written::half ? " and written so" : "");
}

// Engines for plain convolutions write the type they read, fp32 or 16 bits; another result type
// needs the fused form. The fallback heuristic names slow engines: if two forms can write the type,
// it comes after all others.
ConvSearch::ConvSearch(ConvKind kind, const ConvExtents& shape, Unit unit, const ConvEnding& ending)
    : kind_(kind), shape_(shape), unit_(unit), written_(ending.written) {
  const auto add = [&](ConvForm form, std::initializer_list<size_t> modes) {
    if (ending.only && *ending.only != form) return;
    for (const size_t mode : modes) lists_.push_back({form, mode});
  };
  if (written_ == Written::half) {
    add(ConvForm::plain, {kModeA, kModeB});
    add(ConvForm::fused, {kModeA, kModeB});
    add(ConvForm::plain, {kFallback});
    add(ConvForm::fused, {kFallback});
  } else {
    const bool wide = operand_bytes(unit) == 4;
    add(wide ? ConvForm::plain : ConvForm::fused, {kModeA, kModeB, kFallback});
    add(wide ? ConvForm::fused : ConvForm::plain, {kModeA, kModeB, kFallback});
  }
  passes_ = unit == Unit::tf32 ? 2 : 1;
}

// None, with the reason, if cuDNN has no such graph.
std::optional<ConvSearch::Graph> ConvSearch::make_graph(ConvForm form) {
  const ConvExtents& s = shape_;
  const std::array<int64_t, 4> x{s.n, s.c, s.h, s.w}, y{s.n, s.out_c, s.out_h, s.out_w},
      weight{s.out_c, s.c / s.groups, s.kernel_h, s.kernel_w};
  const std::array<int64_t, 4>& a = kind_ == ConvKind::grad_input ? y : x;
  const std::array<int64_t, 4>& b = kind_ == ConvKind::grad_weight ? y : weight;
  const std::array<int64_t, 4>& out = kind_ == ConvKind::forward      ? y
                                      : kind_ == ConvKind::grad_input ? x
                                                                      : weight;
  const bool fused = form == ConvForm::fused;
  const KindRow& row = kKinds[static_cast<size_t>(kind_)];

  Graph g;
  g.parts.reserve(8);
  const auto keep = [&g](Descriptor d) -> Descriptor& { return g.parts.emplace_back(std::move(d)); };
  const Descriptor& a_tensor = keep(tensor(kConvA, data_type(unit_), a));
  const Descriptor& b_tensor = keep(tensor(kConvB, data_type(unit_), b));
  const Descriptor& out_tensor =
      keep(tensor(kConvOut, written_ == Written::half ? data_type(unit_) : CUDNN_DATA_FLOAT, out));
  const Descriptor& sum = fused ? keep(tensor(kSum, CUDNN_DATA_FLOAT, out, true)) : out_tensor;
  const Descriptor& conv = keep(convolution(s, unit_));
  Descriptor& product = keep(Descriptor(row.operation));
  product.set(row.convolution, conv).set(row.a, a_tensor).set(row.b, b_tensor).set(row.out, sum);
  product.set(row.alpha, 1.0f).set(row.beta, 0.0f);
  std::vector<cudnnBackendDescriptor_t> operations{product.raw()};
  cudnnStatus_t status = product.try_seal();
  if (status == CUDNN_STATUS_SUCCESS && fused) {
    Descriptor& pointwise = keep(Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_IDENTITY)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
        .seal();
    Descriptor& write = keep(Descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    write.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out_tensor);
    operations.push_back(write.raw());
    status = write.try_seal();
  }
  if (status == CUDNN_STATUS_SUCCESS) {
    g.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnn_handle())
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             static_cast<int64_t>(operations.size()), operations.data());
    status = g.graph.try_seal();
  }
  if (status == CUDNN_STATUS_SUCCESS) return g;
  no_graph_ = cudnn_message(status);
  return std::nullopt;
}

// The engine configurations that a heuristic names for a graph, best first; empty if it knows none.
std::vector<Descriptor> ConvSearch::ask(const Graph& graph, size_t mode) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, kModeRows[mode].mode);
  std::vector<Descriptor> configs;
  int64_t count = 0;
  if (heuristic.try_seal() != CUDNN_STATUS_SUCCESS) return configs;
  if (!heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr, &count)) {
    return configs;
  }
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  int64_t given = 0;
  if (!heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data(),
                     &given)) {
    given = 0;
  }
  while (static_cast<int64_t>(configs.size()) > given) configs.pop_back();
  return configs;
}

const std::vector<Descriptor>& ConvSearch::configs_of(List& list) {
  if (!list.configs) {
    const auto form = static_cast<size_t>(list.form);
    if (!made_[form]) graphs_[form] = make_graph(list.form);
    made_[form] = true;
    list.configs = graphs_[form] ? ask(*graphs_[form], list.mode) : std::vector<Descriptor>();
  }
  return *list.configs;
}

bool ConvSearch::compile(Candidate& candidate, size_t limit) {
  if (!candidate.plan) candidate.plan = compile_config(*candidate.config);
  if (!candidate.plan) {
    ++declined_["does not compile"];
    return false;
  }
  candidate.workspace = plan_workspace(*candidate.plan);
  if (candidate.workspace > limit) ++declined_["workspace too small"];
  return candidate.workspace <= limit;
}

std::optional<Candidate> ConvSearch::next_compiled(size_t limit) {
  std::optional<Candidate> found = next(limit);
  while (found && !compile(*found, limit)) found = next(limit);
  return found;
}

std::optional<Candidate> ConvSearch::next(size_t limit) {
  for (; list_ < passes_ * lists_.size(); ++list_, at_ = 0) {
    const bool strict = list_ < lists_.size();
    List& list = lists_[list_ % lists_.size()];
    const std::vector<Descriptor>& configs = configs_of(list);
    while (at_ < configs.size()) {
      Candidate candidate;
      candidate.config = &configs[at_++];
      const std::optional<EngineFacts> facts = facts_of(*candidate.config);
      std::string_view why = why_declined(facts, unit_, strict);
      if (why.empty()) why = measure(candidate, limit);
      if (!why.empty()) {
        ++declined_[std::string(why)];
        continue;
      }
      candidate.name =
          fmt::format("cuDNN {}engine {}", list.form == ConvForm::fused ? "fused " : "", facts->index);
      if (unit_ == Unit::tf32 && !facts->has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) {
        candidate.note = "no tf32 engine, runs in fp32";
      }
      return candidate;
    }
  }
  return std::nullopt;
}

std::string ConvSearch::summary() const {
  std::string text;
  for (const auto& [why, count] : declined_)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", why, count);
  if (text.empty()) text = no_graph_.empty() ? "the heuristics know none" : no_graph_;
  return text;
}

std::vector<std::string> ConvSearch::describe(size_t limit) {
  std::vector<std::string> lines;
  for (List& list : lists_) {
    for (const Descriptor& config : configs_of(list)) {
      const std::optional<EngineFacts> facts = facts_of(config);
      const std::optional<size_t> bytes = config_workspace(config);
      std::string_view why = why_declined(facts, unit_, true);
      if (why.empty() && bytes && *bytes > limit) why = "workspace";
      std::string notes;
      for (const auto note : facts ? facts->notes : std::vector<cudnnBackendNumericalNote_t>{}) {
        notes += fmt::format(" {}", static_cast<int>(note));
      }
      lines.push_back(fmt::format("{} heuristic {} engine {} workspace {} notes{}{}{}",
                                  list.form == ConvForm::fused ? "fused" : "plain", kModeRows[list.mode].name,
                                  facts ? facts->index : -1, bytes ? fmt::format("{}", *bytes) : "unknown",
                                  notes.empty() ? " none" : notes, why.empty() ? "" : ": ", why));
    }
  }
  return lines;
}

}  // namespace ulp::cuda
