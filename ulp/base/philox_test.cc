#include "ulp/base/philox.h"

#include <gtest/gtest.h>

namespace ulp {
namespace {

// The known-answer vectors published with the Random123 library for philox4x32 with 10 rounds.
struct KnownAnswer {
  PhiloxWords counter;
  PhiloxKey key;
  PhiloxWords words;
};

constexpr KnownAnswer kKnown[] = {
    {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {{0xffffffff, 0xffffffff}},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {{0xa4093822, 0x299f31d0}},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

TEST(Philox, GivesThePublishedWords) {
  for (const KnownAnswer& known : kKnown) {
    const PhiloxWords got = philox(known.counter, known.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], known.words.word[i]) << "word " << i;
  }
}

}  // namespace
}  // namespace ulp
