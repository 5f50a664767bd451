#include "ulp/data/shuffle.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

// The words of one stream, one after the other.
class Words {
 public:
  Words(uint64_t seed, DataStream stream, uint32_t epoch) : seed_(seed), stream_(stream), epoch_(epoch) {}

  uint32_t below(uint32_t n) {
    for (;;) {
      if (const std::optional<uint32_t> number = fair_number(word(), n)) return *number;
    }
  }

 private:
  uint32_t word() {
    if (taken_ % 4 == 0) block_ = data_words(seed_, stream_, epoch_, taken_ / 4);
    return block_.word[taken_++ % 4];
  }

  uint64_t seed_;
  DataStream stream_;
  uint32_t epoch_;
  uint64_t taken_ = 0;
  PhiloxWords block_{};
};

// Fisher-Yates from the front, as far as `settled` items.
void settle(std::span<uint32_t> items, size_t settled, Words words) {
  if (items.size() > UINT32_MAX) {
    fail("shuffle", "{} examples are too many: at most 2^32 - 1", items.size());
  }
  for (size_t i = 0; i < settled; ++i) {
    std::swap(items[i], items[i + words.below(static_cast<uint32_t>(items.size() - i))]);
  }
}

}  // namespace

// The high word of random * n is that number; the low word tells the 2^32 mod n products too many (Lemire,
// "Fast random integer generation in an interval").
std::optional<uint32_t> fair_number(uint32_t word, uint32_t n) {
  const uint64_t product = uint64_t{word} * n;
  const auto low = static_cast<uint32_t>(product);
  if (low < n && low < (0u - n) % n) return std::nullopt;
  return static_cast<uint32_t>(product >> 32);
}

void shuffle(std::span<uint32_t> items, uint64_t seed, uint32_t epoch) {
  settle(items, items.size(), Words(seed, DataStream::shuffle, epoch));
}

std::vector<uint32_t> choose_subset(size_t total, size_t count, uint64_t seed) {
  if (count > total) fail("shuffle", "cannot choose {} of {} examples", count, total);
  std::vector<uint32_t> items(total);
  std::iota(items.begin(), items.end(), 0u);
  settle(items, count, Words(seed, DataStream::subset, 0));
  items.resize(count);
  std::sort(items.begin(), items.end());
  return items;
}

}  // namespace ulp
