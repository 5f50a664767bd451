#include "ulp/data/prefetch.h"

#include <chrono>
#include <utility>

#include "ulp/base/error.h"

namespace ulp {

Prefetch::Prefetch(size_t slots, int threads, Job claim, Job fill)
    : slots_(slots), thread_count_(threads), claim_(std::move(claim)), fill_(std::move(fill)) {
  if (slots < 2) fail("prefetch", "there must be at least 2 buffers, got {}", slots);
  if (threads < 1) fail("prefetch", "there must be at least 1 thread, got {}", threads);
}

Prefetch::~Prefetch() { stop(); }

void Prefetch::stop() {
  {
    const std::lock_guard lock(state_);
    stopping_ = true;
  }
  freed_.notify_all();
  threads_.clear();  // joins
}

void Prefetch::start(uint64_t number) {
  stop();
  stopping_ = false;
  ring_.assign(slots_, {});
  unclaimed_ = released_ = first_ = next_ = number;
  for (int i = 0; i < thread_count_; ++i) threads_.emplace_back([this] { work(); });
}

void Prefetch::work() {
  for (;;) {
    std::unique_lock claiming(claiming_);
    uint64_t number = 0;
    {
      std::unique_lock lock(state_);
      freed_.wait(lock, [&] { return stopping_ || unclaimed_ - released_ < slots_; });
      if (stopping_) return;
      number = unclaimed_++;
    }
    const size_t slot = number % slots_;
    std::exception_ptr error;
    try {
      claim_(number, slot);
      claiming.unlock();
      fill_(number, slot);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(state_);
      ring_[slot] = {number + 1, std::move(error)};
    }
    filled_.notify_one();
  }
}

size_t Prefetch::next() {
  if (!started()) fail("prefetch", "next before start");
  const size_t slot = next_ % slots_;
  std::unique_lock lock(state_);
  released_ = next_;
  freed_.notify_one();
  const auto done = [&] { return ring_[slot].done == next_ + 1; };
  if (!done()) {
    const auto begin = std::chrono::steady_clock::now();
    filled_.wait(lock, done);
    if (next_ != first_) {
      ++waits_.waited;
      waits_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  }
  if (ring_[slot].error) std::rethrow_exception(ring_[slot].error);
  waits_.taken += next_ != first_;
  ++next_;
  return slot;
}

}  // namespace ulp
