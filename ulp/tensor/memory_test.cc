#include "ulp/tensor/memory.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"

namespace ulp {
namespace {

TEST(Memory, CountsWhatIsInUseAndTheMost) {
  Memory memory;
  {
    const Block small = memory.allocate(100);
    EXPECT_EQ(small.bytes(), 128u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % kMemoryAlignment, 0u);
    Block large = memory.allocate(size_t{3} << 20);
    EXPECT_EQ(memory.in_use(), 128 + (size_t{3} << 20));
    large = Block();
    EXPECT_EQ(memory.in_use(), 128u);
  }
  EXPECT_EQ(memory.in_use(), 0u);
  EXPECT_EQ(memory.peak(), 128 + (size_t{3} << 20));
}

TEST(Memory, StartsAsZeros) {
  Memory memory;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{2} << 20}) {
    const Block block = memory.allocate(bytes);
    for (size_t i = 0; i < block.bytes(); ++i) ASSERT_EQ(block.data()[i], 0);
  }
}

TEST(Memory, MovingABlockGivesItBackOnce) {
  Memory memory;
  Block a = memory.allocate(64), b = memory.allocate(64);
  uint8_t* data = b.data();
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(memory.in_use(), 64u);
  a = Block();
  EXPECT_EQ(memory.in_use(), 0u);
}

TEST(Memory, SaysHowManyBytesAreNotThere) {
  Memory memory;
  try {
    memory.allocate(size_t{1} << 60);
    FAIL() << "an exabyte was given";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
  }
  EXPECT_EQ(memory.in_use(), 0u);
}

}  // namespace
}  // namespace ulp
