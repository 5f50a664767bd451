#include "apps/ulp/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <initializer_list>

#include "ulp/base/error.h"

namespace ulp {
namespace {

// The configuration of a command line; what is wrong with it is thrown.
RunConfig parsed(std::initializer_list<const char*> arguments) {
  CLI::App program("", "ulp");
  RunOptions options;
  add_run_options(program, options);
  std::vector<const char*> argv = {"ulp"};
  argv.insert(argv.end(), arguments);
  program.parse(static_cast<int>(argv.size()), argv.data());
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

TEST_F(Options, NoneAreTheDefaults) {
  RunConfig want;
  want.out = "runs/resnet20-fashion-mnist-fp32-0";
  EXPECT_EQ(parsed({}), want);
}

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
  EXPECT_THROW(parsed({"--lr", "1", "--lr", "2"}), CLI::ParseError);
  EXPECT_THROW(parsed({"--learning-rate", "1"}), CLI::ParseError);
}

TEST_F(Options, TheHelpHasEveryOptionWithItsDefault) {
  CLI::App program("", "ulp");
  RunOptions options;
  add_run_options(program, options);
  const std::string help = program.help();
  for (const ConfigField& field : config_fields()) {
    EXPECT_NE(help.find(field.flag() + " "), std::string::npos) << field.name;
    EXPECT_NE(help.find(std::string(field.group) + ":"), std::string::npos) << field.group;
  }
  EXPECT_NE(help.find("--workspace BYTES=64MB"), std::string::npos) << help;
}

}  // namespace
}  // namespace ulp
