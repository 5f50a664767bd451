#include "ulp/base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temp.h"

namespace ulp {
namespace {

std::string said(const std::string& text) {
  return complaint_of([&] { parse_json(text); });
}

std::string repeated(size_t times, const std::string& text) {
  std::string made;
  for (size_t i = 0; i < times; ++i) made += text;
  return made;
}

TEST(Json, IsReadAsTheLibraryReadsIt) {
  for (const char* text :
       {"null", "true", " [ ] ", "{}", "[[], {}, [1, -2, 3.5, \"a\\u00e9\"]]", "-0.0", "1e300",
        R"({"z": 1, "a": {"b": [false, null]}, "c": [{"d": 18446744073709551615}]})",
        "123456789012345678901234567890", "1e-999"}) {
    EXPECT_EQ(parse_json(text).dump(), Json::parse(text).dump()) << text;
  }
}

TEST(Json, NothingIsNestedDeeply) {
  const std::string arrays = repeated(kJsonDepth, "[") + repeated(kJsonDepth, "]");
  EXPECT_EQ(parse_json(arrays).dump(), arrays);
  EXPECT_EQ(said("[" + arrays + "]"), "[json] is nested more than 32 deep");
  EXPECT_EQ(said(repeated(1000000, "[")), "[json] is nested more than 32 deep");
  EXPECT_EQ(said(repeated(100000, R"({"a":)")), "[json] is nested more than 32 deep");
  EXPECT_EQ(said(R"({"a":)" + repeated(100000, R"([{"a":)")), "[json] is nested more than 32 deep");
}

TEST(Json, SaysWhatIsWrong) {
  EXPECT_EQ(said(""), "[json] is no JSON: it goes wrong at byte 1");
  EXPECT_EQ(said("[1e999]"), "[json] has a number that is too large: the one that ends at byte 6");
  EXPECT_EQ(said("[-1e999]"), "[json] has a number that is too large: the one that ends at byte 7");
  EXPECT_EQ(said("{} {}"), "[json] is no JSON: it goes wrong at byte 4");
  EXPECT_EQ(said("[NaN]"), "[json] is no JSON: it goes wrong at byte 2");
  EXPECT_EQ(said("[\"\xff\"]"), "[json] is no JSON: it goes wrong at byte 3");
  EXPECT_EQ(said(std::string("[1]\0[", 5)), "[json] is no JSON: it goes wrong at byte 4");
  EXPECT_EQ(said(R"({"a": 1, "b": {"a": 2}, "a\n": 3, "a\n": 4})"), "[json] has \"a\\n\" twice");
  EXPECT_EQ(said("{}" + std::string(kJsonBytes, ' ')),
            "[json] has 16777218 bytes of JSON: at most 16777216 are read");
}

// With a time that is the square of the names it would take hours.
TEST(Json, AnObjectOfAMillionNames) {
  std::string text = "{";
  for (size_t i = 0; i < 1000000; ++i) text.append("\"").append(std::to_string(i)).append("\":0,");
  text.back() = '}';
  EXPECT_EQ(parse_json(text).size(), 1000000u);
}

TEST(Json, CountsAreWholeNumbersInRange) {
  const Json json = parse_json(
      R"({"a": 7, "b": -1, "c": 1.0, "d": 1e300, "e": "7", "f": 18446744073709551615, "g": -1.5e300})");
  EXPECT_EQ(count_of(json, "a"), 7u);
  EXPECT_EQ(count_of(json, "a", 7), 7u);
  EXPECT_EQ(count_of(json, "f", std::numeric_limits<uint64_t>::max()), 18446744073709551615u);
  EXPECT_SAYS(count_of(json, "a", 6), "needs \"a\" with a whole number from 0 to 6");
  for (const char* name : {"b", "c", "d", "e", "f", "g", "none"}) {
    EXPECT_SAYS(count_of(json, name), "with a whole number from 0 to 9223372036854775807");
  }
  EXPECT_SAYS(count_of(Json(3), "a"), "needs \"a\"");
}

}  // namespace
}  // namespace ulp
