#include "ulp/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace ulp {
namespace {

TEST(Text, BytesThatCannotBePrintedAreShown) {
  EXPECT_EQ(shown_text("a b"), "a b");
  EXPECT_EQ(shown_text(std::string_view("\0\n\xff", 3)), "\\x00\\x0a\\xff");
  EXPECT_EQ(shown_text("abcdef", 3), "abc...");
}

TEST(Text, BytesAreNumbersWithAUnitOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("4097"), 4097);
  EXPECT_EQ(parse_bytes("1KB"), 1024);
  EXPECT_EQ(parse_bytes("64MB"), int64_t{64} << 20);
  EXPECT_EQ(parse_bytes("3GB"), int64_t{3} << 30);
  EXPECT_EQ(parse_bytes("-5"), -5);
  EXPECT_EQ(parse_bytes("8589934591GB"), int64_t{8589934591} << 30);
  EXPECT_EQ(parse_bytes("9223372036854775807"), std::numeric_limits<int64_t>::max());
}

TEST(Text, OtherTextIsNoNumberOfBytes) {
  for (const char* text : {"", "MB", "x", "1.5MB", "64 MB", " 64", "64MB ", "64mb", "64M", "64MiB", "64B",
                           "+1", "0x10", "-1KB", "8589934592GB", "9223372036854775808", "1e6", "1KBMB"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Text, BytesReadBack) {
  EXPECT_EQ(bytes_with_unit(int64_t{64} << 20), "64MB");
  EXPECT_EQ(bytes_with_unit(1536), "1536");
  EXPECT_EQ(bytes_with_unit(1536 << 10), "1536KB");
  EXPECT_EQ(bytes_with_unit(0), "0");
  EXPECT_EQ(bytes_with_unit(-1024), "-1024");
  for (const int64_t bytes : {int64_t{1}, int64_t{1023}, int64_t{1} << 40, int64_t{-7}, int64_t{3} << 20})
    EXPECT_EQ(parse_bytes(bytes_with_unit(bytes)), bytes);
}

TEST(Text, DistanceCountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("conv1.out", "conv2.out"), 1u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
}

TEST(Text, OnlyWhatIsNearIsNamed) {
  constexpr std::string_view kNames[] = {"lr", "train", "batch", "fashion-mnist", "size"};
  EXPECT_EQ(nearest_name("trian", kNames), "train");
  EXPECT_EQ(nearest_name("lrr", kNames), "lr");
  EXPECT_EQ(nearest_name("fashion_mnst", kNames), "fashion-mnist");
  EXPECT_EQ(nearest_hint("sise", kNames), "the nearest is size; ");
  for (const char* word : {"frobnicate", "x", "", "quantum", "bartered"}) {
    EXPECT_EQ(nearest_name(word, kNames), "") << word;
    EXPECT_EQ(nearest_hint(word, kNames), "") << word;
  }
  EXPECT_EQ(nearest_name("word", {}), "");
}

}  // namespace
}  // namespace ulp
