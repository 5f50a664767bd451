#include "tests/conformance/first_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ulp/data/loader.h"
#include "ulp/optim/schedule.h"
#include "ulp/run/scaling.h"
#include "ulp/run/setup.h"
#include "ulp/session/engine.h"

namespace ulp::conformance {
namespace {

constexpr int kMostFailures = 20;

int failures() {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? 0 : test->result()->total_part_count();
}

// The sum over the batch, which is fp32 whatever the policy.
double first_float(const Bytes& bytes) {
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

Tally StepReport::total() const {
  Tally sum;
  for (const auto& [checked, tally] : tallies) sum.merge(tally);
  return sum;
}

std::string StepReport::text() const {
  const auto line = [](std::string_view what, const Tally& t) {
    return fmt::format("  {:<36} {:>7} {:>11} {:>11} {:>9} {:>8} {:>10.3g}\n", what, t.tensors, t.elements,
                       t.identical, t.next, t.further, t.worst);
  };
  std::string text =
      fmt::format("{}: {} nodes, loss {:.6f}, loss scale {}\n", policy, nodes, loss, loss_scale);
  text += fmt::format("  {:<36} {:>7} {:>11} {:>11} {:>9} {:>8} {:>10}\n", "operator/kernel", "tensors",
                      "elements", "identical", "one code", "further", "of bound");
  for (const auto& [checked, tally] : tallies)
    text += line(fmt::format("{}/{}", checked.op, checked.kernel), tally);
  return text + line("all", total());
}

StepReport check_first_step(const RunConfig& config, const Backend& backend) {
  RunConfig made_here = config;
  made_here.device = "cpu";
  check(made_here);
  const std::unique_ptr<LearningTask> task = make_task(task_options(made_here));
  const std::unique_ptr<BatchStream> batches = task->stream(Part::train);
  Engine engine(engine_options(made_here, *task));
  engine.allocate();
  StepReport report;
  report.policy = config.policy;
  LossScaler scaler(choose_loss_scale(made_here, engine), batches->batches());
  if (scaler.measured()) {
    scaler.set(measure_loss_scale(engine, *batches, made_here.seed));
    batches->seek(0, 0);
  }
  report.loss_scale = scaler.scale();
  const double lr = rate(schedule_of(made_here), optimizer_config(made_here).lr, 0, batches->batches(),
                         total_steps(made_here, batches->batches()));
  const Graph& graph = engine.graph();
  Setting setting;
  setting.where = fmt::format("{} under {}", config.model, config.policy);
  setting.compute = kernel_options(config);
  const std::span<const TensorFormat> formats = engine.training_plan().formats();
  const StepState step = step_state(made_here, 0, 0, lr, report.loss_scale);
  Bench bench(graph, {formats.begin(), formats.end()}, setting, step);
  for (const auto& [name, slot] : engine.state().slots()) bench.set_bytes(graph.find(name), slot.bytes());
  const FeedBatch& batch = batches->next();
  for (const Feed& feed : batch.feeds) bench.feed(graph.find(std::string(feed.name) + ".out"), feed.values);
  for (const Bench::Unit& unit : bench.nodes()) {
    const Result result = bench.check(unit, backend);
    for (size_t k = 0; k < result.ids.size(); ++k) {
      bench.keep(result, k);
      if (graph[result.ids[k]].name == "accuracy.sums")
        report.loss = first_float(result.outputs[k]) / static_cast<double>(batch.shape.examples);
    }
    ++report.nodes;
    if (failures() > kMostFailures) {
      ADD_FAILURE() << "no more nodes are tried";
      break;
    }
  }
  report.tallies = bench.tallies();
  report.engine_loss = engine.train(step, batch).mean();
  return report;
}

}  // namespace ulp::conformance
