// The policies that look beyond the graph: at errors that were measured, and at what a step takes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "ulp/base/error.h"
#include "ulp/graph/ops.h"
#include "ulp/precision/demote.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/sensitivities.h"

namespace ulp {
namespace {

using Groups = std::vector<int>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Groups of 80, 20, 40, 20 elements: inputs with their gradients.
Graph net() {
  Graph graph;
  Builder b(graph, Mode::training);
  for (const auto& [name, elements] : {std::pair("a", 40), {"b", 10}, {"c", 20}, {"d", 10}}) {
    input(b, name, {1, elements});
  }
  return graph;
}

// 16 bits high and 8 low.
PolicyOptions measured(std::vector<double> errors) {
  PolicyOptions options;
  options.sensitivities = [errors = std::move(errors)] { return errors; };
  return options;
}

Groups low(const std::string& text, const PolicyOptions& options) {
  return parse_policy(text, options)->assign(net()).low_groups;
}

std::string complaint(const std::string& text, const PolicyOptions& options = {}) {
  try {
    parse_policy(text, options)->assign(net());
    return "";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), what.npos) << what;
    return what;
  }
}

void expect_refused(const std::string& text, const std::string& words, const PolicyOptions& options = {}) {
  const std::string what = complaint(text, options);
  EXPECT_NE(what.find(words), what.npos) << text << ": " << what;
}

class File : public testing::Test {
 protected:
  ~File() override { std::filesystem::remove(path_); }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  void expect_bad(const std::string& text, const std::string& words) const {
    put(text);
    expect_refused("sensitivity:1:" + path_, "sensitivity file '" + path_ + "'");
    expect_refused("sensitivity:1:" + path_, words);
  }

  const std::string path_ = std::filesystem::temp_directory_path() / fmt::format("ulp-measured-{}", getpid());
};

TEST(Sensitivity, OrdersByErrorForSavedBits) {
  // For 640, 160, 320, 160 bits.
  const PolicyOptions options = measured({6.4, 0.8, 6.4, 0.8});
  EXPECT_EQ(low("sensitivity:1", options), (Groups{1, 3, 0, 2}));
  EXPECT_EQ(low("sensitivity:0", options), Groups());
  // As size:R stops: 20 of 160 are an eighth.
  EXPECT_EQ(low("sensitivity:0.125", options), (Groups{1}));
  EXPECT_EQ(low("sensitivity:0.126", options), (Groups{1, 3}));
  EXPECT_EQ(low("sensitivity:0.75", options), (Groups{1, 3, 0}));
}

TEST(Sensitivity, TiesGoByLargerSizeThenNumber) {
  EXPECT_EQ(low("sensitivity:1", measured({0, 0, 0, 0})), (Groups{0, 2, 1, 3}));
  EXPECT_EQ(low("sensitivity:1", measured({kInfinity, 1, kInfinity, 0})), (Groups{3, 1, 0, 2}));
}

TEST(Sensitivity, AGroupThatSavesNothingComesLast) {
  const std::vector<double> errors = {0, 5, 7};
  const std::vector<uint64_t> saved = {0, 10, 100};
  const std::vector<size_t> sizes = {9, 9, 9};
  EXPECT_EQ(order_by_error(errors, saved, sizes), (Groups{2, 1, 0}));
}

TEST(Sensitivity, SavedBitsAreTheAggregates) {
  const Graph graph = net();
  const std::vector<CountedTensor> tensors = counted_tensors(graph);
  EXPECT_EQ(saved_bits(graph, tensors, {}), (std::vector<uint64_t>{640, 160, 320, 160}));
  PolicyOptions same;
  same.candidates = make_candidates("fp8", "bf16", "bf16", "bf16");
  EXPECT_EQ(saved_bits(graph, tensors, same), (std::vector<uint64_t>(4)));
  // Ends, here all inputs, stay high.
  PolicyOptions kept;
  kept.keep_first_last = true;
  EXPECT_EQ(saved_bits(graph, tensors, kept), (std::vector<uint64_t>(4)));
  // S2FP8's two words for each of two tensors outweigh what ten elements save in each.
  PolicyOptions words;
  words.candidates = make_candidates("s2fp8");
  EXPECT_EQ(saved_bits(graph, tensors, words),
            (std::vector<uint64_t>{640 - 128, 160 - 128, 320 - 128, 160 - 128}));
}

TEST(Sensitivity, MeasuresWhenItAssignsAndIsPure) {
  int calls = 0;
  PolicyOptions options;
  options.sensitivities = [&calls] {
    ++calls;
    return std::vector<double>{1, 1, 1, 1};
  };
  const auto policy = parse_policy("sensitivity:0.5", options);
  EXPECT_EQ(calls, 0);
  const Assignment first = policy->assign(net()), second = policy->assign(net());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(first.storage, second.storage);
  EXPECT_EQ(first.low_groups, second.low_groups);
}

TEST(Sensitivity, WithoutMeasurementsItSaysWhereToGetThem) {
  expect_refused("sensitivity:0.5",
                 "needs a file here, sensitivity:R:FILE: write one with `ulp sensitivity`");
  expect_refused("sensitivity:0.5", "3 groups were measured, this model has 4", measured({1, 1, 1}));
}

TEST(Sensitivity, BadTextIsRefused) {
  for (const char* ratio : {"-0.1", "1.1", "nan", "half", "50%", " 1"}) {
    expect_refused(fmt::format("sensitivity:{}", ratio),
                   fmt::format("R must be a number from 0 to 1, got '{}'", ratio), measured({}));
  }
  expect_refused("sensitivity", "it needs a ratio R");
  expect_refused("sensitivity:", "it needs a ratio R");
  expect_refused("sensitivity:0.5:", "it needs a file after the second colon");
  expect_refused("sensitivity::x", "R must be a number from 0 to 1, got ''");
}

TEST_F(File, WhatWasSavedComesBack) {
  const Sensitivities saved{{{"model", "\"net\""}, {"width", "0.5"}, {"rows", "4"}},
                            "hfp8",
                            {80, 20, 40, 20},
                            {6.4, 0.1 + 0.2, kInfinity, 0}};
  save_sensitivities(path_, saved);
  EXPECT_EQ(load_sensitivities(path_), saved);
  EXPECT_EQ(low("sensitivity:1:" + path_, {}), (Groups{3, 1, 0, 2}));
  // The file counts, not what could be measured; it is read once.
  const auto policy = parse_policy("sensitivity:1:" + path_, measured({0, 1, 1, 1}));
  put("gone");
  EXPECT_EQ(policy->assign(net()).low_groups, (Groups{3, 1, 0, 2}));
}

TEST_F(File, OnlyTheErrorsAreNeeded) {
  put(R"({"groups": [{"id": 0, "error": 4}, {"id": 1, "error": 0.0}, {"id": 2, "error": 1}, {"id": 3, "error": 1}]})");
  EXPECT_EQ(low("sensitivity:1:" + path_, {}), (Groups{1, 2, 0, 3}));
}

TEST_F(File, BadFilesAreRefused) {
  expect_refused("sensitivity:1:" + path_, "there is none");
  expect_refused("sensitivity:1:/dev/null", "is not a regular file");
  expect_bad("{", "is no JSON");
  for (const char* text : {"[]", "{}", R"({"groups": 3})", R"({"groups": {}})"}) {
    expect_bad(text, "must be an object with \"groups\"");
  }
  expect_bad(R"({"groups": [{"id": 1, "error": 1}]})", "group 0 must be an object whose \"id\" is 0");
  expect_bad(R"({"groups": [7]})", "group 0 must be an object whose \"id\" is 0");
  expect_bad(R"({"groups": [{"id": 0}]})", "there is no \"error\"");
  for (const char* error : {"-1", "\"nan\"", "\"-inf\"", "null", "true", "[1]"}) {
    expect_bad(fmt::format(R"({{"groups": [{{"id": 0, "error": {}}}]}})", error),
               "must be a number from 0 on");
  }
  expect_bad(fmt::format(R"({{"groups": [{{"id": 0, "error": {}{}}}]}})", std::string(80000, '['),
                         std::string(80000, ']')),
             "is nested more than 32 deep");
  expect_bad(R"({"groups": [{"id": 0, "error": 1e999}]})", "has a number that is too large");
  expect_bad(fmt::format(R"({{"groups": [{{"id": 0, "error": "{}"}}]}})", std::string(80000, 'x')), "xxx...");
  expect_bad(R"({"groups": [{"id": 0, "id": 0, "error": 1}]})", "has \"id\" twice");
  expect_bad(R"({"model": "lenet", "width": 2, "groups": [{"id": 0, "error": 1}]})",
             "(model \"lenet\", width 2) has 1 groups, this model has 4");
}

// A step in which tensors are alive at two moments; the larger decides. Bits are counted as bytes,
// so that sums are easy.
struct Moments {
  std::vector<std::set<std::string>> live;
  int asked = 0;

  PolicyOptions options() {
    PolicyOptions made;
    made.peak = [this](const Assignment& assignment) {
      ++asked;
      PeakUse most;
      for (const auto& names : live) {
        PeakUse use;
        for (const CountedTensor& tensor : counted_tensors(net())) {
          if (!names.contains(tensor.name)) continue;
          use.bytes +=
              tensor.elements * static_cast<size_t>(element_bits(assignment.storage_of(tensor.name)));
          use.live.push_back(tensor.name);
        }
        if (use.bytes > most.bytes) most = use;
      }
      return most;
    };
    return made;
  }
};

TEST(Peak, NothingIsDemotedWhereAllFits) {
  Moments moments{{{"a.out", "b.out"}}};
  EXPECT_EQ(low("peak:800", moments.options()), Groups());
  EXPECT_EQ(moments.asked, 1);
}

TEST(Peak, TheGroupThatFreesMostAtThePeakIsFirst) {
  // b and c are alive with a; c.grad is not, and its size does not count.
  Moments moments{{{"a.out", "b.out", "b.out.grad", "c.out"}}};  // 640 + 320 + 320
  EXPECT_EQ(low("peak:1279", moments.options()), (Groups{0}));
  EXPECT_EQ(low("peak:960", moments.options()), (Groups{0}));
  // b and c free as much; c is larger.
  EXPECT_EQ(low("peak:959", moments.options()), (Groups{0, 2}));
  EXPECT_EQ(low("peak:640", moments.options()), (Groups{0, 2, 1}));
}

TEST(Peak, ThePeakMovesAndIsAskedForAnew) {
  Moments moments{{{"a.out"}, {"c.out", "d.out"}}};  // 640, 480
  EXPECT_EQ(low("peak:500", moments.options()), (Groups{0}));
  EXPECT_EQ(low("peak:479", moments.options()), (Groups{0, 2}));
  EXPECT_EQ(low("peak:320", moments.options()), (Groups{0, 2}));  // 320, 160 + 160
}

TEST(Peak, NeedlessDemotionsAreUndone) {
  // The second group frees by itself what the first one could not.
  PolicyOptions options;
  options.peak = [](const Assignment& assignment) {
    const bool b = assignment.is_low("b.out");
    const bool a = assignment.is_low("a.out");
    return PeakUse{b ? size_t{10} : a ? size_t{90} : size_t{100}, {a ? "b.out" : "a.out"}};
  };
  EXPECT_EQ(low("peak:50", options), (Groups{1}));
  EXPECT_EQ(low("peak:95", options), (Groups{0}));
}

TEST(Peak, WhereNothingAliveCanShrinkTheLargestGroupIsNext) {
  int asked = 0;
  PolicyOptions options;
  options.peak = [&asked](const Assignment& assignment) {
    ++asked;
    return PeakUse{assignment.is_low("b.out") ? size_t{1} : size_t{100}, {"no.such"}};
  };
  EXPECT_EQ(low("peak:50", options), (Groups{1}));
  EXPECT_EQ(asked, 1 + 3 + 3);  // 0, 2, 1 and then each of them high again
}

TEST(Peak, WhatCannotFitIsAnErrorWithTheLeast) {
  Moments moments{{{"a.out"}, {"c.out", "d.out"}}};
  expect_refused(
      "peak:319",
      "policy 'peak:319': the smallest step that was found takes 320 bytes, with 2 of 4 groups low",
      moments.options());
}

TEST(Peak, ItIsPure) {
  Moments moments{{{"a.out", "b.out", "b.out.grad", "c.out"}, {"d.out", "c.out.grad"}}};
  const auto policy = parse_policy("peak:700", moments.options());
  const Assignment first = policy->assign(net()), second = policy->assign(net());
  EXPECT_EQ(first.storage, second.storage);
  EXPECT_EQ(first.low_groups, second.low_groups);
  EXPECT_FALSE(first.low_groups.empty());
}

TEST(Peak, BadTextIsRefused) {
  expect_refused("peak", "it needs a number of bytes");
  expect_refused("peak:", "it needs a number of bytes");
  for (const char* bytes : {"0", "-5", "0MB", "x", "1.5MB", "5MiB", "1e6", "64MB:", "99999999999999999999"}) {
    expect_refused(fmt::format("peak:{}", bytes),
                   fmt::format("BYTES must be above 0, such as 500000 or 64MB, got '{}'", bytes));
  }
  expect_refused("peak:1MB", "policy 'peak:1MB' needs plans of a step");
}

}  // namespace
}  // namespace ulp
