#include "ulp/tasks/example_stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ulp/data/shuffle.h"

namespace ulp {
namespace {

std::vector<uint32_t> choose(Part part, size_t all, int64_t subset, uint64_t seed) {
  if (part == Part::train && subset > 0) return choose_subset(all, static_cast<size_t>(subset), seed);
  std::vector<uint32_t> every(all);
  std::iota(every.begin(), every.end(), 0u);
  return every;
}

}  // namespace

ExampleStream::ExampleStream(std::unique_ptr<BatchMaker> maker, Part part, size_t all, int64_t batch,
                             int64_t subset, uint64_t seed)
    : maker_(std::move(maker)),
      shuffles_(part == Part::train),
      seed_(seed),
      chosen_(choose(part, all, subset, seed)),
      batch_(std::min(static_cast<size_t>(batch), chosen_.size())),
      batches_((chosen_.size() + batch_ - 1) / batch_),
      order_(chosen_),
      slots_(kSlots),
      prefetch_(
          kSlots, 1, [this](uint64_t number, size_t slot) { claim(number, slots_[slot]); },
          [this](uint64_t, size_t slot) { maker_->make(slot, slots_[slot].examples, slots_[slot].epoch); }) {}

const FeedBatch& ExampleStream::next() {
  if (!prefetch_.started()) seek(0, 0);
  const size_t slot = prefetch_.next();
  fed_.shape = {static_cast<int64_t>(slots_[slot].examples.size())};
  fed_.epoch = slots_[slot].epoch;
  fed_.feeds = maker_->feeds(slot);
  return fed_;
}

// Called for one batch at a time, in their order.
void ExampleStream::claim(uint64_t number, Slot& slot) {
  slot.epoch = static_cast<uint32_t>(number / batches_);
  if (shuffles_ && (!shuffled_ || order_epoch_ != slot.epoch)) {
    order_ = chosen_;
    shuffle(order_, seed_, slot.epoch);
    order_epoch_ = slot.epoch;
    shuffled_ = true;
  }
  const size_t begin = number % batches_ * batch_, count = std::min(batch_, order_.size() - begin);
  const auto from = order_.begin() + static_cast<ptrdiff_t>(begin);
  slot.examples.assign(from, from + static_cast<ptrdiff_t>(count));
}

}  // namespace ulp
