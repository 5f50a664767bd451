// What is around the libraries' products on a GPU: padding, slices, sums over slices, biases,
// units. The products themselves are loops here (fake_library.cc).
#include "ulp/backend/cuda/library/library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/support/guarded.h"
#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/tensor/memory.h"

namespace ulp::conformance {
namespace {

// The libraries' kernels, and the reference for all that they do not take.
const Backend& libraries() {
  static const Backend backend = [] {
    Backend made{"libraries", cuda::library_kernels()};
    const auto others = reference_kernels();
    made.kernels.insert(made.kernels.end(), others.begin(), others.end());
    return made;
  }();
  return backend;
}

Case conv(const Shape& x, const ConvOptions& o, int micro_batches = 1) {
  return {"conv2d " + shape_text(x), [=](Sketch& s) {
            s.micro_batch = static_cast<uint16_t>(micro_batches - 1);
            s.train(conv2d(s.b, "conv", s.operand(x), o), micro_batches);
          }};
}

Case dense(const Shape& x, const LinearOptions& o, int micro_batches = 1) {
  return {"linear " + shape_text(x), [=](Sketch& s) {
            s.micro_batch = static_cast<uint16_t>(micro_batches - 1);
            s.train(linear(s.b, "linear", s.operand(x), o), micro_batches);
          }};
}

Case product(const Shape& a, const Shape& b, bool ta, bool tb) {
  return {"matmul " + shape_text(a) + " by " + shape_text(b), [=](Sketch& s) {
            const TensorId left = s.operand(a), right = s.operand(b);
            s.train(matmul(s.b, "matmul", left, right, ta, tb));
          }};
}

// More than a slice's eight images or rows, also in numbers that do not divide; channels that are
// padded and that are not.
const std::vector<Case>& batches() {
  static const std::vector<Case> all = {
      conv({20, 5, 5, 3}, {17, 3, 1, 1, 1, true}),      // a small window
      conv({17, 4, 6, 3}, {16, 5, 2, 2, 1, false}, 2),  // of 75: too large; added to what is there
      conv({19, 5, 5, 8}, {5, 1, 2, 0, 1, false}, 2),   // a window of groups
      conv({32, 4, 4, 2}, {8, 2, 2, 0, 1, true}),
      conv({20, 4, 5, 16}, {24, 3, 2, 1, 1, false}),
      conv({17, 3, 3, 17}, {9, 3, 1, 1, 1, true}),
      conv({33, 2, 3, 9}, {17, 1, 1, 0, 1, true}),  // 1x1
      conv({24, 3, 2, 16}, {8, 1, 1, 0, 1, false}, 2),
      conv({16, 3, 3, 16}, {32, 3, 1, 1, 2, true}),  // groups
      dense({45, 17}, {5, true}),
      dense({64, 16}, {24, false}, 2),
      dense({3, 11, 24}, {8, true}),
      product({33, 7}, {7, 30}, false, false),
      product({40, 12}, {40, 9}, true, false),
      product({12, 40}, {9, 12}, true, true),
      product({20, 5, 3}, {20, 7, 3}, false, true),
      product({3, 6, 4, 8}, {3, 6, 4, 16}, true, false),
      product({18, 5, 3}, {18, 4, 5}, true, true),
  };
  return all;
}

struct Setting {
  std::string_view scheme;
  size_t workspace;
};

// All schemes in several slices; in the smallest, and in one, some of them.
std::vector<Setting> settings() {
  std::vector<Setting> all = {{"fp32", 1},
                              {"fp(4,3,4) stochastic", 1},
                              {"mixed", 1},
                              {"bf16", size_t{64} << 20},
                              {"mixed", size_t{64} << 20}};
  for (const Scheme& scheme : schemes()) {
    if (!scheme.compute.accumulator) all.push_back({scheme.name, size_t{16} << 10});
  }
  return all;
}

class LibraryTest : public testing::TestWithParam<Setting> {};

TEST_P(LibraryTest, KeepsToTheReferenceInSlices) {
  Scheme scheme = *std::find_if(schemes().begin(), schemes().end(),
                                [](const Scheme& one) { return one.name == GetParam().scheme; });
  scheme.compute.workspace = GetParam().workspace;
  for (const Case& one : batches()) check(one, scheme, libraries());
}

INSTANTIATE_TEST_SUITE_P(Schemes, LibraryTest, testing::ValuesIn(settings()), [](const auto& tested) {
  std::string name = std::string(tested.param.scheme) + "_" + std::to_string(tested.param.workspace);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(Library, DeclinesNarrowAccumulators) {
  for (const Scheme& scheme : schemes()) {
    if (!scheme.compute.accumulator) continue;
    for (const Checked& checked : reached(batches()[0], scheme, libraries()))
      EXPECT_EQ(checked.kernel, "reference") << checked.op << " in " << scheme.name;
  }
}

// A forward convolution or linear layer that is looked at, not run.
class Look {
 public:
  template <typename Build>
  Look(std::string_view storage, const Build& build) {
    Builder b(graph_, Mode::inference);
    build(b);
    formats_.assign(graph_.tensor_count(), {parse_storage(storage), {}});
  }

  // The first of the libraries' kernels that takes the last node, and its task.
  std::string kernel;
  Look& rounded(Round round) {
    round_ = round;
    return *this;
  }
  std::unique_ptr<Task> make(size_t workspace, KernelOptions options = {}) {
    options.round = round_;
    options.workspace = workspace;
    const PlanContext plan{graph_, formats_, options};
    const Problem problem{plan, {}, {NodeId{static_cast<int32_t>(graph_.node_count()) - 1}}, {}};
    for (const KernelDef& def : cuda::library_kernels()) {
      if (def.op != problem.root().op->name || !def.why_not(problem).empty()) continue;
      kernel = def.name;
      return def.make(problem);
    }
    return nullptr;
  }

  // Makes the task and runs it on codes of 16 bits, the same for all elements of an operand.
  struct Ran {
    std::vector<uint16_t> codes;
    EncodeStats stats;
  };
  Ran run(std::span<const uint16_t> operands) {
    const std::unique_ptr<Task> task = make(size_t{64} << 20);
    const Node& node = graph_.nodes().back();
    std::vector<Guarded> memory;
    memory.reserve(graph_.tensor_count() + 1);
    std::vector<uint8_t*> data;
    for (const TensorInfo& tensor : graph_.tensors())
      data.push_back(memory.emplace_back(2 * tensor.elements(), 0xFF).data());
    for (size_t i = 0; i < operands.size(); ++i) {
      std::fill_n(reinterpret_cast<uint16_t*>(data[static_cast<size_t>(node.in[i].index)]),
                  graph_[node.in[i]].elements(), operands[i]);
    }
    std::vector<EncodeStats> stats(graph_.tensor_count());
    const StepState state;
    RunContext context;
    context.data = data;
    context.state = &state;
    context.stats = stats.data();
    context.workspace = memory.emplace_back(task->workspace(), 0xFF).data();
    task->run(context);
    const TensorId out = node.out[0];
    const auto* codes = reinterpret_cast<const uint16_t*>(data[static_cast<size_t>(out.index)]);
    return {{codes, codes + graph_[out].elements()}, stats[static_cast<size_t>(out.index)]};
  }

 private:
  Graph graph_;
  std::vector<TensorFormat> formats_;
  Round round_ = Round::nearest_even;
};

Look look_conv(std::string_view storage, const Shape& x, const ConvOptions& o) {
  return {storage, [&](Builder& b) { conv2d(b, "conv", input(b, "x", x), o); }};
}

TEST(Library, SaysOnWhichUnitAndWhy) {
  const auto note = [](std::string_view storage, const KernelOptions& options) {
    return look_conv(storage, {8, 4, 4, 32}, {32, 3, 1, 1}).make(size_t{64} << 20, options)->note();
  };
  EXPECT_EQ(note("fp(4,3,4)", {}), "bf16: bf16 holds fp(4,3,4) exactly; by loops");
  EXPECT_TRUE(note("fp16", {}).starts_with("fp16: "));
  EXPECT_TRUE(note("fp32", {}).starts_with("fp32: "));
  EXPECT_TRUE(note("s2fp8", {}).starts_with("fp32: "));
  EXPECT_TRUE(note("scaled(e4m3)", {.tf32 = true}).starts_with("tf32: "));
  EXPECT_TRUE(note("bf16", {.tensor_core = false}).starts_with("fp32: "));
  EXPECT_EQ(note("bf16", {}), "bf16: bf16 holds bf16 exactly; by loops; the library writes bf16");
  EXPECT_TRUE(note("e4m3", {}).starts_with("bf16: "));
  EXPECT_TRUE(note("e4m3", {.fp8_native = true}).starts_with("e4m3: "));
  EXPECT_TRUE(note("e5m2", {.fp8_native = true}).starts_with("bf16: "));
}

// Both operands in e4m3, read where they lie, padded, gathered under a window, or rounded from a
// weight that is stored in more bits. The loops that stand for the units add up exactly, so the
// bounds of the exact way hold; NaN reach what they should and no more.
TEST(Library, NativeFp8KeepsToTheReference) {
  std::vector<Case> all = batches();
  // Without a border, where taps outside of the image are multiplied as zeros.
  for (const Case& one :
       {conv({19, 5, 5, 8}, {5, 1, 2, 0, 1, false}), conv({33, 2, 3, 9}, {17, 1, 1, 0, 1, true}),
        dense({45, 17}, {5, true}), product({33, 7}, {30, 7}, false, true)}) {
    all.push_back({one.name + " specials", [build = one.build](Sketch& s) {
                     s.specials = true;
                     build(s);
                   }});
  }
  struct Tried {
    std::vector<std::string_view> storages;
    Round round;
    size_t workspace;
  };
  for (const Tried& tried : {Tried{{"e4m3"}, Round::nearest_even, 1},
                             {{"e4m3"}, Round::nearest_even, size_t{64} << 20},
                             {{"e4m3"}, Round::stochastic, size_t{16} << 10},
                             {{"e4m3", "fp32"}, Round::nearest_even, size_t{16} << 10}}) {
    Scheme scheme{"native e4m3", tried.storages, {.round = tried.round}};
    scheme.compute.workspace = tried.workspace;
    scheme.compute.fp8_native = true;
    for (const Case& one : all) check(one, scheme, libraries());
  }
}

// All that is computed forward from e4m3, however it is read, and nothing else: gradients are
// exact, and quicker.
TEST(Library, NativeFp8IsForForwardProducts) {
  const auto native = [&](const Case& one, std::string_view storage) {
    Sketch sketch;
    one.build(sketch);
    const Graph& graph = sketch.graph;
    const std::vector<TensorFormat> formats(graph.tensor_count(), {parse_storage(storage), {}});
    const PlanContext plan{graph, formats, {.fp8_native = true}};
    std::string found;
    for (size_t i = 0; i < graph.node_count(); ++i) {
      const Problem problem{plan, {}, {NodeId{static_cast<int32_t>(i)}}, {}};
      for (const KernelDef& def : cuda::library_kernels()) {
        if (def.op != problem.root().op->name || !def.why_not(problem).empty()) continue;
        found += problem.root().phase == Phase::forward ? "f" : "b";
        found += def.make(problem)->note().starts_with("e4m3: ") ? "8 " : "- ";
        break;
      }
    }
    return found;
  };
  for (const Case& one : {conv({8, 4, 4, 32}, {32, 3, 1, 1}),  // as it lies
                          conv({8, 4, 4, 24}, {32, 3, 1, 1}),  // padded
                          conv({8, 4, 4, 3}, {16, 3, 1, 1}),   // a window
                          conv({8, 4, 4, 48}, {16, 1, 1, 0}),  // 1x1
                          dense({64, 16}, {24, false}),        //
                          product({64, 32}, {48, 32}, false, true)}) {
    EXPECT_EQ(native(one, "e4m3"), "f8 b- b- ") << one.name;
    EXPECT_EQ(native(one, "e5m2"), "f- b- b- ") << one.name;
    // e4m3 holds it, but it was not meant.
    EXPECT_EQ(native(one, "fp(3,2,0)"), "f- b- b- ") << one.name;
  }
}

TEST(Library, PrefersMatrixProductsWhereTheyAre) {
  const auto kernel = [](const Shape& x, const ConvOptions& o) {
    Look look = look_conv("bf16", x, o);
    return look.make(size_t{64} << 20) ? look.kernel : "none";
  };
  EXPECT_EQ(kernel({8, 8, 8, 3}, {16, 3, 1, 1}), "cublaslt");
  EXPECT_EQ(kernel({8, 8, 8, 128}, {16, 1, 1, 0}), "cublaslt");
  EXPECT_EQ(kernel({8, 8, 8, 128}, {16, 1, 2, 0}), "cudnn");
  EXPECT_EQ(kernel({8, 8, 8, 16}, {16, 3, 1, 1}), "cudnn");
  EXPECT_EQ(kernel({8, 8, 8, 16}, {16, 3, 1, 1, 2}), "cudnn");
  EXPECT_EQ(kernel({8, 8, 8, 16}, {16, 3, 1, 1, 16}), "none");
  EXPECT_EQ(kernel({8, 8, 8, 16}, {16, 3, 1, 1, 4}), "none");
}

TEST(Library, KeepsWithinTheWorkspace) {
  // An image takes 16*16*32 codes of 2 bytes and as many floats: 48 KiB.
  const auto bytes = [](size_t limit) {
    return look_conv("fp(4,3,4)", {128, 16, 16, 32}, {32, 3, 1, 1}).make(limit)->workspace();
  };
  const size_t image = 48 << 10, all = bytes(size_t{1} << 30);
  EXPECT_GT(all, 128 * image);
  EXPECT_LT(all, 129 * image);
  // The limit has room for what converting S2FP8 would need, so that slices do not depend on formats.
  const size_t spare = cuda::kConvertSpace - aligned_bytes(1);
  EXPECT_EQ(bytes(all + spare), all);
  const size_t half = bytes(all + spare - 1);
  EXPECT_LT(half, 65 * image);
  EXPECT_GT(half, 64 * image);
  EXPECT_EQ(bytes(half + spare), half);
  // Not 5 slices of 24 and one of 8: equal ones.
  EXPECT_LT(bytes(28 * image), 17 * image);
  EXPECT_LT(bytes(1), 9 * image);
  // Nothing is copied, whatever the limit.
  EXPECT_LT(look_conv("fp32", {128, 16, 16, 32}, {32, 3, 1, 1}).make(1)->workspace(), image);
  EXPECT_LT(look_conv("bf16", {128, 16, 16, 32}, {32, 3, 1, 1}).make(1)->workspace(), image);
  // What is added to the sums, or rounded otherwise, is made in fp32.
  EXPECT_GT(look_conv("bf16", {128, 16, 16, 32}, {32, 3, 1, 1, 1, true}).make(1)->workspace(), 4 * image);
  EXPECT_GT(
      look_conv("bf16", {128, 16, 16, 32}, {32, 3, 1, 1}).rounded(Round::stochastic).make(1)->workspace(),
      4 * image);
  EXPECT_GT(look_conv("fp16", {128, 16, 16, 32}, {32, 3, 1, 1}).make(1)->workspace(), 4 * image);
}

// What the library writes in bf16 itself has the infinities of fp32 and no events; what is summed
// over the batch, as gradients of weights are, has both as if it were encoded.
TEST(Library, WritesBf16Itself) {
  constexpr uint16_t kLarge = 0x7F00, kInfinity = 0x7F80, kLargest = 0x7F7F, kOne = 0x3F80, kNan = 0x7FC0;
  const auto ran = [](bool transpose_a, uint16_t a, uint16_t b) {
    Look look("bf16", [&](Builder& builder) {
      matmul(builder, "matmul", input(builder, "a", {16, 16}), input(builder, "b", {16, 16}), transpose_a,
             false);
    });
    return look.run(std::vector<uint16_t>{a, b});
  };
  const auto all = [](uint16_t code) { return std::vector<uint16_t>(256, code); };
  EXPECT_EQ(ran(false, kLarge, kLarge).codes, all(kInfinity));
  EXPECT_EQ(ran(false, kLarge, kLarge).stats, EncodeStats{});
  EXPECT_EQ(ran(false, kOne, kOne).codes, all(0x4180));  // 16
  EXPECT_EQ(ran(false, kOne, kNan).codes, all(kNan));

  const Look::Ran large = ran(true, kLarge, kLarge), small = ran(true, kOne, kOne),
                  nan = ran(true, kOne, kNan);
  EXPECT_EQ(large.codes, all(kLargest));
  EXPECT_EQ(large.stats, (EncodeStats{256, 0, 0, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(small.codes, all(0x4180));
  EXPECT_EQ(small.stats, (EncodeStats{0, 0, 0, 16}));
  EXPECT_EQ(nan.codes, all(kNan));
  EXPECT_EQ(nan.stats, (EncodeStats{0, 0, 256, 0}));
}

TEST(Library, PlansArePreparedTogether) {
  const auto task = look_conv("bf16", {8, 4, 4, 32}, {32, 3, 1, 1}).make(size_t{64} << 20);
  cuda::prepare_products();
  cuda::prepare_products();
}

}  // namespace
}  // namespace ulp::conformance
