#include "apps/ulp/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <initializer_list>

#include "apps/ulp/parse.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

// The configuration of a command line; what is wrong with it is thrown.
RunConfig parsed(std::initializer_list<const char*> arguments,
                 std::vector<std::string_view>* given = nullptr) {
  CLI::App program("", "ulp");
  set_reading(program);
  RunOptions options;
  add_run_options(program, options);
  std::vector<const char*> argv = {"ulp"};
  argv.insert(argv.end(), arguments);
  program.parse(static_cast<int>(argv.size()), argv.data());
  if (given != nullptr) *given = options.given();
  return options.config();
}

std::string error_of(std::initializer_list<const char*> arguments) {
  try {
    parsed(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_SAYS(words, ...)                             \
  do {                                                      \
    const std::string said = error_of({__VA_ARGS__});       \
    EXPECT_NE(said.find(words), std::string::npos) << said; \
  } while (false)

class Options : public testing::Test {
 protected:
  ~Options() override { unlink(path_.c_str()); }

  const char* file(const std::string& text) {
    std::ofstream(path_) << text;
    return path_.c_str();
  }

 private:
  const std::string path_ = testing::TempDir() + "ulp-options-" + std::to_string(getpid()) + ".toml";
};

TEST_F(Options, NoneAreTheDefaults) { EXPECT_EQ(parsed({}), RunConfig{}); }

TEST_F(Options, FlagsGoBeforeTheFileBeforeTheDefaults) {
  const char* path = file("batch = 32\nlr = 0.5\nnesterov = true\nout = \"x\"\n");
  const RunConfig config = parsed({"--config", path, "--lr", "0.25", "--data-dir=d"});
  EXPECT_EQ(config.batch, 32);
  EXPECT_EQ(config.lr, 0.25);
  EXPECT_EQ(config.epochs, 10);
  EXPECT_EQ(config.data_dir, "d");
  EXPECT_EQ(config.out, "x");
  EXPECT_TRUE(config.nesterov);
  EXPECT_FALSE(parsed({"--config", path, "--nesterov=false"}).nesterov);
  EXPECT_TRUE(parsed({"--nesterov"}).nesterov);
}

TEST_F(Options, GivenAreTheFlagsThatDoNotTakeBackTheFile) {
  const char* path = file("optimizer = \"adam\"\nbeta1 = 0.5\neps = 1e-4\nbeta2 = \"auto\"");
  std::vector<std::string_view> given;
  parsed({"--beta1", "0.9", "--optimizer", "sgd"}, &given);
  EXPECT_EQ(given, (std::vector<std::string_view>{"optimizer", "beta1"}));
  parsed({"--config", path, "--beta1", "0.9", "--beta2=0.5", "--tf32"}, &given);
  EXPECT_EQ(given, (std::vector<std::string_view>{"beta2", "tf32"}));
  parsed({"--config", path}, &given);
  EXPECT_TRUE(given.empty());
}

TEST_F(Options, AnEmptyFlagTakesBackWhatTheFileSays) {
  const char* path = file("image_shape = \"1x8x8\"\nmodel = \"mlp\"");
  EXPECT_EQ(parsed({"--config", path}).image_shape, "1x8x8");
  EXPECT_EQ(parsed({"--config", path, "--image-shape", ""}).image_shape, "");
  EXPECT_SAYS("--image-shape is empty", "--image-shape", "");
  EXPECT_SAYS("--data-dir is empty", "--config", path, "--data-dir", "");
  EXPECT_SAYS("--model is empty", "--config", path, "--model", "");
}

TEST_F(Options, TheLaterLevelDecidesBetweenEpochsAndSteps) {
  EXPECT_EQ(parsed({"--steps", "5"}).epochs, 0);
  const RunConfig config = parsed({"--config", file("steps = 5"), "--epochs", "2"});
  EXPECT_EQ(config.epochs, 2);
  EXPECT_EQ(config.steps, 0);
  EXPECT_SAYS("--epochs and --steps are both given", "--epochs", "2", "--steps", "3");
}

TEST_F(Options, ErrorsNameTheFlag) {
  EXPECT_SAYS("[config] --lr is 'x'; it must be a finite number above 0, or auto", "--lr", "x");
  EXPECT_SAYS("[config] --subset is '-5'", "--subset", "-5");
  EXPECT_SAYS("[config] --image-shape: the image shape must be", "--image-shape", "7");
  EXPECT_SAYS("[config] --data-dir is empty", "--data-dir", "");
  EXPECT_SAYS("[config] --config is empty", "--config", "");
  EXPECT_SAYS("No such file", "--config", "/nowhere/run.toml");
  EXPECT_SAYS(".toml:2: unknown key 'lrr'; the nearest is lr", "--config", file("batch = 1\nlrr = 1"));
  EXPECT_SAYS("grad_accum must divide batch", "--grad-accum", "3");
}

TEST_F(Options, TheLastOfARepeatedFlagHolds) {
  const RunConfig config =
      parsed({"--lr", "1", "--nesterov", "--batch=4", "--nesterov=false", "--lr", "2", "--batch-size", "8"});
  EXPECT_EQ(config.lr, 2);
  EXPECT_EQ(config.batch, 8);
  EXPECT_FALSE(config.nesterov);
}

TEST_F(Options, OtherNamesWorkEverywhereAndStandInNoHelp) {
  const RunConfig config =
      parsed({"--config", file("batch_size = 32\nlow_format = \"e5m2\""), "--max-grad-norm", "2",
              "--learning-rate=0.5", "--policy", "size:1", "--update", "nearest"});
  EXPECT_EQ(config.batch, 32);
  EXPECT_EQ(config.lo, "e5m2");
  EXPECT_EQ(config.clip_norm, 2);
  EXPECT_EQ(config.lr, 0.5);
  EXPECT_EQ(update_options(config).rule.kind, UpdateRule::Kind::plain);
  EXPECT_SAYS(".toml:1: batch and ", "--config", file("batch = 4\nbatch_size = 4"));
  EXPECT_SAYS(".toml:2: batch_size are two names of one option", "--config",
              file("batch = 4\nbatch_size = 4"));
  EXPECT_SAYS("the nearest is batch", "--config", file("batch_siz = 4"));
}

TEST_F(Options, WhatIsNotUnderstoodNamesTheNearestAndTheHelp) {
  const auto said = [](std::initializer_list<const char*> arguments) -> std::string {
    CLI::App program("", "ulp");
    set_reading(program);
    program.require_subcommand(1);
    RunOptions options;
    CLI::App* train = program.add_subcommand("train");
    add_run_options(*train, options);
    train->get_option("--model")->required();
    program.add_subcommand("data")
        ->require_subcommand(1)
        ->add_subcommand("check")
        ->add_option("NAME")
        ->required();
    CLI::App* predict = program.add_subcommand("predict");
    std::vector<std::string> images;
    int top = 0;
    bool json = false;
    predict->add_option("IMAGE", images)->required();
    predict->add_option("--top", top);
    predict->add_flag("--json", json);
    std::vector<const char*> argv = {"ulp"};
    argv.insert(argv.end(), arguments);
    try {
      parse_program(program, static_cast<int>(argv.size()), argv.data());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      said({"train", "--model", "mlp", "--bacth", "3", "rest"}),
      "[command] not understood: '--bacth 3 rest'; the nearest to --bacth is --batch (see ulp train --help)");
  // What is misspelt comes before what is missing.
  EXPECT_EQ(
      said({"train", "--modle=mlp"}),
      "[command] not understood: '--modle=mlp'; the nearest to --modle is --model (see ulp train --help)");
  EXPECT_EQ(said({"train", "-batch", "3", "--model", "mlp"}),
            "[command] not understood: '-batch 3'; the nearest to -batch is --batch (see ulp train --help)");
  EXPECT_EQ(said({"train", "--max-grad-nrm", "3"}),
            "[command] not understood: '--max-grad-nrm 3'; the nearest to --max-grad-nrm is --max-grad-norm "
            "(see ulp train --help)");
  EXPECT_EQ(said({"train", "extra", "positional", "--model", "mlp"}),
            "[command] not understood: 'extra positional' (see ulp train --help)");
  EXPECT_EQ(said({"train", "--model", "mlp", "--nesterov=5"}),
            "[command] --nesterov: '5' is neither true nor false (see ulp train --help)");
  EXPECT_EQ(said({"train", "--model", "mlp", "--nesterov=off", "--tensorboard=true"}), "");
  EXPECT_EQ(said({"train"}), "[command] --model is required (see ulp train --help)");
  EXPECT_EQ(said({"trian", "--model", "mlp"}),
            "[command] unknown command 'ulp trian'; the nearest is train (see ulp --help)");
  // A name that is far from all is not guessed at.
  EXPECT_EQ(said({"frobnicate"}), "[command] unknown command 'ulp frobnicate' (see ulp --help)");
  EXPECT_EQ(said({"train", "--model", "mlp", "--frobnication", "9"}),
            "[command] not understood: '--frobnication 9' (see ulp train --help)");
  // A value is not lost because the command takes files, and a file is none where a switch was meant.
  EXPECT_EQ(said({"predict", "a.png", "--batch", "3", "--tpo=1"}),
            "[command] not understood: '--batch 3 --tpo=1' (see ulp predict --help)");
  EXPECT_EQ(said({"predict", "--topp", "3", "a.png"}),
            "[command] not understood: '--topp 3'; the nearest to --topp is --top (see ulp predict --help)");
  EXPECT_EQ(said({"predict", "--jsn", "a.png"}),
            "[command] not understood: '--jsn'; the nearest to --jsn is --json (see ulp predict --help)");
  EXPECT_EQ(said({"trian", "--help"}),
            "[command] unknown command 'ulp trian'; the nearest is train (see ulp --help)");
  EXPECT_EQ(said({"data", "chek", "mnist"}),
            "[command] unknown command 'ulp data chek'; the nearest is check (see ulp data --help)");
  EXPECT_EQ(said({"data"}), "[command] ulp data needs a subcommand: check (see ulp data --help)");
  EXPECT_EQ(said({}), "[command] ulp needs a subcommand: train, data, predict (see ulp --help)");
  EXPECT_EQ(said({"data", "check", "a", "b"}), "[command] not understood: 'b' (see ulp data check --help)");
}

TEST_F(Options, TheHelpHasEveryOptionWithItsDefault) {
  CLI::App program("", "ulp");
  set_reading(program);
  RunOptions options;
  add_run_options(program, options);
  const std::string help = program.help();
  for (const ConfigField& field : config_fields()) {
    EXPECT_NE(help.find(field.flag() + " "), std::string::npos) << field.name;
    EXPECT_NE(help.find(std::string(field.group) + ":"), std::string::npos) << field.group;
    if (field.also.empty()) continue;
    EXPECT_EQ(help.find(field.also_flag()), std::string::npos) << field.also;
  }
  EXPECT_NE(help.find("--workspace BYTES=64MB"), std::string::npos) << help;
}

}  // namespace
}  // namespace ulp
