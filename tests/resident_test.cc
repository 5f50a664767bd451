// Arrays that lie in the backend's memory: what is refused of them before a step reads it.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/temp.h"
#include "ulp/graph/ops.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

// Numbers that an operator does not take are refused, also where only a graph that is planned later
// reads them.
TEST(Resident, NumbersAreWithinTheirLimits) {
  const BuildFunction build = [](Builder& b, const BatchShape& shape) {
    const int64_t rows = b.training() ? 3 : 4;
    const TensorId labels = take(b, "labels", indices(b, "examples", {shape.examples}), rows);
    const TensorId x = linear(b, "fc", input(b, "x", {shape.examples, 2}), {.out = 3});
    return Network{.loss = cross_entropy(b, "loss", x, labels)};
  };
  const auto bytes = [](const std::vector<int32_t>& of) {
    return std::span(reinterpret_cast<const uint8_t*>(of.data()), of.size() * sizeof(int32_t));
  };
  const std::vector<int32_t> fine{0, 2, 1}, above{0, 2, 3}, below{0, 1, 2, -7};
  const BatchShape two{2, {}};
  EngineOptions options;
  options.build = build;
  options.batch = two;
  Engine engine(options);
  EXPECT_SAYS(engine.keep_resident(Mode::training, "labels", bytes(above)),
              "element 2 of the data that is kept for 'labels' is 3, and 'loss' takes numbers from 0 to 2");
  engine.keep_resident(Mode::training, "labels", bytes(fine));
  engine.keep_resident(Mode::inference, "labels", bytes(below));  // no graph of this mode yet
  engine.plan_evaluation(two);
  EXPECT_SAYS(engine.allocate(), "element 3 of the data that is kept for 'labels' is -7");
}

}  // namespace
}  // namespace ulp
