// Embedding tables whose gradients have only the rows that a step looked up.
#include <gtest/gtest.h>
#include <ulp/ulp.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp.h"

namespace ulp {
namespace {

constexpr int64_t kUsers = 4000, kItems = 600, kWidth = 16, kBatch = 32;

Network factors(Builder& b, const BatchShape& shape) {
  const TensorId users = indices(b, "user", {shape.examples}), items = indices(b, "item", {shape.examples});
  const TensorId user = embedding(b, "users", users, kUsers, kWidth, Init::normal(0.3f)),
                 item = embedding(b, "items", items, kItems, kWidth, Init::normal(0.3f));
  const TensorId scores = linear(b, "score", multiply(b, "factors", user, item), {.out = 1});
  return {.loss = mse(b, "loss", scores, target(b, "y", {shape.examples, 1}))};
}

Session session_with(const std::string& gradients, Settings settings) {
  settings.insert_or_assign("table_gradients", gradients);
  return Session(factors, {.batch = {kBatch}, .settings = std::move(settings)});
}

// Few users and many times the same item, other ones in each step.
double step(Session& session) {
  std::mt19937 random(static_cast<uint32_t>(session.step()) + 1);
  std::vector<int32_t> user(kBatch), item(kBatch);
  std::vector<float> y(kBatch);
  for (size_t i = 0; i < y.size(); ++i) {
    user[i] = static_cast<int32_t>(random() % 40 * 97);
    item[i] = static_cast<int32_t>(random() % 12 == 0 ? random() % kItems : random() % 3);
    y[i] = (user[i] / 97 + item[i]) % 3 == 0 ? 1.0f : -0.5f;
  }
  return session.train({{kBatch}, {feed_of("user", user), feed_of("item", item), feed_of("y", y)}}).mean();
}

const char* const kTensors[] = {"users.weight", "items.weight", "score.weight"};

// SGD without momentum and Adagrad leave a row without gradient as it is, under every rule.
TEST(Tables, RowsAloneGiveTheBitsOfDenseGradients) {
  for (const char* optimizer : {"sgd", "adagrad"}) {
    for (const Settings& rule : std::vector<Settings>{{},
                                                      {{"policy", "size:0.5"}},
                                                      {{"policy", "fp8"}, {"loss_scale", "none"}},
                                                      {{"weight", "bf16"}, {"update", "stochastic"}},
                                                      {{"update", "extra:8"}, {"policy", "amp:bf16"}},
                                                      {{"update", "extra:12"}, {"policy", "amp:fp16"}},
                                                      {{"fused_backward", "true"}},
                                                      {{"loss_scale", "dynamic"}, {"policy", "amp:fp16"}}}) {
      Settings settings = {{"optimizer", optimizer}, {"lr", "0.3"}, {"weight_decay", "0"}};
      if (std::string(optimizer) == "sgd") settings.emplace("momentum", "0");
      settings.insert(rule.begin(), rule.end());
      Session dense = session_with("dense", settings), rows = session_with("rows", settings),
              automatic = session_with("auto", settings);
      for (int i = 0; i < 12; ++i) {
        const double loss = step(dense);
        EXPECT_EQ(step(rows), loss);
        EXPECT_EQ(step(automatic), loss);
      }
      for (const char* name : kTensors) {
        const std::vector<float> expected = dense.weight(name);
        EXPECT_EQ(rows.weight(name), expected) << optimizer << " " << ::testing::PrintToString(rule);
        EXPECT_EQ(automatic.weight(name), expected);
      }
      EXPECT_LT(rows.memory().planned_peak, dense.memory().planned_peak);
      EXPECT_EQ(automatic.memory().planned_peak, rows.memory().planned_peak);
      EXPECT_EQ(rows.memory().measured_peak, rows.memory().planned_peak);
    }
  }
}

// With momentum a row rests until it is looked up again. That is another optimizer than the dense
// one, and never the default.
TEST(Tables, RowsRestWhereTheOptimizerHasMomentum) {
  for (const Settings& settings : std::vector<Settings>{
           {{"optimizer", "sgd"}},
           {{"optimizer", "adagrad"}, {"lr", "0.3"}, {"weight", "bf16"}, {"update", "kahan"}},
           {{"optimizer", "adam"}, {"lr", "0.02"}},
           {{"optimizer", "lion"}, {"lr", "0.01"}},
           {{"optimizer", "adagrad"}, {"lr", "0.1"}, {"weight_decay", "0.01"}},
           {{"optimizer", "adam"}, {"lr", "0.02"}, {"state", "bf16"}}}) {
    Session dense = session_with("dense", settings), rows = session_with("rows", settings),
            automatic = session_with("auto", settings);
    const std::vector<float> before = rows.weight("users.weight");
    double first = 0, last = 0;
    for (int i = 0; i < 60; ++i) {
      const double loss = step(dense);
      EXPECT_EQ(step(automatic), loss);
      const double mine = step(rows);
      (i < 6 ? first : last) += i < 6 || i >= 54 ? mine : 0;
    }
    EXPECT_LT(last, first) << ::testing::PrintToString(settings);
    bool same = true;
    for (const char* name : kTensors) {
      EXPECT_EQ(automatic.weight(name), dense.weight(name)) << name;
      same = same && rows.weight(name) == dense.weight(name);
    }
    EXPECT_FALSE(same) << ::testing::PrintToString(settings);
    const std::vector<float> after = rows.weight("users.weight");
    for (size_t i = 0; i < after.size(); ++i) {
      if (i / kWidth % 97 != 0) {
        ASSERT_EQ(after[i], before[i]) << "row " << i / kWidth;
      }
    }
  }
}

// What a rule redraws or adds up at every update is updated densely by default.
TEST(Tables, RulesThatTouchEveryRowAreDense) {
  for (const Settings& rule :
       std::vector<Settings>{{{"weight", "fp16"}, {"update", "extra:13:sr"}, {"policy", "amp:fp16"}},
                             {{"weight", "bf16"}, {"update", "kahan"}},
                             {{"clip_norm", "0.5"}}}) {
    Settings settings = {{"lr", "0.3"}, {"momentum", "0"}, {"weight_decay", "0"}};
    settings.insert(rule.begin(), rule.end());
    Session dense = session_with("dense", settings), automatic = session_with("auto", settings);
    EXPECT_EQ(automatic.memory().planned_peak, dense.memory().planned_peak);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(step(automatic), step(dense)) << ::testing::PrintToString(rule);
  }
}

// Gradients that are made twice, or put back, because steps overflow.
TEST(Tables, SkippedStepsAreTheSameFused) {
  for (const char* clip : {"0", "0.5"}) {
    const Settings settings = {{"optimizer", "adam"},
                               {"policy", "amp:fp16"},
                               {"loss_scale", "dynamic:1e7"},
                               {"update", "extra:8"},
                               {"clip_norm", clip}};
    Session apart = session_with("rows", settings);
    Settings twice = settings, snapshot = settings;
    twice.emplace("fused_backward", "true");
    snapshot.insert({{"fused_backward", "true"}, {"fused_overflow", "snapshot"}});
    std::vector<Session> fused;
    fused.push_back(session_with("rows", twice));
    if (std::string(clip) == "0") fused.push_back(session_with("rows", snapshot));
    for (int i = 0; i < 20; ++i) {
      const double loss = step(apart);
      for (Session& other : fused) EXPECT_EQ(step(other), loss);
    }
    EXPECT_LT(apart.updates(), apart.step());
    for (Session& other : fused) {
      for (const char* name : kTensors) EXPECT_EQ(other.weight(name), apart.weight(name)) << name;
      EXPECT_EQ(other.memory().measured_peak, other.memory().planned_peak);
    }
  }
}

// Over several micro-batches there is one sum of all rows, and state that rows share is not written
// by rows.
TEST(Tables, SomeHaveAllRows) {
  for (const Settings& settings :
       std::vector<Settings>{{{"grad_accum", "2"}}, {{"optimizer", "adam"}, {"state", "8bit"}}}) {
    Session dense = session_with("dense", settings), rows = session_with("rows", settings);
    EXPECT_EQ(rows.memory().planned_peak, dense.memory().planned_peak);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(step(rows), step(dense));
  }
}

TEST(Tables, ResumeByteForByte) {
  const TempFolder folder;
  for (const Settings& settings :
       std::vector<Settings>{{{"optimizer", "adam"}, {"update", "extra:8"}, {"policy", "size:0.5"}},
                             {{"optimizer", "adam"}, {"state", "bf16"}, {"policy", "s2fp8"}},
                             {{"weight", "bf16"}, {"update", "stochastic"}, {"fused_backward", "true"}}}) {
    Session whole = session_with("rows", settings);
    while (whole.step() < 20) step(whole);
    whole.save(folder / "whole");
    {
      Session first = session_with("rows", settings);
      while (first.step() < 7) step(first);
      first.save(folder / "part");
      step(first);  // what is lost
    }
    Session second = session_with("rows", settings);
    second.load(folder / "part");
    while (second.step() < 20) step(second);
    second.save(folder / "part");
    EXPECT_EQ(content(folder / "part"), content(folder / "whole")) << ::testing::PrintToString(settings);
  }
}

TEST(Tables, RefuseAnotherWord) {
  EXPECT_SAYS(session_with("sparse", {}), "'sparse' is none of auto, dense and rows");
}

}  // namespace
}  // namespace ulp
