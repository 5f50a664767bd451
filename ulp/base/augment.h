// What happens to an example on its way into a batch, as pure functions of (seed, epoch, index of
// the example) that host and device compile alike: where it is cropped, whether it is mirrored, and
// the normalised value of each pixel. No state, no order: any thread, batch size or device gives
// the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/base/philox.h"

namespace ulp {

// What random words are for. Each stream has words of its own.
enum class DataStream : uint32_t { shuffle = 1, augment, subset, prototype, noise, negatives };

// Four random words. The key differs from the one that stochastic rounding makes of the same seed, so that
// no word serves twice.
ULP_HD constexpr PhiloxWords data_words(uint64_t seed, DataStream stream, uint32_t epoch, uint64_t index) {
  constexpr uint32_t kData = 0x64617461u;  // "data"
  return philox({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), epoch,
                  static_cast<uint32_t>(stream)}},
                {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^ kData}});
}

struct Augment {
  uint64_t seed = 0;
  int32_t padding = 0;  // pixels of byte 0 around the image, of which a window of its own size is cut
  bool mirror = false;  // left and right swapped for half of the examples
};

// Where the pixels of one example come from.
struct Placement {
  int32_t down = 0, right = 0;  // the window's corner relative to the image's, -padding to padding
  bool mirrored = false;
};

// `index` is the example's number in the whole set, not its place in a shuffle or a subset. An offset is one
// of 2 * padding + 1, each as likely as the others to within 2^-32.
ULP_HD constexpr Placement placement(const Augment& augment, uint32_t epoch, uint64_t index) {
  if (augment.padding == 0 && !augment.mirror) return {};
  const PhiloxWords random = data_words(augment.seed, DataStream::augment, epoch, index);
  const uint64_t offsets = 2 * static_cast<uint64_t>(augment.padding) + 1;
  return {static_cast<int32_t>((random.word[0] * offsets) >> 32) - augment.padding,
          static_cast<int32_t>((random.word[1] * offsets) >> 32) - augment.padding,
          augment.mirror && (random.word[2] >> 31) != 0};
}

// The byte at (y, x, channel) of the example after crop and mirror; `image` is (height, width, channels).
ULP_HD constexpr uint8_t placed_byte(const uint8_t* image, int32_t height, int32_t width, int32_t channels,
                                     const Placement& from, int32_t y, int32_t x, int32_t channel) {
  const int32_t row = y + from.down, column = (from.mirrored ? width - 1 - x : x) + from.right;
  if (row < 0 || row >= height || column < 0 || column >= width) return 0;
  return image[(static_cast<size_t>(row) * static_cast<size_t>(width) + static_cast<size_t>(column)) *
                   static_cast<size_t>(channels) +
               static_cast<size_t>(channel)];
}

// (byte / 255 - mean) / deviation of one channel as one subtraction and one multiplication, each rounded to
// fp32. The two constants are made once, on the host.
struct Normalise {
  float shift = 0, scale = 1;
};

constexpr Normalise make_normalise(float mean, float deviation) {
  return {mean * 255.0f, 1.0f / (255.0f * deviation)};
}

ULP_HD constexpr float normalised(uint8_t byte, const Normalise& n) {
  const float centred = static_cast<float>(byte) - n.shift;
  return centred * n.scale;
}

}  // namespace ulp
