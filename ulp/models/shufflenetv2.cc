// ShuffleNetV2 (Ma et al. 2018) as the precision-assignment paper trains it on 32x32 images: the stem has
// stride 1 and no pooling, the rest is the published table with two more narrow widths.
#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

// Channels after each stage, and of the last convolution: one row for each of kTableWidths.
constexpr int64_t kChannels[][4] = {
    {116, 232, 464, 1024}, {56, 112, 224, 1024}, {28, 56, 112, 1024}, {12, 24, 48, 1024}};
constexpr int kBasicBlocks[] = {3, 7, 3};

TensorId pointwise(Builder& b, const std::string& name, const char* number, TensorId x, int64_t out) {
  return batch_norm(b, name + ".bn" + number, conv2d(b, name + ".conv" + number, x, {.out = out}));
}

TensorId depthwise(Builder& b, const std::string& name, const char* number, TensorId x, int64_t stride) {
  const int64_t channels = b.shape(x).c();
  x = conv2d(b, name + ".conv" + number, x,
             {.out = channels, .kernel = 3, .stride = stride, .padding = 1, .groups = channels});
  return batch_norm(b, name + ".bn" + number, x);
}

TensorId join(Builder& b, const std::string& name, TensorId left, TensorId right) {
  return channel_shuffle(b, name + ".shuffle", concat(b, name + ".concat", {left, right}), 2);
}

// One half passes; the other: 1x1 - BN - ReLU - depthwise 3x3 - BN - 1x1 - BN - ReLU.
TensorId basic_block(Builder& b, const std::string& name, TensorId x) {
  const std::vector<TensorId> half = split(b, name + ".split", x, 2);
  const int64_t channels = b.shape(half[1]).c();
  TensorId y = relu(b, name + ".relu1", pointwise(b, name, "1", half[1], channels));
  y = depthwise(b, name, "2", y, 1);
  y = relu(b, name + ".relu2", pointwise(b, name, "3", y, channels));
  return join(b, name, half[0], y);
}

// Left: depthwise 3x3/2 - BN - 1x1 - BN - ReLU. Right: 1x1 - BN - ReLU - depthwise 3x3/2 - BN - 1x1 - BN -
// ReLU.
TensorId down_block(Builder& b, const std::string& name, TensorId x, int64_t out) {
  TensorId left = depthwise(b, name, "1", x, 2);
  left = relu(b, name + ".relu1", pointwise(b, name, "2", left, out / 2));
  TensorId right = relu(b, name + ".relu2", pointwise(b, name, "3", x, out / 2));
  right = depthwise(b, name, "4", right, 2);
  right = relu(b, name + ".relu3", pointwise(b, name, "5", right, out / 2));
  return join(b, name, left, right);
}

TensorId build(Builder& b, TensorId x, const ModelRequest& request) {
  const auto& channels = kChannels[table_row(request.width)];
  x = relu(b, "relu1", batch_norm(b, "bn1", conv2d(b, "conv1", x, {.out = 24, .kernel = 3, .padding = 1})));
  for (size_t stage = 0; stage < 3; ++stage) {
    const std::string name = "layer" + std::to_string(stage + 1) + ".";
    x = down_block(b, name + "0", x, channels[stage]);
    for (int i = 1; i <= kBasicBlocks[stage]; ++i) x = basic_block(b, name + std::to_string(i), x);
  }
  x = relu(b, "relu2", batch_norm(b, "bn2", conv2d(b, "conv2", x, {.out = channels[3]})));
  x = flatten(b, "flatten", average_4x4(b, x, request));
  return linear(b, "fc", x, {.out = request.classes});
}

}  // namespace

constinit const ModelInfo shufflenetv2_model = {.name = "shufflenetv2",
                                                .about = "halves of the channels, shuffled",
                                                .image = kColour,
                                                .min_side = 32,
                                                .widths = kTableWidths,
                                                .parameters = 1263854,
                                                .build = build};

}  // namespace ulp
