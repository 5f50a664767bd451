#include "ulp/data/resident.h"

#include "ulp/base/error.h"

namespace ulp {

ResidentImages resident_images(const ImageSet& set, const LoaderOptions& options) {
  if (set.channels > ResidentImages::kMaxChannels) {
    fail("data", "images on the device have at most {} channels, these have {}", ResidentImages::kMaxChannels,
         set.channels);
  }
  ResidentImages made;
  made.height = static_cast<int32_t>(set.height);
  made.width = static_cast<int32_t>(set.width);
  made.channels = static_cast<int32_t>(set.channels);
  made.augment = {options.seed, options.padding, options.mirror};
  for (size_t c = 0; c < set.channels; ++c) made.normalise[c] = make_normalise(set.mean[c], set.deviation[c]);
  return made;
}

}  // namespace ulp
