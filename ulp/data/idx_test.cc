// MNIST's layout, through files written here, whole and damaged, and as Debian packages Fashion-MNIST.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmath>

#include "tests/support/temp.h"
#include "ulp/data/dataset.h"

namespace ulp {
namespace {

constexpr size_t kTrain = 5, kTest = 3, kSide = 28, kPadded = 32;
const std::string kTrainImages = "train-images-idx3-ubyte", kTrainLabels = "train-labels-idx1-ubyte",
                  kTestImages = "t10k-images-idx3-ubyte", kTestLabels = "t10k-labels-idx1-ubyte";

std::string big_endian(uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
          static_cast<char>(x)};
}

uint8_t pixel(size_t image, size_t y, size_t x) {
  return static_cast<uint8_t>(1 + (image * 31 + y * 7 + x) % 255);
}

std::string images(size_t count, uint32_t magic = 0x803, uint32_t side = kSide) {
  std::string file =
      big_endian(magic) + big_endian(static_cast<uint32_t>(count)) + big_endian(side) + big_endian(kSide);
  for (size_t i = 0; i < count * kSide * kSide; ++i) {
    file += static_cast<char>(pixel(i / (kSide * kSide), i / kSide % kSide, i % kSide));
  }
  return file;
}

std::string labels(const std::vector<uint8_t>& values, uint32_t magic = 0x801) {
  return big_endian(magic) + big_endian(static_cast<uint32_t>(values.size())) +
         std::string(values.begin(), values.end());
}

void put_gz(const std::string& path, std::string_view bytes) {
  const gzFile file = ::gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  EXPECT_EQ(::gzclose(file), Z_OK);
}

class Idx : public ::testing::Test {
 protected:
  Idx() {
    put(folder_ / kTrainImages, images(kTrain));
    put(folder_ / kTrainLabels, labels({3, 1, 4, 1, 9}));
    put(folder_ / kTestImages, images(kTest));
    put(folder_ / kTestLabels, labels({2, 7, 0}));
  }

  ImageSet load() const { return load_dataset("mnist", {.dir = folder_.path()}); }
  std::string complaint() const {
    return complaint_of([&] { load(); }, folder_.path());
  }

  // What is said when a file holds this instead.
  std::string with(const std::string& name, std::string_view bytes) const {
    const std::string before = content(folder_ / name);
    put(folder_ / name, bytes);
    std::string said = complaint();
    put(folder_ / name, before);
    return said;
  }

  // Packs a file and removes the plain one.
  void pack(const std::string& name) const {
    put_gz(folder_ / (name + ".gz"), content(folder_ / name));
    std::filesystem::remove(folder_ / name);
  }

  void expect_right(const ImageSet& set) const {
    EXPECT_EQ(set.name, "mnist");
    EXPECT_EQ(std::vector({set.height, set.width, set.channels, set.classes}),
              (std::vector<size_t>{kPadded, kPadded, 1, 10}));
    EXPECT_EQ(set.train.labels, (std::vector<int32_t>{3, 1, 4, 1, 9}));
    EXPECT_EQ(set.test.labels, (std::vector<int32_t>{2, 7, 0}));
    ImageSet measured = set;
    measure(measured);
    EXPECT_EQ(set.mean, measured.mean);
    EXPECT_EQ(set.deviation, measured.deviation);
    for (const Examples* part : {&set.train, &set.test}) {
      ASSERT_EQ(part->images.size(), part->count() * kPadded * kPadded);
      for (size_t i = 0; i < part->images.size(); ++i) {
        const size_t y = i / kPadded % kPadded, x = i % kPadded;
        const bool inside = y >= 2 && y < 30 && x >= 2 && x < 30;
        ASSERT_EQ(part->images[i], inside ? pixel(i / (kPadded * kPadded), y - 2, x - 2) : 0) << i;
      }
    }
  }

  TempFolder folder_;
};

TEST_F(Idx, ReadsPlainAndPackedFiles) {
  expect_right(load());
  for (const std::string& name : {kTrainImages, kTestLabels, kTrainLabels, kTestImages}) {
    pack(name);
    expect_right(load());
  }
}

TEST_F(Idx, RefusesFilesCutAnywhere) {
  for (const std::string& name : {kTrainLabels, kTestImages}) {
    const std::string whole = content(folder_ / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string said = with(name, whole.substr(0, size));
      ASSERT_NE(said.find("[idx] F/" + name + " is cut short: "), said.npos) << size << ": " << said;
    }
  }
  EXPECT_EQ(with(kTestLabels, labels({2, 7, 0}).substr(0, 6)),
            "[idx] F/t10k-labels-idx1-ubyte is cut short: its header takes 8 bytes, 6 there");
  EXPECT_EQ(with(kTestLabels, labels({2, 7, 0}).substr(0, 10)),
            "[idx] F/t10k-labels-idx1-ubyte is cut short: a count of 3 takes 3 bytes, 2 there");
}

TEST_F(Idx, RefusesPackedFilesCutAnywhere) {
  pack(kTestImages);
  const std::string name = kTestImages + ".gz", whole = content(folder_ / name);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string said = with(name, whole.substr(0, size));
    ASSERT_TRUE(said.starts_with("[idx] F/" + name + " is ")) << size << ": " << said;
  }
  EXPECT_EQ(with(name, whole.substr(0, whole.size() - 1)),
            "[idx] F/t10k-images-idx3-ubyte.gz is cut short: its gzip stream does not end");
}

TEST_F(Idx, RefusesWhatFollowsAPackedFile) {
  const std::string plain = content(folder_ / kTestImages);
  pack(kTestImages);
  const std::string name = kTestImages + ".gz", whole = content(folder_ / name);
  for (const std::string& more : {std::string("x"), std::string("\0", 1), std::string(600000, 'x'), plain}) {
    EXPECT_EQ(with(name, whole + more),
              "[idx] F/t10k-images-idx3-ubyte.gz has bytes left over after its gzip stream");
  }
  EXPECT_EQ(with(name, whole + whole),
            "[idx] F/t10k-images-idx3-ubyte.gz has bytes left over after a count of 3");
  EXPECT_EQ(with(name, whole + whole.substr(0, 1)),
            "[idx] F/t10k-images-idx3-ubyte.gz is cut short: its gzip stream does not end");
  // Several streams are one file.
  put_gz(folder_ / "first", plain.substr(0, 1000));
  put_gz(folder_ / "second", plain.substr(1000));
  EXPECT_EQ(with(name, content(folder_ / "first") + content(folder_ / "second")), "");
}

// A changed bit is found, or lies where gzip keeps nothing of the data (time stamp and the like).
TEST_F(Idx, NeverTakesDamagedPackedFiles) {
  pack(kTestImages);
  const std::string name = kTestImages + ".gz", whole = content(folder_ / name);
  size_t refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    put(folder_ / name, damaged);
    try {
      expect_right(load());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, 8 * (whole.size() - 10));
}

TEST_F(Idx, RefusesWhatDoesNotFit) {
  EXPECT_EQ(with(kTestImages, images(kTest) + "x"),
            "[idx] F/t10k-images-idx3-ubyte has bytes left over after a count of 3");
  EXPECT_EQ(
      with(kTestImages, images(kTest, 0x804)),
      "[idx] F/t10k-images-idx3-ubyte is no idx file of bytes with 3 axes: it starts with 0x00000804, not "
      "0x00000803");
  EXPECT_EQ(with(kTrainLabels, images(kTrain)),
            "[idx] F/train-labels-idx1-ubyte is no idx file of bytes with 1 axes: it starts with 0x00000803, "
            "not 0x00000801");
  EXPECT_EQ(with(kTestImages, images(kTest, 0x803, 27)),
            "[idx] F/t10k-images-idx3-ubyte has images of 27x28: they must be 28x28");
  EXPECT_EQ(with(kTestImages, images(0)), "[idx] F/t10k-images-idx3-ubyte holds no examples");
  EXPECT_EQ(
      with(kTestLabels, labels({2, 7})),
      "[idx] F/t10k-images-idx3-ubyte has 3 images and F/t10k-labels-idx1-ubyte has 2 labels: there must "
      "be one for each");
  EXPECT_EQ(with(kTrainLabels, labels({3, 1, 10, 1, 9})),
            "[idx] F/train-labels-idx1-ubyte has label 10 at example 2: labels must be 0 to 9");
  // No memory for the claim, only for the bytes that are there.
  EXPECT_EQ(
      with(kTestImages, images(kTest).replace(4, 4, "\xff\xff\xff\xff")),
      "[idx] F/t10k-images-idx3-ubyte is cut short: a count of 4294967295 takes 3367254359280 bytes, 2352 "
      "there");
}

TEST_F(Idx, SaysWhatCannotBeRead) {
  std::filesystem::remove(folder_ / kTestLabels);
  EXPECT_EQ(
      complaint(),
      "[idx] cannot read F/t10k-labels-idx1-ubyte: neither it nor F/t10k-labels-idx1-ubyte.gz is there");
  std::filesystem::create_directory(folder_ / kTestLabels);
  EXPECT_EQ(complaint(), "[idx] cannot read F/t10k-labels-idx1-ubyte: Is a directory");
}

// Without a refusal the first would wait for ever for somebody who writes.
TEST_F(Idx, RefusesPipesAndDevices) {
  const std::string path = folder_ / kTestLabels;
  const std::string refusal =
      "[idx] cannot read F/t10k-labels-idx1-ubyte: it is a pipe or a device, not a file";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(complaint(), refusal);
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(complaint(), refusal);
  std::filesystem::remove(path);
  put(folder_ / "elsewhere", labels({2, 7, 0}));
  std::filesystem::create_symlink(folder_ / "elsewhere", path);
  EXPECT_EQ(complaint(), "");
}

TEST_F(Idx, SaysWhatIsForbidden) {
  const DatasetInfo& info = find_dataset("mnist");
  const Forbidden forbidden(folder_.path());
  EXPECT_EQ(complaint_of([&] { info.read(info, folder_.path(), {}); }, folder_.path()),
            "[idx] cannot read F/train-images-idx3-ubyte: Permission denied");
}

TEST(FashionMnist, IsWhatDebianPackages) {
  const ImageSet set = load_dataset("fashion-mnist", {});  // package dataset-fashion-mnist
  EXPECT_EQ(set.train.count(), 60000u);
  EXPECT_EQ(set.test.count(), 10000u);
  EXPECT_EQ(class_counts(set, set.train), std::vector<size_t>(10, 6000));
  EXPECT_EQ(class_counts(set, set.test), std::vector<size_t>(10, 1000));
  EXPECT_EQ(std::vector({set.height, set.width, set.channels, set.classes}),
            (std::vector<size_t>{kPadded, kPadded, 1, 10}));
  // Of the images as they are loaded, padding and all.
  double sum = 0, squares = 0;
  for (const uint8_t byte : set.train.images) {
    sum += byte / 255.0;
    squares += byte / 255.0 * byte / 255.0;
  }
  const double n = 60000.0 * kPadded * kPadded, mean = sum / n;
  EXPECT_NEAR(set.mean[0], mean, 1e-6);
  EXPECT_NEAR(set.deviation[0], std::sqrt(squares / n - mean * mean), 1e-6);
}

}  // namespace
}  // namespace ulp
