#include "ulp/run/idle.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temp.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

using Options = std::map<std::string, std::string>;

RunConfig with(const Options& options) {
  RunConfig config;
  config.model = "mlp";
  config.width = 0.1;
  config.batch = 8;
  for (const auto& [name, value] : options) find_config_field(name).set(config, value);
  return config;
}

TEST(IdleOptions, AreRefused) {
  const auto complaint = [](const Options& options) {
    return complaint_of([&] { refuse_idle_options(with(options)); });
  };
  EXPECT_EQ(complaint({{"beta1", "0.5"}}),
            "[config] --beta1 0.5 would change nothing: sgd has no beta1; leave beta1 out");
  const std::vector<Options> refused = {
      {{"beta2", "0.5"}},
      {{"eps", "1e-4"}},
      {{"optimizer", "adagrad"}, {"beta1", "0.5"}},
      {{"optimizer", "lion"}, {"eps", "1e-4"}},
      {{"tf32", "true"}},
      {{"fp8_native", "true"}, {"policy", "uniform"}},
      {{"tensor_core", "off"}, {"device", "reference"}},
  };
  for (const Options& options : refused)
    EXPECT_NE(complaint(options).find("would change nothing"), std::string::npos) << options.begin()->first;
  const std::vector<Options> taken = {
      {},
      {{"beta1", "0.9"}},  // as runs of before have it written out
      {{"optimizer", "adam"}, {"beta1", "0.5"}, {"beta2", "0.5"}, {"eps", "1e-4"}},
      {{"optimizer", "lion"}, {"beta1", "0.5"}},
      {{"optimizer", "adagrad"}, {"eps", "1e-4"}}};
  for (const Options& options : taken) EXPECT_NO_THROW(refuse_idle_options(with(options)));
}

// What a user names is meant, also where it is the default.
TEST(IdleOptions, AreRefusedWithTheirDefaultsIfTheyWereGiven) {
  const auto complaint = [](const Options& options, std::string_view name) {
    const std::string_view given[] = {"lr", name};
    return complaint_of([&] { refuse_idle_options(with(options), given); });
  };
  EXPECT_EQ(complaint({}, "beta1"),
            "[config] --beta1 0.9 would change nothing: sgd has no beta1; leave beta1 out");
  for (const char* name : {"beta2", "eps", "histogram_every", "tensor_core"})
    EXPECT_NE(complaint({}, name).find("would change nothing"), std::string::npos) << name;
  EXPECT_EQ(complaint({{"optimizer", "adam"}}, "beta1"), "");
  EXPECT_EQ(complaint({{"histograms", "fc1.out"}}, "histogram_every"), "");
  EXPECT_EQ(complaint({}, "tf32"), "");  // --tf32=false
}

TEST(IdleOptions, AreWarnedOf) {
  const auto notes = [](const Options& options, uint64_t total = 1000) {
    const RunConfig config = with(options);
    const std::unique_ptr<LearningTask> task = sketch_task(task_options(config), {.classes = 10});
    return idle_notes(config, Engine(engine_options(config, *task)), 10, total);
  };
  const std::vector<std::pair<Options, std::string>> idle = {
      {{{"overflow", "inf"}}, "--overflow inf changes nothing: no tensor"},
      {{{"overflow", "inf"}, {"policy", "size:1"}}, "--overflow inf changes nothing: no tensor"},
      {{{"promote", "0.1"}}, "--promote 0.1 changes nothing: no tensor"},
      {{{"keep_first_last", "true"}, {"policy", "fp32"}}, "--keep-first-last changes nothing: no tensor"},
      {{{"round", "stochastic"}, {"policy", "fp32"}}, "--round stochastic changes nothing: no activation"},
      {{{"round", "stochastic"}, {"policy", "s2fp8"}}, "--round stochastic changes nothing: no activation"},
      {{{"round", "stochastic"}, {"update", "extra:8"}}, "--round stochastic changes nothing: no activation"},
      {{{"state", "bf16"}, {"momentum", "0"}}, "--state bf16 changes nothing: sgd"},
      {{{"table_gradients", "rows"}}, "--table-gradients rows changes nothing: no table"},
      {{{"warmup", "100e"}},
       "--warmup 100e takes 1000 steps and the run 1000: the learning rate never comes to 0.1"},
  };
  for (const auto& [options, says] : idle) {
    const std::vector<std::string> found = notes(options);
    ASSERT_EQ(found.size(), 1u) << says;
    EXPECT_TRUE(found[0].starts_with(says)) << found[0];
  }
  const std::vector<Options> useful = {
      {},
      {{"overflow", "inf"}, {"policy", "amp:fp16"}},
      {{"overflow", "inf"}, {"accumulator", "fp16"}},
      {{"overflow", "inf"}, {"update", "plain"}},
      {{"promote", "0.1"}, {"policy", "size:1"}},
      {{"promote", "off"}},
      {{"keep_first_last", "true"}, {"policy", "size:1"}, {"model", "lenet"}},
      {{"keep_first_last", "true"}, {"policy", "amp:bf16"}, {"model", "lenet"}},
      {{"round", "stochastic"}, {"policy", "fp8"}},
      {{"round", "away"}, {"policy", "size:0.5"}},
      {{"state", "bf16"}},
      {{"warmup", "999"}}};
  for (const Options& options : useful)
    EXPECT_EQ(notes(options), std::vector<std::string>()) << (options.empty() ? "" : options.begin()->first);
}

}  // namespace
}  // namespace ulp
