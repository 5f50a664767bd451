// CIFAR's layout, through files written here, whole and damaged.
#include <gtest/gtest.h>

#include "tests/support/temp.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kPlane = 1024, kImage = 3 * kPlane;

uint8_t byte_of(size_t record, size_t channel, size_t at) {
  return static_cast<uint8_t>(record * 101 + channel * 37 + at * 3);
}

// Records whose last label byte is `values[i]`; a byte before it is 200 and does not count.
std::string records(const std::vector<uint8_t>& values, size_t labels) {
  std::string file;
  for (size_t i = 0; i < values.size(); ++i) {
    if (labels == 2) file += '\xc8';
    file += static_cast<char>(values[i]);
    for (size_t k = 0; k < kImage; ++k) file += static_cast<char>(byte_of(i, k / kPlane, k % kPlane));
  }
  return file;
}

class Cifar : public ::testing::Test {
 protected:
  std::string with(const std::string& bytes, size_t count, size_t labels, size_t classes) const {
    put(path_, bytes);
    Examples examples;
    return complaint_of([&] { append_cifar(path_, count, labels, classes, examples); }, path_);
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "batch.bin";
};

TEST_F(Cifar, TurnsPlanesIntoPixels) {
  for (const size_t labels : {1, 2}) {
    put(path_, records({7, 0, 99}, labels));
    Examples examples;
    for (size_t times = 0; times < 2; ++times) append_cifar(path_, 3, labels, 100, examples);
    EXPECT_EQ(examples.labels, (std::vector<int32_t>{7, 0, 99, 7, 0, 99}));
    ASSERT_EQ(examples.images.size(), 6 * kImage);
    for (size_t i = 0; i < examples.images.size(); ++i) {
      ASSERT_EQ(examples.images[i], byte_of(i / kImage % 3, i % 3, i % kImage / 3)) << i;
    }
  }
}

TEST_F(Cifar, RefusesFilesOfAnotherSize) {
  const std::string whole = records({1, 2, 3}, 1);
  EXPECT_EQ(with(whole, 3, 1, 10), "");
  for (size_t size = 0; size < whole.size(); size += 1 + size % 13) {
    ASSERT_EQ(
        with(whole.substr(0, size), 3, 1, 10),
        fmt::format("[cifar] F is cut short: it must have 3 records of 3073 bytes, {} bytes there", size));
  }
  EXPECT_EQ(with(whole + "x", 3, 1, 10), "[cifar] F has bytes left over after 3 records of 3073 bytes");
  EXPECT_EQ(with(records({1, 2, 3, 4}, 1), 3, 1, 10),
            "[cifar] F has bytes left over after 3 records of 3073 bytes");
}

TEST_F(Cifar, RefusesLabelsThatAreNoClass) {
  EXPECT_EQ(with(records({1, 2, 10}, 1), 3, 1, 10),
            "[cifar] F has label 10 at record 2: labels must be 0 to 9");
  EXPECT_EQ(with(records({1, 100, 3}, 2), 3, 2, 100),
            "[cifar] F has label 100 at record 1: labels must be 0 to 99");
}

// Files of the published sizes; holes read as zeros and take no room on the disk.
void put_sparse(const std::string& path, size_t bytes, std::string_view start) {
  put(path, start);
  std::filesystem::resize_file(path, bytes);
}

TEST_F(Cifar, KnowsTheFilesOfCifar10) {
  const std::string sub = folder_ / "cifar-10-batches-bin";
  std::filesystem::create_directory(sub);
  for (char i = 1; i <= 5; ++i) {
    put_sparse(fmt::format("{}/data_batch_{}.bin", sub, int{i}), 30730000, std::string{i, '\7'});
  }
  put_sparse(sub + "/test_batch.bin", 30730000, "\6");
  const DataRequest request{.dir = folder_.path()};
  {
    const ImageSet set = load_dataset("cifar10", request);
    EXPECT_EQ(std::vector({set.height, set.width, set.channels, set.classes}),
              (std::vector<size_t>{32, 32, 3, 10}));
    EXPECT_EQ(set.train.count(), 50000u);
    EXPECT_EQ(set.test.count(), 10000u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(set.train.labels[10000 * i], static_cast<int32_t>(i + 1));
      EXPECT_EQ(set.train.images[10000 * i * kImage], 7);
    }
    EXPECT_EQ(set.test.labels[0], 6);
    EXPECT_EQ(set.mean, (std::vector{0.4914f, 0.4822f, 0.4465f}));
    EXPECT_EQ(set.deviation, (std::vector{0.2023f, 0.1994f, 0.2010f}));
  }
  std::filesystem::resize_file(sub + "/data_batch_4.bin", 30730000 - 3073);
  EXPECT_EQ(
      complaint_of([&] { load_dataset("cifar10", request); }, sub),
      "[cifar] F/data_batch_4.bin is cut short: it must have 10000 records of 3073 bytes, 30726927 bytes "
      "there");
  std::filesystem::remove(sub + "/data_batch_3.bin");
  EXPECT_EQ(complaint_of([&] { load_dataset("cifar10", request); }, sub),
            "[cifar] cannot read F/data_batch_3.bin: No such file or directory");
}

TEST_F(Cifar, KnowsTheFilesOfCifar100) {
  put_sparse(folder_ / "train.bin", 153700000, "\x13\x63\x07");
  put_sparse(folder_ / "test.bin", 30740000, "\x12\x62");
  const ImageSet set = load_dataset("cifar100", {.dir = folder_.path()});
  EXPECT_EQ(set.classes, 100u);
  EXPECT_EQ(set.train.count(), 50000u);
  EXPECT_EQ(set.test.count(), 10000u);
  EXPECT_EQ(set.train.labels[0], 99);
  EXPECT_EQ(set.train.images[0], 7);
  EXPECT_EQ(set.test.labels[0], 98);
  EXPECT_EQ(set.mean, (std::vector{0.5074f, 0.4867f, 0.4411f}));
  EXPECT_EQ(set.deviation, (std::vector{0.2011f, 0.1987f, 0.2025f}));
}

}  // namespace
}  // namespace ulp
