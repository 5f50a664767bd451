// What writing and reading a tensor tells a recorder, against counting by hand.
#include "ulp/backend/recorder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/tensor/stored.h"

namespace ulp {
namespace {

constexpr size_t kElements = 1000;

std::vector<float> values() {
  std::vector<float> values(kElements);
  for (size_t i = 0; i < kElements; ++i)
    values[i] = std::ldexp(1 + 0.3f * static_cast<float>(i % 3), static_cast<int>(i % 60) - 40);
  values[5] = 0;
  values[6] = std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[8] = -values[8];
  return values;
}

// A node that writes one tensor, with the storage for it, and what its task would need.
struct Written {
  Graph graph;
  TensorId y = graph.add_tensor({.name = "y", .shape = {static_cast<int64_t>(kElements)}});
  NodeId node = graph.add_node({&kLinear, "fc", {}, {y, y}, {y}});
  std::vector<TensorFormat> formats;
  std::unique_ptr<PlanContext> plan;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t*> data;
  std::vector<EncodeStats> stats;
  StepState state;
  RunContext context;

  explicit Written(const std::string& storage) {
    formats.assign(graph.tensor_count(), {parse_storage("fp32"), {}});
    formats[static_cast<size_t>(y.index)].storage = parse_storage(storage);
    plan.reset(new PlanContext{graph, formats, {}, {}});
    bytes.resize(tensor_bytes(graph[y], parse_storage(storage)) + 64);
    data.assign(graph.tensor_count(), bytes.data());
    stats.resize(graph.tensor_count());
    context.data = data;
    context.state = &state;
    context.stats = stats.data();
  }
  const TensorRecord& write(Recorder& recorder, const std::vector<float>& in) {
    const Problem problem{*plan, {}, {node}, {}};
    context.recorder = &recorder;
    Writer(problem, problem.root(), y).all(context, in.data());
    return recorder.of(y);
  }
};

ExponentHistogram by_hand(const std::vector<float>& x) {
  ExponentHistogram histogram;
  for (const float value : x) {
    if (std::isnan(value)) {
      ++histogram.nan;
    } else if (std::isinf(value)) {
      ++histogram.infinite;
    } else if (value == 0) {
      ++histogram.zero;
    } else {
      ++histogram.bin[static_cast<size_t>(std::ilogb(value) - ExponentHistogram::kLowest)];
    }
  }
  return histogram;
}

TEST(Recorder, CountsBeforeRounding) {
  const std::vector<float> x = values();
  for (const char* storage : {"fp(4,3,4)", "bf16", "e5m2", "s2fp8"}) {
    Written written(storage);
    Recorder recorder(written.graph.tensor_count());
    recorder.want(written.y);
    EXPECT_EQ(written.write(recorder, x).x, by_hand(x)) << storage;
    EXPECT_EQ(written.write(recorder, x).x.zero, 2u) << storage << ": a second part is added";
  }
}

TEST(Recorder, CountsOnlyWhatIsWanted) {
  Written written("bf16");
  Recorder recorder(written.graph.tensor_count());
  EXPECT_TRUE(written.write(recorder, values()).empty());
}

TEST(Recorder, KeepsWhatS2fp8MakesOfATensor) {
  std::vector<float> x = values();
  x[6] = x[7] = 1;
  Written written("s2fp8");
  Recorder recorder(written.graph.tensor_count());
  recorder.want(written.y);
  const TensorRecord& record = written.write(recorder, x);
  double sum = 0, most = -200;
  size_t count = 0;
  for (const float value : x) {
    if (value == 0) continue;
    const double log = std::log2(std::fabs(static_cast<double>(value)));
    sum += log;
    most = std::max(most, log);
    ++count;
  }
  const double mu = sum / static_cast<double>(count);
  ASSERT_TRUE(record.shifted);
  EXPECT_NEAR(record.shifted->alpha, 15 / (most - mu), 1e-4);
  EXPECT_NEAR(record.shifted->beta, -15 / (most - mu) * mu, 1e-3);
  // The largest element becomes 2^15, and 0 stays apart.
  EXPECT_EQ(record.y.zero, 1u);
  int top = -200;
  uint64_t all = 0;
  for (size_t i = 0; i < record.y.bin.size(); ++i) {
    all += record.y.bin[i];
    if (record.y.bin[i] > 0) top = static_cast<int>(i) + ExponentHistogram::kLowest;
  }
  EXPECT_EQ(all, kElements - 1);
  EXPECT_GE(top, 14);
  EXPECT_LE(top, 15);
}

TEST(Recorder, PlainTensorsHaveNoShift) {
  Written written("bf16");
  Recorder recorder(written.graph.tensor_count());
  recorder.want(written.y);
  const TensorRecord& record = written.write(recorder, values());
  EXPECT_FALSE(record.shifted);
  EXPECT_EQ(record.y, ExponentHistogram{});
}

}  // namespace
}  // namespace ulp
