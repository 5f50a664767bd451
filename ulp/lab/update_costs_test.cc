// Runs read from their metrics, means over seeds, and the bytes of a weight.
#include "ulp/lab/update_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "tests/support/temp.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

RunConfig config(const std::string& update, const std::string& weight, uint64_t seed) {
  RunConfig made;
  made.update = update;
  made.weight = weight;
  made.seed = seed;
  return made;
}

std::string metrics(double accuracy, double loss, double first, double second) {
  return fmt::format(
      "{{\"event\":\"step\",\"cancelled\":{0}}}\n{{\"event\":\"step\",\"cancelled\":{1}}}\n"
      "{{\"event\":\"epoch\",\"test_acc\":0.1,\"train_loss\":9}}\n"
      "{{\"event\":\"step\",\"cancelled\":{1}}}\n{{\"event\":\"epoch\",\"test_acc\":{2},\"train_loss\":{3}}}"
      "\n"
      "{{\"event\":\"done\"}}\n",
      first, second, accuracy, loss);
}

TEST(UpdateCosts, AreMeansOverSeedsByBytes) {
  std::vector<UpdateRun> runs(4);
  EXPECT_TRUE(read_update_run(config("extra:4", "bf16", 0), metrics(0.5, 1, 0.25, 0.75), "a", runs[0]));
  EXPECT_TRUE(read_update_run(config("extra:4", "bf16", 1), metrics(0.75, 2, 0.5, 1), "b", runs[1]));
  EXPECT_TRUE(read_update_run(config("kahan", "fp16", 0), metrics(0.25, 3, 0, 0), "c", runs[2]));
  EXPECT_TRUE(read_update_run(config("master", "default", 0), metrics(1, 0.5, 0, 0), "d", runs[3]));
  const std::vector<UpdateCost> costs = update_costs(runs);
  ASSERT_EQ(costs.size(), 3u);
  const UpdateCost& extra = costs[0];
  EXPECT_EQ(extra.rule, "extra:4");
  EXPECT_EQ(extra.seeds, 2u);
  EXPECT_DOUBLE_EQ(extra.bytes, 2.5);
  EXPECT_DOUBLE_EQ(extra.reached, 0.625);
  EXPECT_DOUBLE_EQ(extra.least, 0.5);
  EXPECT_DOUBLE_EQ(extra.most, 0.75);
  EXPECT_DOUBLE_EQ(extra.train_loss, 1.5);
  ASSERT_EQ(extra.cancelled.size(), 2u);
  EXPECT_DOUBLE_EQ(extra.cancelled[0], 0.625);
  EXPECT_DOUBLE_EQ(extra.cancelled[1], 0.875);
  EXPECT_EQ(costs[1].weight, "fp16");
  EXPECT_DOUBLE_EQ(costs[1].bytes, 4);  // the compensation too
  EXPECT_DOUBLE_EQ(costs[2].bytes, 4);
  const std::string table = update_costs_markdown(costs);
  EXPECT_NE(table.find(" test accuracy % |"), table.npos) << table;
  EXPECT_NE(table.find("62.50 (50.00..75.00)"), table.npos) << table;
  EXPECT_TRUE(update_costs_csv(costs).starts_with(
      "policy,weight,update,bytes,seeds,accuracy,least,most,train_loss,cancelled_1"));
  EXPECT_NE(update_costs_csv(costs).find("cancelled_2"), std::string::npos);
  EXPECT_NE(update_costs_svg(costs).find("bf16, extra:N"), std::string::npos);
}

TEST(UpdateCosts, OnlyRunsThatDifferInTheSeedAreAveraged) {
  std::vector<UpdateRun> runs(4);
  RunConfig lenet = config("plain", "bf16", 0), mlp = config("plain", "bf16", 1);
  lenet.model = "lenet";
  mlp.model = "mlp";
  EXPECT_TRUE(read_update_run(lenet, metrics(0.5, 1, 0, 0), "a", runs[0]));
  EXPECT_TRUE(read_update_run(mlp, metrics(0.75, 2, 0, 0), "b", runs[1]));
  lenet.seed = 5;
  lenet.threads = 2;  // decides no bit
  EXPECT_TRUE(read_update_run(lenet, metrics(0.25, 1, 0, 0), "c", runs[2]));
  lenet.lr = 0.5;
  EXPECT_TRUE(read_update_run(lenet, "{\"event\":\"diverged\"}\n", "d", runs[3]));
  const std::vector<UpdateCost> costs = update_costs(runs);
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[0].settings, (UpdateSettings{{"model", "lenet"}, {"lr", "0.5"}}));
  EXPECT_TRUE(std::isnan(costs[0].reached) && std::isnan(costs[0].train_loss));
  EXPECT_EQ(costs[1].settings, (UpdateSettings{{"model", "lenet"}, {"lr", "auto"}}));
  EXPECT_EQ(costs[1].seeds, 2u);
  EXPECT_DOUBLE_EQ(costs[1].reached, 0.375);
  EXPECT_EQ(costs[2].settings, (UpdateSettings{{"model", "mlp"}, {"lr", "auto"}}));
  EXPECT_EQ(costs[2].seeds, 1u);
  EXPECT_TRUE(update_costs_csv(costs).starts_with("policy,weight,update,model,lr,bytes,"));
  EXPECT_NE(update_costs_csv(costs).find("fp32,bf16,plain,mlp,auto,2,1,0.75,"), std::string::npos);
  EXPECT_NE(update_costs_markdown(costs).find("| lenet | auto |"), std::string::npos);
  EXPECT_NE(update_costs_svg(costs).find("bf16, plain, model mlp, lr auto"), std::string::npos);
}

TEST(UpdateCosts, NamesOfOneFormatAreOneSetting) {
  std::vector<UpdateRun> runs(2);
  RunConfig one = config("plain", "bfloat16", 0), other = config("plain", "bf16", 1);
  one.policy = "amp:bfloat16";
  other.policy = "amp:bf16";
  one.state = "bfloat16:sr";
  other.state = "bf16:sr";
  one.accumulator = "float32";
  EXPECT_TRUE(read_update_run(one, metrics(0.5, 1, 0, 0), "a", runs[0]));
  EXPECT_TRUE(read_update_run(other, metrics(0.75, 1, 0, 0), "b", runs[1]));
  const std::vector<UpdateCost> costs = update_costs(runs);
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_EQ(costs[0].policy, "amp:bf16");
  EXPECT_EQ(costs[0].seeds, 2u);
}

TEST(UpdateCosts, OneSeedTwiceIsRefused) {
  std::vector<UpdateRun> runs(3);
  RunConfig made = config("plain", "bf16", 7);
  EXPECT_TRUE(read_update_run(made, metrics(0.5, 1, 0, 0), "a", runs[0]));
  EXPECT_TRUE(read_update_run(config("plain", "bf16", 8), metrics(0.5, 1, 0, 0), "b", runs[1]));
  made.threads = 2;
  EXPECT_TRUE(read_update_run(made, metrics(0.5, 1, 0, 0), "c", runs[2]));
  EXPECT_SAYS(update_costs(runs),
              "a and c are runs of seed 7 that differ in nothing but threads: remove one of them");
}

// Writes a run's folder. Its checkpoint says this of the data; there is none if that is empty.
void put_run(const std::string& folder, const RunConfig& made, double accuracy, const std::string& data) {
  std::filesystem::create_directories(folder);
  put(folder + "/config.toml", config_text(made));
  put(folder + "/metrics.jsonl", metrics(accuracy, 1, 0, 0));
  if (!data.empty())
    save_tensors(folder + "/last.safetensors", {}, {{"run", run_text(made) + data + "; formats 1:2"}});
}

TEST(UpdateCosts, RunsOnOtherDataAreNoSeeds) {
  const TempFolder folder;
  RunConfig made = config("plain", "bf16", 0);
  put_run(folder / "a", made, 0.25, "");
  made.seed = 1;
  made.data_dir = "elsewhere";
  put_run(folder / "b", made, 0.5, "");
  std::vector<UpdateCost> costs = update_costs(find_update_runs(folder.path()));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].settings, (UpdateSettings{{"data_dir", ""}}));
  EXPECT_EQ(costs[1].settings, (UpdateSettings{{"data_dir", "elsewhere"}}));
  // A checkpoint of pictures says their shape alone.
  put_run(folder / "b", made, 0.5, "; classes 10; input 1x28x28");
  EXPECT_EQ(update_costs(find_update_runs(folder.path())).size(), 2u);
  // Where it has a digest, the folder does not matter.
  put_run(folder / "b", made, 0.5, "; characters 80; text 0123abcd");
  made.data_dir = "";
  made.seed = 0;
  put_run(folder / "a", made, 0.25, "; characters 80; text 0123abcd");
  made.seed = 2;
  put_run(folder / "c", made, 0.75, "; characters 80; text 0123abce");
  costs = update_costs(find_update_runs(folder.path()));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].settings, (UpdateSettings{{"data_digest", "text 0123abcd"}}));
  EXPECT_EQ(costs[0].seeds, 2u);
  EXPECT_DOUBLE_EQ(costs[0].reached, 0.375);
  EXPECT_EQ(costs[1].seeds, 1u);
  put(folder / "c/last.safetensors", "damaged");
  EXPECT_EQ(update_costs(find_update_runs(folder.path())).size(), 2u);
}

std::string bits_metrics(const std::string& bits) {
  return fmt::format(
      "{{\"event\":\"step\",\"cancelled\":0}}\n"
      "{{\"event\":\"epoch\",\"test_bpc\":{},\"train_loss\":2,\"metric\":\"bpc\","
      "\"higher_is_better\":false}}\n{{\"event\":\"done\"}}\n",
      bits);
}

TEST(UpdateCosts, NameTheMetricOfTheRuns) {
  std::vector<UpdateRun> runs(3);
  EXPECT_TRUE(read_update_run(config("plain", "bf16", 0), bits_metrics("2.5"), "a", runs[0]));
  EXPECT_TRUE(read_update_run(config("plain", "bf16", 1), bits_metrics("3.5"), "b", runs[1]));
  EXPECT_TRUE(read_update_run(config("kahan", "bf16", 0), bits_metrics("\"nan\""), "c", runs[2]));
  EXPECT_EQ(runs[0].score, (Score{"bpc", false}));
  const std::vector<UpdateCost> costs = update_costs(runs);
  ASSERT_EQ(costs.size(), 2u);
  const std::string table = update_costs_markdown(costs);
  for (const char* words : {" test bpc |", "3.0000 (2.5000..3.5000)", "nan (nan..nan)"})
    EXPECT_NE(table.find(words), table.npos) << words << "\n" << table;
  EXPECT_TRUE(update_costs_csv(costs).starts_with("policy,weight,update,bytes,seeds,bpc,least,most,"));
  // One task alone can be compared.
  EXPECT_TRUE(read_update_run(config("plain", "bf16", 0), metrics(0.5, 1, 0, 0), "d", runs[2]));
  try {
    update_costs(runs);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("different metrics, bpc and acc"), std::string::npos)
        << error.what();
  }
}

TEST(UpdateCosts, UnfinishedRunsAndMixedOnesAreNotCounted) {
  UpdateRun run;
  EXPECT_FALSE(
      read_update_run(config("plain", "bf16", 0), "{\"event\":\"step\",\"cancelled\":0}\n", "a", run));
  RunConfig grouped = config("plain", "bf16", 0);
  grouped.groups = "norm:decay=0";
  EXPECT_FALSE(read_update_run(grouped, metrics(1, 1, 0, 0), "a", run));
  EXPECT_THROW(read_update_run(config("plain", "bf16", 0), "nonsense\n", "a", run), Error);
  EXPECT_THROW(find_update_runs("/nonexistent"), Error);
}

}  // namespace
}  // namespace ulp
