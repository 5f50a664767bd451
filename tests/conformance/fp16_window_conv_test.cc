// Convolutions that multiply in fp16, and what it does not have by itself or, tiles with much of
// it, again in tf32 (conv_igemm.h), as tasks: sums against the reference's (|err| <= 2 (n + 8)
// 2^-23 sum |a| |b|), codes and range events against the scalar codec on those sums, and which
// tiles were done in which way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/conformance/conformance.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/emulated/fake_igemm.h"
#include "ulp/backend/ref/reference.h"

namespace ulp::conformance {
namespace {

using cuda::OperandFeed;

// Numbers by their place.
using Numbers = std::function<float(size_t)>;

// Magnitudes from 2^-8 to `most`, some 0.
Numbers ordinary(float most, uint32_t seed) {
  return [random = std::mt19937(seed), most](size_t i) mutable {
    const float unit = std::uniform_real_distribution<float>(0.5f, 1)(random);
    const auto word = static_cast<uint32_t>(random());
    if (word % 16 == 0) return 0.0f;
    const float value = i == 0 ? most : std::ldexp(unit, -static_cast<int>(word / 16 % 7)) * most;
    return word >> 31 != 0 ? -value : value;
  };
}

class Trial {
 public:
  Trial(std::string_view op, const Shape& x, const ConvOptions& options, std::string_view in_format,
        std::string_view weight_format) {
    const TensorId y = conv2d(sketch_.b, "conv", sketch_.operand(x), options);
    sketch_.train(y);
    const Graph& graph = sketch_.graph;
    for (size_t i = 0; i < graph.node_count(); ++i) {
      const NodeId id{static_cast<int32_t>(i)};
      if (graph[id].op->name == op && graph[id].in.size() == 2 && graph[graph[id].in[1]].shape.rank() == 4)
        node_ = id;
    }
    formats_.assign(graph.tensor_count(), {parse_storage("fp32"), {}});
    in_ = set(node().in[0], in_format);
    weight_ = set(node().in[1], weight_format);
    out_ = node().out[0];
    const Shape& weight = graph[node().in[1]].shape;
    terms_ = static_cast<double>(weight[1] * weight[2] * (op == "conv2d" ? weight[3] : weight[0]));
  }

  void fill(const Numbers& in, const Numbers& weight, float amax) {
    encode(in_, in);
    encode(weight_, weight);
    amax_ = amax;
  }

  // Runs it, twice, and checks all.
  void check() {
    const Made sums = run(conv_igemm(), 0xA5), again = run(conv_igemm(), 0x00);
    fp16_ = cuda::written_tiles(OperandFeed::fp16_from_8) + cuda::written_tiles(OperandFeed::fp16_from_16);
    tf32_ = cuda::written_tiles(OperandFeed::tf32_from_8) + cuda::written_tiles(OperandFeed::tf32_from_16);
    EXPECT_TRUE(sums.out == again.out) << "other bits when run again";
    expect_sums(floats_of(sums.out));
    expect_codes(floats_of(sums.out));
  }
  const Shape& shape() const { return sketch_.graph[in_.id].shape; }
  // Tiles of a run.
  uint64_t fp16() const { return fp16_; }
  uint64_t tf32() const { return tf32_; }
  std::string note() const {
    const PlanContext plan{sketch_.graph, formats_};
    return conv_igemm().make({plan, {}, {node_}, {}})->note();
  }

 private:
  struct Tensor {
    TensorId id;
    QuickCodec codec;
    size_t bytes;
    std::vector<uint8_t> codes;
  };
  struct Made {
    std::vector<uint8_t> out;
    EncodeStats stats;
  };

  const Node& node() const { return sketch_.graph[node_]; }
  Tensor set(TensorId id, std::string_view format) {
    formats_[static_cast<size_t>(id.index)] = {parse_storage(format), {}};
    const FloatFormat parsed = parse_format(format);
    return {
        id, make_quick(make_spec(parsed, Overflow::saturate)), static_cast<size_t>(parsed.bits()) / 8, {}};
  }
  void encode(Tensor& tensor, const Numbers& numbers) {
    const size_t elements = sketch_.graph[tensor.id].elements();
    tensor.codes.resize(elements * tensor.bytes);
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t code = encode_even(tensor.codec, float_bits(numbers(i))).code;
      std::memcpy(&tensor.codes[i * tensor.bytes], &code, tensor.bytes);
    }
  }
  static const KernelDef& find(std::span<const KernelDef> kernels, std::string_view op) {
    return *std::find_if(kernels.begin(), kernels.end(), [&](const KernelDef& one) { return one.op == op; });
  }
  const KernelDef& conv_igemm() const { return find(cuda::conv_igemm_kernels(), node().op->name); }
  const KernelDef& reference() const { return find(reference_kernels(), node().op->name); }

  Made run(const KernelDef& kernel, uint8_t garbage, bool magnitudes = false) {
    const PlanContext plan{sketch_.graph, formats_};
    const Problem problem{plan, {}, {node_}, {}};
    EXPECT_EQ(kernel.why_not(problem), "");
    const std::unique_ptr<Task> task = kernel.make(problem);
    const size_t count = sketch_.graph.tensor_count();
    std::vector<EncodeStats> stats(count);
    stats[static_cast<size_t>(in_.id.index)].amax = amax_;
    Aligned in(in_.codes), weight(weight_.codes);
    if (magnitudes) {
      in.clear_signs(in_.bytes);
      weight.clear_signs(weight_.bytes);
    }
    const size_t bytes = tensor_bytes(sketch_.graph[out_], formats_[static_cast<size_t>(out_.index)].storage);
    const Aligned out(bytes, garbage), workspace(task->workspace(), garbage);
    std::vector<uint8_t*> data(count);
    data[static_cast<size_t>(in_.id.index)] = in.at();
    data[static_cast<size_t>(weight_.id.index)] = weight.at();
    data[static_cast<size_t>(out_.index)] = out.at();
    RunContext context;
    context.data = data;
    const StepState state;
    context.state = &state;
    context.workspace = workspace.at();
    context.stats = stats.data();
    for (const OperandFeed feed : {OperandFeed::fp16_from_8, OperandFeed::fp16_from_16,
                                   OperandFeed::tf32_from_8, OperandFeed::tf32_from_16})
      cuda::written_tiles(feed) = 0;
    task->run(context);
    return {{out.at(), out.at() + bytes}, stats[static_cast<size_t>(out_.index)]};
  }

  void expect_sums(const std::vector<float>& sums) {
    const std::vector<float> expected = floats_of(run(reference(), 0).out),
                             magnitude = floats_of(run(reference(), 0, true).out);
    double worst = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const double error = std::fabs(static_cast<double>(sums[i]) - expected[i]);
      // The reference rounds as well.
      const double allowed = 4 * (terms_ + 8) * std::ldexp(1.0, -23) * magnitude[i];
      const double share = error == 0 ? 0 : error / allowed;
      if (!(share <= worst)) worst = share;
    }
    EXPECT_LE(worst, 1);
  }

  void expect_codes(const std::vector<float>& sums) {
    for (const std::string_view format : {"fp(6,9,0)", "fp(5,2,0)"}) {
      const Tensor out = set(out_, format);
      const Made made = run(conv_igemm(), 0x5A);
      EncodeStats events;
      size_t wrong = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        const Encoded one = encode_even(out.codec, float_bits(sums[i]));
        uint32_t code = 0;
        std::memcpy(&code, &made.out[i * out.bytes], out.bytes);
        wrong += code != one.code ? 1 : 0;
        events.overflow += one.event == RangeEvent::overflow ? 1 : 0;
        events.underflow += one.event == RangeEvent::underflow ? 1 : 0;
        events.amax = std::max(events.amax, std::fabs(sums[i]));
      }
      EXPECT_EQ(wrong, 0u) << format;
      EXPECT_EQ(events, made.stats) << format;
    }
    formats_[static_cast<size_t>(out_.index)] = {parse_storage("fp32"), {}};
  }

  // Bytes as tensors lie.
  class Aligned {
   public:
    Aligned(size_t bytes, uint8_t value) : memory_(bytes / sizeof(Piece) + 1) {
      std::memset(memory_.data(), value, memory_.size() * sizeof(Piece));
    }
    explicit Aligned(const std::vector<uint8_t>& bytes) : Aligned(bytes.size(), 0) {
      std::memcpy(memory_.data(), bytes.data(), bytes.size());
    }
    uint8_t* at() const { return reinterpret_cast<uint8_t*>(memory_.data()); }
    void clear_signs(size_t each) {
      for (size_t i = each - 1; i < memory_.size() * sizeof(Piece); i += each) at()[i] &= 0x7Fu;
    }

   private:
    struct alignas(64) Piece {
      uint8_t byte[64];
    };
    mutable std::vector<Piece> memory_;
  };

  static std::vector<float> floats_of(const std::vector<uint8_t>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  Sketch sketch_;
  NodeId node_;
  std::vector<TensorFormat> formats_;
  Tensor in_, weight_;
  TensorId out_;
  float amax_ = 0;
  double terms_ = 0;
  uint64_t fp16_ = 0, tf32_ = 0;
};

struct Conv {
  std::string_view op;
  Shape x;
  ConvOptions options;
};

// Input stages of 16, 32 and 64 channels, several chunks, tiles of columns, parts with other taps.
const std::vector<Conv>& convolutions() {
  static const std::vector<Conv> all = {
      {"conv2d", {9, 9, 9, 32}, {32, 3, 1, 1, 1, false}},
      {"conv2d", {3, 16, 16, 16}, {24, 3, 1, 1, 1, false}},
      {"conv2d", {1, 14, 14, 48}, {128, 3, 1, 1, 1, false}},
      {"conv2d", {4, 16, 16, 32}, {64, 3, 2, 1, 1, false}},
      {"conv2d_grad_input", {9, 9, 9, 32}, {32, 3, 1, 1, 1, false}},
      {"conv2d_grad_input", {2, 13, 9, 16}, {80, 5, 1, 2, 1, false}},
  };
  return all;
}

class Fp16Window : public testing::TestWithParam<Conv> {
 protected:
  Trial trial(std::string_view in = "fp(6,9,0)", std::string_view weight = "fp(6,9,0)") const {
    return {GetParam().op, GetParam().x, GetParam().options, in, weight};
  }
};
INSTANTIATE_TEST_SUITE_P(, Fp16Window, testing::ValuesIn(convolutions()));

TEST_P(Fp16Window, DoesOrdinaryNumbersInFp16) {
  for (const float most : {0.01f, 3.0f, 1.999999f, 1e6f}) {
    Trial one = trial();
    one.fill(ordinary(most, 1), ordinary(0.9f, 2), most);
    one.check();
    EXPECT_GT(one.fp16(), 0u) << most;
    EXPECT_EQ(one.tf32(), 0u) << most;
  }
}

// Numbers below the window at `places` among zeros in the first and the last third of the pixels,
// where sums show whether they were there; 4 at most in between.
Numbers lone(const Shape& shape, std::vector<size_t> places) {
  const auto c = static_cast<size_t>(shape.c()), third = shape.elements() / c / 3 * c;
  return [=, others = ordinary(4, 1), count = shape.elements()](size_t i) mutable {
    if (i >= third && i < count - third) return i == third ? 4.0f : others(i);
    // Of the field just below, of lower ones, and a subnormal one.
    constexpr float kSmall[] = {0x1.4p-28f, -0x1.fep-28f, 0x1p-28f, -0x1.02p-29f, 0x1.8p-31f, 0x1.8p-38f};
    const auto at = std::find(places.begin(), places.end(), i);
    return at == places.end() ? 0.0f : kSmall[static_cast<size_t>(at - places.begin()) % std::size(kSmall)];
  };
}

TEST_P(Fp16Window, AddsAFewSmallNumbersByThemselves) {
  const Shape shape = trial().shape();
  const auto c = static_cast<size_t>(shape.c()), w = static_cast<size_t>(shape.w());
  const size_t count = shape.elements();
  const std::vector<size_t> cases[] = {
      {0},                                                   // a corner
      {(w + 1) * c + 5},                                     // where all taps meet it
      {(w - 1) * c + c - 1, w * c},                          // the ends of neighbouring rows
      {2 * c, 2 * c + 1, 2 * c + 6, 3 * c + 4, 3 * c + 15},  // some in an input stage
      {c + 1, c + c / 2, 2 * c - 1, (w + 2) * c - 1},        // in several input stages
      {count - 1, count - c, count - w * c},                 // in the last tile
  };
  for (const std::vector<size_t>& places : cases) {
    Trial one = trial();
    one.fill(lone(shape, places), ordinary(0.9f, 2), 4);
    one.check();
    EXPECT_GT(one.fp16(), 0u) << places[0];
    EXPECT_EQ(one.tf32(), 0u) << places[0];
  }
}

// One in each piece of eight channels: they are different threads'.
TEST_P(Fp16Window, CountsThreadsWithSmallNumbers) {
  for (const size_t pieces : {cuda::kMostOutside, cuda::kMostOutside + 1}) {
    Trial one = trial();
    std::vector<size_t> places;
    for (size_t i = 0; i < pieces; ++i) places.push_back(8 * i + i % 8);
    one.fill(lone(one.shape(), places), ordinary(0.9f, 2), 4);
    one.check();
    EXPECT_GT(one.fp16(), 0u) << pieces;
    EXPECT_EQ(one.tf32() != 0, pieces > cuda::kMostOutside);
  }
}

// Small numbers beside large ones; sums show whether they were there, where all others are 0.
TEST_P(Fp16Window, DoesTilesWithSmallNumbersInTf32) {
  Trial one = trial();
  const Numbers large = ordinary(4, 1);
  one.fill(
      [&](size_t i) {
        const float value = large(i);
        if (i == 0) return 4.0f;
        return i < 2000 ? std::ldexp(1.0f + static_cast<float>(i % 512) / 512, -29 - static_cast<int>(i % 2))
                        : value;
      },
      ordinary(0.9f, 2), 4);
  one.check();
  EXPECT_GT(one.tf32(), 0u);
  EXPECT_GT(one.fp16(), 0u);
}

TEST_P(Fp16Window, DoesAllTilesInTf32WhereAllHaveNumbersOutside) {
  Trial one = trial();
  one.fill([](size_t i) { return i % 2 == 0 ? 4.0f : std::ldexp(-1.5f, -33); }, ordinary(0.9f, 2), 4);
  one.check();
  EXPECT_GT(one.tf32(), 0u);
  EXPECT_EQ(one.fp16(), 0u);
}

TEST_P(Fp16Window, DoesAllTilesInTf32WhereAWeightIsOne) {
  Trial one = trial();
  const Numbers below = ordinary(0.9f, 2);
  one.fill(
      ordinary(3, 1), [&](size_t i) { return i == 77 ? -1.0f : below(i); }, 3);
  one.check();
  EXPECT_GT(one.tf32(), 0u);
  EXPECT_EQ(one.fp16(), 0u);
}

TEST_P(Fp16Window, IsRightWhateverIsSaidOfTheLargestNumber) {
  for (const float said : {0.0f, 0.1f, 100.0f, std::numeric_limits<float>::infinity()}) {
    Trial one = trial();
    one.fill(ordinary(3, 1), ordinary(0.9f, 2), said);
    one.check();
    EXPECT_GT(one.tf32() + one.fp16(), 0u) << said;
  }
}

// Subnormal numbers of the format are those of fp16.
TEST_P(Fp16Window, HasTheSmallestNumbersOfSmallTensors) {
  Trial one = trial();
  one.fill([](size_t i) { return std::ldexp(static_cast<float>(i % 1023) - 511, -39); },
           [](size_t i) { return std::ldexp(static_cast<float>(i % 1021) - 510, -39); },
           std::ldexp(512.0f, -39));
  one.check();
  EXPECT_GT(one.fp16(), 0u);
  EXPECT_EQ(one.tf32(), 0u);
}

TEST_P(Fp16Window, TakesCodesOfEightBits) {
  for (const std::string_view format : {"fp(4,3,4)", "fp(5,2,0)"}) {
    Trial one = trial(format);
    one.fill(ordinary(0.5f, 1), ordinary(0.9f, 2), 0);
    one.check();
    EXPECT_GT(one.fp16(), 0u) << format;
    EXPECT_EQ(one.tf32(), 0u) << format;
  }
  // The highest field has no numbers in fp16.
  Trial one = trial("fp(5,2,0)");
  const Numbers others = ordinary(0.5f, 1);
  one.fill([&](size_t i) { return i == 5 ? -1e9f : others(i); }, ordinary(0.9f, 2), 0);
  one.check();
  EXPECT_GT(one.fp16(), 0u);
  EXPECT_GT(one.tf32(), 0u);
  // Of eight bits, fp16 holds all weights.
  Trial narrow = trial("fp(6,9,0)", "fp(5,2,0)");
  narrow.fill(ordinary(3, 1), ordinary(1e9f, 2), 3);
  narrow.check();
  EXPECT_GT(narrow.fp16(), 0u);
  EXPECT_EQ(narrow.tf32(), 0u);
}

// So many tiles that they have 256 rows: two are done again for one that is marked.
TEST(Fp16WindowRows, AMarkMayBeForTwoTiles) {
  Trial one("conv2d", {51, 32, 32, 16}, {8, 1, 1, 0, 1, false}, "fp(6,9,0)", "fp(6,9,0)");
  EXPECT_NE(one.note().find("tiles of 256 by 32"), std::string::npos) << one.note();
  const Numbers others = ordinary(4, 1);
  // Of the third tile.
  const auto small = [](size_t i) {
    return i / 8 >= 1400 && i / 8 <= 1400 + cuda::kMostOutside && i % 8 == 3;
  };
  one.fill([&](size_t i) { return small(i) ? std::ldexp(1.0f, -35) : others(i); }, ordinary(0.9f, 2), 4);
  one.check();
  EXPECT_EQ(one.fp16(), 51u * 4 - 1);
  EXPECT_EQ(one.tf32(), 2u);
}

TEST(Fp16WindowNote, SaysWhatItDoes) {
  const ConvOptions options{32, 3, 1, 1, 1, false};
  EXPECT_NE(Trial("conv2d", {9, 9, 9, 32}, options, "fp(6,9,0)", "fp(6,9,0)")
                .note()
                .find("fp16 in a window that follows the largest number, tiles with many numbers outside "
                      "again in tf32"),
            std::string::npos);
  EXPECT_NE(Trial("conv2d", {9, 9, 9, 32}, options, "fp(4,3,4)", "fp(6,9,0)").note().find("fp16"),
            std::string::npos);
  // Little work, few taps to a part, and what bf16 holds.
  EXPECT_EQ(Trial("conv2d_grad_input", {5, 16, 16, 32}, {32, 3, 2, 1, 1, false}, "fp(6,9,0)", "fp(6,9,0)")
                .note()
                .find("tf32"),
            0u);
  EXPECT_EQ(
      Trial("conv2d", {1, 3, 3, 16}, {16, 3, 1, 1, 1, false}, "fp(6,9,0)", "fp(6,9,0)").note().find("tf32"),
      0u);
  EXPECT_EQ(Trial("conv2d", {9, 9, 9, 32}, options, "fp(4,3,4)", "fp(4,3,4)").note().find("bf16"), 0u);
}

}  // namespace
}  // namespace ulp::conformance
