// A multi-layer perceptron: the smallest thing that trains. The width scales the hidden layers.
#include "ulp/graph/ops.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

TensorId build(Builder& b, TensorId x, const ModelRequest& request) {
  x = flatten(b, "flatten", x);
  x = relu(b, "relu1", linear(b, "fc1", x, {.out = rounded_channels(256, request.width)}));
  x = relu(b, "relu2", linear(b, "fc2", x, {.out = rounded_channels(128, request.width)}));
  return linear(b, "fc3", x, {.out = request.classes});
}

}  // namespace

constinit const ModelInfo mlp_model = {.name = "mlp",
                                       .about = "linear layers to 256 and 128, then the classes",
                                       .image = kGrey,
                                       .parameters = 296586,
                                       .build = build};

}  // namespace ulp
