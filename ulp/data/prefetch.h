// Work done ahead on threads. Numbered jobs fill a ring of slots; one consumer takes the slots in
// the order of the numbers. What a slot holds depends on its number alone, never on the count of
// threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ulp {

// How often and how long the consumer had to wait. The first job after a start is not counted: nobody could
// have been ahead of it.
struct PrefetchWaits {
  uint64_t taken = 0, waited = 0;
  double seconds = 0;
};

class Prefetch {
 public:
  using Job = std::function<void(uint64_t number, size_t slot)>;

  // `claim` is called in the order of the numbers, one call at a time; then `fill`, for several at once. At
  // least two slots and one thread.
  Prefetch(size_t slots, int threads, Job claim, Job fill);
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();  // waits for jobs under way, starts no others

  // Ends what is under way and begins anew with this number. Nothing runs before the first start.
  void start(uint64_t number);
  bool started() const { return !threads_.empty(); }

  // The slot of the next number; it is the caller's until the next call. What a job threw is thrown here when
  // its turn comes, and again until the next start. Only one thread may call start and next.
  size_t next();

  PrefetchWaits waits() const { return waits_; }

 private:
  struct Slot {
    uint64_t done = 0;  // the number that was filled in, plus one
    std::exception_ptr error;
  };

  void work();
  void stop();

  const size_t slots_;
  const int thread_count_;
  const Job claim_, fill_;

  std::mutex claiming_;  // held by the one thread that claims; taken before state_, never after
  std::mutex state_;     // guards what follows
  std::condition_variable freed_, filled_;
  std::vector<Slot> ring_;
  uint64_t unclaimed_ = 0;  // the next number to be claimed
  uint64_t released_ = 0;   // slots of smaller numbers are free
  bool stopping_ = false;

  // The consumer's own.
  uint64_t first_ = 0, next_ = 0;
  PrefetchWaits waits_;
  std::vector<std::jthread> threads_;
};

}  // namespace ulp
