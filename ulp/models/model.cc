#include "ulp/models/model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

void check_width(const ModelInfo& info, double width) {
  if (!info.widths.empty()) {
    if (std::find(info.widths.begin(), info.widths.end(), width) != info.widths.end()) return;
    fail("models", "{} has the widths {}, got {}", info.name, fmt::join(info.widths, ", "), width);
  }
  if (!(width > 0 && width <= kMaxWidth)) {
    fail("models", "the width of {} must be above 0 and at most {}, got {}", info.name, kMaxWidth, width);
  }
}

void check(const ModelInfo& info, const ModelRequest& request) {
  check_width(info, request.width);
  const ImageSize& image = request.image;
  if (request.batch < 1) fail("models", "the batch must be positive, got {}", request.batch);
  if (request.classes < 2) fail("models", "there must be two classes or more, got {}", request.classes);
  if (image.channels < 1) fail("models", "images must have a channel, got {}", image.channels);
  if (std::min(image.height, image.width) < info.min_side) {
    fail("models", "{} needs images of at least {}x{}, got {}x{}", info.name, info.min_side, info.min_side,
         image.height, image.width);
  }
}

}  // namespace

ImageSize parse_image_size(std::string_view text) {
  std::array<int64_t, 3> sides{};
  const char *at = text.data(), *end = text.data() + text.size();
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto [rest, error] = std::from_chars(at, end, sides[i]);
    const bool ends = i + 1 == sides.size() ? rest == end : rest != end && *rest == 'x';
    if (error != std::errc() || sides[i] < 1 || !ends) {
      fail("models", "--input must be CHANNELSxHEIGHTxWIDTH, such as 3x32x32, got '{}'", text);
    }
    at = rest + (rest == end ? 0 : 1);
  }
  return {sides[0], sides[1], sides[2]};
}

std::span<const ModelInfo> models() {
  static const std::array rows = all_models();
  return rows;
}

const ModelInfo& find_model(std::string_view name) {
  for (const ModelInfo& info : models()) {
    if (info.name == name) return info;
  }
  std::vector<std::string_view> known;
  for (const ModelInfo& info : models()) known.push_back(info.name);
  fail("models", "unknown model '{}': {}known are {}", name, nearest_hint(name, known),
       fmt::join(known, ", "));
}

Classifier add_classifier(Builder& b, TensorId images, TensorId labels, const ModelRequest& request) {
  const ModelInfo& info = find_model(request.name);
  check(info, request);
  Classifier made;
  made.scores = info.build(b, images, request);
  const TensorId log_probabilities = log_softmax(b, "log_softmax", made.scores);
  made.loss = nll(b, "loss", log_probabilities, labels, request.label_smoothing);
  made.sums = classify(b, "accuracy", made.scores, labels, made.loss);
  return made;
}

ImageSources add_image_sources(Builder& b, const ModelRequest& request) {
  check(find_model(request.name), request);
  const ImageSize& image = request.image;
  const TensorId images =
      input(b, "input", Shape::image(request.batch, image.channels, image.height, image.width));
  return {images, indices(b, "labels", {request.batch})};
}

ClassifierGraph build_classifier(const ModelRequest& request, Mode mode) {
  ClassifierGraph made;
  Builder b(made.graph, mode);
  const ImageSources sources = add_image_sources(b, request);
  made.input = sources.input;
  made.labels = sources.labels;
  static_cast<Classifier&>(made) = add_classifier(b, made.input, made.labels, request);
  return made;
}

int64_t divisible(double v, int64_t q) {
  const auto step = static_cast<double>(q);
  const int64_t nearest = std::max(q, static_cast<int64_t>(std::floor(v / step + 0.5)) * q);
  return static_cast<double>(nearest) < 0.9 * v ? nearest + q : nearest;
}

int64_t scaled_channels(int64_t channels, double width) {
  return divisible(static_cast<double>(channels) * width, width <= 0.25 ? 4 : 8);
}

int64_t rounded_channels(int64_t channels, double width) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(channels) * width));
}

size_t table_row(double width) {
  return static_cast<size_t>(std::find(kTableWidths.begin(), kTableWidths.end(), width) -
                             kTableWidths.begin());
}

TensorId average_4x4(Builder& b, TensorId x, const ModelRequest& request, bool single) {
  const Shape& map = b.shape(x);
  const bool covers = map.h() % 4 == 0 && map.w() % 4 == 0;
  if (!covers || (single && (map.h() != 4 || map.w() != 4))) {
    fail("models", "{} averages over 4x4 and images of {}x{} leave a map of {}x{}: use images of {}",
         request.name, request.image.height, request.image.width, map.h(), map.w(),
         single ? "32x32" : "32x32 or multiples of it");
  }
  return avg_pool(b, "avgpool", x, {.kernel = 4});
}

}  // namespace ulp
