// Notices a batch that somebody changes while a step reads it. A step reads a batch more than once
// where gradients are computed twice or micro-batches follow one another; a buffer that a loader
// fills again too early would give a step that no batch gives.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/session.h"

namespace ulp {

class FeedCheck {
 public:
  // The list of feeds must stay as it is.
  explicit FeedCheck(const FeedBatch& batch);
  // Throws an Error that names the first feed that has changed since.
  void check() const;

 private:
  const FeedBatch& batch_;
  std::vector<uint64_t> sums_;  // by feed
};

}  // namespace ulp
