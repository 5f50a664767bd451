// The first step of resnet20 on Fashion-MNIST, in fp32 and with half of it in 8 bits, on every
// backend that this program is linked with. Where the data lie is the first argument, or as for
// `ulp`; without them the images are made up. A backend that is emulated gets a smaller network.
#include "tests/conformance/first_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>

#include "ulp/base/parallel.h"
#include "ulp/run/setup.h"

namespace ulp::conformance {
namespace {

std::string data_folder;  // "": the usual places

RunConfig config_for(const Backend& backend, const std::string& policy) {
  RunConfig config;
  config.model = "resnet20";
  config.batch = 8;
  config.data = "fashion-mnist";
  config.data_dir = data_folder;
  config.policy = policy;
  config.loss_scale = "auto";
  config.threads = 1;
  const bool small = backend.name == "emulated";
  if (small) {
    config.model = "resnet8";
    config.width = 0.5;
    config.batch = 2;
  }
  if (small || (data_folder.empty() && !locate(find_dataset(config.data), "").path)) {
    config.data = "synthetic";
    config.image_shape = small ? "1x12x12" : "1x28x28";
    config.data_dir = "";
  }
  config.subset = 8 * config.batch;
  return config;
}

using Tested = std::tuple<BackendOf, const char*>;

// Leaves the number of threads as it was.
class FirstStepTest : public testing::TestWithParam<Tested> {
 protected:
  void SetUp() override { threads_ = thread_count(); }
  void TearDown() override { set_thread_count(threads_); }
  int threads_ = 1;
};

TEST_P(FirstStepTest, EveryTensorKeepsToTheReference) {
  const auto [backend, policy] = GetParam();
  const RunConfig config = config_for(backend(), policy);
  const StepReport report = check_first_step(config, backend());
  fmt::print("{} on {}, batch {} of {}, {}", config.model, backend().name, config.batch, config.data,
             report.text());
  const Tally total = report.total();
  EXPECT_GT(report.nodes, 50u);
  EXPECT_GT(2 * total.identical, total.elements);
  EXPECT_LE(total.worst, 1);
  // It was the step that a run makes.
  EXPECT_GT(report.loss, 1);
  EXPECT_NEAR(report.loss, report.engine_loss, 0.01 * report.loss);
}

std::string test_name(const testing::TestParamInfo<Tested>& tested) {
  const auto [backend, policy] = tested.param;
  std::string name = std::string(backend().name) + "_" + policy;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, FirstStepTest,
                         testing::Combine(testing::ValuesIn(tested_backends().begin(),
                                                            tested_backends().end()),
                                          testing::Values("fp32", "size:0.5")),
                         test_name);

}  // namespace
}  // namespace ulp::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) ulp::conformance::data_folder = argv[1];
  return RUN_ALL_TESTS();
}
