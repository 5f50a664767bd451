#include "ulp/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/numeric/rounding.h"

namespace ulp {

Shape::Shape(std::span<const int64_t> extents) {
  if (extents.empty() || extents.size() > kMaxRank) {
    fail("shape", "a shape has 1 to {} extents, got {}", kMaxRank, extents.size());
  }
  uint64_t elements = 1;
  for (const int64_t extent : extents) {
    if (extent <= 0) fail("shape", "extents must be positive, got {}", fmt::join(extents, "x"));
    if (static_cast<uint64_t>(extent) > kMaxRandomElements / elements) {
      fail("shape", "{} has more than 2^50 elements", fmt::join(extents, "x"));
    }
    elements *= static_cast<uint64_t>(extent);
  }
  rank_ = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), extent_.begin());
}

size_t Shape::elements() const {
  size_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= static_cast<size_t>((*this)[axis]);
  return product;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (int axis = 0; axis < shape.rank(); ++axis)
    text += fmt::format("{}{}", axis == 0 ? "" : "x", shape[axis]);
  return text;
}

}  // namespace ulp
