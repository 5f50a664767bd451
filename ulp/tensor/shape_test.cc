#include "ulp/shape.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"

namespace ulp {
namespace {

TEST(Shape, ImagesLieInMemoryAsNhwc) {
  const Shape shape = Shape::image(2, 3, 5, 7);
  EXPECT_EQ(shape_text(shape), "2x5x7x3");
  EXPECT_EQ(shape.n(), 2);
  EXPECT_EQ(shape.c(), 3);
  EXPECT_EQ(shape.h(), 5);
  EXPECT_EQ(shape.w(), 7);
  EXPECT_EQ(shape.elements(), 210u);
  EXPECT_EQ(shape.rows(), 70u);
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_THROW(Shape({}), Error);
  EXPECT_THROW(Shape({1, 2, 3, 4, 5}), Error);
  EXPECT_THROW(Shape({4, 0}), Error);
  EXPECT_THROW(Shape({-1}), Error);
  EXPECT_THROW(Shape({int64_t{1} << 30, int64_t{1} << 30}), Error);
  EXPECT_EQ(Shape({int64_t{1} << 25, int64_t{1} << 25}).elements(), size_t{1} << 50);
}

}  // namespace
}  // namespace ulp
