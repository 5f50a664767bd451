#include "ulp/run/ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>

#include "tests/support/temp.h"

namespace ulp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
const RangedModel kModel = {"1x32x24", 7};
constexpr size_t kSize = 32 + 3 * 12;  // of a record of the tensors below

std::vector<RangedTensor> three_tensors() {
  return {{"conv.out", Kind::activation, 4096, "fp(4,3,4)", "fp(6,9,0)"},
          {"conv.out.grad", Kind::activation_grad, 4096, "fp(5,2,0)", "fp(6,9,0)"},
          {"conv.weight.grad", Kind::weight_grad, 72, "fp(6,9,0)", "fp(6,9,0)"}};
}

RangeRecord record(uint64_t step, std::vector<TensorRange> tensors = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}}) {
  return {step, 1.0 / static_cast<double>(step), 65536, false, std::move(tensors)};
}

class Ranges : public ::testing::Test {
 protected:
  RangeFile open(uint64_t step) const { return {path_, kModel, three_tensors(), step}; }
  std::string refusal(uint64_t step) const {
    const std::string before = content(path_);
    const std::string why = complaint_of([&] { open(step); }, path_);
    EXPECT_EQ(content(path_), before) << "left as it was";
    return why;
  }
  std::string load_refusal() const {
    return complaint_of([&] { load_ranges(path_); }, path_);
  }
  std::vector<uint64_t> steps() const {
    std::vector<uint64_t> steps;
    for (const RangeRecord& record : load_ranges(path_).records) steps.push_back(record.step);
    return steps;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "ranges.bin";
};

TEST_F(Ranges, SharesOfAnEncodedTensor) {
  EXPECT_EQ(tensor_range({.overflow = 25, .underflow = 50, .nan = 0, .amax = 3}, 100),
            (TensorRange{3, 0.25f, 0.5f}));
  EXPECT_EQ(tensor_range({}, 0), (TensorRange{0, 0, 0}));
  EXPECT_EQ(tensor_range({.overflow = 1, .amax = kInf}, 2), (TensorRange{kInf, 0.5f, 0}));
  const TensorRange torn = tensor_range({.nan = 1, .amax = 3}, 4);
  EXPECT_TRUE(std::isnan(torn.amax));
  EXPECT_EQ(torn.overflow, 0);
}

TEST_F(Ranges, ComesBackAsItWasWritten) {
  {
    RangeFile file = open(0);
    EXPECT_EQ(load_ranges(path_).records.size(), 0u);
    file.write(record(1, {{0.1f, 1e-7f, 0}, {kInf, 1, 0}, {kNan, 0, 1}}), 10, false);
    EXPECT_EQ(load_ranges(path_).records.size(), 1u) << "there at once";
    RangeRecord second = record(2);
    second.loss = std::numeric_limits<double>::quiet_NaN();
    second.scale = 0x1p-24;
    second.skipped = true;
    file.write(second, 10, false);
  }
  const RangeHistory history = load_ranges(path_);
  EXPECT_EQ(history.tensors, three_tensors());
  EXPECT_EQ(history.model.input, "1x32x24");
  EXPECT_EQ(history.model.classes, 7);
  ASSERT_EQ(history.records.size(), 2u);
  EXPECT_EQ(history.records[0].step, 1u);
  EXPECT_EQ(history.records[0].loss, 1);
  EXPECT_EQ(history.records[0].scale, 65536);
  EXPECT_FALSE(history.records[0].skipped);
  EXPECT_EQ(history.records[0].tensors[0], (TensorRange{0.1f, 1e-7f, 0}));
  EXPECT_EQ(history.records[0].tensors[1], (TensorRange{kInf, 1, 0}));
  EXPECT_TRUE(std::isnan(history.records[0].tensors[2].amax));
  EXPECT_TRUE(std::isnan(history.records[1].loss));
  EXPECT_EQ(history.records[1].scale, 0x1p-24);
  EXPECT_TRUE(history.records[1].skipped);
}

// The bytes themselves, so that a file can be read by a program that is not this one.
TEST_F(Ranges, BytesOfARecord) {
  open(0).write(record(258, {{1, 0.5f, 0.25f}, {}, {}}), 1000, true);
  const std::string text = content(path_);
  const size_t line = text.find('\n') + 1;
  const std::string header =
      R"~({"ulp_ranges":1,"model":{"input":"1x32x24","classes":7},"tensors":[)~"
      R"~({"name":"conv.out","kind":"activation","elements":4096,"format":"fp(4,3,4)","high":"fp(6,9,0)"},)~"
      R"~({"name":"conv.out.grad","kind":"activation_grad","elements":4096,"format":"fp(5,2,0)",)~"
      R"~("high":"fp(6,9,0)"},{"name":"conv.weight.grad","kind":"weight_grad","elements":72,)~"
      R"~("format":"fp(6,9,0)","high":"fp(6,9,0)"}]})~"
      "\n";
  EXPECT_EQ(text.substr(0, line), header);
  ASSERT_EQ(text.size(), line + kSize);
  EXPECT_EQ(text.substr(line, 8), std::string("\x02\x01\0\0\0\0\0\0", 8));
  EXPECT_EQ(text.substr(line + 16, 8), std::string("\0\0\0\0\0\0\xF0\x40", 8));  // 65536.0
  EXPECT_EQ(text.substr(line + 24, 4), std::string(4, '\0'));
  EXPECT_EQ(text.substr(line + 32, 12), std::string("\0\0\x80\x3F\0\0\0\x3F\0\0\x80\x3E", 12));
}

TEST_F(Ranges, GoesOnWhereARunResumes) {
  {
    RangeFile file = open(0);
    for (uint64_t step = 1; step <= 9; ++step) file.write(record(step), 100, false);
  }
  const std::string nine = content(path_);
  {
    RangeFile file = open(6);
    EXPECT_EQ(content(path_), nine.substr(0, nine.size() - 3 * kSize));
    for (uint64_t step = 7; step <= 9; ++step) file.write(record(step), 100, false);
  }
  EXPECT_EQ(content(path_), nine);
  open(9);
  EXPECT_EQ(content(path_), nine);
  open(50);  // steps after the ninth were not written: nothing to cut
  EXPECT_EQ(content(path_), nine);
  open(0);
  EXPECT_EQ(content(path_), nine.substr(0, nine.size() - 9 * kSize));
}

TEST_F(Ranges, ATornRecordGoes) {
  {
    RangeFile file = open(0);
    for (uint64_t step = 1; step <= 3; ++step) file.write(record(step), 100, false);
  }
  const std::string three = content(path_);
  const std::string two = three.substr(0, three.size() - kSize);
  for (const size_t cut : {size_t{1}, size_t{40}, kSize - 1}) {
    put(path_, three.substr(0, three.size() - cut));
    EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2})) << cut;
    open(3);
    EXPECT_EQ(content(path_), two) << cut;
  }
  // What a disk may leave after the power was cut: the size, but not the bytes.
  put(path_, two + std::string(kSize, '\0'));
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2}));
  open(2).write(record(3), 100, false);
  EXPECT_EQ(content(path_), three);
}

TEST_F(Ranges, RefusesWhatIsDamaged) {
  {
    RangeFile file = open(0);
    for (uint64_t step = 1; step <= 3; ++step) file.write(record(step), 100, false);
  }
  const std::string whole = content(path_);
  const size_t first = whole.size() - 3 * kSize;
  // Any bit of a record that is not the last.
  for (const size_t at : {first, first + 9, first + 25, first + 29, first + 40, first + kSize - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    put(path_, damaged);
    EXPECT_EQ(load_refusal(), "[ranges] F is damaged after step 0: remove it") << at;
    EXPECT_EQ(refusal(3), "[ranges] F is damaged after step 0: remove it") << at;
  }
  put(path_, whole + whole.substr(first, kSize));
  EXPECT_EQ(load_refusal(), "[ranges] F is damaged after step 3: remove it") << "a step twice";
}

TEST_F(Ranges, RefusesADamagedFirstLine) {
  open(0).write(record(1), 100, false);
  const std::string whole = content(path_);
  for (const char* text :
       {"", "x", "{\"event\":\"step\"}\n", "{\"ulp_ranges\":2,\"model\":{}}\n", "{\"ulp_ranges\":1,"}) {
    put(path_, text);
    EXPECT_EQ(load_refusal(), "[ranges] F holds no ranges of a run: remove it") << text;
    EXPECT_EQ(refusal(0), "[ranges] F holds no ranges of a run: remove it") << text;
    EXPECT_EQ(refusal(1), "[ranges] F holds no ranges of a run: remove it") << text;
  }
  const auto with = [&](std::string_view old, std::string_view now) {
    std::string text = whole;
    text.replace(text.find(old), old.size(), now);
    return text;
  };
  for (const auto& [old, now] :
       std::initializer_list<std::pair<const char*, const char*>>{{"\"1x32x24\"", "7"},
                                                                  {"\"classes\":7", "\"classes\":-7"},
                                                                  {"\"classes\":7", "\"classes\":\"7\""},
                                                                  {"\"classes\":7", "\"classes\":1e300"},
                                                                  {"\"classes\":7", "\"classes\":1e999"},
                                                                  {"activation", "kept"},
                                                                  {"fp(4,3,4)", "fp(4,3"},
                                                                  {"\"elements\":72", "\"elements\":-72"},
                                                                  {"\"tensors\":[", "\"tensors\":7,\"x\":["},
                                                                  {"}]}", "}]"}}) {
    put(path_, with(old, now));
    EXPECT_EQ(load_refusal(), "[ranges] the first line of F is damaged: remove the file") << now;
    EXPECT_EQ(refusal(1), "[ranges] the first line of F is damaged: remove the file") << now;
  }
}

TEST_F(Ranges, RefusesOtherTensors) {
  open(0).write(record(1), 100, false);
  const auto other = [&](uint64_t step, auto change) {
    std::vector<RangedTensor> tensors = three_tensors();
    change(tensors);
    return complaint_of([&] { RangeFile(path_, kModel, tensors, step); }, path_);
  };
  const std::string no = "[ranges] F is of other tensors than this run's: remove it";
  EXPECT_EQ(other(1, [](auto& tensors) { tensors.pop_back(); }), no);
  EXPECT_EQ(other(1, [](auto& tensors) { tensors[0].format = "e4m3"; }), no);
  EXPECT_EQ(other(1, [](auto& tensors) { tensors[1].elements = 1; }), no);
  EXPECT_EQ(complaint_of([&] { RangeFile(path_, {{3, 32, 24}, 7}, three_tensors(), 1); }, path_), no);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1}));
  // From the start of a run nothing of the old file would stay, so that it may be of anything.
  EXPECT_EQ(other(0, [](auto& tensors) { tensors.pop_back(); }), "");
  EXPECT_EQ(load_ranges(path_).tensors.size(), 2u);
}

TEST_F(Ranges, RefusesPlacesThatAreNoFile) {
  const std::string here = folder_.path();
  EXPECT_EQ(complaint_of([&] { RangeFile(here, kModel, three_tensors(), 0); }, here),
            "[ranges] cannot read F: it is not a file");
  EXPECT_NE(complaint_of([&] { RangeFile(folder_ / "no/such", kModel, three_tensors(), 0); }), "");
  EXPECT_EQ(load_refusal(), "[ranges] there is no F");
}

TEST_F(Ranges, NotEveryStepIsWritten) {
  constexpr uint64_t kTotal = 4 * RangeFile::kMost - 1;  // a stride of 4
  {
    RangeFile file = open(0);
    for (uint64_t step = 1; step <= kTotal; ++step) {
      RangeRecord now = record(step);
      now.skipped = step == 301;
      if (step >= 401) now.tensors[1].overflow = 1e-6f;
      if (step == 403) now.tensors[1].underflow = 0.51f;
      if (step == 405) now.tensors[1].underflow = 0.5f;
      if (step == 501 || step == 502) now.tensors[2].amax = kNan;
      file.write(now, kTotal, step == 601);
    }
  }
  std::vector<uint64_t> wanted;
  for (uint64_t step = 1; step <= kTotal; ++step) {
    const bool once = step == 301 || step == 401 || step == 403 || step == 501 || step == 601;
    if (step <= RangeFile::kAlways || step % 4 == 0 || once || step == kTotal) wanted.push_back(step);
  }
  EXPECT_EQ(steps(), wanted);
}

// Stopped and resumed anywhere, a run leaves the file of one that was not: what was seen is seen in
// the records.
TEST_F(Ranges, AResumedFileIsTheSame) {
  constexpr uint64_t kTotal = 10 * RangeFile::kMost, kSteps = 700;
  const auto at = [](uint64_t step) {
    RangeRecord now = record(step);
    if (step % 7 == 3) now.tensors[step % 3].overflow = 0.1f;
    if (step > 300 && step % 11 == 3) now.tensors[step % 3].underflow = 0.9f;
    if (step > 400 && step % 13 == 3) now.tensors[step % 3].amax = kNan;
    return now;
  };
  {
    RangeFile file = open(0);
    for (uint64_t step = 1; step <= kSteps; ++step) file.write(at(step), kTotal, false);
  }
  const std::string whole = content(path_);
  for (const uint64_t stop : {1, 255, 256, 257, 302, 303, 304, 409, 500, 699}) {
    for (const uint64_t lost : {0, 5, 60}) {  // steps done after the checkpoint, and again when it resumes
      std::filesystem::remove(path_);
      {
        RangeFile file = open(0);
        for (uint64_t step = 1; step <= std::min(stop + lost, kSteps); ++step)
          file.write(at(step), kTotal, false);
      }
      RangeFile file = open(stop);
      for (uint64_t step = stop + 1; step <= kSteps; ++step) file.write(at(step), kTotal, false);
      EXPECT_EQ(content(path_), whole) << stop << " " << lost;
    }
  }
}

TEST_F(Ranges, AFullDiskIsAnErrorAndLeavesWholeRecords) {
  EXPECT_NE(
      [&] {
        const FullDisk full(10);
        return complaint_of([&] { open(0); }, path_);
      }(),
      "");
  EXPECT_FALSE(std::filesystem::exists(path_));

  RangeFile file = open(0);
  const size_t line = content(path_).size();
  file.write(record(1), 100, false);
  const std::string one = content(path_);
  for (const size_t room : {size_t{0}, size_t{1}, kSize - 1}) {
    const std::string why = [&] {
      const FullDisk full(line + kSize + room);
      return complaint_of([&] { file.write(record(2), 100, false); }, path_);
    }();
    EXPECT_EQ(why, "[ranges] cannot write F: File too large") << room;
    EXPECT_EQ(content(path_), one) << room;
  }
  file.write(record(2), 100, false);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2}));
}

// An event in a record that could not be written has not been seen.
TEST_F(Ranges, AFailedWriteForgetsWhatItSaw) {
  RangeFile file = open(0);
  const uint64_t total = 100 * RangeFile::kMost;
  RangeRecord first = record(301);
  first.tensors[0].overflow = 1;
  {
    const FullDisk full(content(path_).size());
    EXPECT_NE(complaint_of([&] { file.write(first, total, false); }), "");
  }
  first.step = 302;
  file.write(first, total, false);
  first.step = 303;
  file.write(first, total, false);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{302}));
}

TEST_F(Ranges, MistakesOfTheProgram) {
  RangeFile file = open(0);
  EXPECT_THROW(file.write(record(1, {{1, 0, 0}}), 100, false), std::logic_error);
  file.write(record(2), 100, false);
  EXPECT_THROW(file.write(record(2), 100, false), std::logic_error);
}

TEST_F(Ranges, ARunWithoutNarrowTensors) {
  RangeFile(path_, kModel, {}, 0).write({1, 2.5, 1, false, {}}, 100, false);
  const RangeHistory history = load_ranges(path_);
  EXPECT_TRUE(history.tensors.empty());
  ASSERT_EQ(history.records.size(), 1u);
  EXPECT_EQ(history.records[0].loss, 2.5);
}

}  // namespace
}  // namespace ulp
