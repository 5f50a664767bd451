#include "ulp/precision/assignment.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"

namespace ulp {
namespace {

struct Net {
  Graph graph = {};

  Net() {
    Builder b(graph, Mode::training);
    const TensorId x = input(b, "input", Shape::image(2, 2, 4, 4));
    const TensorId labels = indices(b, "labels", {2});
    const TensorId conv = relu(b, "relu", batch_norm(b, "bn", conv2d(b, "conv", x, {.out = 2})));
    const TensorId sum = add(b, "add", conv, channel_shuffle(b, "shuffle", conv, 2));
    const TensorId scores = linear(b, "fc", flatten(b, "flatten", sum), {.out = 5});
    differentiate(graph, nll(b, "loss", log_softmax(b, "log_softmax", scores), labels), 2);
    add_updates(graph, UpdateSpec{{}, {"momentum"}});
  }

  // "fp32", or "fp32>e4m3" where the operand is another.
  std::string format(const std::vector<TensorFormat>& formats, std::string_view name) const {
    const TensorFormat& found = formats[static_cast<size_t>(graph.find(name).index)];
    std::string text = storage_name(found.storage);
    if (found.operand) text.append(">").append(storage_name(*found.operand));
    return text;
  }
};

void expect_error(const auto& f, const std::string& words) {
  try {
    f();
    ADD_FAILURE() << "no error; expected: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Assignment, TensorsAreFp32UnlessNamed) {
  const Net net;
  const auto formats = resolve_formats(net.graph, {});
  ASSERT_EQ(formats.size(), net.graph.tensor_count());
  for (const TensorFormat& format : formats) {
    EXPECT_TRUE(is_fp32(format.storage));
    EXPECT_FALSE(format.operand);
  }
}

TEST(Assignment, NamedTensorsAndWhatFollowsThem) {
  const Net net;
  const Assignment assignment{{{"relu.out", parse_storage("e4m3")},
                               {"relu.out.grad", parse_storage("e5m2")},
                               {"add.out", parse_storage("fp16")},
                               {"add.out.grad", parse_storage("s2fp8")},
                               {"conv.weight", parse_storage("fp(4,3,4)")},
                               {"conv.weight.grad", parse_storage("bf16")},
                               {"fc.weight", parse_storage("fp32")},
                               {"input.out.grad", parse_storage("bf16")}}};  // not in the graph
  const auto formats = resolve_formats(net.graph, assignment);
  EXPECT_EQ(net.format(formats, "relu.out"), "e4m3");
  EXPECT_EQ(net.format(formats, "shuffle.out"), "e4m3");
  EXPECT_EQ(net.format(formats, "relu.out.grad"), "e5m2");
  EXPECT_EQ(net.format(formats, "relu.out.grad.0"), "e5m2");
  EXPECT_EQ(net.format(formats, "relu.out.grad.1"), "e5m2");
  EXPECT_EQ(net.format(formats, "shuffle.out.grad"), "e5m2");
  EXPECT_EQ(net.format(formats, "add.out"), "fp16");
  EXPECT_EQ(net.format(formats, "flatten.out"), "fp16");
  EXPECT_EQ(net.format(formats, "flatten.out.grad"), "s2fp8");
  EXPECT_EQ(net.format(formats, "conv.weight"), "fp32>fp(4,3,4)");
  EXPECT_EQ(net.format(formats, "conv.weight.grad"), "bf16");
  EXPECT_EQ(net.format(formats, "fc.weight"), "fp32");
  for (const char* name : {"conv.weight.grad.sum", "conv.weight.momentum", "bn.running_mean", "bn.batch.mean",
                           "labels.out", "input.out", "conv.out", "conv.out.grad"}) {
    EXPECT_EQ(net.format(formats, name), "fp32") << name;
  }
}

TEST(Assignment, FormatsThatCannotBeAreRefused) {
  const Net net;
  const auto assign = [&](const char* name, const char* storage) {
    return [&net, name, storage] { resolve_formats(net.graph, {{{name, parse_storage(storage)}}}); };
  };
  expect_error(assign("flatten.out", "bf16"),
               "'flatten.out' has the format of 'add.out': assign bf16 to that one");
  expect_error(assign("relu.out.grad.0", "bf16"), "has the format of 'relu.out.grad'");
  expect_error(assign("conv.weight.grad.sum", "bf16"), "is fp32, as every grad_sum: it cannot be bf16");
  expect_error(assign("bn.running_var", "bf16"), "as every statistic");
  expect_error(assign("fc.bias.momentum", "bf16"), "as every optimizer");
  expect_error(assign("labels.out", "bf16"), "as every fed tensor");
  assign("bn.running_var", "fp32")();  // which it is
}

TEST(Assignment, LowTensorsKnowTheirHighFormat) {
  Assignment assignment{{{"a", parse_storage("e4m3")}, {"b", parse_storage("bf16")}},
                        {{"a", parse_storage("fp(6,9,0)")}}};
  EXPECT_TRUE(assignment.is_low("a"));
  EXPECT_FALSE(assignment.is_low("b"));
  EXPECT_EQ(storage_name(assignment.storage_of("a")), "e4m3");
  EXPECT_EQ(storage_name(assignment.high_of("a")), "fp(6,9,0)");
  EXPECT_EQ(storage_name(assignment.high_of("b")), "bf16");
  EXPECT_EQ(storage_name(assignment.storage_of("c")), "fp32");
  EXPECT_EQ(storage_name(assignment.high_of("c")), "fp32");

  EXPECT_FALSE(assignment.promote("b"));
  EXPECT_FALSE(assignment.promote("c"));
  EXPECT_FALSE(assignment.storage.contains("c"));
  EXPECT_TRUE(assignment.promote("a"));
  EXPECT_FALSE(assignment.is_low("a"));
  EXPECT_EQ(storage_name(assignment.storage_of("a")), "fp(6,9,0)");
  EXPECT_FALSE(assignment.promote("a"));  // for good
}

TEST(Assignment, RatioAndAggregateCountElements) {
  std::vector<CountedTensor> tensors(3);
  const char* names[] = {"a", "b", "c"};
  const size_t elements[] = {300, 100, 600};
  for (size_t i = 0; i < 3; ++i) {
    tensors[i].name = names[i];
    tensors[i].elements = elements[i];
  }
  const Storage high = parse_storage("bf16");
  Assignment assignment{{{"a", parse_storage("e4m3")}, {"b", high}}, {{"a", high}}};
  EXPECT_EQ(low_ratio(tensors, assignment), 0.3);
  EXPECT_EQ(aggregate_bits(tensors, assignment), 300 * 8 + 100 * 16 + 600 * 32);
  assignment.promote("a");
  EXPECT_EQ(low_ratio(tensors, assignment), 0);
  EXPECT_EQ(aggregate_bits(tensors, assignment), 400 * 16 + 600 * 32);
  // Packed codes have no gaps; what lies beside codes counts.
  EXPECT_EQ(aggregate_bits(tensors, {{{"a", parse_storage("e3m2")}, {"b", parse_storage("s2fp8")}}}),
            300 * 6 + (100 * 8 + 64) + 600 * 32);
  EXPECT_EQ(low_ratio({}, assignment), 0);
}

}  // namespace
}  // namespace ulp
