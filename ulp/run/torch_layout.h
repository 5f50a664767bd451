// Weights and running statistics as PyTorch has them: under which shape a tensor of a network stands
// in a state_dict, and in which order its elements. Names are the same on both sides.
//
// Images are (n,h,w,c) here and (n,c,h,w) there. So the weight of a convolution is (out,h,w,in) here
// and (out,in,h,w) there, and the columns of a linear layer that reads a flattened image follow
// (h,w,c) here and (c,h,w) there. All other tensors are alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp {

struct TorchLayout {
  std::vector<uint64_t> shape;  // there

  // The place here of each element there.
  std::vector<size_t> places() const;

  // Here the elements are (rows, pixels, channels), there (rows, channels, pixels).
  size_t rows = 1, pixels = 1, channels = 1;
};

// The layout of every weight and running statistic of a network, by name.
std::map<std::string, TorchLayout> torch_layouts(const Graph& graph);

}  // namespace ulp
