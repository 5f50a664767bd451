// Assignment files: what was written comes back, and what cannot be meant is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ulp/base/error.h"
#include "ulp/base/json.h"
#include "ulp/graph/ops.h"
#include "ulp/precision/policy.h"

namespace ulp {
namespace {

Graph net(const char* middle = "mid") {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x =
      relu(b, "relu", linear(b, "first", input(b, "input", {2, 4}), {.out = 4, .bias = false}));
  linear(b, "last", linear(b, middle, x, {.out = 4, .bias = false}), {.out = 2, .bias = false});
  return graph;
}

class Listed : public testing::Test {
 protected:
  ~Listed() override { std::filesystem::remove(path_); }

  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  // As `ulp plan --save` writes it.
  static std::string saved(const Graph& graph, const Assignment& assignment) {
    std::string tensors;
    for (const CountedTensor& tensor : counted_tensors(graph)) {
      tensors += fmt::format("{}\n  \"{}\": \"{}\"", tensors.empty() ? "" : ",", tensor.name,
                             storage_name(assignment.storage_of(tensor.name)));
    }
    return fmt::format(
        "{{\n \"model\": \"net\",\n \"width\": 0.5,\n \"classes\": 2,\n \"input\": \"1x2x2\",\n \"policy\": "
        "\"op\",\n"
        " \"tensors\": {{{}\n }}\n}}\n",
        tensors);
  }

  std::unique_ptr<Policy> read(const PolicyOptions& options = {}) const {
    return parse_policy("list:" + path_, options);
  }

  // The Error's words after the file's name.
  std::string complaint(const std::string& text, const Graph& graph = net()) const {
    put(text);
    try {
      read()->assign(graph);
      return "";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find('\n'), what.npos) << what;
      const size_t at = what.find(path_ + "'");
      EXPECT_NE(at, what.npos) << what;
      return at == what.npos ? what : what.substr(at + path_.size() + 1);
    }
  }

  const std::string path_ = testing::TempDir() + "ulp_listed_" + std::to_string(::getpid()) + ".json";
};

TEST_F(Listed, WhatWasSavedComesBack) {
  const Graph graph = net();
  for (const char* preset : {"hfp8", "fp8", "s2fp8"}) {
    const PolicyOptions options{make_candidates(preset), false};
    for (const char* text : {"uniform", "op", "op-out", "size:0", "size:0.5", "random:0.5:2"}) {
      SCOPED_TRACE(fmt::format("{} {}", preset, text));
      const Assignment assignment = parse_policy(text, options)->assign(graph);
      put(saved(graph, assignment));
      const Assignment found = read(options)->assign(graph);
      EXPECT_EQ(found.storage, assignment.storage);
      EXPECT_EQ(found.high, assignment.high);
    }
  }
}

TEST_F(Listed, LowIsWhatIsNarrowerThanTheHighCandidate) {
  const Graph graph = net();
  const Assignment amp = parse_policy("amp:bf16")->assign(graph);
  put(saved(graph, amp));
  EXPECT_EQ(read()->assign(graph).storage, amp.storage);
  EXPECT_TRUE(read()->assign(graph).high.empty());  // fp(6,9,0) has 16 bits too
  const Assignment found = read({make_candidates("hfp8", "fp32"), false})->assign(graph);
  EXPECT_EQ(found.high, amp.high);
  put(saved(graph, {}));
  EXPECT_EQ(read()->assign(graph).high_of("relu.out"), parse_storage("fp32"));
}

TEST_F(Listed, EndsAreKept) {
  const Graph graph = net();
  put(saved(graph, parse_policy("uniform")->assign(graph)));
  const PolicyOptions keep{make_candidates(), true};
  const Assignment expected = parse_policy("uniform", keep)->assign(graph);
  EXPECT_EQ(read(keep)->assign(graph).storage, expected.storage);
  EXPECT_EQ(read(keep)->assign(graph).high, expected.high);
}

TEST_F(Listed, APolicyDoesNotChangeWithItsFile) {
  const Graph graph = net();
  const Assignment assignment = parse_policy("size:1")->assign(graph);
  put(saved(graph, assignment));
  const std::unique_ptr<Policy> policy = read();
  put("{}");
  EXPECT_EQ(policy->assign(graph).storage, assignment.storage);
}

TEST_F(Listed, AnotherModelIsRefused) {
  const std::string file = saved(net(), parse_policy("op")->assign(net()));
  EXPECT_EQ(complaint(file), "");
  EXPECT_EQ(complaint(file, net("other")),
            " (model \"net\", width 0.5, classes 2, input \"1x2x2\") names tensors that this model does not "
            "have, such as "
            "\"mid.out\", \"mid.out.grad\", \"mid.weight\" and 1 more");
  EXPECT_EQ(complaint("{\"tensors\": {\"relu.out\": \"bf16\"}}"),
            " (of an unknown model) does not name all tensors of this model, such as \"input.out\", "
            "\"input.out.grad\", \"first.out\" and 12 more");
  std::string renamed = file;
  renamed.replace(renamed.find("\"relu.out\""), 10, "\"relu.\\n\"");
  EXPECT_NE(complaint(renamed).find("does not have, such as \"relu.\\n\""), std::string::npos);
}

TEST_F(Listed, BadFilesAreRefused) {
  EXPECT_EQ(complaint(""), " is no JSON: it goes wrong at byte 1");
  EXPECT_EQ(complaint("{\"tensors\": {"), " is no JSON: it goes wrong at byte 14");
  EXPECT_NE(complaint("tensors = 1").find("is no JSON"), std::string::npos);
  EXPECT_NE(complaint("{} {}").find("is no JSON"), std::string::npos);
  EXPECT_NE(complaint("{\"a\": \"\xff\"}").find("is no JSON"), std::string::npos);
  const std::string shape =
      " must be an object with \"tensors\": {name: format, ...}, as ulp plan --save writes it";
  for (const char* text :
       {"{}", "[]", "1", "null", "\"tensors\"", "{\"tensors\": []}", "{\"tensors\": null}"}) {
    EXPECT_EQ(complaint(text), shape) << text;
  }
  EXPECT_EQ(complaint("{\"tensors\": {\"relu.out\": 16}}"),
            ": the format of \"relu.out\" must be a string, such as \"bf16\"");
  EXPECT_NE(complaint("{\"tensors\": {\"relu.out\": \"bf17\"}}").find(", tensor \"relu.out\": "),
            std::string::npos);
  EXPECT_EQ(complaint("{\"tensors\": {\"a\": \"bf16\", \"a\": \"e4m3\"}}"), " has \"a\" twice");
  EXPECT_EQ(complaint("{\"tensors\": {}, \"tensors\": {}}"), " has \"tensors\" twice");
  // A name may stand in two objects.
  EXPECT_EQ(complaint("{\"x\": {\"a\": 1}, \"tensors\": {\"a\": 1}}"),
            ": the format of \"a\" must be a string, such as \"bf16\"");
  EXPECT_NE(complaint("{\"model\": [1], \"tensors\": {\"a\\nb\": \"bf16\"}}").find("(of an unknown model)"),
            std::string::npos);
  // Deep nesting is no reason to fall over, closed or not.
  EXPECT_EQ(complaint(std::string(100000, '[')), " is nested more than 32 deep");
  EXPECT_EQ(complaint("{\"tensors\": {\"a\": " + std::string(80000, '[') + std::string(80000, ']') + "}}"),
            " is nested more than 32 deep");
  EXPECT_EQ(complaint("{\"tensors\": {\"a\": \"bf16\"}, \"width\": 1e999}"),
            " has a number that is too large: the one that ends at byte 41");
  EXPECT_EQ(complaint("{\"tensors\": {}}" + std::string(kJsonBytes, ' ')),
            " has 16777231 bytes: at most 16777216 are read");
}

TEST_F(Listed, FilesThatCannotBeReadAreRefused) {
  const auto what = [](const std::string& path) {
    try {
      parse_policy("list:" + path);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(what("/no/such/file"), "[precision] assignment file '/no/such/file': there is none");
  EXPECT_EQ(what("/dev/null"), "[precision] assignment file '/dev/null' is not a regular file");
  EXPECT_NE(what(testing::TempDir()).find("is not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace ulp
