#include "ulp/report/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "tests/support/temp.h"
#include "ulp/base/json.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// One small run of the trainer for all tests, beside files that hold what a report shows too.
class Documents : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = new TempFolder;
    RunConfig config;
    config.model = "mlp";
    config.width = 0.1;
    config.data = "synthetic";
    config.batch = 64;
    config.subset = 256;
    config.epochs = 2;
    config.policy = "uniform";
    config.seed = 3;
    config.out = *root_ / "runs/one";
    fs::create_directories(*root_ / "runs");
    Observer nobody;
    const std::atomic<bool> stop = false;
    ASSERT_EQ(train(config, false, nobody, stop), Outcome::finished);
    put(*root_ / "runs/one/histograms.jsonl",
        R"J({"step":1,"tensor":"fc1.out","kind":"activation_grad","format":"fp(5,2,0)","of":"y",)J"
        R"J("lowest":-3,"counts":[4,5],"zero":1,"infinite":2,"nan":3})J"
        "\n"
        R"J({"step":1,"tensor":"fc1.out","kind":"activation","mu":-1.5,"m":2,"alpha":3,"beta":"nan"})J"
        "\n");
    put(*root_ / "runs/bench.json",
        R"J({"model":"lenet","policy":"fp32","device":"cpu","batch":8,"input":"1x28x28","classes":10,"ms":2.5,)J"
        R"J("ms_min":2,"planned_peak_bytes":100,"kernels":[{"op":"conv2d","kernel":"onednn",)J"
        R"J("operands":"fp32 x fp32","ms":1.5,"calls":2}]})J");
    fs::create_directories(*root_ / "runs/squares");
    put(*root_ / "runs/squares/least-squares.csv",
        "variant,seed,step,loss,excess,updates,cancelled\n"
        "fp32,0,10,4,1,10,5\nfp32,1,10,2,3,10,1\nkahan,0,10,8,2,0,0\n");
    const std::string folder = *root_ / "runs";
    report_ = new Report(read_report(find_runs({&folder, 1})));
    PlanBook book;
    text_ = new std::string(document_of(*report_, book));
    document_ = new Json(parse_json(*text_));
  }
  static void TearDownTestSuite() {
    delete document_;
    delete text_;
    delete report_;
    delete root_;
  }
  static const Json& run() { return document_->at("runs").at(0); }

  // The lines of an event in the run's log.
  static std::vector<Json> lines(const std::string& event) {
    std::vector<Json> made;
    std::ifstream in(*root_ / "runs/one/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      Json json = parse_json(line);
      if (json.at("event") == event) made.push_back(std::move(json));
    }
    return made;
  }
  static std::vector<std::string> names(const Json& object) {
    std::vector<std::string> made;
    for (const auto& [name, value] : object.items()) made.push_back(name);
    return made;
  }

  using Names = std::vector<std::string>;
  static inline TempFolder* root_ = nullptr;
  static inline Report* report_ = nullptr;
  static inline std::string* text_ = nullptr;
  static inline Json* document_ = nullptr;
};

TEST_F(Documents, HasTheMembersThatThePageReads) {
  EXPECT_EQ(names(*document_), (Names{"version", "title", "made", "ulp", "live", "runs", "plans", "benches",
                                      "leastSquares", "notes"}));
  EXPECT_EQ(names(run()),
            (Names{"id",         "state",   "notes",          "settings", "group",      "label",
                   "seed",       "metric",  "higherIsBetter", "steps",    "totalSteps", "totalEpochs",
                   "changed",    "summary", "epochs",         "curve",    "promotions", "heat",
                   "histograms", "shifted", "doctor",         "plan"}));
  EXPECT_EQ(
      names(run().at("summary")),
      (Names{"best", "bestFp32", "last", "trainLoss", "aggregateBits", "aggregateBitsEnd", "peakBytes",
             "plannedPeakBytes", "lowPlanned", "lowLast", "lowMean", "promotions", "skipped", "seconds"}));
  EXPECT_EQ(names(run().at("epochs")),
            (Names{"epoch", "step", "trainLoss", "testLoss", "train", "test", "testFp32", "lowRatio",
                   "peakBytes", "seconds", "examplesPerSecond", "others", "best"}));
  EXPECT_EQ(names(run().at("curve")),
            (Names{"stride", "step", "loss", "lossLow", "lossHigh", "lr", "scale", "cancelled", "skipped"}));
  EXPECT_EQ(names(run().at("promotions")), (Names{"step", "tensor", "from", "to", "ratio"}));
  EXPECT_EQ(names(run().at("heat")),
            (Names{"tensors", "step", "overflow", "underflow", "amax", "formats", "words"}));
  EXPECT_EQ(names(run().at("heat").at("tensors").at(0)),
            (Names{"name", "kind", "elements", "format", "high"}));
  EXPECT_EQ(names(run().at("doctor")), (Names{"sentence", "text"}));
  const Json& plan = document_->at("plans").at(0);
  EXPECT_EQ(names(plan), (Names{"model", "device", "note", "stateBytes", "arenaBytes", "peakBytes",
                                "peakStep", "aggregateBits", "lowRatio", "use", "tensors", "detail"}));
  EXPECT_EQ(names(plan.at("use")),
            (Names{"weights", "optimizer", "activations", "gradients", "workspace", "snapshot"}));
  EXPECT_EQ(names(plan.at("tensors").at(0)),
            (Names{"name", "op", "kind", "elements", "bits", "format", "group", "low"}));
  const Json& detail = plan.at("detail");
  EXPECT_EQ(names(detail), (Names{"steps", "blocks", "nodes"}));
  EXPECT_EQ(names(detail.at("steps").at(0)), (Names{"node", "op", "kernel", "phase", "more"}));
  EXPECT_EQ(names(detail.at("blocks").at(0)),
            (Names{"name", "use", "format", "offset", "bytes", "first", "last"}));
  EXPECT_EQ(names(detail.at("nodes").at(0)), (Names{"name", "op", "out", "in", "weights"}));
}

TEST_F(Documents, TheRunAsItIsInItsLog) {
  EXPECT_EQ(run().at("id"), "one");
  EXPECT_EQ(run().at("state"), "done");
  EXPECT_EQ(run().at("notes"), Json::array());
  EXPECT_EQ(run().at("settings").at("policy"), "uniform");
  EXPECT_EQ(run().at("settings").at("width"), "0.1");
  EXPECT_EQ(run().at("label"), "mlp, uniform");
  EXPECT_EQ(run().at("seed"), "3");
  EXPECT_EQ(run().at("metric"), "acc");
  EXPECT_EQ(run().at("higherIsBetter"), true);
  EXPECT_EQ(run().at("steps"), 8);
  EXPECT_EQ(run().at("totalSteps"), 8);
  EXPECT_EQ(run().at("totalEpochs"), 2);
  const std::vector<Json> steps = lines("step"), epochs = lines("epoch");
  ASSERT_EQ(steps.size(), 8u);
  ASSERT_EQ(epochs.size(), 2u);
  const Json& curve = run().at("curve");
  EXPECT_EQ(curve.at("stride"), 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(curve.at("step").at(i), steps[i].at("step"));
    for (const char* name : {"loss", "lossLow", "lossHigh"})
      EXPECT_EQ(curve.at(name).at(i).get<double>(), steps[i].at("loss").get<double>());
    EXPECT_EQ(curve.at("lr").at(i).get<double>(), steps[i].at("lr").get<double>());
    EXPECT_EQ(curve.at("scale").at(i).get<double>(), steps[i].at("scale").get<double>());
  }
  const std::vector<std::pair<const char*, const char*>> columns = {
      {"trainLoss", "train_loss"},
      {"testLoss", "test_loss"},
      {"train", "train_acc"},
      {"test", "test_acc"},
      {"testFp32", "test_acc_fp32"},
      {"lowRatio", "low_ratio"},
      {"peakBytes", "peak_bytes"},
      {"seconds", "seconds"},
      {"examplesPerSecond", "examples_per_second"}};
  for (size_t i = 0; i < epochs.size(); ++i) {
    for (const auto& [name, in_log] : columns)
      EXPECT_EQ(run().at("epochs").at(name).at(i).get<double>(), epochs[i].at(in_log).get<double>()) << name;
  }
  EXPECT_EQ(run().at("epochs").at("step"), (Json{4, 8}));
}

TEST_F(Documents, FiguresOfTheRun) {
  const Json& summary = run().at("summary");
  const std::vector<Json> epochs = lines("epoch");
  const Json done = lines("done").at(0);
  EXPECT_EQ(summary.at("best").get<double>(), done.at("best_test_acc").get<double>());
  EXPECT_EQ(summary.at("last").get<double>(), done.at("final_test_acc").get<double>());
  EXPECT_EQ(summary.at("trainLoss").get<double>(), epochs.back().at("train_loss").get<double>());
  EXPECT_EQ(summary.at("peakBytes").get<double>(), done.at("peak_bytes").get<double>());
  EXPECT_EQ(summary.at("plannedPeakBytes").get<double>(), done.at("planned_peak_bytes").get<double>());
  EXPECT_EQ(summary.at("lowLast").get<double>(), epochs.back().at("low_ratio").get<double>());
  EXPECT_EQ(summary.at("promotions"), lines("promote").size());
  const Json& plan = document_->at("plans").at(run().at("plan").get<size_t>());
  EXPECT_EQ(summary.at("aggregateBits"), plan.at("aggregateBits"));
  EXPECT_EQ(summary.at("lowPlanned"), plan.at("lowRatio"));
}

TEST_F(Documents, ThePlanIsThatOfTheRun) {
  const Json& plan = document_->at("plans").at(run().at("plan").get<size_t>());
  EXPECT_EQ(plan.at("device"), "cpu");
  EXPECT_EQ(plan.at("note"), "");
  // The allocator's high-water mark, which tests of training hold equal to what was planned.
  EXPECT_EQ(plan.at("peakBytes"), lines("done").at(0).at("planned_peak_bytes"));
  EXPECT_EQ(plan.at("peakBytes").get<int64_t>(),
            plan.at("stateBytes").get<int64_t>() + plan.at("arenaBytes").get<int64_t>());
  int64_t uses = 0;
  for (const auto& [name, bytes] : plan.at("use").items()) uses += bytes.get<int64_t>();
  EXPECT_EQ(plan.at("peakBytes").get<int64_t>(), uses);
  int64_t highest = 0, lowest = 0;
  for (const Json& block : plan.at("detail").at("blocks")) {
    highest = std::max(highest, block.at("offset").get<int64_t>() + block.at("bytes").get<int64_t>());
    lowest = std::min(lowest, block.at("offset").get<int64_t>());
  }
  EXPECT_EQ(highest - lowest, plan.at("peakBytes").get<int64_t>());
  double bits = 0;
  for (const Json& tensor : plan.at("tensors"))
    bits += tensor.at("elements").get<double>() * tensor.at("bits").get<double>();
  EXPECT_EQ(bits, plan.at("aggregateBits").get<double>());
}

TEST_F(Documents, HeatIsThatOfItsRanges) {
  const RangeHistory history = load_ranges(*root_ / "runs/one/ranges.bin");
  const Json& heat = run().at("heat");
  ASSERT_EQ(heat.at("tensors").size(), history.tensors.size());
  ASSERT_EQ(heat.at("step").size(), history.records.size());
  for (size_t t = 0; t < history.tensors.size(); ++t) {
    EXPECT_EQ(heat.at("tensors").at(t).at("name"), history.tensors[t].name);
    for (size_t i = 0; i < history.records.size(); ++i) {
      const TensorRange& range = history.records[i].tensors[t];
      EXPECT_EQ(heat.at("overflow").at(t).at(i).get<float>(), range.overflow);
      EXPECT_EQ(heat.at("underflow").at(t).at(i).get<float>(), range.underflow);
      EXPECT_EQ(heat.at("amax").at(t).at(i).get<float>(), range.amax);
    }
  }
  EXPECT_EQ(heat.at("formats").at("fp(4,3,4)").at("high").get<double>(), std::log2(30.0));
}

TEST_F(Documents, HistogramsBenchmarksAndExperiments) {
  EXPECT_EQ(
      run().at("histograms").dump(),
      R"J([{"tensor":"fc1.out","kind":"activation gradient","format":"fp(5,2,0)","of":"y","step":1,"lowest":-3,)J"
      R"J("counts":[4,5],"zero":1,"infinite":2,"nan":3}])J");
  EXPECT_EQ(run().at("shifted").dump(),
            R"J([{"tensor":"fc1.out","kind":"activation","step":[1],"mu":[-1.5],"m":[2],"alpha":[3],)J"
            R"J("beta":["nan"]}])J");
  EXPECT_EQ(
      document_->at("benches").dump(),
      R"J([{"id":"bench.json","model":"lenet","policy":"fp32","label":"lenet, fp32","device":"cpu","batch":8,)J"
      R"J("seconds":0.0025,"plannedBytes":100,"aggregateBits":null,"kernels":[{"op":"conv2d","kernel":"onednn",)J"
      R"J("operands":"fp32 x fp32","seconds":0.0015,"calls":2}]}])J");
  EXPECT_EQ(document_->at("leastSquares").dump(),
            R"J([{"id":"squares","title":"squares","variants":[)J"
            R"J({"name":"fp32","step":[10],"loss":[3],"excess":[2],"cancelled":[0.3]},)J"
            R"J({"name":"kahan","step":[10],"loss":[8],"excess":[2],"cancelled":[0]}]}])J");
}

TEST_F(Documents, PromotionsChangeTheAggregate) {
  Report changed = *report_;
  PlanBook book;
  const RunPlan& plan = book.plan_of(changed.runs[0], false);
  const auto low =
      std::find_if(plan.tensors.begin(), plan.tensors.end(), [](auto& tensor) { return tensor.low; });
  ASSERT_NE(low, plan.tensors.end());
  // The document plans again, with more detail.
  const double added = static_cast<double>(low->elements) * (32 - low->bits);
  changed.runs[0].promotions = {{4, low->name, low->format, "fp32", 0.5}};
  const Json document = parse_json(document_of(changed, book));
  const Json& summary = document.at("runs").at(0).at("summary");
  EXPECT_EQ(summary.at("aggregateBitsEnd").get<double>() - summary.at("aggregateBits").get<double>(), added);
}

// What a run needs: nothing is there but its configuration.
TEST_F(Documents, RunsOfAllSortsSideBySide) {
  const TempFolder other;
  const auto config = [&](const std::string& name, const std::string& text) {
    fs::create_directories(other / name);
    put(other / name + "/config.toml", text);
  };
  config("plain", "model = \"lenet\"\ndata = \"mnist\"\nbatch = 64\n");
  config("seed", "model = \"lenet\"\ndata = \"mnist\"\nbatch = 64\nseed = 5\n");
  config("gpu", "model = \"lenet\"\ndata = \"mnist\"\ndevice = \"cuda\"\n");
  config("folder", "model = \"lenet\"\ndata = \"folder\"\n");
  config("broken", "model = \n");
  config("</script>\xff", "model = \"lenet\"\ndata = \"mnist\"\npolicy = \"file:gone.json\"\n");
  const std::string folder = other.path();
  PlanBook book;
  const Json document = parse_json(document_of(read_report(find_runs({&folder, 1})), book));
  std::map<std::string, Json> runs;
  for (const Json& one : document.at("runs")) runs[one.at("id").get<std::string>()] = one;
  ASSERT_EQ(runs.size(), 6u);
  EXPECT_EQ(runs.at("plain").at("plan"), runs.at("seed").at("plan"));
  EXPECT_EQ(runs.at("plain").at("group"), runs.at("seed").at("group"));
  EXPECT_NE(runs.at("plain").at("group"), runs.at("gpu").at("group"));
  EXPECT_EQ(runs.at("plain").at("totalSteps"), 10 * 938);
  EXPECT_EQ(runs.at("plain").at("state"), "empty");
  EXPECT_EQ(runs.at("plain").at("heat"), nullptr);
  EXPECT_EQ(runs.at("plain").at("summary").at("best"), nullptr);
  EXPECT_EQ(document.at("plans").at(runs.at("gpu").at("plan").get<size_t>()).at("device"), "cpu");
  EXPECT_NE(document.at("plans").at(runs.at("gpu").at("plan").get<size_t>()).at("note"), "");
  EXPECT_EQ(runs.at("folder").at("plan"), -1);
  EXPECT_EQ(runs.at("broken").at("plan"), -1);
  EXPECT_EQ(runs.at("</script>\uFFFD").at("plan"), -1);
  for (const char* name : {"folder", "broken", "</script>\uFFFD"})
    EXPECT_EQ(runs.at(name).at("notes").size(), 1u) << name;
}

TEST_F(Documents, HeatMapsBeyondTheRoomAreLeftOutWithANote) {
  Report many = *report_;
  HeatMap& heat = *many.runs[0].heat;
  heat.tensors.assign(2000, heat.tensors[0]);
  heat.step.resize(240);
  for (auto* cells : {&heat.overflow, &heat.underflow, &heat.amax}) cells->resize(2000 * 240);
  for (int i = 0; i < 3; ++i) many.runs.push_back(many.runs[0]);
  PlanBook book;
  const std::string text = document_of(many, book);
  size_t left_out = 0;
  for (size_t at = 0; (at = text.find("its ranges are left out", at)) != text.npos; ++at) ++left_out;
  EXPECT_EQ(left_out, 2u);
}

}  // namespace
}  // namespace ulp
