// Groups of parameters: what they select, what they set, and what becomes of it in memory.
#include "ulp/session/parameters.h"
#include "tests/support/classifier.h"

#include <gtest/gtest.h>

#include <string>

#include "ulp/base/error.h"
#include "ulp/run/config.h"

namespace ulp {
namespace {

std::string error_of(const std::string& groups) {
  try {
    parse_parameter_groups(groups);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Groups, BadTextIsRefusedWithWhatWouldBeRight) {
  EXPECT_EQ(error_of(""), "");
  EXPECT_EQ(error_of("norm:decay=0  bias:decay=0,lr=2 >=100:update=extra:8,weight=fp(4,3,4) fc.*:state=8bit"),
            "");
  EXPECT_NE(error_of("norm").find("SELECTOR:KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of("norm:decay").find("no KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of("norm:wd=0").find("known: lr, decay, update, weight, state"), std::string::npos);
  EXPECT_NE(error_of("norm:").find("sets nothing"), std::string::npos);
  EXPECT_NE(error_of("norm:decay=0,decay=1").find("sets decay twice"), std::string::npos);
  EXPECT_NE(error_of("c*v1.weight:lr=1").find("selects nothing"), std::string::npos);
  EXPECT_NE(error_of("bias:lr=1e300").find("number from 0"), std::string::npos);
  EXPECT_NE(error_of("norm:decay=-1").find("number from 0"), std::string::npos);
  EXPECT_NE(error_of("norm:lr=x").find("number from 0"), std::string::npos);
  EXPECT_NE(error_of(":lr=1").find("selects nothing"), std::string::npos);
  EXPECT_NE(error_of("<ten:lr=1").find("selects nothing"), std::string::npos);
  EXPECT_NE(error_of(">5:lr=1").find("selects nothing"), std::string::npos);
  EXPECT_NE(error_of("norm:update=kahn").find("unknown update rule"), std::string::npos);
}

ClassifierOptions resnet(const RunConfig& config) {
  ClassifierOptions options;
  options.model.name = "resnet8";
  options.model.batch = 2;
  options.optimizer = optimizer_config(config);
  options.precision = precision_options(config);
  return options;
}

const ParameterChoice& choice(const ClassifierEngine& engine, const std::string& name) {
  return engine.parameters().at(name);
}

TEST(Groups, SelectByRoleNameAndSize) {
  RunConfig config;
  config.groups =
      "norm:decay=0 bias:decay=0,lr=0.5 fc.*:update=kahan >=30000:update=stochastic,state=bf16 "
      "*conv2.weight:lr=3";
  const ClassifierEngine engine(resnet(config));
  EXPECT_EQ(choice(engine, "bn1.weight").update.optimizer.weight_decay, 0);
  EXPECT_EQ(choice(engine, "layer2.0.bn2.bias").update.optimizer.weight_decay, 0);
  EXPECT_EQ(choice(engine, "conv1.weight").update.optimizer.weight_decay, 5e-4);
  EXPECT_EQ(choice(engine, "conv1.weight").rule.kind, UpdateRule::Kind::master);
  EXPECT_EQ(choice(engine, "fc.bias").update.lr_factor, 0.5);
  EXPECT_EQ(choice(engine, "fc.bias").rule.kind, UpdateRule::Kind::kahan);
  // 36,864.
  EXPECT_EQ(choice(engine, "layer3.0.conv2.weight").rule.kind, UpdateRule::Kind::stochastic);
  EXPECT_EQ(choice(engine, "layer3.0.conv2.weight").update.lr_factor, 3);
  EXPECT_EQ(choice(engine, "layer3.0.conv1.weight").rule.kind, UpdateRule::Kind::master);  // 18,432
  const Plan& plan = engine.training_plan();
  const auto format = [&](const std::string& name) {
    return storage_name(plan.formats()[static_cast<size_t>(plan.graph().find(name).index)].storage);
  };
  EXPECT_EQ(format("conv1.weight"), "fp32");
  EXPECT_EQ(format("fc.weight"), "bf16");
  EXPECT_EQ(format("fc.weight.compensation"), "bf16");
  EXPECT_EQ(format("fc.weight.momentum"), "fp32");
  EXPECT_EQ(format("layer3.0.conv2.weight.momentum"), "bf16");
  EXPECT_FALSE(plan.graph().find("conv1.weight.compensation"));
}

TEST(Groups, OneThatSelectsNothingIsRefused) {
  RunConfig config;
  config.groups = "fcc.*:lr=1";
  EXPECT_THROW(ClassifierEngine{resnet(config)}, Error);
}

// A group back in fp32 within a run of narrow weights needs no format, and one that leaves fp32 has
// the usual one.
TEST(Groups, FollowTheirRulesFormat) {
  RunConfig config;
  config.update = "extra:8";
  config.groups = "norm:update=master";
  const ClassifierEngine engine(resnet(config));
  EXPECT_EQ(storage_name(
                stored_weight(choice(engine, "bn1.weight").rule, choice(engine, "bn1.weight").weight.format)),
            "fp32");
  EXPECT_EQ(storage_name(choice(engine, "conv1.weight").weight.format), "bf16");
  config.groups = "norm:update=master bn1.*:update=kahan";
  EXPECT_EQ(storage_name(choice(ClassifierEngine(resnet(config)), "bn1.weight").weight.format), "bf16");
}

TEST(States, TextsAreReadAndComeBack) {
  for (const char* text : {"fp32", "bf16", "fp16", "bf16:sr", "fp16:sr", "8bit", "e8m5"}) {
    EXPECT_EQ(state_format_text(parse_state_format(text)), text);
  }
  EXPECT_EQ(storage_name(parse_state_format("fp16").squares), "bf16");
  EXPECT_EQ(storage_name(parse_state_format("e5m2").squares), "bf16");
  EXPECT_EQ(storage_name(parse_state_format("e8m5").squares), "e8m5");
  EXPECT_EQ(storage_name(parse_state_format("8bit").squares), "scaled(e5m2,nonzero)");
  for (const char* text : {"fp32:sr", "8bit:sr", "s2fp8", "bf16+8", "scaled(e4m3)", "9bit", ""}) {
    EXPECT_THROW(parse_state_format(text), Error) << text;
  }
}

TEST(States, AdagradsSumIsNotKeptInEightBits) {
  RunConfig config;
  config.optimizer = "adagrad";
  config.state = "8bit";
  EXPECT_THROW(ClassifierEngine{resnet(config)}, Error);
  config.state = "bf16";
  EXPECT_NO_THROW(ClassifierEngine{resnet(config)});
}

// What promotion would give a weight must be storable too: fp(6,9,0) leaves room for 14 extra bits.
TEST(Stored, AssignedWeightsAreCheckedWithTheirHighFormat) {
  RunConfig config;
  config.policy = "uniform";
  config.weight = "assigned";
  config.update = "extra:14";
  EXPECT_NO_THROW(ClassifierEngine{resnet(config)});
  config.update = "extra:15";
  EXPECT_THROW(ClassifierEngine{resnet(config)}, Error);
  // Where nothing is promoted the high format does not matter.
  config.promote = "off";
  config.update = "extra:16";
  EXPECT_NO_THROW(ClassifierEngine{resnet(config)});
}

// What is assigned fp32 has no bits to save: it is updated as a master weight, whatever the rule.
TEST(Stored, AssignedFp32IsMaster) {
  RunConfig config;
  config.policy = "amp:bf16";
  config.weight = "assigned";
  config.update = "kahan";
  const ClassifierEngine engine(resnet(config));
  EXPECT_EQ(choice(engine, "conv1.weight").rule.kind, UpdateRule::Kind::kahan);
  EXPECT_EQ(choice(engine, "bn1.weight").rule.kind, UpdateRule::Kind::master);
  EXPECT_FALSE(engine.graph().find("bn1.weight.compensation"));
  EXPECT_TRUE(engine.graph().find("conv1.weight.compensation"));
}

// A budget is kept with what fused backward needs to skip steps.
TEST(Stored, PeakCountsTheSnapshot) {
  for (const bool snapshot : {false, true}) {
    RunConfig config;
    // With all groups high they take 2236 and 1708.
    const size_t kilobytes = snapshot ? 2000 : 1500;
    config.policy = fmt::format("peak:{}KB", kilobytes);
    ClassifierOptions options = resnet(config);
    options.fused_backward = true;
    options.fused_overflow_of =
        snapshot ? ClassifierOptions::FusedOverflow::snapshot : ClassifierOptions::FusedOverflow::twice;
    options.may_skip = [](auto&&...) { return true; };
    const ClassifierEngine engine(options);
    EXPECT_EQ(engine.keeps_snapshot(), snapshot);
    EXPECT_LE(engine.planned_peak_bytes(), kilobytes << 10);
  }
}

// A machine of one format: nothing that outlives a step is wider.
TEST(Stored, Fpu16KeepsEverythingInItsFormat) {
  for (const char* format : {"bf16", "fp16", "e8m5", "e8m3", "e8m1"}) {
    RunConfig config;
    config.policy = std::string("fpu16:") + format;
    config.optimizer = "adamw";
    const ClassifierEngine engine(resnet(config));
    const Plan& plan = engine.training_plan();
    for (size_t i = 0; i < plan.graph().tensor_count(); ++i) {
      const TensorInfo& tensor = plan.graph().tensors()[i];
      if (tensor.element != Element::real || tensor.kind == Kind::saved || tensor.kind == Kind::grad_sum)
        continue;
      EXPECT_EQ(storage_name(plan.formats()[i].storage), format) << tensor.name;
      EXPECT_FALSE(plan.formats()[i].operand) << tensor.name;
    }
    config.update = "master";
    const ClassifierEngine master(resnet(config));
    const TensorId weight = master.graph().find("conv1.weight");
    const TensorFormat& stored = master.training_plan().formats()[static_cast<size_t>(weight.index)];
    EXPECT_EQ(storage_name(stored.storage), "fp32");
    EXPECT_EQ(storage_name(*stored.operand), format);
  }
}

}  // namespace
}  // namespace ulp
