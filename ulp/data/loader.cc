#include "ulp/data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/data/shuffle.h"

namespace ulp {
namespace {

constexpr int kMostThreads = 256, kMostBuffers = 1024;

const Examples& checked_part(const ImageSet& set, Part part) {
  check_set(set);
  constexpr auto kMost = static_cast<size_t>(std::numeric_limits<int32_t>::max());
  if (set.height > kMost || set.width > kMost || set.channels > kMost) {
    fail("loader", "images of {}x{}x{} are too large", set.height, set.width, set.channels);
  }
  return part == Part::train ? set.train : set.test;
}

const LoaderOptions& checked(const ImageSet& set, const LoaderOptions& o) {
  if (o.batch < 1) fail("loader", "the batch must be positive, got {}", o.batch);
  const auto most = static_cast<int64_t>(std::min(set.height, set.width)) - 1;
  if (o.padding < 0 || o.padding > most) {
    fail("loader", "the crop's padding must be 0 to {} for images of {}x{}, got {}", most, set.height,
         set.width, o.padding);
  }
  if (o.threads < 1 || o.threads > kMostThreads) {
    fail("loader", "the number of threads must be 1 to {}, got {}", kMostThreads, o.threads);
  }
  if (o.buffers < 2 || o.buffers > kMostBuffers) {
    fail("loader", "the number of buffers must be 2 to {}, got {}", kMostBuffers, o.buffers);
  }
  return o;
}

std::vector<uint32_t> choose(size_t total, const LoaderOptions& o) {
  if (total > std::numeric_limits<uint32_t>::max()) {
    fail("loader", "{} examples are too many: at most 2^32 - 1", total);
  }
  if (!o.subset) {
    std::vector<uint32_t> all(total);
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  if (*o.subset < 1 || static_cast<size_t>(*o.subset) > total) {
    fail("loader", "the subset must be 1 to {} examples, got {}", total, *o.subset);
  }
  return choose_subset(total, static_cast<size_t>(*o.subset), o.seed);
}

std::vector<float> normal_table(const ImageSet& set) {
  std::vector<float> table;
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t c = 0; c < set.channels; ++c) {
      table.push_back(normalised(static_cast<uint8_t>(byte), make_normalise(set.mean[c], set.deviation[c])));
    }
  }
  return table;
}

}  // namespace

Loader::Loader(const ImageSet& set, Part part, const LoaderOptions& options)
    : set_(set),
      part_(checked_part(set, part)),
      options_(checked(set, options)),
      augment_{options.seed, options.padding, options.mirror},
      chosen_(choose(part_.count(), options)),
      table_(normal_table(set)),
      order_(chosen_),
      prefetch_(
          static_cast<size_t>(options.buffers), options.threads,
          [this](uint64_t number, size_t slot) { claim(number, buffers_[slot]); },
          [this](uint64_t, size_t slot) { fill(buffers_[slot]); }) {
  batch_ = static_cast<size_t>(options.batch);
  if (part == Part::test) batch_ = std::min(batch_, chosen_.size());
  if (batch_ > chosen_.size()) {
    fail("loader", "the batch of {} is larger than the set of {} examples", options.batch, chosen_.size());
  }
  batches_ = (chosen_.size() + (options.drop_last ? 0 : batch_ - 1)) / batch_;
  buffers_.resize(static_cast<size_t>(options.buffers));
  for (Buffer& buffer : buffers_) {
    if (options.images) buffer.images.resize(batch_ * set_.image_bytes());
    buffer.labels.resize(batch_);
    buffer.examples.resize(batch_);
  }
}

const Batch& Loader::next() {
  if (!prefetch_.started()) seek(0, 0);
  return buffers_[prefetch_.next()].batch;
}

void Loader::seek(uint32_t epoch, uint64_t batch) {
  if (batch >= batches_) {
    fail("loader", "cannot seek to batch {}: an epoch has batches 0 to {}", batch, batches_ - 1);
  }
  prefetch_.start(epoch * batches_ + batch);
}

// Called for one batch at a time, in their order: the one place that needs the order of an epoch.
void Loader::claim(uint64_t number, Buffer& buffer) {
  constexpr uint64_t kLastEpoch = std::numeric_limits<uint32_t>::max();
  if (number / batches_ > kLastEpoch) fail("loader", "there is no epoch after {}", kLastEpoch);
  const auto epoch = static_cast<uint32_t>(number / batches_);
  const uint64_t index = number % batches_;
  if (options_.shuffle && order_epoch_ != epoch) {
    order_epoch_.reset();
    order_ = chosen_;
    shuffle(order_, options_.seed, epoch);
    order_epoch_ = epoch;
  }
  const size_t begin = index * batch_, count = std::min(batch_, order_.size() - begin);
  std::copy_n(&order_[begin], count, buffer.examples.begin());
  buffer.batch = {epoch,
                  index,
                  index + 1 == batches_,
                  std::span(buffer.images).first(options_.images ? count * set_.image_bytes() : 0),
                  std::span(buffer.labels).first(count),
                  std::span(buffer.examples).first(count)};
}

void Loader::fill(Buffer& buffer) const {
  const size_t bytes = set_.image_bytes();
  for (size_t i = 0; i < buffer.batch.count(); ++i) {
    const uint32_t example = buffer.examples[i];
    buffer.labels[i] = part_.labels[example];
    if (!options_.images) continue;
    fill_image(&part_.images[example * bytes], placement(augment_, buffer.batch.epoch, example),
               &buffer.images[i * bytes]);
  }
}

// placed_byte and normalised for a whole image: a row lies within the image, or is all padding; within a row
// only the columns [first, last) have pixels under them.
void Loader::fill_image(const uint8_t* image, const Placement& from, float* to) const {
  const auto height = static_cast<int32_t>(set_.height), width = static_cast<int32_t>(set_.width);
  const size_t channels = set_.channels;
  const auto pad = [&](int32_t pixels) {
    for (int32_t i = 0; i < pixels; ++i) to = std::copy_n(table_.data(), channels, to);
  };
  const int32_t shift = from.mirrored ? -from.right : from.right;  // of the columns, as they are written
  const int32_t first = std::max(0, -shift), last = width - std::max(0, shift);
  for (int32_t y = 0; y < height; ++y) {
    const int32_t row = y + from.down;
    if (row < 0 || row >= height) {
      pad(width);
      continue;
    }
    pad(first);
    const uint8_t* const line = image + static_cast<size_t>(row) * set_.width * channels;
    for (int32_t x = first; x < last; ++x) {
      const int32_t column = (from.mirrored ? width - 1 - x : x) + from.right;
      const uint8_t* const pixel = line + static_cast<size_t>(column) * channels;
      for (size_t c = 0; c < channels; ++c) *to++ = table_[pixel[c] * channels + c];
    }
    pad(width - last);
  }
}

}  // namespace ulp
