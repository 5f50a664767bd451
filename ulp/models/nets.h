// Private to the folder: the bodies of the models, and what they share.
#pragma once

#include <array>
#include <span>
#include <string>

#include "ulp/models/model.h"

namespace ulp {

// The papers' rule for channels: v rounded to the nearest multiple of q (halves up), at least q, and one q
// more where that fell below 0.9 v.
int64_t divisible(double v, int64_t q);
// The same for a number of channels under a width, with q = 4 up to a width of 0.25 and 8 above.
int64_t scaled_channels(int64_t channels, double width);
// For models without such a rule: rounded to nearest, at least 1.
int64_t rounded_channels(int64_t channels, double width);

// The widths of models that have a table of channels for each.
inline constexpr std::array<double, 4> kTableWidths = {1, 0.5, 0.25, 0.1};
// The place of a width among them.
size_t table_row(double width);

// "avgpool", windows of 4x4 side by side. Throws an Error unless they cover the map; with `single` there must
// be only one.
TensorId average_4x4(Builder& b, TensorId x, const ModelRequest& request, bool single = false);

TensorId cifar_resnet(Builder& b, TensorId x, const ModelRequest& request, int blocks);
TensorId imagenet_resnet(Builder& b, TensorId x, const ModelRequest& request, std::array<int, 4> blocks,
                         bool bottleneck);
TensorId mobilenetv2(Builder& b, TensorId x, const ModelRequest& request);
TensorId shufflenetv2(Builder& b, TensorId x, const ModelRequest& request);
TensorId squeezenet(Builder& b, TensorId x, const ModelRequest& request);
TensorId lenet(Builder& b, TensorId x, const ModelRequest& request);
TensorId mlp(Builder& b, TensorId x, const ModelRequest& request);

}  // namespace ulp
