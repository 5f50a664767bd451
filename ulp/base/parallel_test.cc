#include "ulp/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace ulp {
namespace {

class Parallel : public ::testing::Test {
 protected:
  void TearDown() override { set_thread_count(saved_); }
  int saved_ = thread_count();
};

TEST_F(Parallel, CoversEveryIndexOnceInWholeGrains) {
  for (int threads : {1, 2, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (size_t n : {0, 1, 63, 64, 65, 1000, 4096, 4097}) {
      std::vector<std::atomic<int>> seen(n);
      parallel_for(n, 64, [&](size_t begin, size_t end) {
        EXPECT_LT(begin, end);
        EXPECT_EQ(begin % 64, 0u);
        EXPECT_TRUE(end % 64 == 0 || end == n);
        for (size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], 1) << "index " << i << " of " << n;
    }
  }
}

TEST_F(Parallel, CarriesAnExceptionToTheCaller) {
  set_thread_count(4);
  auto body = [](size_t begin, size_t) {
    if (begin > 0) throw std::runtime_error("from a worker");
  };
  EXPECT_THROW(parallel_for(1000, 1, body), std::runtime_error);
}

TEST_F(Parallel, TakesAtLeastOneThread) {
  set_thread_count(0);
  EXPECT_EQ(thread_count(), 1);
}

}  // namespace
}  // namespace ulp
