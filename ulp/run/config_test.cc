#include "ulp/run/config.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <tuple>

#include "tests/support/temp.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

RunConfig parsed(std::string_view text) { return parse_config(text, "run.toml"); }

void set(RunConfig& config, std::string_view name, std::string_view text) {
  find_config_field(name).set(config, text, "--" + std::string(name));
}

TEST(Config, DefaultsAreSoundAndReadBackAsText) {
  const RunConfig config;
  check(config);
  EXPECT_EQ(parsed(config_text(config)), config);
  RunConfig copy;
  for (const ConfigField& field : config_fields()) {
    field.set(copy, field.default_text());
    EXPECT_EQ(copy, config) << field.name;
  }
}

TEST(Config, EveryFieldHasANameHelpAndAGroupInOnePiece) {
  std::set<std::string_view> names, groups;
  std::string_view group;
  for (const ConfigField& field : config_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(field.name.find('-'), std::string_view::npos) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_EQ(field.help.find('\n'), std::string_view::npos) << field.name;
    EXPECT_EQ(field.is_switch(), field.value.empty()) << field.name;
    if (field.group != group) {
      EXPECT_TRUE(groups.insert(field.group).second) << field.group;
    }
    group = field.group;
    EXPECT_EQ(&find_config_field(field.name), &field);
    if (!field.also.empty()) {
      EXPECT_TRUE(names.insert(field.also).second) << field.also;
      EXPECT_EQ(&find_config_field(field.also), &field);
    }
  }
  EXPECT_EQ(find_config_field("data_dir").flag(), "--data-dir");
}

TEST(Config, EveryFieldIsReadBackFromTheFile) {
  RunConfig config;
  config.model = "mlp";
  config.width = 0.1 + 0.2;
  config.label_smoothing = 0.1;
  config.init = "weights.safetensors";
  config.data = "synthetic";
  config.data_dir = "a \"b\"\\c\t\x01\x7f\u00e4 # = [x]";
  config.task = "characters";
  config.length = 48;
  config.image_shape = "1x8x9";
  config.subset = 1000;
  config.augment = "crop:2+flip";
  config.epochs = 0;
  config.steps = 77;
  config.batch = 96;
  config.grad_accum = 3;
  config.optimizer = "adamw";
  config.lr = 1e-300 * 1e297;
  config.momentum = 0.0;
  config.weight_decay = 1.0 / 3;
  config.nesterov = true;
  config.beta1 = 0.8;
  config.beta2 = 1 - 0x1p-20;
  config.eps = 1e-7;
  config.schedule = "multi-step:3,5:0.1";
  config.warmup = "2e:0.1";
  config.clip_value = 1;
  config.clip_norm = 123456789.5;
  config.policy = "size:0.5";
  config.candidates = "fp8";
  config.hi = "fp16";
  config.lo = "fp(4,3,2)";
  config.lo_grad = "s2fp8";
  config.weight_grad = "fp32/bf16";
  config.keep_first_last = true;
  config.formats = "conv1.out=bf16 fc.*=fp(6,9,0)";
  config.promote = "0.001";
  config.update = "plain";
  config.weight = "assigned";
  config.state = "bf16:sr";
  config.groups = "norm:decay=0 >=100:update=kahan,weight=fp(4,3,4)";
  config.fused_backward = true;
  set(config, "fused_overflow", "snapshot");
  config.table_gradients = "rows";
  config.accumulator = "fp16";
  config.overflow = "inf";
  config.round = "stochastic";
  config.loss_scale = "dynamic:1024:7";
  config.device = "cuda";
  config.threads = 3;
  config.workspace = 12345;
  config.tensor_core = "off";
  config.tf32 = true;
  config.fp8_native = true;
  config.kernels = "*=reference";
  config.seed = std::numeric_limits<uint64_t>::max();
  config.out = "somewhere";
  config.checkpoint_every = 10;
  config.stop_not_finite = 7;
  config.tensorboard = true;
  config.histograms = "conv1.* fc.weight";
  config.histogram_every = 20;
  const RunConfig defaults;
  for (const ConfigField& field : config_fields()) {
    EXPECT_NE(field.get(config), field.default_text()) << field.name << " is not covered here";
  }
  EXPECT_EQ(parsed(config_text(config)), config) << config_text(config);
}

TEST(Config, AnyDoubleAndSeedIsReadBack) {
  rc::check("config_text and parse_config", [](uint64_t seed, uint32_t mantissa, int64_t workspace) {
    RunConfig config;
    config.seed = seed;
    config.workspace = workspace < 0 ? -(workspace + 1) : workspace;
    config.lr = std::ldexp(1 + mantissa * 0x1p-32, static_cast<int>(seed % 200) - 100);
    config.eps = *config.lr / 3;
    RC_ASSERT(parsed(config_text(config)) == config);
  });
}

TEST(Config, StepsAreWrittenInsteadOfTheEpochsTheyOverrule) {
  RunConfig config;
  config.steps = 5;
  check(config);
  const RunConfig back = parsed(config_text(config));
  EXPECT_EQ(back.steps, 5);
  EXPECT_EQ(back.epochs, 0);
  EXPECT_EQ(parsed(config_text(back)), back);
  EXPECT_EQ(total_steps(config, 100), 5u);
  EXPECT_EQ(total_steps(RunConfig{}, 100), 1000u);
}

TEST(Config, SumsInFp32AreWideUnderAnyName) {
  RunConfig config;
  config.accumulator = "float32";
  EXPECT_FALSE(kernel_options(config).accumulator);
  config.accumulator = "bfloat16";
  EXPECT_EQ(kernel_options(config).accumulator, parse_format("bf16"));
}

TEST(Config, TextThatIsNoUtf8CannotBeWritten) {
  RunConfig config;
  config.out = std::string("\xff");
  EXPECT_SAYS(config_text(config), "out is no UTF-8");
}

TEST(Config, TypesOfTheFile) {
  EXPECT_EQ(parsed("lr = 1\nwidth = 2\n").lr, 1.0);
  EXPECT_EQ(parsed("lr = \"auto\"").lr, std::nullopt);
  EXPECT_EQ(parsed("steps = 1e3").steps, 1000);
  EXPECT_EQ(parsed("warmup = 500").warmup, "500");
  EXPECT_EQ(parsed("warmup = \"5e\"").warmup, "5e");
  EXPECT_EQ(parsed("workspace = 65536").workspace, 65536);
  EXPECT_EQ(parsed("workspace = \"2GB\"").workspace, int64_t{2} << 30);
  EXPECT_EQ(parsed("seed = \"18446744073709551615\"").seed, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(parsed("nesterov = true").nesterov);

  EXPECT_SAYS(parsed("\nmodel = 3"), "run.toml:2: model is a number; it must be text in quotes");
  EXPECT_SAYS(parsed("batch = \"128\""), "run.toml:1: batch is text; it must be a whole number");
  EXPECT_SAYS(parsed("batch = true"), "batch is true or false; it must be a whole number");
  EXPECT_SAYS(parsed("batch = 1.5"), "run.toml:1: batch is '1.5'; it must be a whole number from 1");
  EXPECT_SAYS(parsed("batch = 1e40"), "batch is '1e+40'");
  EXPECT_SAYS(parsed("lr = [0.1]"), "lr is a list; it must be a number, or \"auto\"");
  EXPECT_SAYS(parsed("lr = \"fast\""), "lr is 'fast'; it must be a finite number above 0, or auto");
  EXPECT_SAYS(parsed("lr = nan"), "lr is 'nan'");
  EXPECT_SAYS(parsed("nesterov = 1"), "nesterov is a number; it must be true or false");
  EXPECT_SAYS(parsed("nesterov = \"true\""), "nesterov is text");
  EXPECT_SAYS(parsed("[data]\nname = 1"), "run.toml:1: data is a table; it must be text in quotes");
  EXPECT_SAYS(parsed("seed = 1979-05-27"), "seed is a date or time");
}

TEST(Config, UnknownKeysNameTheNearest) {
  EXPECT_SAYS(parsed("\n\nepoch = 3"), "run.toml:3: unknown key 'epoch'; the nearest is epochs");
  EXPECT_SAYS(parsed("data-dir = \"x\""), "unknown key 'data-dir'; the nearest is data_dir");
  EXPECT_SAYS(parsed("learning_rat = 1"), "unknown key 'learning_rat'; the nearest is lr");
  EXPECT_SAYS(parsed("frobnication = 1"), "unknown key 'frobnication'; ulp train --help has all of them");
  EXPECT_SAYS(parsed("[optimiser]\nlr = 1"), "unknown key 'optimiser'; the nearest is optimizer");
  EXPECT_SAYS(find_config_field("weights"), "unknown option 'weights'; the nearest is weight");
}

RunConfig with(std::initializer_list<std::pair<const char*, const char*>> settings) {
  RunConfig config;
  for (const auto& [name, text] : settings) set(config, name, text);
  return config;
}

TEST(Config, FormatsThatDoNotGoTogether) {
  EXPECT_SAYS(check(with({{"policy", "size:1"}, {"hi", "e5m2"}, {"lo", "fp16"}})), "wider than the high one");
  EXPECT_SAYS(check(with({{"policy", "size:1"}, {"lo_grad", "fp32"}})), "wider than the high one");
  EXPECT_SAYS(check(with({{"policy", "size:1"}, {"weight_grad", "bf16/fp32"}})), "wider than the high one");
  EXPECT_SAYS(check(with({{"policy", "amp:bf16"}, {"lo", "e5m2"}})),
              "amp:bf16 has formats of its own: leave lo out");
  EXPECT_SAYS(check(with({{"candidates", "fp8"}})), "fp32 has formats of its own: leave candidates out");
  EXPECT_SAYS(with({{"policy", "size:1.5"}}), "R must be a number from 0 to 1, got '1.5'");
  EXPECT_SAYS(with({{"policy", "size:-0.1"}}), "R must be a number from 0 to 1");
  EXPECT_SAYS(with({{"candidates", "int8"}}), "unknown candidates 'int8': known are hfp8, fp8, s2fp8");
  EXPECT_SAYS(with({{"hi", "fp(9,9,0)"}}), "--hi");
  EXPECT_SAYS(with({{"promote", "2"}}), "'2' is no threshold of promotion");
  EXPECT_SAYS(with({{"weight", "s2fp8"}}), "weights cannot be stored as 's2fp8'");
  EXPECT_SAYS(
      with({{"update", "khan"}}),
      "unknown update rule 'khan'; the nearest is kahan; known: master (fp32 weights), plain (nearest "
      "rounding), "
      "stochastic, kahan");
  EXPECT_SAYS(with({{"update", "extra:17"}}), "asks for 17 extra bits; there can be 0 to 16");
  EXPECT_SAYS(check(with({{"update", "extra:14"}, {"weight", "fp16"}})),
              "fp16 takes 0 to 13 extra bits, got 14");
  EXPECT_SAYS(check(with({{"update", "stochastic"}, {"weight", "fp32"}})),
              "for weights of at most 16 bits, not for fp32");
  EXPECT_SAYS(check(with({{"update", "master"}, {"weight", "bf16"}})),
              "master keeps weights in fp32, not in bf16");
  EXPECT_SAYS(check(with({{"weight", "bf16"}})), "master keeps weights in fp32, not in bf16");
  EXPECT_SAYS(with({{"state", "s2fp8"}}), "optimizer state cannot be stored as 's2fp8'");
  EXPECT_SAYS(with({{"groups", "norm"}}), "--groups");
  EXPECT_SAYS(with({{"fused_overflow", "both"}}), "neither twice nor snapshot");
  EXPECT_SAYS(check(with({{"fused_overflow", "snapshot"}})), "give --fused-backward too");
  EXPECT_SAYS(check(with({{"fused_backward", "true"}, {"fused_overflow", "snapshot"}, {"clip_norm", "1"}})),
              "a snapshot cannot serve clip_norm");
  EXPECT_SAYS(with({{"policy", "fpu16"}}), "it needs a format");
  EXPECT_SAYS(with({{"policy", "fpu16:fp32"}}), "at most 16 bits");
  check(with({{"policy", "fpu16:bf16"}, {"update", "master"}}));
  check(with({{"policy", "fpu16:e8m1"}, {"update", "stochastic+kahan"}}));
  EXPECT_SAYS(with({{"accumulator", "s2fp8"}}), "--accumulator");
  EXPECT_SAYS(with({{"overflow", "wrap"}}), "--overflow");
  EXPECT_SAYS(with({{"round", "up"}}), "unknown rounding 'up'");
  EXPECT_SAYS(with({{"formats", "conv1.out"}}), "--formats");
  EXPECT_SAYS(with({{"loss_scale", "0"}}), "'0' is no loss scale");
  check(
      with({{"policy", "size:1"}, {"hi", "bf16"}, {"lo", "e4m3"}, {"lo_grad", "e5m2"}, {"promote", "off"}}));
}

TEST(Config, BrokenFiles) {
  EXPECT_SAYS(parsed("batch = 1\nlr ="), "run.toml:2: ");
  EXPECT_SAYS(parsed("batch = 1\nbatch = 2"), "run.toml:2: ");
  EXPECT_SAYS(parsed("out = \"\xff\""), "run.toml:1: ");
  EXPECT_SAYS(parsed(std::string(100000, '[')), "run.toml:1: ");
  EXPECT_SAYS(parsed("seed = -1\nbatch = 0"), "run.toml:1: seed is '-1'");  // the upper one first
  EXPECT_EQ(parsed(""), RunConfig{});
}

// The parser has no code for these: it stops the program, or goes where the compiler was told that
// nothing goes.
TEST(Config, WhatTomlHasNowhere) {
  EXPECT_SAYS(parsed("[.a]\n"), "run.toml:1: a dot must follow a name or a digit");
  EXPECT_SAYS(parsed("\n[ .a]\n"), "run.toml:2: a dot must follow a name or a digit");
  for (const char* text :
       {"[[.a]]", "[a..b]", ".a = 1", "x = {.a = 1}", "lr = .5", "x = [1, .5]", "lr\n.x = 1"}) {
    EXPECT_SAYS(parsed(text), "a dot must follow a name or a digit");
  }
  EXPECT_SAYS(parsed("lr = 1\xc3\xa9\n"), "run.toml:1: letters beyond ASCII must stand in quotes");
  EXPECT_SAYS(parsed("model = \"a\\\"#\" # \xc3\xa9 .\nr\xc3\xa9 = 1"), "run.toml:2: letters beyond ASCII");
  EXPECT_SAYS(parsed("model = 'a\\' \xc3\xa9"), "run.toml:1: letters beyond ASCII");
  EXPECT_SAYS(parsed("model = \"\"\"a\n\"\n.\"\"\"\n[.a]"), "run.toml:4: a dot must follow");
  // In quotes and comments they stand for themselves.
  EXPECT_EQ(parsed("out = \"\xc3\xa9 .a [.b]\" # .\xc3\xa9\nlr = 0.5").out, "\xc3\xa9 .a [.b]");
  EXPECT_EQ(parsed("out = '''\n.\xc3\xa9\"'''").out, ".\xc3\xa9\"");
  EXPECT_EQ(parsed("\xef\xbb\xbfout = 'b'").out, "b");
}

TEST(Config, FilesFromTheDisk) {
  const std::string folder = testing::TempDir() + "ulp-config-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  RunConfig config;
  config.batch = 64;
  std::ofstream(folder + "/run.toml") << config_text(config);
  EXPECT_EQ(load_config(folder + "/run.toml"), config);
  std::ofstream(folder + "/empty.toml");
  EXPECT_EQ(load_config(folder + "/empty.toml"), RunConfig{});
  std::ofstream(folder + "/large.toml") << std::string((size_t{1} << 20) + 1, '\n');
  EXPECT_SAYS(load_config(folder + "/large.toml"), "larger than 1 MiB");
  EXPECT_SAYS(load_config(folder + "/none.toml"), "none.toml: No such file");
  EXPECT_SAYS(load_config(folder), "Is a directory");
  std::filesystem::remove_all(folder);
}

TEST(Config, EpochsAndStepsOfOneLevelExcludeEachOther) {
  EXPECT_SAYS(parsed("epochs = 3\nsteps = 4"), "run.toml:1: epochs and run.toml:2: steps are both given");
  RunConfig config = parsed("steps = 4");
  EXPECT_EQ(config.epochs, 0);
  const ConfigSetting epochs = {&find_config_field("epochs"), "7", "--epochs"},
                      steps = {&find_config_field("steps"), "9", "--steps"};
  apply_level(config, std::span(&epochs, 1));
  EXPECT_EQ(config.epochs, 7);
  EXPECT_EQ(config.steps, 0);
  apply_level(config, std::span(&steps, 1));
  EXPECT_EQ(config.epochs, 0);
  EXPECT_EQ(config.steps, 9);
  const ConfigSetting both[] = {epochs, steps};
  EXPECT_SAYS(apply_level(config, both), "--epochs and --steps are both given");
  EXPECT_EQ(parsed("epochs = 3\nsteps = 0").epochs, 3);
  EXPECT_SAYS(check(parsed("epochs = 0")), "epochs and steps are both 0");
}

TEST(Config, BadValuesAreRefusedWhereTheyStand) {
  RunConfig config;
  for (const auto& [name, text, says] : {
           std::tuple{"width", "0", "--width is '0'; it must be a finite number above 0"},
           {"width", "inf", "--width is 'inf'"},
           {"width", "1e300", "--width is '1e300'"},
           {"width", "", "--width is ''"},
           {"width", "1 ", "--width is '1 '"},
           {"model", "resnet", "--model: unknown"},
           {"data", "imagenet", "--data: unknown data set 'imagenet'"},
           {"image_shape", "8", "--image_shape: the image shape must be"},
           {"subset", "-1", "--subset is '-1'; it must be a whole number from 0"},
           {"augment", "crop", "--augment: 'crop' is no augmentation"},
           {"augment", "crop:0", "'crop:0' is no augmentation"},
           {"augment", "crop:4+", "is no augmentation"},
           {"augment", "flip+crop:4", "is no augmentation"},
           {"batch", "0", "--batch is '0'; it must be a whole number from 1"},
           {"batch", "99999999999999999999", "it must be a whole number from 1"},
           {"grad_accum", "65537", "it must be a whole number from 1 to 65536"},
           {"optimizer", "rmsprop", "--optimizer: unknown optimizer 'rmsprop'; known: sgd, adam, adamw"},
           {"lr", "-0.1", "--lr is '-0.1'"},
           {"lr", "1e-60", "--lr is '1e-60'"},  // 0 in fp32
           {"momentum", "1", "--momentum is '1'; it must be a number from 0, below 1, or auto"},
           {"beta2", "0.99999999999", "--beta2"},
           {"schedule", "cosinus", "--schedule: 'cosinus': unknown schedule"},
           {"warmup", "-1", "--warmup: warm-up '-1'"},
           {"clip_norm", "nan", "--clip_norm is 'nan'"},
           {"policy", "fp31", "--policy: "},
           {"device", "", "--device: it is empty"},
           {"threads", "5000", "--threads is '5000'; it must be a whole number from 0 to 4096"},
           {"workspace", "64mb", "--workspace is '64mb'; it must be bytes from 0, such as"},
           {"workspace", "-1KB", "--workspace is '-1KB'"},
           {"workspace", "-1", "--workspace is '-1'"},
           {"workspace", "9000000000GB", "--workspace is"},
           {"workspace", "GB", "--workspace is 'GB'"},
           {"seed", "-1", "--seed is '-1'; it must be a whole number from 0 to 2^64 - 1"},
           {"nesterov", "yes", "--nesterov is 'yes'; it must be true or false"},
       }) {
    EXPECT_SAYS(set(config, name, text), says);
    EXPECT_EQ(config, RunConfig{}) << name;
  }
}

TEST(Config, ChecksWhatTheProgramItselfSet) {
  const auto checked = [](auto change) {
    RunConfig config;
    change(config);
    check(config);
  };
  EXPECT_SAYS(checked([](RunConfig& c) { c.batch = -3; }), "batch is -3; it must be");
  EXPECT_SAYS(checked([](RunConfig& c) { c.lr = NAN; }), "lr is nan; it must be a finite number above 0");
  EXPECT_SAYS(checked([](RunConfig& c) { c.schedule = ""; }), "schedule: '': unknown schedule");
  EXPECT_SAYS(checked([](RunConfig& c) { c.grad_accum = 3; }), "grad_accum must divide batch");
  EXPECT_SAYS(checked([](RunConfig& c) { c.subset = 100; }), "batch must be at most subset");
  EXPECT_SAYS(checked([](RunConfig& c) { c.clip_norm = c.clip_value = 1; }), "one of them must be 0");
  EXPECT_SAYS(checked([](RunConfig& c) {
                c.optimizer = "adam";
                c.momentum = 0.9;
              }),
              "adam has no momentum");
  EXPECT_SAYS(checked([](RunConfig& c) {
                c.momentum = 0;
                c.nesterov = true;
              }),
              "needs momentum");
}

TEST(Config, WhatAutoStandsFor) {
  RunConfig config;
  OptimizerConfig want = {.kind = OptimizerKind::sgd, .lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4};
  EXPECT_EQ(optimizer_config(config), want);
  config.optimizer = "adam";
  want = {.kind = OptimizerKind::adam, .lr = 0.001, .weight_decay = 0};
  EXPECT_EQ(optimizer_config(config), want);
  config.optimizer = "adamw";
  want = {.kind = OptimizerKind::adamw, .lr = 0.001, .weight_decay = 0.01};
  EXPECT_EQ(optimizer_config(config), want);
  config.lr = 3;
  config.weight_decay = 0;
  want.lr = 3;
  want.weight_decay = 0;
  EXPECT_EQ(optimizer_config(config), want);

  EXPECT_EQ(augment_of(config), (AugmentChoice{4, true}));
  config.data = "mnist";
  EXPECT_EQ(augment_of(config), AugmentChoice{});
  config.augment = "crop:3";
  EXPECT_EQ(augment_of(config), (AugmentChoice{3, false}));
  config.augment = "flip";
  EXPECT_EQ(augment_of(config), (AugmentChoice{0, true}));
  config.augment = "crop:12+flip";
  EXPECT_EQ(augment_of(config), (AugmentChoice{12, true}));
  // Lion's authors take another beta2 than Adam's.
  for (const auto& [name, beta2] : {std::pair{"adam", 0.999}, {"adamw", 0.999}, {"lion", 0.99}}) {
    config = {};
    config.optimizer = name;
    EXPECT_EQ(optimizer_config(config).beta2, beta2) << name;
    config.beta2 = 0.95;
    EXPECT_EQ(optimizer_config(config).beta2, 0.95) << name;
  }
}

TEST(Config, ScheduleWithItsWarmup) {
  RunConfig config;
  config.schedule = "linear:0.1";
  config.warmup = "5e";
  const Schedule schedule = schedule_of(config);
  EXPECT_EQ(schedule.kind, ScheduleKind::linear);
  EXPECT_EQ(schedule.floor, 0.1);
  EXPECT_EQ(schedule.warmup, (Warmup{5, true, 0}));
}

TEST(Config, BytesKeepTheLargestUnitThatFits) {
  const ConfigField& workspace = find_config_field("workspace");
  RunConfig config;
  EXPECT_EQ(workspace.get(config), "64MB");
  for (const char* text : {"0", "1", "1023", "1KB", "1023KB", "1MB", "3GB", "9223372036854775807"}) {
    workspace.set(config, text);
    EXPECT_EQ(workspace.get(config), text);
  }
  workspace.set(config, "2048KB");
  EXPECT_EQ(workspace.get(config), "2MB");
}

TEST(Config, AKeyOfManyPartsIsRefusedBeforeTheLibraryRecurses) {
  const auto dotted = [](size_t dots, std::string_view between = ".") {
    std::string text = "a";
    for (size_t i = 0; i < dots; ++i) text.append(between).append("a");
    return text;
  };
  const std::string says = "run.toml:2: a key has more than 32 dots; the name of an option has none";
  for (const size_t dots : {size_t{33}, size_t{40'000}, size_t{400'000}}) {
    const std::string key = dotted(dots), spaced = dotted(dots, " . "), quoted = dotted(dots, ".\"b\".");
    for (const std::string& text : {key + "=1", spaced + "=1", quoted + "=1", "[" + key + "]",
                                    "[[" + key + "]]", "lr = {" + key + "=1}", "x = [{b=1," + key + "=1}]"})
      EXPECT_SAYS(parsed("\n" + text), says);
  }
  EXPECT_SAYS(parsed(dotted(32) + "=1"), "unknown key 'a'");
  // Each has its own count, and texts have none.
  std::string many = "x = [";
  for (int i = 0; i < 100; ++i) many += "1.5,";
  EXPECT_SAYS(parsed(many + "]"), "unknown key 'x'");
  EXPECT_EQ(parsed("out = \"" + std::string(40, '.') + "\"").out, std::string(40, '.'));
  EXPECT_EQ(parsed("lr = 0.5\nwidth = 0.5 # " + std::string(40, '.')).width, 0.5);
}

TEST(Config, FormatsAreTheSameUnderAnyName) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"hi", "float16", "fp16"},
      {"lo_grad", "", ""},
      {"lo", "fp(4,3,4)", "fp(4,3,4)"},
      {"weight_grad", "float32/bfloat16", "fp32/bf16"},
      {"formats", " conv1.out=bfloat16  fc.*=float32 ", "conv1.out=bf16 fc.*=fp32"},
      {"accumulator", "bfloat16", "bf16"},
      {"weight", "bfloat16", "bf16"},
      {"weight", "assigned", "assigned"},
      {"weight", "default", "default"},
      {"state", "bfloat16:sr", "bf16:sr"},
      {"state", "float16", "fp16"},
      {"state", "8bit", "8bit"},
      {"groups", "norm:decay=0,weight=bfloat16 fc.*:state=float16,lr=0.5",
       "norm:decay=0,weight=bf16 fc.*:lr=0.5,state=fp16"},
      {"policy", "amp:bfloat16", "amp:bf16"},
      {"policy", "fpu16:bfloat16", "fpu16:bf16"},
      {"policy", "products:bfloat16", "products:bf16"},
      {"policy", "size:0.5", "size:0.5"},
      {"policy", "list:bfloat16", "list:bfloat16"}};  // a file
  for (const auto& [name, given, shortest] : cases) {
    const ConfigField& field = find_config_field(name);
    RunConfig config, other;
    field.set(config, given);
    field.set(other, shortest);
    EXPECT_EQ(field.get(with_shortest_names(config)), shortest) << name;
    EXPECT_EQ(with_shortest_names(config), with_shortest_names(other)) << name;
    EXPECT_EQ(with_names_of(other, config), config) << name;
    EXPECT_EQ(field.get(parsed(config_text(config))), given) << name;
    field.set(config, shortest);
    EXPECT_EQ(with_shortest_names(config), config) << name;
  }
  RunConfig one, other;
  one.weight = "bfloat16";
  one.batch = 4;
  other.weight = "fp16";
  EXPECT_EQ(with_names_of(one, other), one);
}

TEST(Config, TheFolderOfTheRun) {
  RunConfig config;
  config.seed = 7;
  EXPECT_EQ(out_of(config), "runs/resnet20-fashion-mnist-fp32-7");
  config.policy = "fp(4,3,4)/x";
  EXPECT_EQ(out_of(config), "runs/resnet20-fashion-mnist-fp_4_3_4__x-7");
  config.out = "/tmp/a b";
  EXPECT_EQ(out_of(config), "/tmp/a b");
}

}  // namespace
}  // namespace ulp
