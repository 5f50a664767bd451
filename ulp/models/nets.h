// Private to the folder: the list of models, and what they share.
#pragma once

#include <array>
#include <span>
#include <string>

#include "ulp/models/model.h"

namespace ulp {

// The rows of the table. Each is defined in a source of this folder.
extern const ModelInfo resnet8_model, resnet20_model, resnet32_model, resnet44_model, resnet50_cifar_model,
    resnet56_model, resnet18_model, resnet34_model, resnet50_model, mobilenetv2_model, shufflenetv2_model,
    squeezenet_model, lenet_model, mlp_model;

// In the order of `ulp models`.
inline auto all_models() {
  return std::array{resnet8_model,        resnet20_model,    resnet32_model,     resnet44_model,
                    resnet50_cifar_model, resnet56_model,    resnet18_model,     resnet34_model,
                    resnet50_model,       mobilenetv2_model, shufflenetv2_model, squeezenet_model,
                    lenet_model,          mlp_model};
}

inline constexpr ImageSize kColour{3, 32, 32}, kGrey{1, 32, 32};

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

}  // namespace ulp
