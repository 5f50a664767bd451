// LeNet-5 (LeCun et al. 1998) with the sizes of the paper for 32x32 images, and two of today's habits: ReLU
// for tanh, and max-pooling for averages with trained scales. Every layer has a bias; the width scales all
// but the classes.
#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

TensorId build(Builder& b, TensorId x, const ModelRequest& request) {
  const auto wide = [&](int64_t v) { return rounded_channels(v, request.width); };
  x = relu(b, "relu1", conv2d(b, "conv1", x, {.out = wide(6), .kernel = 5, .bias = true}));
  x = max_pool(b, "maxpool1", x, {.kernel = 2});
  x = relu(b, "relu2", conv2d(b, "conv2", x, {.out = wide(16), .kernel = 5, .bias = true}));
  x = max_pool(b, "maxpool2", x, {.kernel = 2});
  x = flatten(b, "flatten", x);
  x = relu(b, "relu3", linear(b, "fc1", x, {.out = wide(120)}));
  x = relu(b, "relu4", linear(b, "fc2", x, {.out = wide(84)}));
  return linear(b, "fc3", x, {.out = request.classes});
}

}  // namespace

constinit const ModelInfo lenet_model = {.name = "lenet",
                                         .about = "two convolutions and three linear layers",
                                         .image = kGrey,
                                         .min_side = 16,
                                         .parameters = 61706,
                                         .build = build};

}  // namespace ulp
