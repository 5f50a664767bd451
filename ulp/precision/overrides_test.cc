#include "ulp/precision/overrides.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"
#include "ulp/graph/ops.h"
#include "ulp/precision/policy.h"

namespace ulp {
namespace {

Graph net() {
  Graph graph;
  Builder b(graph, Mode::training);
  const TensorId x =
      relu(b, "relu", linear(b, "first", input(b, "input", {2, 4}), {.out = 4, .bias = false}));
  linear(b, "last", x, {.out = 2, .bias = false});
  return graph;
}

void apply(const std::string& text, Assignment& assignment,
           const Candidates& candidates = make_candidates()) {
  apply_overrides(parse_overrides(text), counted_tensors(net()), candidates, assignment);
}

void expect_refused(const std::string& text, const std::string& words) {
  Assignment assignment;
  try {
    apply(text, assignment);
    ADD_FAILURE() << "no error for " << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Overrides, TextIsNamesAndFormats) {
  EXPECT_TRUE(parse_overrides("").empty());
  EXPECT_TRUE(parse_overrides("   ").empty());
  const auto parsed = parse_overrides("  a.out=bf16   b.*=fp(4,3,4) *=scaled(e4m3) ");
  ASSERT_EQ(parsed.size(), 3u);
  EXPECT_EQ(parsed[0].name, "a.out");
  EXPECT_EQ(storage_name(parsed[0].storage), "bf16");
  EXPECT_EQ(parsed[1].name, "b.*");
  EXPECT_EQ(storage_name(parsed[1].storage), "fp(4,3,4)");
  EXPECT_EQ(parsed[2].name, "*");
  EXPECT_EQ(storage_name(parsed[2].storage), "scaled(e4m3)");
}

TEST(Overrides, ChangeWhatTheyNameAndNothingElse) {
  const Assignment before = parse_policy("uniform")->assign(net());
  Assignment after = before;
  apply("relu.out=bf16 last.weight=e3m1", after);
  for (const CountedTensor& tensor : counted_tensors(net())) {
    const std::string expected = tensor.name == "relu.out" ? "bf16"
                                 : tensor.name == "last.weight"
                                     ? "e3m1"
                                     : storage_name(before.storage_of(tensor.name));
    EXPECT_EQ(storage_name(after.storage_of(tensor.name)), expected) << tensor.name;
  }
  EXPECT_NO_THROW(resolve_formats(net(), after));
}

TEST(Overrides, LowIsWhatHasFewerBitsThanTheHighFormat) {
  Assignment assignment = parse_policy("uniform")->assign(net());
  ASSERT_TRUE(assignment.is_low("relu.out"));
  apply("relu.out=bf16", assignment);  // 16 bits, as fp(6,9,0)
  EXPECT_FALSE(assignment.is_low("relu.out"));
  EXPECT_FALSE(assignment.promote("relu.out"));
  apply("relu.out=e3m1", assignment);
  EXPECT_TRUE(assignment.is_low("relu.out"));
  EXPECT_TRUE(assignment.promote("relu.out"));
  EXPECT_EQ(storage_name(assignment.storage_of("relu.out")), "fp(6,9,0)");
  apply("first.out=fp32", assignment);
  EXPECT_FALSE(assignment.is_low("first.out"));
}

TEST(Overrides, AStarStandsForAnyEnd) {
  Assignment assignment;
  apply("first.*=bf16", assignment);
  EXPECT_EQ(assignment.storage.size(), 4u);  // weight, out and their gradients
  for (const char* name : {"first.weight", "first.weight.grad", "first.out", "first.out.grad"}) {
    EXPECT_EQ(storage_name(assignment.storage_of(name)), "bf16") << name;
  }
  apply("*=fp16", assignment);
  EXPECT_EQ(assignment.storage.size(), counted_tensors(net()).size());
}

TEST(Overrides, LaterOnesWin) {
  Assignment assignment;
  apply("first.*=bf16 first.out=e4m3 first.out=e5m2", assignment);
  EXPECT_EQ(storage_name(assignment.storage_of("first.out")), "e5m2");
  apply("first.out=e5m2 first.*=bf16", assignment);
  EXPECT_EQ(storage_name(assignment.storage_of("first.out")), "bf16");
  EXPECT_FALSE(assignment.is_low("first.out"));
}

TEST(Overrides, TheHighFormatIsTheKindsOwn) {
  Assignment assignment;
  apply("*=bf16", assignment, make_candidates("hfp8", "", "", "", "fp32/bf16"));
  EXPECT_TRUE(assignment.is_low("first.weight.grad"));
  EXPECT_EQ(storage_name(assignment.high_of("first.weight.grad")), "fp32");
  EXPECT_FALSE(assignment.is_low("first.out"));
}

TEST(Overrides, UnknownNamesGetTheNearest) {
  expect_refused("relu.our=bf16", "no tensor is named 'relu.our'; the nearest are relu.out");
  expect_refused("frist.*=bf16", "no tensor is named 'frist.*'; the nearest are first.");
  expect_refused("first=bf16", "no tensor is named 'first'");
  expect_refused("labels.out=bf16", "no tensor is named");
}

TEST(Overrides, BadTextIsRefused) {
  expect_refused("relu.out", "'relu.out' must be NAME=FORMAT");
  expect_refused("relu.out=bf16,first.out=bf16", "'relu.out=bf16,first.out=bf16'");
  expect_refused("=bf16", "names no tensor");
  expect_refused("relu.out=", "names no format");
  expect_refused("relu.out= bf16", "names no format");
  expect_refused("relu.out=bf17", "'relu.out=bf17'");
  expect_refused("r*u=bf16", "the '*' must be the first or the last of the name");
  expect_refused("re*u*=bf16", "the '*' must be the first or the last of the name");
  expect_refused("*out*=bf16", "the '*' must be the first or the last of the name");
  expect_refused("relu.out=e4m3=e5m2", "'relu.out=e4m3=e5m2'");
  expect_refused("a\tb", "'a\\x09b' must be");
}

}  // namespace
}  // namespace ulp
