// CIFAR's binary layout: records of one label byte (CIFAR-100: coarse and fine, of which the fine
// one is taken) and three planes of 32x32 bytes, red, green and blue.
#include "ulp/base/error.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kSide = 32, kChannels = 3, kPlane = kSide * kSide, kImage = kChannels * kPlane;
constexpr size_t kBatch = 10000;  // CIFAR-10's records in a file

ImageSet empty_set(const DatasetInfo& info) {
  ImageSet set;
  set.height = set.width = kSide;
  set.channels = kChannels;
  set.classes = info.classes;
  return set;
}

}  // namespace

void append_cifar(const std::string& path, size_t records, size_t labels, size_t classes, Examples& to) {
  FileReader file("cifar", path);
  const std::string claim = fmt::format("{} records of {} bytes", records, labels + kImage);
  std::vector<uint8_t> record(labels + kImage);
  for (size_t i = 0; i < records; ++i) {
    const size_t got = file.read(record);
    if (got < record.size()) {
      fail("cifar", "{} is cut short: it must have {}, {} bytes there", path, claim, i * record.size() + got);
    }
    const uint8_t label = record[labels - 1];
    if (label >= classes) {
      fail("cifar", "{} has label {} at record {}: labels must be 0 to {}", path, label, i, classes - 1);
    }
    to.labels.push_back(label);
    const uint8_t* const planes = &record[labels];
    const size_t begin = to.images.size();
    to.images.resize(begin + kImage);
    uint8_t* const image = &to.images[begin];
    for (size_t pixel = 0; pixel < kPlane; ++pixel) {
      for (size_t c = 0; c < kChannels; ++c) image[pixel * kChannels + c] = planes[c * kPlane + pixel];
    }
  }
  file.expect_end(claim);
}

ImageSet read_cifar10(const DatasetInfo& info, const std::string& place, const DataRequest&) {
  ImageSet set = empty_set(info);
  set.train.images.reserve(info.train * kImage);
  for (size_t i = 1; i <= info.train / kBatch; ++i) {
    append_cifar(fmt::format("{}/data_batch_{}.bin", place, i), kBatch, 1, info.classes, set.train);
  }
  append_cifar(place + "/test_batch.bin", info.test, 1, info.classes, set.test);
  return set;
}

ImageSet read_cifar100(const DatasetInfo& info, const std::string& place, const DataRequest&) {
  ImageSet set = empty_set(info);
  append_cifar(place + "/train.bin", info.train, 2, info.classes, set.train);
  append_cifar(place + "/test.bin", info.test, 2, info.classes, set.test);
  return set;
}

}  // namespace ulp
