// Whole training steps: what a plan leaves out, moves or overwrites never changes a bit, and takes
// the memory that was planned.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/harness.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

using harness::cpu_plan;
using harness::expect_same_bits;
using harness::run_apart;
using harness::run_plan;
using harness::Trained;
using harness::TrainingGraph;

TrainingGraph make_graph(const std::string& name, double clip_norm = 0) {
  ModelRequest request;
  request.name = name;
  request.width = 0.25;
  request.batch = 3;
  request.label_smoothing = 0.1;
  TrainingGraph made;
  made.net = build_classifier(request, Mode::training);
  harness::make_step(made, 7, 1, clip_norm);
  return made;
}

// Every tensor a storage of its own, chosen by its name: the worst that a policy could do.
std::vector<TensorFormat> mixed(const Graph& graph, const std::vector<std::string>& storages) {
  return harness::choose_formats(
      graph, [&](const TensorInfo& tensor) { return storages[tensor.number / 7 % storages.size()]; });
}

const std::vector<std::string> kModels = {"resnet8",    "resnet18", "mobilenetv2", "shufflenetv2",
                                          "squeezenet", "lenet",    "mlp"};
const std::map<std::string, std::vector<std::string>> kAssignments = {
    {"fp32", {"fp32"}},
    {"fp(6,9,0)", {"fp(6,9,0)"}},
    {"fp(4,3,4)", {"fp(4,3,4)"}},
    {"mixed", {"fp32", "fp(6,9,0)", "fp(4,3,4)", "fp(5,2,0)", "bf16", "e8m5", "s2fp8"}},
};

class StepTest : public testing::TestWithParam<std::string> {};

TEST_P(StepTest, PlansChangeNoBit) {
  const TrainingGraph made = make_graph(GetParam());
  PlanOptions unfused = cpu_plan(), early = cpu_plan();
  unfused.fuse = false;
  early.fused_backward = true;
  for (const auto& [name, storages] : kAssignments) {
    const std::vector<TensorFormat> formats = mixed(made.net.graph, storages);
    const Trained apart = run_apart(made, formats, cpu_plan());
    expect_same_bits(apart, run_plan(made, formats, cpu_plan(), 0xFF), name + ", fused");
    expect_same_bits(apart, run_plan(made, formats, unfused, 0x55), name + ", unfused");
    expect_same_bits(apart, run_plan(made, formats, early, 0xAA), name + ", fused backward");
  }
}

// A tensor that is never stored still reports its range events, once.
TEST_P(StepTest, RangeEventsAreThoseOfTheNodesApart) {
  const TrainingGraph made = make_graph(GetParam());
  const std::vector<TensorFormat> formats = mixed(made.net.graph, {"fp(4,3,4)", "fp(5,2,0)"});
  const size_t events = harness::expect_same_events(made.net.graph, run_apart(made, formats, cpu_plan()),
                                                    run_plan(made, formats, cpu_plan(), 0));
  EXPECT_GT(events, 0u);
}

// Nor does it matter for what is recorded of a tensor where and whether it is stored.
TEST_P(StepTest, RecordsAreThoseOfTheNodesApart) {
  const TrainingGraph made = make_graph(GetParam());
  PlanOptions early = cpu_plan();
  early.fused_backward = true;
  for (const char* name : {"fp32", "mixed"}) {
    SCOPED_TRACE(name);
    const std::vector<TensorFormat> formats = mixed(made.net.graph, kAssignments.at(name));
    const Trained apart = run_apart(made, formats, cpu_plan());
    EXPECT_GT(harness::expect_same_records(made.net.graph, apart, run_plan(made, formats, cpu_plan(), 0)),
              10000u);
    harness::expect_same_records(made.net.graph, apart, run_plan(made, formats, early, 0));
  }
}

TEST_P(StepTest, ThreadsChangeElementwiseWorkInNoBit) {
  const TrainingGraph made = make_graph(GetParam());
  const std::vector<TensorFormat> formats = mixed(made.net.graph, {"fp(6,9,0)"});
  const int threads = thread_count();
  PlanOptions options = cpu_plan();
  options.kernels = harness::reference_products();
  set_thread_count(1);
  const Trained one = run_plan(made, formats, options, 0);
  set_thread_count(3);
  const Trained three = run_plan(made, formats, options, 0);
  set_thread_count(threads);
  expect_same_bits(one, three, "1 and 3 threads");
}

INSTANTIATE_TEST_SUITE_P(Models, StepTest, testing::ValuesIn(kModels),
                         [](const auto& model) { return model.param; });

TEST(Step, ClippingByNormIsPlannedToo) {
  const TrainingGraph made = make_graph("resnet8", 0.01);
  const std::vector<TensorFormat> formats = mixed(made.net.graph, {"fp32"});
  expect_same_bits(run_apart(made, formats, cpu_plan()), run_plan(made, formats, cpu_plan(), 0xFF),
                   "clipped");
}

}  // namespace
}  // namespace ulp
