#include "ulp/tensor/device.h"

#include <gtest/gtest.h>

#include <vector>

#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

TEST(HostDevice, CopiesBytesAndRepeatsRecordings) {
  Device& host = host_device();
  EXPECT_TRUE(host.on_host());
  Memory memory;
  const Block a = memory.allocate(size_t{3} << 20), b = memory.allocate(size_t{3} << 20);
  EXPECT_EQ(&a.device(), &host);
  std::vector<uint8_t> bytes(a.bytes()), back(a.bytes());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  host.upload(a.data(), bytes.data(), bytes.size());
  host.copy(b.data(), a.data(), bytes.size());
  host.download(back.data(), b.data(), back.size());
  EXPECT_TRUE(bytes == back);

  int runs = 0;
  const auto recording = host.record([&](Stream stream) {
    EXPECT_EQ(stream, nullptr);
    ++runs;
    host.copy_async(a.data(), b.data() + 1, 64, stream);
    host.clear_async(b.data(), 64, stream);
  });
  EXPECT_EQ(runs, 0);
  recording->launch();
  host.wait();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(std::equal(a.data(), a.data() + 63, bytes.data() + 1));
  EXPECT_EQ(b.data()[63], 0);
  EXPECT_EQ(b.data()[64], bytes[64]);
  recording->launch();
  EXPECT_EQ(runs, 2);
}

TEST(HostDevice, ABlockOfNothingIsOnTheHost) { EXPECT_TRUE(Block().device().on_host()); }

}  // namespace
}  // namespace ulp
