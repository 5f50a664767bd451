#include "ulp/graph/ops/batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr std::array<std::string_view, ImageBatchOptions::kMaxChannels> kShift = {"shift0", "shift1",
                                                                                  "shift2", "shift3"};
constexpr std::array<std::string_view, ImageBatchOptions::kMaxChannels> kScale = {"scale0", "scale1",
                                                                                  "scale2", "scale3"};
constexpr std::array<std::string_view, 3> kExtent = {"extent0", "extent1", "extent2"};

void check_examples(std::span<const Shape> in) {
  if (in[0].rank() != 1) fail("shape", "numbers of examples have one axis, got {}", shape_text(in[0]));
}

std::vector<Output> image_batch_shape(const Attrs& attrs, std::span<const Shape> in) {
  check_examples(in);
  return {{"out", Shape::image(in[0][0], attrs.integer("channels"), attrs.integer("height"),
                               attrs.integer("width"))}};
}

template <Element element>
std::vector<Output> take_shape(const Attrs& attrs, std::span<const Shape> in) {
  check_examples(in);
  std::vector<int64_t> extents{in[0][0]};
  for (size_t i = 0; i < static_cast<size_t>(attrs.integer("rank")); ++i)
    extents.push_back(attrs.integer(kExtent[i]));
  return {{"out", Shape(extents), Kind::fed, element}};
}

TensorId take_with(Builder& b, const OpDef& op, const std::string& name, TensorId examples, int64_t rows,
                   std::span<const int64_t> row) {
  if (row.size() > kExtent.size()) fail("graph", "{}: a row has at most {} axes", name, kExtent.size());
  if (rows < 1) fail("graph", "{}: the array must have at least 1 row, got {}", name, rows);
  Attrs attrs{{"rows", static_cast<double>(rows)}, {"rank", static_cast<double>(row.size())}};
  for (size_t i = 0; i < row.size(); ++i) attrs.set(kExtent[i], static_cast<double>(row[i]));
  return nodes(b).add_one(op, name, {examples}, attrs);
}

// One number of each channel that the caller gives, or `usual` for all.
float of_channel(const std::vector<float>& given, size_t channel, float usual) {
  return given.empty() ? usual : given[channel];
}

constexpr OperandKind kExamples[] = {OperandKind::index};

}  // namespace

// As `input` is, the first of all operators and so a group of its own.
const OpDef kImageBatch{
    .name = "image_batch", .infer = image_batch_shape, .anchors = true, .operands = kExamples};
const OpDef kTake{.name = "take", .infer = take_shape<Element::int32>, .operands = kExamples};
const OpDef kTakeTarget{.name = "take_target", .infer = take_shape<Element::real>, .operands = kExamples};

TensorId image_batch(Builder& b, const std::string& name, TensorId examples,
                     const ImageBatchOptions& options) {
  if (options.channels > ImageBatchOptions::kMaxChannels) {
    fail("graph", "{}: images in the backend's memory have at most {} channels, these have {}", name,
         ImageBatchOptions::kMaxChannels, options.channels);
  }
  Attrs attrs{{"rows", static_cast<double>(options.rows)},
              {"height", static_cast<double>(options.height)},
              {"width", static_cast<double>(options.width)},
              {"channels", static_cast<double>(options.channels)},
              {"seed_low", static_cast<double>(static_cast<uint32_t>(options.augment.seed))},
              {"seed_high", static_cast<double>(options.augment.seed >> 32)},
              {"padding", static_cast<double>(options.augment.padding)},
              {"mirror", options.augment.mirror ? 1.0 : 0.0}};
  for (size_t c = 0; c < static_cast<size_t>(options.channels); ++c) {
    attrs.set(kShift[c], double{options.normalise[c].shift});
    attrs.set(kScale[c], double{options.normalise[c].scale});
  }
  return nodes(b).add_one(kImageBatch, name, {examples}, std::move(attrs));
}

TensorId image_batch(Builder& b, const std::string& name, TensorId examples, const ImageOptions& options) {
  constexpr int64_t kMostPadding = std::numeric_limits<int16_t>::max();
  ImageBatchOptions made;
  made.rows = options.rows;
  made.height = options.height;
  made.width = options.width;
  made.channels = options.channels;
  if (made.rows < 1) fail("graph", "{}: the array must have at least 1 image, got {}", name, made.rows);
  if (options.padding < 0 || options.padding > kMostPadding)
    fail("graph", "{}: the padding must be from 0 to {}, got {}", name, kMostPadding, options.padding);
  for (const auto* given : {&options.mean, &options.deviation}) {
    if (!given->empty() && static_cast<int64_t>(given->size()) != made.channels)
      fail("graph", "{}: {} means or deviations for {} channels: there must be one for each, or none", name,
           given->size(), made.channels);
  }
  made.augment = {options.seed, static_cast<int32_t>(options.padding), options.mirror};
  for (size_t c = 0; c < static_cast<size_t>(std::clamp<int64_t>(made.channels, 0, made.kMaxChannels)); ++c) {
    const float mean = of_channel(options.mean, c, 0), deviation = of_channel(options.deviation, c, 1);
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0)
      fail("graph", "{}: means must be finite and deviations above 0, got {} and {}", name, mean, deviation);
    made.normalise[c] = make_normalise(mean, deviation);
  }
  return image_batch(b, name, examples, made);
}

ImageBatchOptions image_batch_options(const Node& node) {
  const Attrs& attrs = node.attrs;
  ImageBatchOptions options;
  options.rows = attrs.integer("rows");
  options.height = attrs.integer("height");
  options.width = attrs.integer("width");
  options.channels = attrs.integer("channels");
  options.augment.seed =
      static_cast<uint64_t>(attrs.real("seed_low")) | static_cast<uint64_t>(attrs.real("seed_high")) << 32;
  options.augment.padding = static_cast<int32_t>(attrs.integer("padding"));
  options.augment.mirror = attrs.integer("mirror") != 0;
  for (size_t c = 0; c < static_cast<size_t>(options.channels); ++c) {
    options.normalise[c] = {static_cast<float>(attrs.real(kShift[c])),
                            static_cast<float>(attrs.real(kScale[c]))};
  }
  return options;
}

TensorId take(Builder& b, const std::string& name, TensorId examples, int64_t rows,
              std::span<const int64_t> row) {
  return take_with(b, kTake, name, examples, rows, row);
}

TensorId take_target(Builder& b, const std::string& name, TensorId examples, int64_t rows,
                     std::span<const int64_t> row) {
  return take_with(b, kTakeTarget, name, examples, rows, row);
}

bool reads_resident(const Node& node) {
  return node.op == &kImageBatch || node.op == &kTake || node.op == &kTakeTarget;
}

size_t resident_bytes(const Graph& graph, const Node& node) {
  const TensorInfo& out = graph[node.out[0]];
  const size_t row = out.elements() / static_cast<size_t>(out.shape[0]);
  const size_t each = node.op == &kImageBatch ? 1 : element_bytes(out.element);
  return static_cast<size_t>(node.attrs.integer("rows")) * row * each;
}

}  // namespace ulp
