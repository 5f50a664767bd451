#include "ulp/io/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <string>

#include "tests/support/temp.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

class Metrics : public ::testing::Test {
 protected:
  std::string cut(std::string_view text, uint64_t step, uint64_t epochs_done) {
    put(path_, text);
    cut_metrics(path_, step, epochs_done);
    return content(path_);
  }

  // What the cut complains of; it must leave the file as it was.
  std::string refusal(std::string_view text) {
    put(path_, text);
    const std::string why = complaint_of([&] { cut_metrics(path_, 1000, 1000); }, path_);
    EXPECT_EQ(content(path_), text);
    return why;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(Metrics, AppendsLinesInOrder) {
  {
    MetricsFile file(path_);
    file.write({{"event", "step"}, {"step", 1}, {"loss", 2.5}});
    EXPECT_EQ(content(path_), "{\"event\":\"step\",\"step\":1,\"loss\":2.5}\n") << "there at once";
    file.write({{"z", "a\nb"}, {"a", nullptr}});
  }
  MetricsFile(path_).write({{"event", "done"}});
  EXPECT_EQ(content(path_),
            "{\"event\":\"step\",\"step\":1,\"loss\":2.5}\n"
            "{\"z\":\"a\\nb\",\"a\":null}\n"
            "{\"event\":\"done\"}\n");
}

TEST_F(Metrics, SpellsOutWhatJsonHasNoNumberFor) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  MetricsFile(path_).write({{"a", nan}, {"b", {{"c", {1.5, inf, -inf}}}}, {"d", -nan}});
  EXPECT_EQ(content(path_), "{\"a\":\"nan\",\"b\":{\"c\":[1.5,\"inf\",\"-inf\"]},\"d\":\"nan\"}\n");
}

TEST_F(Metrics, RefusesWhatCannotBeALine) {
  MetricsFile file(path_);
  EXPECT_EQ(complaint_of([&] { file.write(Json::array({1})); }, path_),
            "[metrics] a line of F must be an object, not array");
  EXPECT_EQ(complaint_of(
                [&] {
                  file.write({{"a", "\xff"}});
                },
                path_),
            "[metrics] cannot write a line to F: a text in it is not UTF-8");
  EXPECT_EQ(content(path_), "");
}

TEST_F(Metrics, RefusesAFileItCannotAppendTo) {
  const auto open = [](const std::string& path) {
    return complaint_of([&] { MetricsFile file(path); }, path);
  };
  put(path_, "{\"event\":\"done\"}\n{\"ev");
  EXPECT_EQ(open(path_),
            "[metrics] cannot append to F: it ends within a line, resume its run or remove that line");
  EXPECT_EQ(content(path_), "{\"event\":\"done\"}\n{\"ev");
  EXPECT_EQ(open(folder_ / "no/such"), "[metrics] cannot write F: No such file or directory");
  EXPECT_EQ(open(folder_.path()), "[metrics] cannot write F: Is a directory");
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(open(pipe), "[metrics] cannot write F: it is a pipe, name a file");
}

TEST_F(Metrics, AFullDiskIsAnErrorAndLeavesWholeLines) {
  EXPECT_EQ(complaint_of([] {
              MetricsFile("/dev/full").write({{"a", 1}});
            }),
            "[metrics] cannot write /dev/full: No space left on device");

  MetricsFile file(path_);
  file.write({{"a", 1}});
  // None for the second line, some of it, all but the newline.
  for (const rlim_t room : {8, 9, 15}) {
    SCOPED_TRACE(room);
    const std::string why = [&] {
      const FullDisk full(room);
      return complaint_of([&] { file.write({{"a", 2}}); }, path_);
    }();
    EXPECT_EQ(why, "[metrics] cannot write F: File too large");
    EXPECT_EQ(content(path_), "{\"a\":1}\n");
  }
  file.write({{"a", 3}});
  EXPECT_EQ(content(path_), "{\"a\":1}\n{\"a\":3}\n");
}

TEST_F(Metrics, CutKeepsWhatWasCompleted) {
  const std::string text =
      "{\"event\":\"step\",\"step\":1,\"loss\":1.0}\n"
      "{\"event\":\"promote\",\"step\":1,  \"tensor\":\"w\"}\n"
      "{\"event\":\"step\",\"step\":2}\n"
      "{\"event\":\"epoch\",\"epoch\":1,\"step\":2}\n"
      "{\"event\":\"step\",\"step\":3}\n"
      "{\"event\":\"note\"}\n"
      "{\"event\":\"promote\",\"step\":4}\n"
      "{\"event\":\"step\",\"step\":4}\n"
      "{\"event\":\"epoch\",\"epoch\":2,\"step\":4}\n"
      "{\"event\":\"done\",\"step\":4}\n"
      "{\"event\":\"step\",\"st";
  const std::string first =
      "{\"event\":\"step\",\"step\":1,\"loss\":1.0}\n"
      "{\"event\":\"promote\",\"step\":1,  \"tensor\":\"w\"}\n"
      "{\"event\":\"step\",\"step\":2}\n";
  EXPECT_EQ(cut(text, 0, 0), "");
  EXPECT_EQ(cut(text, 2, 0), first);
  const std::string epoch = first + "{\"event\":\"epoch\",\"epoch\":1,\"step\":2}\n";
  EXPECT_EQ(cut(text, 2, 1), epoch);
  const std::string third = epoch + "{\"event\":\"step\",\"step\":3}\n";
  EXPECT_EQ(cut(text, 3, 1), third);
  const std::string all = third +
                          "{\"event\":\"promote\",\"step\":4}\n"
                          "{\"event\":\"step\",\"step\":4}\n"
                          "{\"event\":\"epoch\",\"epoch\":2,\"step\":4}\n";
  EXPECT_EQ(cut(text, 4, 2), all);
  EXPECT_EQ(cut(text, std::numeric_limits<uint64_t>::max(), 99), all);
  MetricsFile(path_).write({{"event", "step"}, {"step", 5}});
  EXPECT_EQ(content(path_), all + "{\"event\":\"step\",\"step\":5}\n");
}

// However a kill tears the last line, the ones before stay, and the last one if it is whole.
TEST_F(Metrics, CutTakesOffALastLineTornAnywhere) {
  const std::string whole = "{\"event\":\"step\",\"step\":1}\n";
  const std::string last = "{\"event\":\"step\",\"step\":2,\"note\":\"\u00e9\"}\n";
  for (size_t length = 0; length <= last.size(); ++length) {
    SCOPED_TRACE(length);
    EXPECT_EQ(cut(whole + last.substr(0, length), 9, 9), length + 1 >= last.size() ? whole + last : whole);
  }
  EXPECT_EQ(cut(whole + std::string(20, '\0'), 9, 9), whole) << "blocks that a crash left unwritten";
  EXPECT_EQ(cut(whole + last.substr(0, last.size() - 1) + std::string(9, '\0'), 9, 9), whole);
}

TEST_F(Metrics, CutNamesALineItCannotRead) {
  const std::string step = "{\"event\":\"step\",\"step\":1}\n";
  for (const char* bad : {"{\"event\":", "", "[1]", "7", "{} {}", "\xff", "{\"event\":\"\xc3\"}"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(refusal(step + step + bad + "\n" + step),
              "[metrics] line 3 of F is no JSON object: remove it, or the file");
  }
  EXPECT_EQ(refusal(step + std::string("{}\0\n", 4)),
            "[metrics] line 2 of F is no JSON object: remove it, or the file");
  EXPECT_EQ(refusal(step + "{\"step\":1}\n"),
            "[metrics] line 2 of F names no \"event\": every line of a run does");
  EXPECT_EQ(refusal("{\"event\":1}\n"), "[metrics] line 1 of F names no \"event\": every line of a run does");
  for (const char* bad : {"{\"event\":\"step\"}", "{\"event\":\"step\",\"step\":-1}",
                          "{\"event\":\"promote\",\"step\":1.5}", "{\"event\":\"step\",\"step\":\"1\"}"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(refusal(step + bad + "\n"), "[metrics] line 2 of F must have \"step\" with a count from 1");
  }
  EXPECT_EQ(refusal("{\"event\":\"epoch\",\"step\":1}\n"),
            "[metrics] line 1 of F must have \"epoch\" with a count from 1");
}

TEST_F(Metrics, CutOfNoFileMakesNone) {
  cut_metrics(path_, 1, 1);
  EXPECT_FALSE(fs::exists(path_));
  cut_metrics(folder_ / "no/such", 1, 1);
  EXPECT_EQ(cut("", 1, 1), "");
  EXPECT_EQ(complaint_of([&] { cut_metrics(folder_.path(), 1, 1); }, folder_.path()),
            "[metrics] cannot read F: it is not a file");
}

}  // namespace
}  // namespace ulp
