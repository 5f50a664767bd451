#include "ulp/data/byte_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ulp {
namespace {

TEST(ByteBudget, IsNeverExceeded) {
  constexpr uint64_t kMost = 100;
  ByteBudget budget(kMost);
  std::atomic<uint64_t> taken = 0, largest = 0;
  std::vector<std::thread> threads;
  for (uint64_t own = 1; own <= 8; ++own) {
    threads.emplace_back([&, own] {
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t bytes = (17 * own + 29 * i) % kMost + 1;
        const ByteBudget::Share share = budget.take(bytes);
        const uint64_t now = taken += bytes;
        for (uint64_t seen = largest; now > seen && !largest.compare_exchange_weak(seen, now);) continue;
        if (i % 16 == 0) std::this_thread::yield();
        taken -= bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(largest, kMost);
  EXPECT_GT(largest, 0u);
}

TEST(ByteBudget, WhoeverNeedsMoreThanAllWaitsForAll) {
  ByteBudget budget(10);
  std::atomic<bool> has_it = false;
  std::thread waiting;
  {
    const ByteBudget::Share share = budget.take(1);
    waiting = std::thread([&] {
      const ByteBudget::Share all = budget.take(1000);
      has_it = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(has_it);
    const ByteBudget::Share second = budget.take(9);  // those that fit need not wait behind it
  }
  waiting.join();
  EXPECT_TRUE(has_it);
}

}  // namespace
}  // namespace ulp
