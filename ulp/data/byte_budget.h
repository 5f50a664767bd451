// Memory that several threads share: each waits until what it needs is free.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ulp {

class ByteBudget {
 public:
  explicit ByteBudget(uint64_t most) : most_(most) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Bytes that are taken while it lives. One thread has one share at a time, or it might wait for itself.
  class Share {
   public:
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { budget_.give_back(bytes_); }

   private:
    friend class ByteBudget;
    Share(ByteBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget& budget_;
    const uint64_t bytes_;
  };

  // Waits. Who needs more than there is at all has it alone.
  [[nodiscard]] Share take(uint64_t bytes) {
    bytes = std::min(bytes, most_);
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return most_ - taken_ >= bytes; });
    taken_ += bytes;
    return {*this, bytes};
  }

 private:
  void give_back(uint64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      taken_ -= bytes;
    }
    freed_.notify_all();
  }

  const uint64_t most_;
  std::mutex mutex_;
  std::condition_variable freed_;
  uint64_t taken_ = 0;
};

}  // namespace ulp
