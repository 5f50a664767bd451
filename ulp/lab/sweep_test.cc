#include "ulp/lab/sweep.h"

#include <gtest/gtest.h>

#include <utility>

#include "ulp/base/error.h"

namespace ulp {
namespace {

std::vector<SweepRun> parsed(std::string_view text) { return parse_sweep(text, "s.toml"); }

std::string error_of(std::string_view text) {
  try {
    parsed(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sweep, EveryCombinationIsARunInTheOrderOfTheFile) {
  const auto runs = parsed(R"(
[base]
data = "synthetic"
epochs = 4
[[grid]]
name = "assign"
policy = ["fp32", "size:0.5"]
model = ["mlp", "lenet"]
width = 0.5
seed = [0, 7]
)");
  ASSERT_EQ(runs.size(), 8u);
  std::vector<std::string> folders;
  for (const SweepRun& run : runs) {
    folders.push_back(run.folder);
    EXPECT_EQ(run.grid, "assign");
    EXPECT_EQ(run.config().data, "synthetic");
    EXPECT_EQ(run.config().epochs, 4);
    EXPECT_EQ(run.config().width, 0.5);
    EXPECT_EQ(run.config().out, "");
    EXPECT_FALSE(run.repeats);
  }
  EXPECT_EQ(folders, (std::vector<std::string>{"assign/fp32-mlp-s0", "assign/fp32-mlp-s7",
                                               "assign/fp32-lenet-s0", "assign/fp32-lenet-s7",
                                               "assign/size_0.5-mlp-s0", "assign/size_0.5-mlp-s7",
                                               "assign/size_0.5-lenet-s0", "assign/size_0.5-lenet-s7"}));
  EXPECT_EQ(runs[5].config().policy, "size:0.5");
  EXPECT_EQ(runs[5].config().model, "mlp");
  EXPECT_EQ(runs[5].config().seed, 7u);
  EXPECT_EQ(runs[5].axes, (std::vector<AxisValue>{{"policy", "size:0.5"}, {"model", "mlp"}, {"seed", "7"}}));
  EXPECT_EQ(axes_text(runs[5].axes), "policy size:0.5, model mlp, seed 7");
}

TEST(Sweep, NamesOfOneFormatAreOneValue) {
  const std::string grid = "[[grid]]\nname = \"a\"\nmodel = \"mlp\"\nupdate = \"plain\"\n";
  EXPECT_NE(error_of(grid + "weight = [\"bf16\", \"bfloat16\"]").find("weight has bf16 twice"),
            std::string::npos);
  const auto runs = parsed(grid + "weight = [\"bfloat16\"]\n[[grid]]\nname = \"b\"\nmodel = \"mlp\"\n" +
                           "update = \"plain\"\nweight = [\"bf16\", \"fp16\"]");
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].folder, "a/weight_bfloat16");
  EXPECT_EQ(runs[0].config().weight, "bfloat16");
  EXPECT_TRUE(runs[1].repeats);
  EXPECT_EQ(runs[1].folder, "a/weight_bfloat16");
  EXPECT_FALSE(runs[2].repeats);
}

TEST(Sweep, AGridWithoutAxesIsOneRunAndNamesSayWhatNumbersAreOf) {
  const auto runs = parsed(R"(
[[grid]]
name = "one"
[[grid]]
name = "two"
promote = [0.1, "off"]
policy = "size:1"
nesterov = [true, false]
workspace = ["64MB"]
)");
  ASSERT_EQ(runs.size(), 5u);
  EXPECT_EQ(runs[0].folder, "one/run");
  EXPECT_EQ(runs[0].config(), RunConfig());
  EXPECT_EQ(runs[1].folder, "two/promote_0.1-nesterov_true-workspace_64MB");
  EXPECT_EQ(runs[4].folder, "two/promote_off-nesterov_false-workspace_64MB");
}

TEST(Sweep, TheSameConfigurationRunsOnce) {
  const auto runs = parsed(R"(
[[grid]]
name = "a"
policy = ["fp32", "size:1"]
[[grid]]
name = "b"
promote = ["default", "off"]
policy = "size:1"
)");
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_TRUE(runs[2].repeats);
  EXPECT_EQ(runs[2].folder, "a/size_1");
  EXPECT_EQ(runs[2].grid, "b");
  EXPECT_FALSE(runs[3].repeats);
  EXPECT_EQ(runs[3].folder, "b/promote_off");
}

TEST(Sweep, AGridGoesBeforeTheBase) {
  const auto runs = parsed(R"(
[base]
epochs = 4
policy = "uniform"
[[grid]]
name = "a"
steps = [5, 1e1]
policy = "fp32"
)");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].config().epochs, 0);
  EXPECT_EQ(runs[1].config().steps, 10);
  EXPECT_EQ(runs[1].folder, "a/steps_10");
  EXPECT_EQ(runs[1].config().policy, "fp32");
}

TEST(Sweep, KernelsOfTheEnvironmentBelongToTheRuns) {
  const std::string text = "[[grid]]\nname = \"a\"\nkernels = [\"\", \"relu=reference\"]\n";
  const auto runs = parse_sweep(text, "s.toml", "conv2d=reference");
  EXPECT_EQ(runs[0].config().kernels, "conv2d=reference");
  EXPECT_EQ(runs[1].config().kernels, "relu=reference");
}

TEST(Sweep, WhatIsWrongIsNamed) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"s.toml", "no [[grid]]"}},
      {"epochs = 3", {"s.toml:1", "'epochs'", "[base]"}},
      {"[grid]\nname = \"a\"", {"s.toml:1", "[[grid]]"}},
      {"grid = []", {"s.toml:1"}},
      {"base = 3", {"s.toml:1", "'base'"}},
      {"[base]\nlr = [1, 2]\n[[grid]]\nname = \"a\"", {"s.toml:2", "[base]", "lr"}},
      {"[base]\nmodle = \"mlp\"\n[[grid]]\nname = \"a\"", {"s.toml:2", "modle", "model"}},
      {"[[grid]]\nlr = 1", {"s.toml:1", "name"}},
      {"[[grid]]\nname = 3", {"name"}},
      {"[[grid]]\nname = \"\"", {"s.toml:2", "letters"}},
      {"[[grid]]\nname = \"../x\"", {"s.toml:2", "letters"}},
      {"[[grid]]\nname = \"a\"\n[[grid]]\nname = \"a\"", {"s.toml:3", "'a'", "already"}},
      {"[[grid]]\nname = \"a\"\nseed = []", {"s.toml:3", "seed", "no values"}},
      {"[[grid]]\nname = \"a\"\nseed = [1, 2, 1]", {"s.toml:3", "seed", "twice"}},
      {"[[grid]]\nname = \"a\"\nlr = [0.5, 5e-1]", {"lr", "0.5", "twice"}},
      {"[[grid]]\nname = \"a\"\nseed = [1, \"x\"]", {"s.toml:3: seed", "'x'"}},
      {"[[grid]]\nname = \"a\"\nmodel = [\"mlp\", 3]", {"s.toml:3", "model", "text in quotes"}},
      {"[[grid]]\nname = \"a\"\nmodel = [[\"mlp\"]]", {"s.toml:3", "model", "a list"}},
      {"[[grid]]\nname = \"a\"\nout = \"x\"", {"s.toml:3", "out"}},
      {"[[grid]]\nname = \"a\"\nsteps = 3\nepochs = 2", {"steps", "epochs", "both"}},
      {"[[grid]]\nname = \"a\"\ndevice = \"abacus\"", {"grid 'a'", "abacus"}},
      {"[[grid]]\nname = \"a\"\nbatch = [64, 65]\ngrad_accum = 2", {"grid 'a'", "batch 65", "grad_accum"}},
      {"[[grid]]\nname = \"a\"\npolicy = [\"size:1\", \"fp32\"]\nlo = \"e5m2\"", {"grid 'a'", "fp32", "lo"}},
      {"[[grid]]\nname = \"a\"\nmodel = ", {"s.toml:3"}},
  };
  for (const auto& [text, words] : cases) {
    const std::string said = error_of(text);
    for (const std::string& word : words) EXPECT_NE(said.find(word), said.npos) << text << ": " << said;
    EXPECT_EQ(said.find('\n'), said.npos) << said;
  }
  std::string many = "[[grid]]\nname = \"a\"\n";
  for (const char* key : {"seed", "batch", "subset"}) {
    many += std::string(key) + " = [";
    for (int i = 1000; i < 1100; ++i) many += std::to_string(i) + ",";
    many += "]\n";
  }
  EXPECT_NE(error_of(many).find("more than 100000 runs"), std::string::npos);
}

}  // namespace
}  // namespace ulp
