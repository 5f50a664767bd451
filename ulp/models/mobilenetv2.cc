// MobileNetV2 (Sandler et al. 2018) as the precision-assignment paper trains it on 32x32 images: plain ReLU,
// the first strides 1, and a projection where a block keeps the size but changes the channels.
#include <algorithm>

#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

struct Row {
  int64_t expansion, planes;
  int blocks;
  int64_t stride;  // of the first block
};
constexpr Row kRows[] = {{1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

// conv 1x1 - BN - ReLU - depthwise 3x3 - BN - ReLU - conv 1x1 - BN; plus the shortcut where the size stays.
TensorId block(Builder& b, const std::string& name, TensorId x, int64_t expansion, int64_t out,
               int64_t stride) {
  const int64_t in = b.shape(x).c(), wide = expansion * in;
  TensorId y = conv2d(b, name + ".conv1", x, {.out = wide});
  y = relu(b, name + ".relu1", batch_norm(b, name + ".bn1", y));
  y = conv2d(b, name + ".conv2", y,
             {.out = wide, .kernel = 3, .stride = stride, .padding = 1, .groups = wide});
  y = relu(b, name + ".relu2", batch_norm(b, name + ".bn2", y));
  y = batch_norm(b, name + ".bn3", conv2d(b, name + ".conv3", y, {.out = out}));
  if (stride != 1) return y;
  if (in != out)
    x = batch_norm(b, name + ".shortcut.bn", conv2d(b, name + ".shortcut.conv", x, {.out = out}));
  return add(b, name + ".add", y, x);
}

TensorId build(Builder& b, TensorId x, const ModelRequest& request) {
  const double width = request.width;
  x = conv2d(b, "conv1", x, {.out = scaled_channels(32, width), .kernel = 3, .padding = 1});
  x = relu(b, "relu1", batch_norm(b, "bn1", x));
  int number = 0;
  for (const Row& row : kRows) {
    for (int i = 0; i < row.blocks; ++i) {
      x = block(b, "layers." + std::to_string(number++), x, row.expansion, scaled_channels(row.planes, width),
                i == 0 ? row.stride : 1);
    }
  }
  // The last convolution does not get narrower than it is at a width of 1; its multiple is that of the width.
  const int64_t last = divisible(1280 * std::max(1.0, width), width <= 0.25 ? 4 : 8);
  x = relu(b, "relu2", batch_norm(b, "bn2", conv2d(b, "conv2", x, {.out = last})));
  x = flatten(b, "flatten", average_4x4(b, x, request));
  return linear(b, "fc", x,
                {.out = request.classes, .init = Init::normal(0.01f), .bias_init = Init::constant(0)});
}

}  // namespace

constinit const ModelInfo mobilenetv2_model = {.name = "mobilenetv2",
                                               .about = "inverted residuals around depthwise convolutions",
                                               .image = kColour,
                                               .min_side = 32,
                                               .parameters = 2296922,
                                               .build = build};

}  // namespace ulp
