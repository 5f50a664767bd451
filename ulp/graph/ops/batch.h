// Batches made by the graph from data that lies in the backend's memory. A node reads the numbers of
// a batch's examples and takes their rows from an array that the caller keeps there. The array is
// the node's feed; it is not copied for a step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "ulp/base/augment.h"
#include "ulp/graph/builder.h"

namespace ulp {

// (examples (n)) -> out (n,h,w,c): images cropped, mirrored and normalised from bytes (rows,h,w,c).
// Random words are those of the epoch in StepState.
extern const OpDef kImageBatch;
// (examples (n)) -> out (n, ...): rows of an int32 array (rows, ...), such as labels or tokens.
extern const OpDef kTake;
// The same of an fp32 array, such as ratings: targets of a loss.
extern const OpDef kTakeTarget;

struct ImageBatchOptions {
  static constexpr int64_t kMaxChannels = 4;

  int64_t rows = 0;  // examples in the array
  int64_t height = 0, width = 0, channels = 0;
  Augment augment = {};
  std::array<Normalise, kMaxChannels> normalise = {};  // by channel
};

TensorId image_batch(Builder& b, const std::string& name, TensorId examples,
                     const ImageBatchOptions& options);

// The options of a node that image_batch made.
ImageBatchOptions image_batch_options(const Node& node);

// Whether what is fed to a node is data that lies in the backend's memory, and how many bytes.
bool reads_resident(const Node& node);
size_t resident_bytes(const Graph& graph, const Node& node);

}  // namespace ulp
