// A made-up set that can be learned: each class is a pattern of 4x4 patches of grey, each example its class's
// pattern under noise. Integers from Philox only, so it is the same on every machine and for any number of
// threads; training and test examples share the patterns and differ in the noise.
#include <algorithm>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kPatches = 4;  // a side
constexpr int kNoise = 96;      // added to a byte: -kNoise to kNoise - 1; patterns lie in 64 to 191
constexpr size_t kWordBytes = 16;
constexpr int64_t kMostSide = 1 << 16;
constexpr int64_t kMostClasses = 1 << 20;
constexpr int64_t kMostExamples = 1 << 30;
constexpr size_t kMostBytes = size_t{1} << 36;

size_t size_of(std::string_view what, const std::optional<int64_t>& wanted, int64_t otherwise, int64_t most) {
  const int64_t size = wanted.value_or(otherwise);
  if (size < 1 || size > most) fail("synthetic", "{} must be 1 to {}, got {}", what, most, size);
  return static_cast<size_t>(size);
}

// The patterns of all classes: (classes, height, width, channels).
std::vector<uint8_t> patterns(const ImageSet& set, uint64_t seed) {
  std::vector<uint8_t> bytes(set.classes * set.image_bytes());
  size_t at = 0;
  for (size_t label = 0; label < set.classes; ++label) {
    for (size_t y = 0; y < set.height; ++y) {
      for (size_t x = 0; x < set.width; ++x) {
        const size_t patch = y * kPatches / set.height * kPatches + x * kPatches / set.width;
        for (size_t c = 0; c < set.channels; ++c) {
          const uint64_t index = (label * kPatches * kPatches + patch) * set.channels + c;
          const uint32_t word = data_words(seed, DataStream::prototype, 0, index).word[0];
          bytes[at++] = static_cast<uint8_t>(64 + (word >> 25));
        }
      }
    }
  }
  return bytes;
}

Examples make_part(const ImageSet& set, std::span<const uint8_t> pattern, size_t count, uint64_t seed,
                   uint32_t part) {
  Examples examples;
  const size_t bytes = set.image_bytes();
  examples.images.resize(count * bytes);
  examples.labels.resize(count);
  const size_t blocks = (bytes + kWordBytes - 1) / kWordBytes;  // of random words, for one example
  parallel_for(count, 64, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t label = i % set.classes;
      examples.labels[i] = static_cast<int32_t>(label);
      PhiloxWords random{};
      for (size_t at = 0; at < bytes; ++at) {
        if (at % kWordBytes == 0) {
          random = data_words(seed, DataStream::noise, part, i * blocks + at / kWordBytes);
        }
        const int byte = static_cast<int>(random.word[at % kWordBytes / 4] >> (at % 4 * 8) & 0xff);
        const int value = pattern[label * bytes + at] + byte * (2 * kNoise) / 256 - kNoise;
        examples.images[i * bytes + at] = static_cast<uint8_t>(std::clamp(value, 0, 255));
      }
    }
  });
  return examples;
}

}  // namespace

DataOutline outline_synthetic(const DatasetInfo& info, const DataRequest& request) {
  DataOutline outline;
  ImageSet& set = outline.set;
  const auto size = [](size_t n) { return static_cast<int64_t>(n); };
  set.height = size_of("the height", request.height, size(info.height), kMostSide);
  set.width = size_of("the width", request.width, size(info.width), kMostSide);
  set.channels = size_of("the number of channels", request.channels, size(info.channels), kMostSide);
  set.classes = size_of("the number of classes", request.classes, size(info.classes), kMostClasses);
  outline.train = size_of("the number of training examples", request.train, size(info.train), kMostExamples);
  outline.test = size_of("the number of test examples", request.test, size(info.test), kMostExamples);
  // At most 2^48 bytes an image and 2^31 images: neither product overflows before it is compared.
  const size_t images = std::max(outline.train + outline.test, set.classes);
  if (set.image_bytes() > kMostBytes / images) {
    fail("synthetic", "{} images of {}x{}x{} take more than {} GiB: ask for fewer or smaller ones", images,
         set.height, set.width, set.channels, kMostBytes >> 30);
  }
  return outline;
}

ImageSet make_synthetic(const DatasetInfo& info, const std::string&, const DataRequest& request) {
  auto [set, train, test] = outline_synthetic(info, request);
  const std::vector<uint8_t> pattern = patterns(set, request.seed);
  set.train = make_part(set, pattern, train, request.seed, 0);
  set.test = make_part(set, pattern, test, request.seed, 1);
  return set;
}

}  // namespace ulp
