#include "ulp/tasks/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/tasks/list.h"

namespace ulp {

namespace {

std::vector<TaskInfo>& table() {
  static std::vector<TaskInfo> all = [] {
    const auto known = all_tasks();
    return std::vector<TaskInfo>(known.begin(), known.end());
  }();
  return all;
}

}  // namespace

std::span<const TaskInfo> tasks() { return table(); }

void add_task(const TaskInfo& info) { table().push_back(info); }

const TaskInfo& find_task(std::string_view name) {
  std::vector<std::string_view> known;
  for (const TaskInfo& info : tasks()) {
    if (info.name == name) return info;
    known.push_back(info.name);
  }
  fail("tasks", "unknown task '{}': {}known are {}", name, nearest_hint(name, known), fmt::join(known, ", "));
}

namespace {

template <typename T>
T parsed(const Meter::State& state, const std::string& key) {
  const auto found = state.find(key);
  T value{};
  if (found != state.end()) {
    const char* end = found->second.data() + found->second.size();
    const auto [rest, error] = std::from_chars(found->second.data(), end, value);
    if (error == std::errc() && rest == end) return value;
  }
  fail("checkpoint", "the state of the metrics has no number '{}'", key);
}

}  // namespace

double Meter::number(const State& state, const std::string& key) { return parsed<double>(state, key); }

uint64_t Meter::count(const State& state, const std::string& key) { return parsed<uint64_t>(state, key); }

std::unique_ptr<LearningTask> make_task(const TaskOptions& options) {
  return find_task(options.task).make(options);
}

std::unique_ptr<LearningTask> outline_task(const TaskOptions& options) {
  return find_task(options.task).outline(options);
}

std::unique_ptr<LearningTask> sketch_task(const TaskOptions& options, const NetworkId& id,
                                          const DataSize& size) {
  return find_task(options.task).sketch(options, id, size);
}

Facts LearningTask::facts() const {
  const NetworkId of = id();
  return {{"input", of.input}, {"classes", std::to_string(of.classes)}};
}

std::vector<BatchShape> shapes_of(size_t examples, int64_t batch) {
  const auto count = static_cast<int64_t>(examples);
  std::vector<BatchShape> shapes{{std::min(batch, count)}};
  if (count > batch && count % batch != 0) shapes.push_back({count % batch});
  return shapes;
}

void plan_task(Engine& engine, const LearningTask& task) {
  for (const BatchShape& shape : task.training_shapes()) engine.plan_training(shape);
  for (const BatchShape& shape : task.evaluation_shapes())
    engine.plan_evaluation(shape, task.evaluates_fp32());
}

std::vector<std::pair<std::string, std::string>> NetworkId::items() const {
  return {{"model", fmt::format("\"{}\"", model)},
          {"width", width == std::floor(width) ? fmt::format("{:.1f}", width) : fmt::format("{}", width)},
          {"input", fmt::format("\"{}\"", input)},
          {"classes", fmt::format("{}", classes)}};
}

}  // namespace ulp
