// A set of images that lies in a device's memory as bytes, and what becomes of them on their way into a batch: what the
// loader does on the host (loader.h), with the same bits.
#pragma once

#include <cstdint>

#include "ulp/data/augment.h"
#include "ulp/data/dataset.h"
#include "ulp/data/loader.h"

namespace ulp {

struct ResidentImages {
  static constexpr int kMaxChannels = 4;

  const uint8_t* images = nullptr;  // (example, height, width, channels)
  const int32_t* labels = nullptr;  // (example)
  int32_t height = 0, width = 0, channels = 0;
  Augment augment = {};
  Normalise normalise[kMaxChannels] = {};
};

// All of it but where the bytes are. Throws an Error for more channels than kMaxChannels.
ResidentImages resident_images(const ImageSet& set, const LoaderOptions& options);

}  // namespace ulp
