// Residual networks for small images: He et al. 2016 (three stages of 16, 32, 64 channels), and the
// four-stage ones with the 3x3 stem that is usual for CIFAR. A shortcut is a 1x1 convolution and a batch norm
// where the shape changes, else the input itself.
#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

TensorId conv_bn(Builder& b, const std::string& conv, const std::string& bn, TensorId x,
                 const ConvOptions& options) {
  return batch_norm(b, bn, conv2d(b, conv, x, options));
}

TensorId shortcut(Builder& b, const std::string& name, TensorId x, int64_t out, int64_t stride) {
  if (stride == 1 && b.shape(x).c() == out) return x;
  return conv_bn(b, name + ".shortcut.conv", name + ".shortcut.bn", x, {.out = out, .stride = stride});
}

// conv 3x3 - BN - ReLU - conv 3x3 - BN, plus the shortcut, ReLU.
TensorId basic_block(Builder& b, const std::string& name, TensorId x, int64_t planes, int64_t stride) {
  TensorId y = conv_bn(b, name + ".conv1", name + ".bn1", x,
                       {.out = planes, .kernel = 3, .stride = stride, .padding = 1});
  y = relu(b, name + ".relu1", y);
  y = conv_bn(b, name + ".conv2", name + ".bn2", y, {.out = planes, .kernel = 3, .padding = 1});
  y = add(b, name + ".add", y, shortcut(b, name, x, planes, stride));
  return relu(b, name + ".relu2", y);
}

// conv 1x1 - BN - ReLU - conv 3x3 - BN - ReLU - conv 1x1 to four times the planes - BN, plus the shortcut,
// ReLU.
TensorId bottleneck_block(Builder& b, const std::string& name, TensorId x, int64_t planes, int64_t stride) {
  TensorId y = conv_bn(b, name + ".conv1", name + ".bn1", x, {.out = planes});
  y = relu(b, name + ".relu1", y);
  y = conv_bn(b, name + ".conv2", name + ".bn2", y,
              {.out = planes, .kernel = 3, .stride = stride, .padding = 1});
  y = relu(b, name + ".relu2", y);
  y = conv_bn(b, name + ".conv3", name + ".bn3", y, {.out = 4 * planes});
  y = add(b, name + ".add", y, shortcut(b, name, x, 4 * planes, stride));
  return relu(b, name + ".relu3", y);
}

TensorId stem(Builder& b, TensorId x, int64_t planes) {
  return relu(b, "relu", conv_bn(b, "conv1", "bn1", x, {.out = planes, .kernel = 3, .padding = 1}));
}

// Stages "layer1", "layer2" ...: every one but the first halves the image in its first block.
TensorId stages(Builder& b, TensorId x, std::span<const int64_t> planes, std::span<const int> blocks,
                decltype(basic_block)& block) {
  for (size_t stage = 0; stage < planes.size(); ++stage) {
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      x = block(b, name, x, planes[stage], stage > 0 && i == 0 ? 2 : 1);
    }
  }
  return x;
}

// Three stages.
template <int Blocks>
TensorId cifar_resnet(Builder& b, TensorId x, const ModelRequest& request) {
  const std::array planes = {scaled_channels(16, request.width), scaled_channels(32, request.width),
                             scaled_channels(64, request.width)};
  x = stem(b, x, planes[0]);
  x = stages(b, x, planes, std::array{Blocks, Blocks, Blocks}, basic_block);
  x = global_average(b, "avgpool", x);
  return linear(b, "fc", x, {.out = request.classes});
}

// Four stages.
template <decltype(basic_block)& Block, int... Blocks>
TensorId imagenet_resnet(Builder& b, TensorId x, const ModelRequest& request) {
  const std::array planes = {scaled_channels(64, request.width), scaled_channels(128, request.width),
                             scaled_channels(256, request.width), scaled_channels(512, request.width)};
  x = stem(b, x, planes[0]);
  x = stages(b, x, planes, std::array{Blocks...}, Block);
  x = flatten(b, "flatten", average_4x4(b, x, request));
  return linear(b, "fc", x, {.out = request.classes});
}

template <int Blocks>
constexpr ModelInfo cifar_row(std::string_view name, std::string_view about, size_t parameters) {
  return {.name = name,
          .about = about,
          .image = kColour,
          .min_side = 8,
          .parameters = parameters,
          .build = cifar_resnet<Blocks>};
}

template <decltype(basic_block)& Block, int... Blocks>
constexpr ModelInfo imagenet_row(std::string_view name, std::string_view about, size_t parameters) {
  return {.name = name,
          .about = about,
          .image = kColour,
          .min_side = 32,
          .parameters = parameters,
          .build = imagenet_resnet<Block, Blocks...>};
}

}  // namespace

constinit const ModelInfo resnet8_model =
    cifar_row<1>("resnet8", "residual net of 16, 32, 64 channels, 1 block a stage", 78042);
constinit const ModelInfo resnet20_model = cifar_row<3>("resnet20", "the same with 3 blocks a stage", 272474);
constinit const ModelInfo resnet32_model = cifar_row<5>("resnet32", "the same with 5 blocks a stage", 466906);
constinit const ModelInfo resnet44_model = cifar_row<7>("resnet44", "the same with 7 blocks a stage", 661338);
constinit const ModelInfo resnet50_cifar_model =
    cifar_row<8>("resnet50-cifar", "the same with 8 blocks a stage", 758554);
constinit const ModelInfo resnet56_model = cifar_row<9>("resnet56", "the same with 9 blocks a stage", 855770);
constinit const ModelInfo resnet18_model = imagenet_row<basic_block, 2, 2, 2, 2>(
    "resnet18", "residual net of 64 to 512 channels, 2 basic blocks a stage", 11173962);
constinit const ModelInfo resnet34_model =
    imagenet_row<basic_block, 3, 4, 6, 3>("resnet34", "the same with 3, 4, 6, 3 basic blocks", 21282122);
constinit const ModelInfo resnet50_model = imagenet_row<bottleneck_block, 3, 4, 6, 3>(
    "resnet50", "the same with 3, 4, 6, 3 bottleneck blocks", 23520842);

}  // namespace ulp
