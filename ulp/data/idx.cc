// MNIST's layout: a file of images and a file of labels for each part. Numbers are big-endian: two
// zero bytes, the type of the elements (8: bytes), the number of axes, the length of each axis, the
// elements.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kSide = 28, kPadding = 2, kPadded = kSide + 2 * kPadding;

uint32_t big_endian(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// The file under its name or with .gz behind it.
std::string existing(const std::string& path) {
  for (const std::string& file : {path, path + ".gz"}) {
    if (is_there("idx", file)) return file;
  }
  fail("idx", "cannot read {}: neither it nor {}.gz is there", path, path);
}

struct Idx {
  std::vector<uint32_t> axes;
  std::vector<uint8_t> elements;
};

Idx read_elements(const std::string& path, size_t axes, size_t element_bytes) {
  FileReader file("idx", path);
  std::vector<uint8_t> header;
  file.append(header, 4 + 4 * axes, "its header");
  const uint32_t magic = big_endian(header), right = 0x800 + static_cast<uint32_t>(axes);
  if (magic != right) {
    fail("idx", "{} is no idx file of bytes with {} axes: it starts with 0x{:08x}, not 0x{:08x}", path, axes,
         magic, right);
  }
  Idx idx;
  for (size_t i = 0; i < axes; ++i) idx.axes.push_back(big_endian(std::span(header).subspan(4 + 4 * i)));
  if (idx.axes[0] == 0) fail("idx", "{} holds no examples", path);
  if (axes == 3 && (idx.axes[1] != kSide || idx.axes[2] != kSide)) {
    fail("idx", "{} has images of {}x{}: they must be {}x{}", path, idx.axes[1], idx.axes[2], kSide, kSide);
  }
  const std::string claim = fmt::format("a count of {}", idx.axes[0]);
  file.append(idx.elements, idx.axes[0] * element_bytes, claim);
  file.expect_end(claim);
  return idx;
}

Examples read_part(const std::string& images_path, const std::string& labels_path, size_t classes) {
  const Idx images = read_elements(images_path, 3, kSide * kSide);
  const Idx labels = read_elements(labels_path, 1, 1);
  if (images.axes[0] != labels.axes[0]) {
    fail("idx", "{} has {} images and {} has {} labels: there must be one for each", images_path,
         images.axes[0], labels_path, labels.axes[0]);
  }
  Examples part;
  part.images.resize(size_t{images.axes[0]} * kPadded * kPadded);
  for (size_t row = 0; row < size_t{images.axes[0]} * kSide; ++row) {
    const size_t image = row / kSide, y = row % kSide + kPadding;
    std::copy_n(&images.elements[row * kSide], kSide,
                &part.images[(image * kPadded + y) * kPadded + kPadding]);
  }
  for (size_t i = 0; i < labels.elements.size(); ++i) {
    if (labels.elements[i] >= classes) {
      fail("idx", "{} has label {} at example {}: labels must be 0 to {}", labels_path, labels.elements[i], i,
           classes - 1);
    }
    part.labels.push_back(labels.elements[i]);
  }
  return part;
}

}  // namespace

ImageSet read_idx(const DatasetInfo& info, const std::string& place, const DataRequest&) {
  const auto part = [&](const std::string& name) {
    const std::string images = existing(place + "/" + name + "-images-idx3-ubyte");
    return read_part(images, existing(place + "/" + name + "-labels-idx1-ubyte"), info.classes);
  };
  ImageSet set;
  set.height = set.width = kPadded;
  set.channels = 1;
  set.classes = info.classes;
  set.border = kPadding;
  set.train = part("train");
  set.test = part("t10k");
  return set;
}

}  // namespace ulp
