#include "ulp/graph/ops/batch.h"

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

std::vector<Output> take_shape(const Attrs& attrs, std::span<const Shape> in) {
  check_examples(in);
  std::vector<int64_t> extents{in[0][0]};
  for (size_t i = 0; i < static_cast<size_t>(attrs.integer("rank")); ++i)
    extents.push_back(attrs.integer(kExtent[i]));
  return {{"out", Shape(extents), Kind::fed, Element::int32}};
}

constexpr OperandKind kExamples[] = {OperandKind::index};

}  // namespace

// As `input` is, the first of all operators and so a group of its own.
const OpDef kImageBatch{
    .name = "image_batch", .infer = image_batch_shape, .anchors = true, .operands = kExamples};
const OpDef kTake{.name = "take", .infer = take_shape, .operands = kExamples};

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
  return b.add_one(kImageBatch, name, {examples}, std::move(attrs));
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
  if (row.size() > kExtent.size()) fail("graph", "{}: a row has at most {} axes", name, kExtent.size());
  Attrs attrs{{"rows", static_cast<double>(rows)}, {"rank", static_cast<double>(row.size())}};
  for (size_t i = 0; i < row.size(); ++i) attrs.set(kExtent[i], static_cast<double>(row[i]));
  return b.add_one(kTake, name, {examples}, std::move(attrs));
}

bool reads_resident(const Node& node) { return node.op == &kImageBatch || node.op == &kTake; }

size_t resident_bytes(const Graph& graph, const Node& node) {
  const TensorInfo& out = graph[node.out[0]];
  const size_t row = out.elements() / static_cast<size_t>(out.shape[0]);
  return static_cast<size_t>(node.attrs.integer("rows")) * row * (node.op == &kTake ? sizeof(int32_t) : 1);
}

}  // namespace ulp
