// Batches of a part whose examples are numbers, made ahead on a thread: shuffled anew in each epoch
// of training, in their order in a test. What is in a batch depends on its number alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ulp/data/prefetch.h"
#include "ulp/tasks/task.h"

namespace ulp {

// Makes what is fed from numbers of examples. Several batches are in memory, each in a slot.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  virtual void make(size_t slot, std::span<const uint32_t> examples, uint32_t epoch) = 0;
  // Of a slot that was made; valid until it is made again. Another slot may be made at the time.
  virtual std::vector<Feed> feeds(size_t slot) const = 0;
};

class ExampleStream : public BatchStream {
 public:
  static constexpr size_t kSlots = 3;

  // Of all examples of the part; in training of `subset`, chosen by the seed, unless that is 0.
  ExampleStream(std::unique_ptr<BatchMaker> maker, Part part, size_t all, int64_t batch, int64_t subset,
                uint64_t seed);

  const FeedBatch& next() override;
  void seek(uint32_t epoch, uint64_t batch) override { prefetch_.start(epoch * batches_ + batch); }
  size_t examples() const override { return chosen_.size(); }
  uint64_t batches() const override { return batches_; }

 private:
  struct Slot {
    uint32_t epoch = 0;
    std::vector<uint32_t> examples;
  };
  void claim(uint64_t number, Slot& slot);

  const std::unique_ptr<BatchMaker> maker_;
  const bool shuffles_;
  const uint64_t seed_;
  const std::vector<uint32_t> chosen_;  // numbers of the examples, ascending
  const size_t batch_;
  const uint64_t batches_;

  // The order of one epoch, for claim alone.
  std::vector<uint32_t> order_;
  uint32_t order_epoch_ = 0;
  bool shuffled_ = false;

  std::vector<Slot> slots_;
  FeedBatch fed_;
  Prefetch prefetch_;  // last: its thread ends before anything it uses
};

}  // namespace ulp
