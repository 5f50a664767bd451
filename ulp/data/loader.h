// Batches for training and testing: shuffled, cropped, mirrored and normalised examples, made ahead
// on threads. Batch b of epoch e holds the same bits whatever the number of threads and buffers,
// and wherever the loader began. Nothing is allocated after the first batch, except by seek.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulp/base/augment.h"
#include "ulp/data/dataset.h"
#include "ulp/data/prefetch.h"

namespace ulp {

enum class Part : uint8_t { train, test };

// Sizes are signed so that a negative one can be refused by its value.
struct LoaderOptions {
  int64_t batch = 128;                 // at most the examples; for Part::test a larger one is clamped to them
  std::optional<int64_t> subset = {};  // so many examples, chosen by the seed; else all
  bool shuffle = true;                 // a new order each epoch; else the set's own
  bool drop_last = false;              // leave out the last batch of an epoch if it is not full
  int padding = 0;                     // crop from the image with so many zeros around it
  bool mirror = false;                 // swap left and right of half of the examples
  uint64_t seed = 0;
  bool images =
      true;  // off: only which examples a batch has, and their labels; someone else makes the images
  int threads = 1;
  int buffers = 3;  // batches in memory: the caller's and those made ahead
};

struct Batch {
  uint32_t epoch = 0;
  uint64_t index = 0;                       // within the epoch
  bool last = false;                        // of the epoch
  std::span<const float> images = {};       // (count, height, width, channels); none if not asked for
  std::span<const int32_t> labels = {};     // (count)
  std::span<const uint32_t> examples = {};  // (count), their numbers in the set

  size_t count() const { return labels.size(); }
};

class Loader {
 public:
  // The set must outlive the loader and stay as it is. Throws an Error if the set is not sound
  // (check_set, here once more: a set can be made without load_dataset) or an option makes no sense
  // for it.
  Loader(const ImageSet& set, Part part, const LoaderOptions& options);
  Loader(const ImageSet&& set, Part part, const LoaderOptions& options) = delete;  // it would not outlive

  // The next batch, from epoch 0 on; an Error after the last of epoch 2^32 - 1. Valid until the
  // next call of next or seek.
  const Batch& next();

  // Makes the next batch the one with this place: how a run resumes.
  void seek(uint32_t epoch, uint64_t batch);

  size_t examples() const { return chosen_.size(); }  // in an epoch, before drop_last
  uint64_t batches() const { return batches_; }       // in an epoch
  PrefetchWaits waits() const { return prefetch_.waits(); }

 private:
  struct Buffer {
    std::vector<float> images;
    std::vector<int32_t> labels;
    std::vector<uint32_t> examples;
    Batch batch;
  };

  void claim(uint64_t number, Buffer& buffer);
  void fill(Buffer& buffer) const;
  void fill_image(const uint8_t* image, const Placement& from, float* to) const;

  const ImageSet& set_;
  const Examples& part_;
  const LoaderOptions options_;
  const Augment augment_;
  std::vector<uint32_t> chosen_;  // ascending
  size_t batch_ = 0;
  uint64_t batches_ = 0;
  std::vector<float> table_;  // (256, channels): the normalised value of each byte
  std::vector<Buffer> buffers_;

  // The order of one epoch, for claim alone.
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;

  Prefetch prefetch_;  // last: its threads end before anything they use
};

}  // namespace ulp
