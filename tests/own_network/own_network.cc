// Trains a network and saves it every other step; if the file is there, goes on from it. For tests
// that kill it. Usage: own_network FILE [options of ulp train]
#include <ulp/ulp.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <vector>

namespace {

constexpr int64_t kBatch = 32, kInputs = 64;

ulp::Network build(ulp::Builder& b, const ulp::BatchShape& shape) {
  ulp::TensorId x = ulp::input(b, "x", {shape.examples, kInputs});
  x = ulp::tanh(b, "tanh", ulp::layer_norm(b, "norm", ulp::linear(b, "fc1", x, {.out = 512})));
  x = ulp::linear(b, "fc2", ulp::dropout(b, "drop", x, 0.1), {.out = 4});
  return {.loss = ulp::mse(b, "loss", x, ulp::target(b, "y", {shape.examples, 4}))};
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string file = argv[1];
  ulp::Settings settings = ulp::settings_of(argc - 1, argv + 1);
  settings.insert({{"optimizer", "adam"}, {"steps", "150"}, {"schedule", "cosine"}});
  ulp::Session session(build, {.batch = {kBatch}, .settings = settings});
  if (std::filesystem::exists(file)) session.load(file);
  while (session.step() < 150) {
    std::mt19937 random(static_cast<uint32_t>(session.step()));
    std::vector<float> x(kBatch * kInputs), y(kBatch * 4);
    for (float& value : x) value = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
    for (size_t i = 0; i < y.size(); ++i) y[i] = x[i / 4 * kInputs + i % 4];
    session.train({{kBatch}, {ulp::feed_of("x", x), ulp::feed_of("y", y)}});
    if (session.step() % 2 == 0) session.save(file);
  }
} catch (const ulp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
