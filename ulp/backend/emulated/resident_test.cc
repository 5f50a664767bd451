#include "ulp/backend/cuda/ops/resident.h"

#include <gtest/gtest.h>

#include <vector>

#include "ulp/data/dataset.h"
#include "ulp/data/loader.h"

namespace ulp {
namespace {

TEST(Resident, MakesTheLoadersBatches) {
  DataRequest request;
  request.seed = 3;
  for (const char* name : {"synthetic"}) {
    const ImageSet set = load_dataset(name, request);
    LoaderOptions options;
    options.batch = 37;
    options.padding = 4;
    options.mirror = true;
    options.seed = 5;
    Loader loader(set, Part::train, options);
    ResidentImages resident = resident_images(set, options);
    resident.images = set.train.images.data();
    resident.labels = set.train.labels.data();
    for (int i = 0; i < 5; ++i) {
      const Batch& batch = loader.next();
      std::vector<uint32_t> numbers{batch.epoch};
      numbers.insert(numbers.end(), batch.examples.begin(), batch.examples.end());
      std::vector<float> images(batch.images.size());
      std::vector<int32_t> labels(batch.count());
      cuda::fill_batch(resident, numbers.data(), static_cast<uint32_t>(batch.count()), images.data(),
                       labels.data(), nullptr);
      ASSERT_EQ(images, std::vector<float>(batch.images.begin(), batch.images.end()));
      ASSERT_EQ(labels, std::vector<int32_t>(batch.labels.begin(), batch.labels.end()));
    }
  }
}

}  // namespace
}  // namespace ulp
