// Stripes told apart by their direction. Shows an operator of one's own, made of others, outputs
// that a metric reads, batches of another size for evaluation, and what overflowed.
//
// Options are those of `ulp train`: cnn --policy uniform --grad-accum 4
#include <ulp/ulp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int64_t kSize = 16, kClasses = 4, kBatch = 64, kTests = 256;

// A gated convolution: one half of the channels decides how much of the other passes. To policies
// and reports it is what it is made of: NAME.conv.out, NAME.gate.out and so on, each with its format.
ulp::TensorId gated_conv(ulp::Builder& b, const std::string& name, ulp::TensorId x, int64_t out) {
  const ulp::TensorId conv = ulp::conv2d(b, name + ".conv", x, {.out = 2 * out, .kernel = 3, .padding = 1});
  const std::vector<ulp::TensorId> halves =
      ulp::split(b, name + ".split", ulp::batch_norm(b, name + ".norm", conv), 2);
  return ulp::multiply(b, name, halves[0], ulp::sigmoid(b, name + ".gate", halves[1]));
}

ulp::Network build(ulp::Builder& b, const ulp::BatchShape& shape) {
  ulp::TensorId x = ulp::input(b, "images", ulp::Shape::image(shape.examples, 1, kSize, kSize));
  x = ulp::max_pool(b, "pool1", gated_conv(b, "block1", x, 8), {.kernel = 2});
  x = ulp::max_pool(b, "pool2", gated_conv(b, "block2", x, 16), {.kernel = 2});
  x = ulp::add(b, "shortcut", x, gated_conv(b, "block3", x, 16));
  const ulp::TensorId scores = ulp::linear(b, "scores", ulp::global_average(b, "mean", x), {.out = kClasses});
  const ulp::TensorId labels = ulp::indices(b, "labels", {shape.examples});
  return {.loss = ulp::cross_entropy(b, "loss", scores, labels), .outputs = {scores}};
}

struct Stripes {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// Stripes at one of four angles, with noise. The same numbers for the same seed.
Stripes make_stripes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<float>(random() >> 8) * 0x1p-24f; };
  Stripes made;
  for (int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<int32_t>(random() % kClasses);
    const float angle = static_cast<float>(label) * 0.785398f, phase = 6.283185f * uniform();
    for (int64_t y = 0; y < kSize; ++y) {
      for (int64_t x = 0; x < kSize; ++x) {
        const float along = std::cos(angle) * static_cast<float>(x) + std::sin(angle) * static_cast<float>(y);
        made.images.push_back(std::sin(along + phase) + 2 * uniform() - 1);
      }
    }
    made.labels.push_back(label);
  }
  return made;
}

ulp::FeedBatch batch_of(const Stripes& stripes) {
  return {{static_cast<int64_t>(stripes.labels.size())},
          {ulp::feed_of("images", stripes.images), ulp::feed_of("labels", stripes.labels)}};
}

void train_until(ulp::Session& session, uint64_t steps) {
  while (session.step() < steps) {
    // The step's number alone decides its batch, so a resumed session goes on with the right one.
    const Stripes stripes = make_stripes(kBatch, static_cast<uint32_t>(session.step()) + 1);
    session.train(batch_of(stripes));
  }
}

double accuracy(ulp::Session& session, double& loss) {
  const Stripes stripes = make_stripes(kTests, 0);
  int correct = 0;
  const ulp::StepResult result = session.evaluate(batch_of(stripes), [&](const ulp::Outputs& outputs) {
    const std::span<const float> scores = outputs["scores.out"];
    for (int64_t i = 0; i < outputs.count(); ++i) {
      const auto* row = scores.data() + i * kClasses;
      const auto found = std::max_element(row, row + kClasses) - row;
      correct += found == stripes.labels[static_cast<size_t>(outputs.first() + i)] ? 1 : 0;
    }
  });
  loss = result.mean();
  return 100.0 * correct / kTests;
}

}  // namespace

int main(int argc, char** argv) try {
  for (const std::string policy : {"fp32", "size:0.5"}) {
    ulp::Settings settings = ulp::settings_of(argc, argv);
    settings.insert({{"policy", policy}, {"steps", "100"}, {"schedule", "cosine"}, {"lr", "0.05"}});
    const ulp::SessionOptions options{.batch = {kBatch}, .evaluation = {{kTests}}, .settings = settings};
    ulp::Session session(build, options);
    std::puts(session.plan().c_str());
    train_until(session, 50);
    session.save("cnn.safetensors");

    ulp::Session resumed(build, options);
    resumed.load("cnn.safetensors");
    train_until(resumed, 100);
    for (const ulp::TensorReport& tensor : resumed.tensors()) {
      if (tensor.overflow > 0)
        std::printf("%s (%s): %llu of %llu overflowed in the last step\n", tensor.name.c_str(),
                    tensor.format.c_str(), static_cast<unsigned long long>(tensor.overflow),
                    static_cast<unsigned long long>(tensor.written));
    }
    double loss = 0;
    const double percent = accuracy(resumed, loss);
    std::printf("%s: loss %.4f, %.1f%% right\n\n", settings["policy"].c_str(), loss, percent);
  }
} catch (const ulp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
