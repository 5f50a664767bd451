#include "ulp/data/example.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/data/image.h"

namespace ulp {
namespace {

constexpr size_t kColours = 3;

std::vector<uint8_t> grey_of(const std::string& path, const std::vector<uint8_t>& colour) {
  std::vector<uint8_t> grey;
  for (size_t i = 0; i < colour.size(); i += kColours) {
    if (colour[i] != colour[i + 1] || colour[i] != colour[i + 2])
      fail("predict", "{} is in colour, the network takes grey pictures", path);
    grey.push_back(colour[i]);
  }
  return grey;
}

}  // namespace

std::vector<uint8_t> read_example(const std::string& path, const ExampleForm& form) {
  const size_t height = form.height - 2 * form.border, width = form.width - 2 * form.border;
  if (form.channels != 1 && form.channels != kColours) {
    fail("predict", "the network takes images of {} channels, and a picture has 1 or 3", form.channels);
  }
  Picture picture = read_picture(path);
  if (picture.channels > form.channels) {
    picture.bytes = grey_of(path, picture.bytes);
    picture.channels = form.channels;
  }
  picture = scaled(picture, height, width);
  if (picture.channels < form.channels) picture.bytes = grey_to_rgb(picture.bytes);
  std::vector<uint8_t> bytes(form.height * form.width * form.channels);
  const size_t row = width * form.channels;
  for (size_t y = 0; y < height; ++y) {
    std::copy_n(&picture.bytes[y * row], row,
                &bytes[((y + form.border) * form.width + form.border) * form.channels]);
  }
  return bytes;
}

}  // namespace ulp
