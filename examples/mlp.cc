// Two spirals, told apart by three layers. Options are those of `ulp train`: mlp --policy size:0.5
#include <ulp/ulp.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

ulp::Network build(ulp::Builder& b, const ulp::BatchShape& shape) {
  ulp::TensorId x = ulp::input(b, "points", {shape.examples, 2});
  x = ulp::relu(b, "relu1", ulp::linear(b, "fc1", x, {.out = 64}));
  x = ulp::relu(b, "relu2", ulp::linear(b, "fc2", x, {.out = 64}));
  const ulp::TensorId labels = ulp::indices(b, "labels", {shape.examples});
  return {.loss = ulp::cross_entropy(b, "loss", ulp::linear(b, "fc3", x, {.out = 2}), labels)};
}

int main(int argc, char** argv) try {
  std::vector<float> points;
  std::vector<int32_t> labels;
  for (int i = 0; i < 512; ++i) {
    const float along = 0.2f + static_cast<float>(i) / 256, side = i % 2 == 0 ? 1 : -1;
    points.push_back(side * along * std::cos(6 * along));
    points.push_back(side * along * std::sin(6 * along));
    labels.push_back(i % 2);
  }
  const ulp::FeedBatch batch{{512}, {ulp::feed_of("points", points), ulp::feed_of("labels", labels)}};
  for (const std::string policy : {"fp32", "size:0.5"}) {
    ulp::Settings settings = ulp::settings_of(argc, argv);  // what is said there wins
    settings.insert({{"policy", policy}, {"optimizer", "adam"}, {"lr", "0.01"}});
    const ulp::SessionOptions options{.batch = {512}, .settings = settings};
    ulp::Session session(build, options);
    std::puts(session.plan().c_str());
    while (session.step() < 150) session.train(batch);
    session.save("mlp.safetensors");
    ulp::Session resumed(build, options);  // goes on where the other one stood, bit for bit
    resumed.load("mlp.safetensors");
    while (resumed.step() < 300) resumed.train(batch);
    std::printf("%s: loss %.4f\n\n", settings["policy"].c_str(), resumed.evaluate(batch).mean());
  }
} catch (const ulp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
