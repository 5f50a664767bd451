// Whole training steps with the kernels for a GPU, emulated: what their plans fuse, merge, move or overwrite changes no bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness.h"
#include "ulp/backend/emulated/emulated.h"

namespace ulp {
namespace {

harness::TrainingGraph make_graph(const std::string& name, int64_t side, double clip_norm = 0) {
  ModelRequest request;
  request.name = name;
  request.width = 0.25;
  request.batch = 3;
  request.image = {3, side, side};
  harness::TrainingGraph made;
  made.net = build_classifier(request, Mode::training);
  harness::make_step(made, 7, 1, clip_norm);
  return made;
}

void expect_same(const harness::TrainingGraph& made, const std::vector<std::string>& storages) {
  const std::vector<TensorFormat> formats = harness::choose_formats(
      made.net.graph,
      [&](const TensorInfo& tensor) { return storages[tensor.number / 7 % storages.size()]; });
  PlanOptions fused;
  fused.backend = &emulated_backend();
  PlanOptions early = fused;
  early.fused_backward = true;
  const harness::Trained apart = run_apart(made, formats, fused),
                         planned = run_plan(made, formats, fused, 0xFF);
  harness::expect_same_bits(apart, planned, "fused");
  harness::expect_same_events(made.net.graph, apart, planned);
  harness::expect_same_bits(apart, run_plan(made, formats, early, 0xAA), "fused backward");
}

TEST(EmulatedStep, PlansChangeNoBit) {
  expect_same(make_graph("resnet8", 16), {"fp(4,3,4)", "fp(5,2,0)"});
  expect_same(make_graph("resnet8", 16, 0.5), {"fp32", "fp(6,9,0)", "fp(4,3,4)", "bf16", "e8m5", "s2fp8"});
}

TEST(EmulatedStep, PlansChangeNoBitOfDepthwiseAndShuffledModels) {
  expect_same(make_graph("shufflenetv2", 32), {"fp(4,3,4)", "bf16"});
}

}  // namespace
}  // namespace ulp
