#include "tests/conformance/conformance_bench.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ulp/backend/access.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops.h"
#include "ulp/numeric/codec.h"
#include "ulp/tensor/memory.h"

namespace ulp::conformance {
namespace {

constexpr uint8_t kGarbage = 0xFF;  // floats of it are NaN

// The codes of a tensor and what is beside them, without the bytes that only align.
Bytes stored(const TensorInfo& tensor, const Storage& storage, const uint8_t* data) {
  if (tensor.element != Element::real) {
    return {data, data + tensor.elements() * (tensor.element == Element::int32 ? 4 : 1)};
  }
  const StorageSize size = storage_size(storage, tensor.elements());
  Bytes bytes(data, data + size.code_bytes);
  const uint8_t* side = data + aligned_bytes(size.code_bytes);
  bytes.insert(bytes.end(), side, side + 4 * size.side_words);
  return bytes;
}

// ULP_WITHOUT=cudnn,cublaslt in the environment: kernels of these names are not run, for a
// sanitizer under which the libraries fail. Says which.
bool left_out(const Backend& backend, std::string_view name) {
  const char* text = std::getenv("ULP_WITHOUT");
  std::string_view rest = text == nullptr ? "" : text;
  bool found = false;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const auto has_name = [&](const KernelDef& kernel) { return kernel.name == word; };
    if (std::none_of(backend.kernels.begin(), backend.kernels.end(), has_name))
      fail("conformance", "ULP_WITHOUT is '{}'; {} has no kernels '{}'", text, backend.name, word);
    found = found || word == name;
  }
  if (static std::set<std::string, std::less<>> said; found && said.emplace(name).second)
    fmt::print("ULP_WITHOUT: {} is not checked\n", name);
  return found;
}

}  // namespace

Bench::Bench(const Graph& graph, std::vector<TensorFormat> formats, Setting setting, const StepState& state)
    : graph_(graph),
      formats_(std::move(formats)),
      setting_(std::move(setting)),
      state_(state),
      feeds_(graph.tensor_count()) {
  for (size_t i = 0; i < graph_.tensor_count(); ++i) {
    memory_.emplace_back(tensor_bytes(graph_.tensors()[i], formats_[i].storage), kGarbage);
  }
  for (size_t i = 0; i < graph_.tensor_count(); ++i) {
    data_.push_back(memory_[number(graph_.bytes_of({static_cast<int32_t>(i)}))].data());
  }
}

void Bench::set(TensorId id, std::span<const float> values) {
  const Storage& storage = formats_[number(id)].storage;
  const StorageSize size = storage_size(storage, values.size());
  uint8_t* data = data_[number(id)];
  encode(storage, {{}, rounding(id).overflow, {}}, values, {data, size.code_bytes},
         {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words});
}

void Bench::set_bytes(TensorId id, std::span<const uint8_t> bytes) {
  ASSERT_EQ(bytes.size(), tensor_bytes(graph_[id], formats_[number(id)].storage)) << graph_[id].name;
  std::copy(bytes.begin(), bytes.end(), data_[number(id)]);
}

std::vector<Bench::Unit> Bench::nodes() const {
  std::vector<Unit> units;
  for (size_t i = 0; i < graph_.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    if (graph_[id].op->form != Form::view) units.push_back({id});
  }
  return units;
}

Result Bench::check(const Unit& roots, const Backend& backend) {
  const Node& node = graph_[roots[0]];
  Result expected = run(*kernels(reference_backend(), roots).front(), roots, formats_, 1, host_device());
  if (const std::optional<Rule> rule = rule_of(node.op->name); !rule) {
    ADD_FAILURE() << "no rule for " << node.op->name;
  } else {
    const Goal goal = make_goal(*rule, roots, expected);
    for (const KernelDef* kernel : kernels(backend, roots)) {
      if (left_out(backend, kernel->name)) continue;
      check_kernel(*kernel, goal, roots, device_of(backend));
    }
  }
  return expected;
}

void Bench::keep(const Result& result, size_t output) {
  const size_t i = number(result.ids[output]);
  const TensorInfo& tensor = graph_.tensors()[i];
  const Bytes& bytes = result.outputs[output];
  const bool real = tensor.element == Element::real;
  const size_t codes = real ? storage_size(formats_[i].storage, tensor.elements()).code_bytes : bytes.size();
  std::copy_n(bytes.data(), codes, data_[i]);
  std::copy(bytes.begin() + static_cast<ptrdiff_t>(codes), bytes.end(), data_[i] + aligned_bytes(codes));
}

PlanContext Bench::plan(std::span<const TensorFormat> formats) const {
  return {graph_, formats, setting_.compute};
}

Rounding Bench::rounding(TensorId id) const {
  return tensor_rounding(plan(formats_), graph_[id], formats_[number(id)].storage, state_);
}

std::vector<const KernelDef*> Bench::kernels(const Backend& backend, const Unit& roots) const {
  const PlanContext context = plan(formats_);
  const Problem problem{context, {}, roots, {}};
  std::vector<const KernelDef*> take;
  for (const KernelDef& kernel : backend.kernels) {
    if (kernel.op != problem.root().op->name || !kernel.why_not(problem).empty()) continue;
    if (kernel.name != "reference" || take.empty()) take.push_back(&kernel);
  }
  if (take.empty())
    ADD_FAILURE() << setting_.where << ": no kernel of " << backend.name << " takes " << problem.root().name;
  return take;
}

Result Bench::run(const KernelDef& kernel, const Unit& roots, std::span<const TensorFormat> formats,
                  int threads, Device& device) {
  set_thread_count(threads);
  const PlanContext context = plan(formats);
  const Problem problem{context, {}, roots, {}};
  const std::unique_ptr<Task> task = kernel.make(problem);
  Result result;
  result.note = task->note();
  for (const NodeId root : roots) {
    result.ids.insert(result.ids.end(), graph_[root].out.begin(), graph_[root].out.end());
  }
  result.stats.resize(graph_.tensor_count());
  // What is changed in place starts as it is, the rest as garbage.
  std::vector<uint8_t*> data = data_;
  std::vector<Guarded> outputs;
  outputs.reserve(result.ids.size());
  for (const TensorId id : result.ids) {
    const TensorInfo& tensor = graph_[id];
    const size_t bytes = tensor_bytes(tensor, formats[number(id)].storage);
    outputs.emplace_back(bytes, kGarbage);
    data[number(id)] = outputs.back().data();
    if (is_state(tensor.kind) || tensor.kind == Kind::grad_sum)
      std::memcpy(data[number(id)], data_[number(id)], bytes);
  }
  const Guarded workspace(task->workspace(), kGarbage);
  RunContext run;
  run.data = data;
  run.feeds = feeds_;
  run.state = &state_;
  run.workspace = workspace.data();
  run.stats = result.stats.data();
  if (device.on_host()) {
    task->run(run);
  } else {
    run_there(device, *task, roots, outputs, workspace, result, run);
  }
  EXPECT_TRUE(workspace.whole()) << setting_.where << ": " << problem.root().name
                                 << " wrote beyond its workspace";
  for (size_t k = 0; k < outputs.size(); ++k) {
    EXPECT_TRUE(outputs[k].whole()) << setting_.where << ": wrote beyond " << graph_[result.ids[k]].name;
    result.outputs.push_back(
        stored(graph_[result.ids[k]], formats[number(result.ids[k])].storage, outputs[k].data()));
  }
  return result;
}

void Bench::run_there(Device& device, Task& task, const Unit& roots, const std::vector<Guarded>& outputs,
                      const Guarded& workspace, Result& result, RunContext& run) const {
  There there(device);
  std::vector<uint8_t*> data(graph_.tensor_count());
  std::vector<const void*> feeds(graph_.tensor_count());
  for (const NodeId root : roots) {
    for (const TensorId in : graph_[root].in)
      data[number(in)] = there.take(memory_[number(graph_.bytes_of(in))]);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const TensorId id = result.ids[k];
    data[number(id)] = there.take(outputs[k]);
    const NodeId producer = graph_[id].producer;  // none of a weight, which an update writes
    if (!producer || feeds_[number(id)] == nullptr) continue;
    const Node& node = graph_[producer];
    if (is_source(node)) {
      feeds[number(id)] =
          there.take(feeds_[number(id)], element_bytes(graph_[id].element) * graph_[id].elements());
    } else if (reads_resident(node)) {
      feeds[number(id)] = there.take(feeds_[number(id)], resident_bytes(graph_, node));
    }
  }
  run.data = data;
  run.feeds = feeds;
  run.workspace = there.take(workspace);
  run.state = reinterpret_cast<const StepState*>(there.take(&state_, sizeof state_));
  const size_t bytes = sizeof(EncodeStats) * result.stats.size();
  run.stats = reinterpret_cast<EncodeStats*>(there.take(result.stats.data(), bytes));
  there.run(task, run);
  there.bring();
  device.download(result.stats.data(), reinterpret_cast<const uint8_t*>(run.stats), bytes);
}

View Bench::view(NodeId id) {
  const PlanContext context = plan(formats_);
  const Problem problem{context, {}, {id}, {}};
  std::vector<EncodeStats> ignored(graph_.tensor_count());
  RunContext run;
  run.data = data_;
  run.state = &state_;
  run.stats = ignored.data();
  View v{graph_, graph_[id], {}, {}, state_.update.grad_scale};
  for (const TensorId in : graph_[id].in) {
    v.integers.push_back(reinterpret_cast<const int32_t*>(data_[number(in)]));
    v.real.emplace_back();
    if (graph_[in].element != Element::real) continue;
    const Reader reader(problem, in);
    v.real.back().resize(reader.elements());
    const float* values = reader.all(run, v.real.back().data());
    if (values != v.real.back().data()) std::copy_n(values, reader.elements(), v.real.back().data());
  }
  return v;
}

Bench::Goal Bench::make_goal(const Rule& rule, const Unit& roots, const Result& expected) {
  Goal goal{expected, {}, {}, formats_};
  if (rule.allowed == nullptr || (is_product(rule.op) && setting_.compute.accumulator)) return goal;
  bool wide = true;
  for (const TensorId out : expected.ids) {
    wide = wide && graph_[out].element == Element::real && is_fp32(formats_[number(out)].storage);
    goal.wide[number(out)] = {parse_storage("fp32"), {}};
  }
  goal.exact =
      wide ? expected : run(*kernels(reference_backend(), roots).front(), roots, goal.wide, 1, host_device());
  for (const NodeId root : roots) {
    for (std::vector<double>& bounds : rule.allowed(view(root))) goal.allowed.push_back(std::move(bounds));
  }
  return goal;
}

}  // namespace ulp::conformance
