// What networks are built from. Each call adds a node `name` and returns its output, the tensor
// `name`.out; of split `name`.out0, `name`.out1 and so on, of classify and loss_sum `name`.sums.
// Shapes are in memory order: an image batch is (n, h, w, c). Shapes that do not go together throw
// an Error that names the node.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/network.h"

#pragma GCC visibility push(default)
namespace ulp {

// ---- sources: what a step is fed, by the name of the node ----

TensorId input(Builder& b, const std::string& name, const Shape& shape);    // fp32, stored in its format
TensorId indices(Builder& b, const std::string& name, const Shape& shape);  // int32: labels, rows
TensorId target(Builder& b, const std::string& name, const Shape& shape);   // fp32 for a loss: stays fp32
TensorId bytes(Builder& b, const std::string& name, const Shape& shape);    // bytes, for from_bytes

// Bytes as numbers, stored in the format of NAME.out: (byte - shift) * scale. Feeding bytes takes a
// quarter of the memory and of the way to a device that fp32 takes.
TensorId from_bytes(Builder& b, const std::string& name, TensorId bytes, float shift = 0,
                    float scale = 1.0f / 255);

// ---- layers with weights ----

struct LinearOptions {
  int64_t out = 0;
  bool bias = true;
  std::optional<Init> init = {};       // of the weight; uniform within 1 / sqrt(in) unless said
  std::optional<Init> bias_init = {};  // the same
};
// (..., in) -> (..., out). Weights NAME.weight (out, in) and NAME.bias.
TensorId linear(Builder& b, const std::string& name, TensorId x, const LinearOptions& options);

struct ConvOptions {
  int64_t out = 0;
  int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
  bool bias = false;
  std::optional<Init> init =
      {};  // of the weight; normal with variance 2 / (kernel^2 out) unless said (the fan-out)
};
// (n, h, w, c) -> (n, h', w', out). Weights NAME.weight and NAME.bias.
TensorId conv2d(Builder& b, const std::string& name, TensorId x, const ConvOptions& options);

// Indices of any shape -> (..., width). Weight NAME.weight (rows, width), normal(0, 1) unless said.
TensorId embedding(Builder& b, const std::string& name, TensorId indices, int64_t rows, int64_t width,
                   Init init = Init::normal(1));

struct NormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // of a batch norm's running statistics
};
// Weights NAME.weight and NAME.bias, statistics NAME.running_mean and NAME.running_var.
TensorId batch_norm(Builder& b, const std::string& name, TensorId x, const NormOptions& options = {});
// Over the last axis. Weights NAME.weight and NAME.bias.
TensorId layer_norm(Builder& b, const std::string& name, TensorId x, double epsilon = 1e-5);

// ---- elementwise ----

// Applies the activation that is called `op`; each has a function of its name below. `attribute` is
// the slope of a leaky_relu. An unknown name throws an Error that lists all names.
TensorId activation(Builder& b, std::string_view op, const std::string& name, TensorId x,
                    double attribute = 0);
inline TensorId relu(Builder& b, const std::string& name, TensorId x) {
  return activation(b, "relu", name, x);
}
inline TensorId leaky_relu(Builder& b, const std::string& name, TensorId x, double slope) {
  return activation(b, "leaky_relu", name, x, slope);
}
inline TensorId tanh(Builder& b, const std::string& name, TensorId x) {
  return activation(b, "tanh", name, x);
}
inline TensorId sigmoid(Builder& b, const std::string& name, TensorId x) {
  return activation(b, "sigmoid", name, x);
}
inline TensorId silu(Builder& b, const std::string& name, TensorId x) {
  return activation(b, "silu", name, x);
}
// In inference it is its input. p in [0, 1).
TensorId dropout(Builder& b, const std::string& name, TensorId x, double p);
// By NumPy's rules: shapes are laid together at their last axes, and an axis that one of them lacks,
// or has with extent 1, is repeated. (n, h, w, c) goes with (c), with (h, 1, c) and with (n, 1, 1, 1).
TensorId add(Builder& b, const std::string& name, TensorId x, TensorId y);
// Of two tensors of one shape.
TensorId multiply(Builder& b, const std::string& name, TensorId x, TensorId y);

// ---- products, pools, moves ----

// (..., m, k) times (..., k, n), the leading axes equal; each may be transposed.
TensorId matmul(Builder& b, const std::string& name, TensorId x, TensorId y, bool transpose_x = false,
                bool transpose_y = false);
// n vectors of an example (b, n, d) -> their dot products (b, n (n - 1) / 2), each pair once: of
// vectors i and j < i at i (i - 1) / 2 + j.
TensorId dot_interaction(Builder& b, const std::string& name, TensorId x);

struct PoolOptions {
  int64_t kernel = 2, stride = 0, padding = 0;  // a stride of 0 stands for the kernel
};
TensorId max_pool(Builder& b, const std::string& name, TensorId x, const PoolOptions& options);
TensorId avg_pool(Builder& b, const std::string& name, TensorId x, const PoolOptions& options);
TensorId global_average(Builder& b, const std::string& name, TensorId x);  // (n, h, w, c) -> (n, c)

TensorId reshape(Builder& b, const std::string& name, TensorId x, const Shape& shape);
TensorId flatten(Builder& b, const std::string& name, TensorId x);  // (n, ...) -> (n, everything else)
TensorId transpose(Builder& b, const std::string& name, TensorId x, const std::vector<int>& axes);
TensorId channel_shuffle(Builder& b, const std::string& name, TensorId x, int64_t groups);
// Along an axis, from the front or, where it is negative, from the back: -1 is the last. Split in
// equal parts.
TensorId concat(Builder& b, const std::string& name, const std::vector<TensorId>& in, int axis = -1);
std::vector<TensorId> split(Builder& b, const std::string& name, TensorId x, int64_t parts, int axis = -1);

// ---- losses: a term for each example, or for each row of scores ----

TensorId softmax(Builder& b, const std::string& name, TensorId x);  // over the last axis
TensorId log_softmax(Builder& b, const std::string& name, TensorId x);
// Scores (n, k), labels (n) from `indices`.
TensorId cross_entropy(Builder& b, const std::string& name, TensorId scores, TensorId labels,
                       double smoothing = 0);
TensorId nll(Builder& b, const std::string& name, TensorId log_probabilities, TensorId labels,
             double smoothing = 0);
// Means over an example's elements, against a `target` of the same shape.
TensorId mse(Builder& b, const std::string& name, TensorId x, TensorId target);
TensorId bce_with_logits(Builder& b, const std::string& name, TensorId x, TensorId target);
// Two sums: of the loss, and of the examples whose largest score is their label's. For
// Network::loss_sum, and as an output.
TensorId classify(Builder& b, const std::string& name, TensorId scores, TensorId labels, TensorId loss);
// For Network::loss_sum. Without weights each term counts once.
TensorId loss_sum(Builder& b, const std::string& name, TensorId terms, TensorId weights = {});

// ---- batches from an array that stays in the memory of the device (Session::keep_resident) ----

// Rows of an int32 array of `rows` rows: labels, tokens. `examples` are their numbers, from
// `indices`. `row` is the shape of one row; empty: a single number.
TensorId take(Builder& b, const std::string& name, TensorId examples, int64_t rows,
              std::span<const int64_t> row = {});
// The same of an fp32 array: ratings and other targets. As from `target`, it stays fp32 and is for a
// loss.
TensorId take_target(Builder& b, const std::string& name, TensorId examples, int64_t rows,
                     std::span<const int64_t> row = {});

struct ImageOptions {
  int64_t rows = 0;                             // images in the array
  int64_t height = 0, width = 0, channels = 0;  // at most 4 channels
  // Of a channel, as shares of 255: (byte / 255 - mean) / deviation. Empty: 0 and 1.
  std::vector<float> mean = {}, deviation = {};
  // For training: a window of the image's size is cut at random from the image with so many pixels
  // of byte 0 around it, and half of the images are mirrored.
  int64_t padding = 0;
  bool mirror = false;
  uint64_t seed = 0;  // of these random words; FeedBatch::epoch names others in each epoch
};
// Images of a byte array (rows, height, width, channels) -> (n, height, width, channels), stored in
// the format of NAME.out.
TensorId image_batch(Builder& b, const std::string& name, TensorId examples, const ImageOptions& options);

}  // namespace ulp
#pragma GCC visibility pop
