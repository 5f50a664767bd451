// SqueezeNet (Iandola et al. 2016) with batch norm, as the precision-assignment paper trains it on 32x32
// images. Every convolution has a bias, and the last one gives the scores, which are averaged over the map:
// there is no linear layer.
#include <cmath>

#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

struct Fire {
  int64_t squeeze, expand;
};
struct Row {
  int64_t stem;
  Fire fires[8];
};
// One row for each of kTableWidths.
constexpr Row kRows[] = {
    {96, {{16, 64}, {16, 64}, {32, 128}, {32, 128}, {48, 192}, {48, 192}, {64, 256}, {64, 256}}},
    {48, {{8, 32}, {8, 32}, {16, 64}, {16, 64}, {24, 96}, {24, 96}, {32, 128}, {32, 256}}},
    {24, {{4, 16}, {4, 16}, {8, 32}, {8, 32}, {12, 48}, {12, 48}, {16, 64}, {16, 256}}},
    {12, {{4, 8}, {4, 8}, {4, 12}, {4, 12}, {8, 20}, {8, 20}, {8, 24}, {8, 256}}},
};

// Normal with variance 2 / (kernel^2 in).
TensorId conv(Builder& b, const std::string& name, TensorId x, int64_t out, int64_t kernel) {
  const auto fan_in = static_cast<double>(kernel * kernel * b.shape(x).c());
  return conv2d(b, name, x,
                {.out = out,
                 .kernel = kernel,
                 .padding = kernel / 2,
                 .bias = true,
                 .init = Init::normal(static_cast<float>(std::sqrt(2 / fan_in)))});
}

// 1x1 - BN - ReLU; then 1x1 - BN beside 3x3 - BN; joined, ReLU.
TensorId fire(Builder& b, const std::string& name, TensorId x, const Fire& f) {
  x = relu(b, name + ".relu1", batch_norm(b, name + ".bn1", conv(b, name + ".conv1", x, f.squeeze, 1)));
  const TensorId narrow = batch_norm(b, name + ".bn2", conv(b, name + ".conv2", x, f.expand, 1));
  const TensorId broad = batch_norm(b, name + ".bn3", conv(b, name + ".conv3", x, f.expand, 3));
  return relu(b, name + ".relu2", concat(b, name + ".concat", {narrow, broad}));
}

// The fires are numbered as in the paper, where convolution 1 and 10 stand around fires 2 to 9.
TensorId build(Builder& b, TensorId x, const ModelRequest& request) {
  const Row& row = kRows[table_row(request.width)];
  x = relu(b, "relu1", batch_norm(b, "bn1", conv(b, "conv1", x, row.stem, 3)));
  x = max_pool(b, "maxpool1", x, {.kernel = 2});
  for (size_t i = 0; i < 8; ++i) {
    x = fire(b, "fire" + std::to_string(i + 2), x, row.fires[i]);
    if (i == 2) x = max_pool(b, "maxpool2", x, {.kernel = 2});
    if (i == 6) x = max_pool(b, "maxpool3", x, {.kernel = 2});
  }
  x = conv(b, "conv10", x, request.classes, 1);
  return flatten(b, "flatten", average_4x4(b, x, request, true));
}

}  // namespace

constinit const ModelInfo squeezenet_model = {.name = "squeezenet",
                                              .about = "fire modules, no linear layer",
                                              .image = kColour,
                                              .min_side = 32,
                                              .widths = kTableWidths,
                                              .parameters = 734986,
                                              .build = build};

}  // namespace ulp
