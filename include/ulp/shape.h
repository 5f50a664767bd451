// Shapes. Extents stand in memory order, the last one runs fastest; an image tensor, whose logical
// axes are N,C,H,W, therefore has the extents N,H,W,C.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#pragma GCC visibility push(default)
namespace ulp {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  // Throws an Error unless there are at most kMaxRank extents, all positive, with a product below
  // 2^50.
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents);
  static Shape image(int64_t n, int64_t c, int64_t h, int64_t w) { return {n, h, w, c}; }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extent_[static_cast<size_t>(axis)]; }
  int64_t back() const { return rank_ == 0 ? 1 : extent_[static_cast<size_t>(rank_ - 1)]; }
  size_t elements() const;
  // Of what runs slower than the last axis: pixels of an image, rows of a matrix.
  size_t rows() const { return elements() / static_cast<size_t>(back()); }

  // Of an image tensor.
  int64_t n() const { return extent_[0]; }
  int64_t h() const { return extent_[1]; }
  int64_t w() const { return extent_[2]; }
  int64_t c() const { return extent_[3]; }

  bool operator==(const Shape&) const = default;

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> extent_{};
};

// "128x32x32x16"
std::string shape_text(const Shape& shape);

}  // namespace ulp
#pragma GCC visibility pop
