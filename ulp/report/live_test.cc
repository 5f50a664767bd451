#include "ulp/report/live.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/temp.h"
#include "ulp/base/json.h"
#include "ulp/run/config.h"

namespace ulp {
namespace {

constexpr std::string_view kPage =
    "<html><head><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';\n img-src "
    "data:\"></head>"
    "<script type=\"application/json\" id=\"document\">__DOCUMENT__</script></html>";

class Live : public testing::Test {
 protected:
  void make_run(const std::string& name) {
    std::filesystem::create_directories(folder_ / name);
    put(folder_ / (name + "/config.toml"),
        "model = \"mlp\"\ndata = \"synthetic\"\nimage_shape = \"1x8x8\"\nsubset = 64\nbatch = 16\nepochs = "
        "3\n");
    put(folder_ / (name + "/metrics.jsonl"), step(1, 2.5));
  }
  static std::string step(int number, double loss) {
    return "{\"event\":\"step\",\"step\":" + std::to_string(number) + ",\"loss\":" + std::to_string(loss) +
           ",\"lr\":0.1,\"scale\":1.0,\"skipped\":false,\"cancelled\":0.0}\n";
  }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / (name + "/metrics.jsonl"), std::ios::app) << text;
  }

  TempFolder folder_;
};

Json parsed(LiveReport& report) { return parse_json(report.document()->bytes); }

TEST_F(Live, ReadsOnlyWhatHasChanged) {
  LiveReport live({folder_.path()}, kPage);
  EXPECT_EQ(parsed(live).at("runs").size(), 0u);
  EXPECT_TRUE(parsed(live).at("live").get<bool>());
  live.refresh();
  make_run("a");
  make_run("b");
  EXPECT_TRUE(live.refresh());
  EXPECT_EQ(live.reads(), 2u);
  ASSERT_EQ(parsed(live).at("runs").size(), 2u);
  const std::string tag = live.document()->tag;
  EXPECT_FALSE(live.refresh());
  EXPECT_EQ(live.reads(), 2u);
  EXPECT_EQ(live.document()->tag, tag);
  append("b", step(2, 1.25));
  EXPECT_TRUE(live.refresh());
  EXPECT_EQ(live.reads(), 3u);
  const Json run = parsed(live).at("runs").at(1);
  EXPECT_EQ(run.at("steps"), 2);
  EXPECT_EQ(run.at("curve").at("loss"), Json({2.5, 1.25}));
  EXPECT_NE(live.document()->tag, tag);
  std::filesystem::remove_all(folder_ / "a");
  EXPECT_TRUE(live.refresh());
  ASSERT_EQ(parsed(live).at("runs").size(), 1u);
  EXPECT_EQ(parsed(live).at("runs").at(0).at("id"), "b");
}

TEST_F(Live, ThePageHoldsTheDocument) {
  make_run("<script>alert(1)</script>");
  LiveReport live({folder_.path()}, kPage);
  EXPECT_TRUE(live.refresh());
  const auto page = live.page();
  EXPECT_EQ(live.page(), page);  // made once
  // The name cannot end the script that it lies in.
  EXPECT_EQ(page->bytes.find("<script>alert"), page->bytes.npos);
  const size_t begin = page->bytes.find("id=\"document\">") + 14;
  const Json document =
      parse_json(std::string_view(page->bytes).substr(begin, page->bytes.rfind("</script>") - begin));
  EXPECT_EQ(document.at("runs").at(0).at("id"), "<script>alert(1)</script>");
  append("<script>alert(1)</script>", step(2, 1));
  EXPECT_TRUE(live.refresh());
  EXPECT_NE(live.page(), page);
}

TEST_F(Live, AFolderThatGoesIsNoEnd) {
  make_run("runs/a");
  LiveReport live({folder_ / "runs"}, kPage);
  live.refresh();
  const auto document = live.document();
  std::filesystem::remove_all(folder_ / "runs");
  EXPECT_FALSE(live.refresh());
  EXPECT_EQ(live.document(), document);
  EXPECT_SAYS(LiveReport({folder_ / "none"}, kPage), "none");
}

TEST_F(Live, FollowsWhileSomebodyAsks) {
  make_run("a");
  LiveReport live({folder_.path()}, kPage);
  std::atomic<bool> stop = false;
  std::thread thread([&] { live.follow(stop); });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto steps = [&]() -> int {
    const Json document = parsed(live);
    return document.at("runs").empty() ? 0 : document.at("runs").at(0).at("steps").get<int>();
  };
  while (steps() != 1 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(steps(), 1);
  append("a", step(2, 1));
  while (steps() != 2 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(steps(), 2);
  EXPECT_EQ(live.reads(), 2u);
  stop = true;
  thread.join();
}

TEST(PolicyOf, IsOneLineOfThePage) {
  EXPECT_EQ(policy_of(kPage), "default-src 'none';  img-src data:");
  EXPECT_EQ(policy_of("<html>"), "");
  EXPECT_EQ(policy_of("<meta http-equiv=\"Content-Security-Policy\"><p content=\"x\">"), "");
}

}  // namespace
}  // namespace ulp
