#include "ulp/data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "tests/support/temp.h"

namespace ulp {
namespace {

constexpr int kThreads[] = {1, 2, 7};

// Jobs that write numbers into slots.
struct Ring {
  explicit Ring(size_t slots) : claimed(slots), filled(slots) {}

  Prefetch::Job claim() {
    return [this](uint64_t number, size_t slot) {
      EXPECT_EQ(claims, number);
      ++claims;
      claimed[slot] = number;
    };
  }
  Prefetch::Job fill() {
    return [this](uint64_t number, size_t slot) {
      filled[slot] = 10 * number;
      ++fills;
    };
  }

  uint64_t claims = 0;  // no atomic: claims come one at a time
  std::vector<uint64_t> claimed, filled;
  std::atomic<uint64_t> fills = 0;
};

TEST(Prefetch, GivesSlotsInOrder) {
  for (const int threads : kThreads) {
    for (const size_t slots : {2, 3, 16}) {
      Ring ring(slots);
      Prefetch prefetch(slots, threads, ring.claim(), ring.fill());
      prefetch.start(0);
      for (uint64_t i = 0; i < 500; ++i) {
        const size_t slot = prefetch.next();
        ASSERT_EQ(ring.claimed[slot], i);
        ASSERT_EQ(ring.filled[slot], 10 * i);
      }
    }
  }
}

TEST(Prefetch, LeavesTheTakenSlotAlone) {
  Ring ring(3);
  Prefetch prefetch(3, 2, ring.claim(), ring.fill());
  prefetch.start(0);
  const size_t slot = prefetch.next();
  while (ring.fills < 3) std::this_thread::yield();  // the two other slots, and no more
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ring.fills, 3u);
  EXPECT_EQ(ring.filled[slot], 0u);
}

TEST(Prefetch, BeginsAnewWhereTold) {
  for (const int threads : kThreads) {
    Ring ring(4);
    Prefetch prefetch(
        4, threads, [](uint64_t, size_t) {}, ring.fill());
    for (const uint64_t begin : {uint64_t{100}, uint64_t{3}, uint64_t{1} << 40, uint64_t{0}}) {
      prefetch.start(begin + 7);
      prefetch.start(begin);
      for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(ring.filled[prefetch.next()], 10 * (begin + i));
    }
  }
}

TEST(Prefetch, ThrowsWhatAJobThrewWhenItsTurnComes) {
  for (const int threads : kThreads) {
    for (const bool in_claim : {false, true}) {
      std::atomic<bool> broken = true;
      const auto breaks = [&](uint64_t number, size_t) {
        if (number == 5 && broken) throw std::runtime_error("job 5");
      };
      const auto works = [](uint64_t, size_t) {};
      Prefetch prefetch(3, threads, in_claim ? Prefetch::Job(breaks) : works,
                        in_claim ? works : Prefetch::Job(breaks));
      prefetch.start(0);
      for (int i = 0; i < 5; ++i) EXPECT_NO_THROW(prefetch.next());
      for (int i = 0; i < 2; ++i) {
        try {
          prefetch.next();
          ADD_FAILURE() << "nothing was thrown";
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "job 5");
        }
      }
      broken = false;
      prefetch.start(5);
      EXPECT_NO_THROW(prefetch.next());
    }
  }
}

TEST(Prefetch, EndsInTheMiddleOfAnything) {
  for (const int threads : kThreads) {
    for (int taken = 0; taken < 4; ++taken) {
      std::atomic<int> running = 0;
      {
        Prefetch prefetch(
            4, threads, [](uint64_t, size_t) {},
            [&](uint64_t, size_t) {
              ++running;
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
              --running;
            });
        if (taken > 0) prefetch.start(0);
        for (int i = 1; i < taken; ++i) prefetch.next();
      }
      EXPECT_EQ(running, 0);
    }
  }
}

TEST(Prefetch, CountsWaits) {
  Ring ring(4);
  Prefetch ahead(4, 1, ring.claim(), ring.fill());
  ahead.start(0);
  for (uint64_t i = 0; i < 10; ++i) {
    while (ring.fills < i + 2) std::this_thread::yield();  // the one thread is done with job i
    ahead.next();
  }
  EXPECT_EQ(ahead.waits().taken, 9u);
  EXPECT_EQ(ahead.waits().waited, 0u);
  EXPECT_EQ(ahead.waits().seconds, 0);

  Prefetch behind(
      2, 1, [](uint64_t, size_t) {},
      [](uint64_t, size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  behind.start(0);
  for (int i = 0; i < 10; ++i) behind.next();
  EXPECT_EQ(behind.waits().taken, 9u);
  EXPECT_GE(behind.waits().waited, 1u);
  EXPECT_GT(behind.waits().seconds, 0);
}

TEST(Prefetch, RefusesTooLittle) {
  const auto works = [](uint64_t, size_t) {};
  EXPECT_EQ(complaint_of([&] { Prefetch(1, 1, works, works); }),
            "[prefetch] there must be at least 2 buffers, got 1");
  EXPECT_EQ(complaint_of([&] { Prefetch(2, 0, works, works); }),
            "[prefetch] there must be at least 1 thread, got 0");
  Prefetch idle(2, 1, works, works);
  EXPECT_EQ(complaint_of([&] { idle.next(); }), "[prefetch] next before start");
}

}  // namespace
}  // namespace ulp
