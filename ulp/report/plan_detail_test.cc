#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ulp/report/run_plan.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

struct Case {
  const char* name;
  std::vector<std::pair<const char*, const char*>> options;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

class PlanDetails : public ::testing::TestWithParam<Case> {
 protected:
  PlanDetails() {
    RunConfig config;
    config.model = "lenet";
    config.batch = 8;
    for (const auto& [name, value] : GetParam().options) find_config_field(name).set(config, value);
    task_ = sketch_task(task_options(config), {.input = "1x28x28", .classes = 10});
    engine_ = std::make_unique<Engine>(engine_options(config, *task_));
  }
  const Plan& plan() const { return engine_->training_plan(); }

  std::unique_ptr<LearningTask> task_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(PlanDetails, BlocksAreThePlansBytes) {
  const PlanDetail detail = detail_of(plan());
  ASSERT_EQ(detail.steps.size(), plan().steps().size());
  int64_t highest = 0, lowest = 0;
  uint64_t state = 0;
  for (const PlannedBlock& block : detail.blocks) {
    EXPECT_GT(block.bytes, 0u) << block.name;
    EXPECT_LE(block.first, block.last) << block.name;
    EXPECT_GE(block.first, 0);
    EXPECT_LT(block.last, static_cast<int>(detail.steps.size()));
    highest = std::max(highest, block.offset + static_cast<int64_t>(block.bytes));
    lowest = std::min(lowest, block.offset);
    if (block.offset >= 0) continue;
    state += block.bytes;
    EXPECT_EQ(block.first, 0);
    EXPECT_EQ(block.last, static_cast<int>(detail.steps.size()) - 1);
  }
  EXPECT_EQ(static_cast<size_t>(highest), plan().step_bytes());
  EXPECT_EQ(state, plan().state_bytes());
  EXPECT_EQ(static_cast<size_t>(-lowest), plan().state_bytes());
  EXPECT_EQ(static_cast<size_t>(highest - lowest), plan().peak_bytes());
}

TEST_P(PlanDetails, NoTwoBlocksOverlap) {
  const std::vector<PlannedBlock> blocks = detail_of(plan()).blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const PlannedBlock &a = blocks[i], &b = blocks[j];
      const bool in_time = a.first <= b.last && b.first <= a.last;
      const bool in_space = a.offset < b.offset + static_cast<int64_t>(b.bytes) &&
                            b.offset < a.offset + static_cast<int64_t>(a.bytes);
      EXPECT_FALSE(in_time && in_space) << a.name << " and " << b.name;
    }
  }
}

// At the peak's step the blocks are as many bytes of each use as the plan says.
TEST_P(PlanDetails, UsesAtThePeak) {
  size_t weights = 0, optimizer = 0, activations = 0, gradients = 0;
  for (const PlannedBlock& block : detail_of(plan()).blocks) {
    if (block.first > plan().peak_step() || block.last < plan().peak_step()) continue;
    if (block.use == "weights") weights += block.bytes;
    if (block.use == "optimizer") optimizer += block.bytes;
    if (block.use == "activations") activations += block.bytes;
    if (block.use == "gradients") gradients += block.bytes;
  }
  EXPECT_EQ(weights, plan().bytes().weights);
  EXPECT_EQ(optimizer, plan().bytes().optimizer);
  // A result that takes over an operand's bytes at that very step counts for one of the two.
  EXPECT_EQ(activations + gradients, plan().bytes().activations + plan().bytes().gradients);
}

TEST_P(PlanDetails, EveryStoredTensorIsABlockAndItsPlace) {
  const PlanDetail detail = detail_of(plan());
  std::map<std::string, const PlannedBlock*> by_name;
  for (const PlannedBlock& block : detail.blocks)
    EXPECT_TRUE(by_name.emplace(block.name, &block).second) << block.name;
  size_t stored = 0;
  for (size_t i = 0; i < plan().graph().tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan().place(id);
    if (place.home == Home::nowhere || place.base != id || place.bytes == 0) continue;
    ++stored;
    const std::string& name = plan().graph()[id].name;
    ASSERT_TRUE(by_name.contains(name)) << name;
    const PlannedBlock& block = *by_name.at(name);
    EXPECT_EQ(block.bytes, place.bytes);
    EXPECT_EQ(block.first, place.first);
    EXPECT_LE(block.last, place.last);
    if (place.home == Home::step) {
      EXPECT_EQ(block.offset, static_cast<int64_t>(place.offset));
    }
  }
  EXPECT_GT(stored, 10u);
}

TEST_P(PlanDetails, TheMapGoesForward) {
  const std::vector<PlannedNode> nodes = detail_of(plan()).nodes;
  ASSERT_GT(nodes.size(), 5u);
  std::set<std::string> weights;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const size_t in : nodes[i].in) EXPECT_LT(in, i);
    weights.insert(nodes[i].weights.begin(), nodes[i].weights.end());
  }
  EXPECT_TRUE(weights.contains("conv1.weight"));
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanDetails,
    ::testing::Values(Case{"fp32", {}}, Case{"half", {{"policy", "size:0.5"}}},
                      Case{"fused",
                           {{"fused_backward", "true"}, {"policy", "uniform"}, {"optimizer", "adam"}}},
                      Case{"parts", {{"grad_accum", "2"}, {"update", "extra:8"}, {"weight", "bf16"}}},
                      Case{"resnet", {{"model", "resnet8"}, {"width", "0.25"}, {"policy", "amp:bf16"}}},
                      Case{"plain_loops", {{"device", "reference"}}}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ulp
