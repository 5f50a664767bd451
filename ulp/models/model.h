// The models: a table of networks that classify images, each written with builder calls alone, and the graph
// around one: input, scores, log-softmax, loss, and what is counted. Architectures, widths and parameter
// counts are those of the papers, which the source of each model names.
//
// The training and the inference graph of one request have the same names for weights and running statistics,
// so that state is shared by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ulp/graph/builder.h"
#include "ulp/graph/graph.h"

namespace ulp {

struct ImageSize {
  int64_t channels = 3, height = 32, width = 32;
};

// "3x32x32": channels, height, width. Throws an Error for other text.
ImageSize parse_image_size(std::string_view text);

struct ModelRequest {
  std::string name;
  double width = 1;  // multiplies the numbers of channels
  int64_t batch = 128;
  ImageSize image = {};
  int64_t classes = 10;
  double label_smoothing = 0;
};

// Widths of models whose channels follow from a rule; those with a table of channels say which they have.
inline constexpr double kMaxWidth = 8;

struct ModelInfo {
  std::string_view name, about;
  ImageSize image = {};                 // what it was made for, and its default
  int64_t min_side = 1;                 // of images
  std::span<const double> widths = {};  // the ones there are; none: all above 0 up to kMaxWidth
  size_t parameters = 0;                // at width 1, for `image` and 10 classes
  // From images (n,h,w,c) to scores (n, classes). The request has been checked.
  TensorId (*build)(Builder& b, TensorId images, const ModelRequest& request) = nullptr;
};

// The table, and one row of it; an unknown name throws an Error that lists the known ones.
std::span<const ModelInfo> models();
const ModelInfo& find_model(std::string_view name);

// What a network of the table ends in.
struct Classifier {
  TensorId scores;  // (n, classes), before log-softmax
  TensorId loss;    // "loss.out", (n)
  TensorId sums;    // "accuracy.sums": the sum of the loss, and the number of examples that are right
};
// From images (n,h,w,c) and labels (n) on. Throws an Error for a request that the model cannot follow.
Classifier add_classifier(Builder& b, TensorId images, TensorId labels, const ModelRequest& request);

struct ClassifierGraph : Classifier {
  Graph graph;
  TensorId input;   // "input.out", images (n,h,w,c)
  TensorId labels;  // "labels.out", (n)
};
// The two sources of such a graph, which are fed. Throws an Error as add_classifier does.
struct ImageSources {
  TensorId input, labels;
};
ImageSources add_image_sources(Builder& b, const ModelRequest& request);

// Forward nodes only: differentiate and add_updates make a training step of it. Throws an Error for a request
// that the model cannot follow.
ClassifierGraph build_classifier(const ModelRequest& request, Mode mode);

}  // namespace ulp
