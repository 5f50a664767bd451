#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <tuple>

#include "tests/support/temp.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/data/dataset.h"

namespace ulp {
namespace {

DataRequest request(int64_t height, int64_t width, int64_t channels, int64_t classes, int64_t train,
                    int64_t test, uint64_t seed = 1) {
  return {.dir = "",
          .height = height,
          .width = width,
          .channels = channels,
          .classes = classes,
          .train = train,
          .test = test,
          .seed = seed};
}

uint64_t hash(const std::vector<uint8_t>& bytes) {
  uint64_t h = 14695981039346656037u;  // FNV-1a
  for (const uint8_t byte : bytes) h = (h ^ byte) * 1099511628211u;
  return h;
}

TEST(Synthetic, ItsOutlineIsWhatIsMade) {
  for (const auto& wanted : {request(5, 7, 2, 3, 8, 4), request(1, 1, 1, 2, 3, 1), DataRequest{}}) {
    const std::optional<DataOutline> outline = outline_dataset("synthetic", wanted);
    ASSERT_TRUE(outline);
    const ImageSet made = load_dataset("synthetic", wanted);
    EXPECT_EQ(outline->set.name, made.name);
    EXPECT_EQ(
        std::tuple(outline->set.height, outline->set.width, outline->set.channels, outline->set.classes),
        std::tuple(made.height, made.width, made.channels, made.classes));
    EXPECT_EQ(outline->train, made.train.count());
    EXPECT_EQ(outline->test, made.test.count());
    EXPECT_EQ(outline->set.train.count(), 0u);
  }
  EXPECT_THROW(outline_dataset("synthetic", request(0, 7, 2, 3, 8, 4)), Error);
  EXPECT_THROW(outline_dataset("synthetic", request(60000, 60000, 4, 3, 60000, 4)), Error);
  EXPECT_THROW(outline_dataset("cifar10", request(32, 32, 3, 10, 8, 4)), Error);
  EXPECT_FALSE(outline_dataset("folder", {}));
}

TEST(Synthetic, HasTheShapeAskedFor) {
  const ImageSet set = load_dataset("synthetic", request(5, 7, 2, 3, 8, 4));
  EXPECT_EQ(std::vector({set.height, set.width, set.channels, set.classes}),
            (std::vector<size_t>{5, 7, 2, 3}));
  EXPECT_EQ(set.train.labels, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(set.test.labels, (std::vector<int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(set.train.images.size(), 8u * 5 * 7 * 2);
  for (const auto& [h, w, c] : {std::tuple(1, 1, 1), {1, 100, 1}, {3, 2, 17}, {64, 64, 4}}) {
    EXPECT_NO_THROW(load_dataset("synthetic", request(h, w, c, 2, 3, 1)));
  }
  const ImageSet usual = load_dataset("synthetic", {});
  EXPECT_EQ(std::vector({usual.height, usual.width, usual.channels, usual.classes, usual.train.count(),
                         usual.test.count()}),
            (std::vector<size_t>{32, 32, 3, 10, 10000, 2000}));
}

// Pinned: the same on every machine.
TEST(Synthetic, IsPinned) {
  const ImageSet set = load_dataset("synthetic", request(5, 7, 2, 3, 8, 4, 99));
  EXPECT_EQ(hash(set.train.images), 0xd0038238246cf5a5u);
  EXPECT_EQ(hash(set.test.images), 0x0b0dac664e8c1a94u);
}

TEST(Synthetic, DependsOnTheSeedAlone) {
  const int before = thread_count();
  const DataRequest wanted = request(6, 6, 3, 4, 1000, 100);
  set_thread_count(1);
  const ImageSet one = load_dataset("synthetic", wanted);
  for (const int threads : {2, 7}) {
    set_thread_count(threads);
    const ImageSet other = load_dataset("synthetic", wanted);
    EXPECT_EQ(one.train.images, other.train.images);
    EXPECT_EQ(one.test.images, other.test.images);
    EXPECT_EQ(one.mean, other.mean);
    EXPECT_EQ(one.deviation, other.deviation);
  }
  set_thread_count(before);
  EXPECT_NE(one.train.images, load_dataset("synthetic", request(6, 6, 3, 4, 1000, 100, 2)).train.images);
}

// What the mean of each class's training images tells about the test images.
double nearest_mean_accuracy(const ImageSet& set) {
  const size_t bytes = set.image_bytes();
  std::vector<double> mean(set.classes * bytes);
  const std::vector<size_t> counts = class_counts(set, set.train);
  for (size_t i = 0; i < set.train.images.size(); ++i) {
    const auto label = static_cast<size_t>(set.train.labels[i / bytes]);
    mean[label * bytes + i % bytes] += set.train.images[i] / static_cast<double>(counts[label]);
  }
  size_t right = 0;
  for (size_t i = 0; i < set.test.count(); ++i) {
    double nearest = std::numeric_limits<double>::infinity();
    int32_t best = -1;
    for (size_t label = 0; label < set.classes; ++label) {
      double distance = 0;
      for (size_t k = 0; k < bytes; ++k) {
        const double d = set.test.images[i * bytes + k] - mean[label * bytes + k];
        distance += d * d;
      }
      if (distance < nearest) {
        nearest = distance;
        best = static_cast<int32_t>(label);
      }
    }
    right += best == set.test.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(set.test.count());
}

TEST(Synthetic, CanBeLearned) {
  EXPECT_GT(nearest_mean_accuracy(load_dataset("synthetic", request(8, 8, 3, 10, 1000, 500))), 0.95);
  EXPECT_GT(nearest_mean_accuracy(load_dataset("synthetic", request(16, 16, 1, 100, 2000, 500))), 0.95);
}

TEST(Synthetic, RefusesSizesThatMakeNoSense) {
  const auto said = [](const DataRequest& wanted) {
    return complaint_of([&] { load_dataset("synthetic", wanted); });
  };
  EXPECT_EQ(said(request(0, 7, 2, 3, 8, 4)), "[synthetic] the height must be 1 to 65536, got 0");
  EXPECT_EQ(said(request(5, -7, 2, 3, 8, 4)), "[synthetic] the width must be 1 to 65536, got -7");
  EXPECT_EQ(said(request(5, 7, 0, 3, 8, 4)), "[synthetic] the number of channels must be 1 to 65536, got 0");
  EXPECT_EQ(said(request(5, 7, 2, 0, 8, 4)), "[synthetic] the number of classes must be 1 to 1048576, got 0");
  EXPECT_EQ(said(request(5, 7, 2, 3, -1, 4)),
            "[synthetic] the number of training examples must be 1 to 1073741824, got -1");
  EXPECT_EQ(said(request(5, 7, 2, 3, 8, 0)),
            "[synthetic] the number of test examples must be 1 to 1073741824, got 0");
  EXPECT_EQ(
      said(request(65536, 65536, 65536, 3, 1 << 30, 1 << 30)),
      "[synthetic] 2147483648 images of 65536x65536x65536 take more than 64 GiB: ask for fewer or smaller "
      "ones");
}

}  // namespace
}  // namespace ulp
