// The models against their tables: parameters counted here once more, from the published rows alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/models/model.h"
#include "ulp/models/nets.h"

namespace ulp {
namespace {

size_t parameters(const std::string& name, double width = 1, int64_t channels = 3, int64_t classes = 10,
                  int64_t side = 32) {
  const ModelRequest request{name, width, 2, {channels, side, side}, classes, 0};
  return build_classifier(request, Mode::training).graph.parameters();
}

// Weights of a convolution of kernel k, and of the batch norm after it.
size_t conv_bn(size_t in, size_t out, size_t k) { return in * out * k * k + 2 * out; }
size_t depthwise_bn(size_t channels) { return 9 * channels + 2 * channels; }
size_t linear_count(size_t in, size_t out) { return in * out + out; }

// The rule for channels, by looking: the nearest multiple of q, the larger of two.
size_t div_rule(double v, size_t q) {
  size_t best = q;
  for (size_t multiple = q; static_cast<double>(multiple) < v + static_cast<double>(q); multiple += q) {
    if (std::abs(static_cast<double>(multiple) - v) <= std::abs(static_cast<double>(best) - v))
      best = multiple;
  }
  return static_cast<double>(best) < 0.9 * v ? best + q : best;
}
size_t channels_at(double v, double width) { return div_rule(v * width, width <= 0.25 ? 4 : 8); }

TEST(Models, ChannelsFollowTheRule) {
  EXPECT_EQ(divisible(64, 8), 64);
  EXPECT_EQ(divisible(6.4, 4), 8);    // nearest
  EXPECT_EQ(divisible(1.6, 4), 4);    // at least q
  EXPECT_EQ(divisible(12, 8), 16);    // halves go up
  EXPECT_EQ(divisible(11.9, 8), 16);  // 8 would be below 0.9 v
  EXPECT_EQ(divisible(9.6, 4), 12);   // so would 8 here
  EXPECT_EQ(scaled_channels(24, 0.5), 16);
  EXPECT_EQ(scaled_channels(24, 0.25), 8);
  for (const double width : {0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.4, 2.0}) {
    for (const int64_t v : {16, 24, 32, 64, 96, 160, 320, 1280}) {
      EXPECT_EQ(static_cast<size_t>(scaled_channels(v, width)), channels_at(static_cast<double>(v), width))
          << v << " at " << width;
    }
  }
  EXPECT_EQ(rounded_channels(6, 0.25), 2);
  EXPECT_EQ(rounded_channels(6, 0.01), 1);
}

// The counts that are usually quoted for these nets stand in the rows.
TEST(Models, RowsHaveTheirParameters) {
  for (const ModelInfo& info : models()) {
    const ModelRequest request{.name = std::string(info.name), .batch = 2, .image = info.image};
    EXPECT_EQ(build_classifier(request, Mode::training).graph.parameters(), info.parameters) << info.name;
  }
}

// With c channels in the first stage: 3x3 convolutions and their norms, n blocks a stage, 1x1 shortcuts
// twice.
size_t cifar_count(size_t n, double width, size_t in, size_t classes) {
  const size_t c[] = {channels_at(16, width), channels_at(32, width), channels_at(64, width)};
  size_t sum = conv_bn(in, c[0], 3) + linear_count(c[2], classes);
  for (const size_t stage : {0, 1, 2}) sum += (2 * n - 1) * conv_bn(c[stage], c[stage], 3);
  sum += conv_bn(c[0], c[0], 3);
  for (const size_t stage : {1, 2}) sum += conv_bn(c[stage - 1], c[stage], 3);
  // At a width that makes two stages alike the stride still changes the shape.
  for (const size_t stage : {1, 2}) sum += conv_bn(c[stage - 1], c[stage], 1);
  return sum;
}

TEST(Models, CifarResnetsHaveTheirParameters) {
  const std::map<std::string, size_t> nets = {{"resnet8", 1},  {"resnet20", 3},       {"resnet32", 5},
                                              {"resnet44", 7}, {"resnet50-cifar", 8}, {"resnet56", 9}};
  for (const auto& [name, n] : nets) {
    for (const double width : {0.1, 0.25, 0.5, 1.0, 2.0}) {
      EXPECT_EQ(parameters(name, width), cifar_count(n, width, 3, 10)) << name << " at " << width;
    }
    EXPECT_EQ(parameters(name, 1, 1, 100), cifar_count(n, 1, 1, 100)) << name;
  }
}

size_t resnet_count(std::array<size_t, 4> blocks, bool bottleneck, double width, size_t in, size_t classes) {
  size_t at = channels_at(64, width);
  size_t sum = conv_bn(in, at, 3);
  for (size_t stage = 0; stage < 4; ++stage) {
    const size_t planes = channels_at(64.0 * std::pow(2, stage), width);
    const size_t out = bottleneck ? 4 * planes : planes;
    const size_t inside =
        bottleneck ? conv_bn(planes, planes, 3) + conv_bn(planes, out, 1) : conv_bn(planes, out, 3);
    const size_t k = bottleneck ? 1 : 3;
    if (stage > 0 || at != out) sum += conv_bn(at, out, 1);
    sum += conv_bn(at, planes, k) + (blocks[stage] - 1) * conv_bn(out, planes, k) + blocks[stage] * inside;
    at = out;
  }
  return sum + linear_count(at, classes);
}

TEST(Models, ResnetsHaveTheirParameters) {
  for (const double width : {0.1, 0.25, 0.5, 1.0, 1.5}) {
    EXPECT_EQ(parameters("resnet18", width), resnet_count({2, 2, 2, 2}, false, width, 3, 10)) << width;
    EXPECT_EQ(parameters("resnet34", width), resnet_count({3, 4, 6, 3}, false, width, 3, 10)) << width;
    EXPECT_EQ(parameters("resnet50", width), resnet_count({3, 4, 6, 3}, true, width, 3, 10)) << width;
  }
  EXPECT_EQ(parameters("resnet18", 1, 1, 100), resnet_count({2, 2, 2, 2}, false, 1, 1, 100));
}

size_t mobilenet_count(double width, size_t in, size_t classes) {
  const size_t rows[][4] = {{1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
                            {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  size_t at = channels_at(32, width);
  size_t sum = conv_bn(in, at, 3);
  for (const auto& [expansion, planes, blocks, stride] : rows) {
    const size_t out = channels_at(static_cast<double>(planes), width);
    for (size_t i = 0; i < blocks; ++i) {
      const size_t wide = expansion * at;
      sum += conv_bn(at, wide, 1) + depthwise_bn(wide) + conv_bn(wide, out, 1);
      if ((i > 0 || stride == 1) && at != out) sum += conv_bn(at, out, 1);
      at = out;
    }
  }
  const size_t last = div_rule(1280 * std::max(1.0, width), width <= 0.25 ? 4 : 8);
  return sum + conv_bn(at, last, 1) + linear_count(last, classes);
}

TEST(Models, MobilenetHasItsParameters) {
  for (const double width : {0.1, 0.25, 0.5, 1.0, 1.4}) {
    EXPECT_EQ(parameters("mobilenetv2", width), mobilenet_count(width, 3, 10)) << width;
  }
  EXPECT_EQ(parameters("mobilenetv2", 1, 1, 100), mobilenet_count(1, 1, 100));
}

size_t shufflenet_count(std::array<size_t, 3> stages, size_t in, size_t classes) {
  const size_t basic[] = {3, 7, 3};
  size_t at = 24;
  size_t sum = conv_bn(in, at, 3);
  for (size_t stage = 0; stage < 3; ++stage) {
    const size_t half = stages[stage] / 2;
    sum += depthwise_bn(at) + conv_bn(at, half, 1);                             // left
    sum += conv_bn(at, half, 1) + depthwise_bn(half) + conv_bn(half, half, 1);  // right
    sum += basic[stage] * (2 * conv_bn(half, half, 1) + depthwise_bn(half));
    at = stages[stage];
  }
  return sum + conv_bn(at, 1024, 1) + linear_count(1024, classes);
}

TEST(Models, ShufflenetHasItsParameters) {
  EXPECT_EQ(parameters("shufflenetv2", 1), shufflenet_count({116, 232, 464}, 3, 10));
  EXPECT_EQ(parameters("shufflenetv2", 0.5), shufflenet_count({56, 112, 224}, 3, 10));
  EXPECT_EQ(parameters("shufflenetv2", 0.25), shufflenet_count({28, 56, 112}, 3, 10));
  EXPECT_EQ(parameters("shufflenetv2", 0.1, 1, 100), shufflenet_count({12, 24, 48}, 1, 100));
}

// The rows as published: in, squeeze, expand.
using FireRow = std::array<size_t, 3>;
size_t squeezenet_count(const std::array<FireRow, 8>& fires, size_t in, size_t classes) {
  const auto biased = [](size_t from, size_t to, size_t k) { return conv_bn(from, to, k) + to; };
  size_t sum = biased(in, fires[0][0], 3);
  for (size_t i = 0; i < 8; ++i) {
    const auto& [from, squeeze, expand] = fires[i];
    sum += biased(from, squeeze, 1) + biased(squeeze, expand, 1) + biased(squeeze, expand, 3);
    if (i < 7) {
      EXPECT_EQ(fires[i + 1][0], 2 * expand);
    }
  }
  return sum + linear_count(2 * fires[7][2], classes);
}

TEST(Models, SqueezenetHasItsParameters) {
  const std::map<double, std::array<FireRow, 8>> table = {{1,
                                                           {{{96, 16, 64},
                                                             {128, 16, 64},
                                                             {128, 32, 128},
                                                             {256, 32, 128},
                                                             {256, 48, 192},
                                                             {384, 48, 192},
                                                             {384, 64, 256},
                                                             {512, 64, 256}}}},
                                                          {0.5,
                                                           {{{48, 8, 32},
                                                             {64, 8, 32},
                                                             {64, 16, 64},
                                                             {128, 16, 64},
                                                             {128, 24, 96},
                                                             {192, 24, 96},
                                                             {192, 32, 128},
                                                             {256, 32, 256}}}},
                                                          {0.25,
                                                           {{{24, 4, 16},
                                                             {32, 4, 16},
                                                             {32, 8, 32},
                                                             {64, 8, 32},
                                                             {64, 12, 48},
                                                             {96, 12, 48},
                                                             {96, 16, 64},
                                                             {128, 16, 256}}}},
                                                          {0.1,
                                                           {{{12, 4, 8},
                                                             {16, 4, 8},
                                                             {16, 4, 12},
                                                             {24, 4, 12},
                                                             {24, 8, 20},
                                                             {40, 8, 20},
                                                             {40, 8, 24},
                                                             {48, 8, 256}}}}};
  for (const auto& [width, fires] : table) {
    EXPECT_EQ(parameters("squeezenet", width), squeezenet_count(fires, 3, 10)) << width;
    EXPECT_EQ(parameters("squeezenet", width, 1, 100), squeezenet_count(fires, 1, 100)) << width;
  }
}

TEST(Models, LenetAndMlpHaveTheirParameters) {
  const auto lenet_count = [](size_t in, size_t a, size_t c, size_t f, size_t g, size_t classes, size_t map) {
    return linear_count(25 * in, a) + linear_count(25 * a, c) + linear_count(map * map * c, f) +
           linear_count(f, g) + linear_count(g, classes);
  };
  EXPECT_EQ(parameters("lenet"), lenet_count(3, 6, 16, 120, 84, 10, 5));
  EXPECT_EQ(parameters("lenet", 2, 1, 100), lenet_count(1, 12, 32, 240, 168, 100, 5));
  EXPECT_EQ(parameters("lenet", 0.25), lenet_count(3, 2, 4, 30, 21, 10, 5));
  EXPECT_EQ(parameters("lenet", 1, 1, 10, 28), lenet_count(1, 6, 16, 120, 84, 10, 4));
  const auto mlp_count = [](size_t in, size_t a, size_t c, size_t classes) {
    return linear_count(in, a) + linear_count(a, c) + linear_count(c, classes);
  };
  EXPECT_EQ(parameters("mlp"), mlp_count(3 * 32 * 32, 256, 128, 10));
  EXPECT_EQ(parameters("mlp", 0.5, 1, 100, 28), mlp_count(28 * 28, 128, 64, 100));
}

const TensorInfo& tensor(const Graph& graph, std::string_view name) {
  const TensorId id = graph.find(name);
  if (!id) throw std::logic_error("no tensor " + std::string(name));
  return graph[id];
}

TEST(Models, MapsHaveTheirSizes) {
  const auto shape = [](const std::string& model, std::string_view name) {
    return tensor(build_classifier({.name = model, .batch = 4}, Mode::inference).graph, name).shape;
  };
  EXPECT_EQ(shape("resnet20", "layer2.0.conv1.out"), Shape::image(4, 32, 16, 16));
  EXPECT_EQ(shape("resnet20", "layer3.2.relu2.out"), Shape::image(4, 64, 8, 8));
  EXPECT_EQ(shape("resnet20", "avgpool.out"), (Shape{4, 64}));
  EXPECT_EQ(shape("resnet18", "layer1.0.conv1.out"), Shape::image(4, 64, 32, 32));
  EXPECT_EQ(shape("resnet18", "layer4.1.relu2.out"), Shape::image(4, 512, 4, 4));
  EXPECT_EQ(shape("resnet18", "avgpool.out"), Shape::image(4, 512, 1, 1));
  EXPECT_EQ(shape("resnet50", "layer1.0.add.out"), Shape::image(4, 256, 32, 32));
  EXPECT_EQ(shape("resnet50", "layer4.2.conv2.out"), Shape::image(4, 512, 4, 4));
  EXPECT_EQ(shape("mobilenetv2", "layers.0.add.out"), Shape::image(4, 16, 32, 32));
  EXPECT_EQ(shape("mobilenetv2", "layers.16.bn3.out"), Shape::image(4, 320, 4, 4));
  EXPECT_EQ(shape("shufflenetv2", "layer1.0.concat.out"), Shape::image(4, 116, 16, 16));
  EXPECT_EQ(shape("shufflenetv2", "layer3.3.split.out0"), Shape::image(4, 232, 4, 4));
  EXPECT_EQ(shape("squeezenet", "maxpool2.out"), Shape::image(4, 256, 8, 8));
  EXPECT_EQ(shape("squeezenet", "conv10.out"), Shape::image(4, 10, 4, 4));
  EXPECT_EQ(shape("lenet", "maxpool2.out"), Shape::image(4, 16, 5, 5));
  EXPECT_EQ(shape("mlp", "fc2.out"), (Shape{4, 128}));
}

// How state starts, by name.
std::map<std::string, std::tuple<Kind, std::string, Init::Law, float>> state(const Graph& graph) {
  std::map<std::string, std::tuple<Kind, std::string, Init::Law, float>> found;
  for (const TensorInfo& t : graph.tensors()) {
    if (is_state(t.kind)) found[t.name] = {t.kind, shape_text(t.shape), t.init.law, t.init.value};
  }
  return found;
}

// Everything that can be asked of every model: both graphs, reverse mode, a step, and names whose numbers
// differ.
TEST(Models, EveryModelTrains) {
  for (const ModelInfo& info : models()) {
    for (const double width : {0.1, 0.25, 0.5, 1.0}) {
      for (const int64_t channels : {1, 3}) {
        for (const int64_t classes : {10, 100}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", info.name, width, channels, classes));
          const ModelRequest request{std::string(info.name), width, 2, {channels, 32, 32}, classes, 0.1};
          ClassifierGraph made = build_classifier(request, Mode::training);
          Graph& graph = made.graph;
          const ClassifierGraph inference = build_classifier(request, Mode::inference);
          EXPECT_EQ(state(graph), state(inference.graph));
          EXPECT_EQ(graph[made.input].name, "input.out");
          EXPECT_EQ(graph[made.input].shape, Shape::image(2, channels, 32, 32));
          EXPECT_EQ(graph[made.labels].name, "labels.out");
          EXPECT_EQ(graph[made.scores].shape, (Shape{2, classes}));
          EXPECT_EQ(graph[made.loss].name, "loss.out");
          EXPECT_EQ(graph[made.loss].shape, Shape{2});
          EXPECT_EQ(graph[made.sums].name, "accuracy.sums");

          const size_t weights = graph.parameters();
          differentiate(graph, made.loss);
          add_updates(graph, UpdateSpec{{}, {"momentum"}}, 1.0);
          EXPECT_EQ(graph.parameters(), weights);
          EXPECT_FALSE(graph[made.input].grad);
          size_t updates = 0;
          for (const TensorInfo& t : graph.tensors()) {
            if (t.kind == Kind::weight) {
              ++updates;
              ASSERT_TRUE(t.grad) << t.name;
              EXPECT_TRUE(graph[t.grad].producer) << t.name;
            }
            EXPECT_TRUE(is_state(t.kind) || t.producer) << t.name;
          }
          EXPECT_EQ(static_cast<size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                                      [](const Node& node) { return node.op == &kUpdate; })),
                    updates);
        }
      }
    }
  }
}

TEST(Models, NodesAreNamedAsElsewhere) {
  ClassifierGraph made = build_classifier({.name = "resnet20", .batch = 2}, Mode::training);
  differentiate(made.graph, made.loss);
  for (const char* name :
       {"conv1.weight", "bn1.running_mean", "relu.out", "layer2.0.conv1.out.grad", "layer2.0.bn1.weight",
        "layer2.0.relu1.out", "layer2.0.shortcut.conv.weight", "layer2.0.shortcut.bn.out", "layer2.0.add.out",
        "layer2.0.relu2.out.grad", "avgpool.out", "fc.weight", "fc.bias.grad", "log_softmax.out"}) {
    EXPECT_TRUE(made.graph.find(name)) << name;
  }
  EXPECT_FALSE(made.graph.find("layer1.0.shortcut.conv.weight"));
}

TEST(Models, WeightsStartAsPublished) {
  const auto init = [](const std::string& model, std::string_view name) {
    return tensor(build_classifier({.name = model, .batch = 2}, Mode::training).graph, name).init;
  };
  const auto is = [](const Init& made, Init::Law law, double value) {
    return made.law == law && std::abs(made.value - value) < 1e-6 * std::abs(value) + 1e-12;
  };
  EXPECT_TRUE(is(init("resnet18", "layer1.0.conv1.weight"), Init::Law::normal, std::sqrt(2.0 / (9 * 64))));
  EXPECT_TRUE(is(init("resnet18", "bn1.weight"), Init::Law::constant, 1));
  EXPECT_TRUE(is(init("resnet18", "fc.weight"), Init::Law::uniform, 1 / std::sqrt(512.0)));
  // As PyTorch counts the fan-out of a depthwise convolution: all of its outputs.
  EXPECT_TRUE(is(init("mobilenetv2", "layers.0.conv2.weight"), Init::Law::normal, std::sqrt(2.0 / (9 * 32))));
  EXPECT_TRUE(is(init("mobilenetv2", "fc.weight"), Init::Law::normal, 0.01));
  EXPECT_TRUE(is(init("mobilenetv2", "fc.bias"), Init::Law::constant, 0));
  EXPECT_TRUE(is(init("squeezenet", "fire2.conv3.weight"), Init::Law::normal, std::sqrt(2.0 / (9 * 16))));
}

void expect_refused(const ModelRequest& request, const std::string& words) {
  try {
    build_classifier(request, Mode::training);
    ADD_FAILURE() << request.name << " was built; expected: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Models, BadRequestsAreRefused) {
  expect_refused({.name = "resnet19"},
                 "unknown model 'resnet19': the nearest is resnet18; known are resnet8, resnet20");
  for (const double width : {0.0, -1.0, 8.5, std::nan(""), HUGE_VAL}) {
    expect_refused({.name = "resnet18", .width = width}, "must be above 0 and at most 8");
  }
  for (const char* name : {"shufflenetv2", "squeezenet"}) {
    expect_refused({.name = name, .width = 2}, "has the widths 1, 0.5, 0.25, 0.1, got 2");
    expect_refused({.name = name, .width = std::nan("")}, "has the widths");
  }
  expect_refused({.name = "mlp", .batch = 0}, "batch must be positive, got 0");
  expect_refused({.name = "mlp", .classes = 1}, "two classes or more, got 1");
  expect_refused({.name = "mlp", .image = {0, 32, 32}}, "must have a channel, got 0");
  expect_refused({.name = "mlp", .image = {1, 0, 32}}, "at least 1x1, got 0x32");
  expect_refused({.name = "mlp", .label_smoothing = 1}, "label smoothing must be at least 0 and below 1");
  expect_refused({.name = "lenet", .image = {1, 15, 32}}, "at least 16x16, got 15x32");
  for (const char* name : {"resnet18", "mobilenetv2", "shufflenetv2", "squeezenet"}) {
    expect_refused({.name = name, .image = {3, 28, 28}}, "at least 32x32, got 28x28");
    expect_refused({.name = name, .image = {3, 40, 40}}, "leave a map of 5x5");
  }
  expect_refused({.name = "squeezenet", .image = {3, 64, 64}}, "leave a map of 8x8: use images of 32x32");
}

TEST(Models, LargerImagesHaveMoreAverages) {
  const ModelRequest request{.name = "resnet18", .batch = 1, .image = {3, 64, 96}};
  const ClassifierGraph made = build_classifier(request, Mode::training);
  EXPECT_EQ(tensor(made.graph, "avgpool.out").shape, Shape::image(1, 512, 2, 3));
  EXPECT_EQ(tensor(made.graph, "fc.weight").shape, (Shape{10, 6 * 512}));
  // These take the whole map.
  const ModelRequest small{.name = "resnet20", .batch = 1, .image = {3, 30, 17}};
  EXPECT_EQ(build_classifier(small, Mode::training).graph.parameters(), 272474u);
}

}  // namespace
}  // namespace ulp
