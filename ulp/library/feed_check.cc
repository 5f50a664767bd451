#include "ulp/library/feed_check.h"

#include <array>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"

namespace ulp {
namespace {

// Lanes that do not wait for one another, so that memory sets the pace. Each step of a lane is a
// bijection of its old value for a given word: a single changed word always shows.
uint64_t checksum(const void* data, size_t bytes) {
  constexpr size_t kLanes = 8;
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  std::array<uint64_t, kLanes> lanes{};
  const auto* at = static_cast<const uint8_t*>(data);
  const auto mix = [](uint64_t lane, uint64_t word) {
    const uint64_t mixed = (lane ^ word) * kMultiplier;
    return mixed ^ mixed >> 32;
  };
  for (; bytes >= sizeof lanes; at += sizeof lanes, bytes -= sizeof lanes) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof words);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  std::array<uint64_t, kLanes> rest{};
  if (bytes > 0) std::memcpy(rest.data(), at, bytes);
  uint64_t sum = 0;
  for (size_t i = 0; i < kLanes; ++i) sum = mix(sum, mix(lanes[i], rest[i]));
  return sum;
}

uint64_t checksum(const Feed& feed) {
  return feed.values == nullptr ? 0 : checksum(feed.values, feed.elements * element_bytes(feed.element));
}

}  // namespace

FeedCheck::FeedCheck(const FeedBatch& batch) : batch_(batch) {
  for (const Feed& feed : batch.feeds) sums_.push_back(checksum(feed));
}

void FeedCheck::check() const {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (checksum(batch_.feeds[i]) == sums_[i]) continue;
    fail("session",
         "the feed '{}' changed while the step ran: its array must stay as it is until the step returns",
         batch_.feeds[i].name);
  }
}

}  // namespace ulp
