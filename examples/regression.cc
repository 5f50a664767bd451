// Two numbers predicted from eight, some of them missing. Shows fp32 targets, weights of the loss
// (0 for a missing one), a last batch of another size, a rate of the caller's own, and evaluation
// in fp32 beside the session's formats.
//
// Options are those of `ulp train`: regression --policy size:1 --update kahan
#include <ulp/ulp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int64_t kInputs = 8, kTargets = 2, kExamples = 1000, kBatch = 128, kEpochs = 150;
constexpr int64_t kLastBatch = kExamples % kBatch;
constexpr uint64_t kSteps = kExamples / kBatch + 1;  // of an epoch

ulp::Network build(ulp::Builder& b, const ulp::BatchShape& shape) {
  const int64_t n = shape.examples;
  ulp::TensorId x = ulp::input(b, "inputs", {n, kInputs});
  x = ulp::silu(b, "act1", ulp::linear(b, "fc1", x, {.out = 64}));
  x = ulp::silu(b, "act2", ulp::linear(b, "fc2", x, {.out = 64}));
  x = ulp::linear(b, "out", x, {.out = kTargets});
  // One term for each target of each example, so that each can have a weight.
  const ulp::TensorId terms = ulp::mse(b, "loss", ulp::reshape(b, "each", x, {n * kTargets, 1}),
                                       ulp::target(b, "targets", {n * kTargets, 1}));
  return {.loss = terms, .weights = ulp::target(b, "weights", {n * kTargets})};
}

struct Table {
  std::vector<float> inputs, targets, weights;
};

Table make_table() {
  std::mt19937 random(7);
  const auto uniform = [&] { return static_cast<float>(random() >> 8) * 0x1p-23f - 1; };
  Table table;
  for (int64_t i = 0; i < kExamples; ++i) {
    std::vector<float> x;
    for (int64_t k = 0; k < kInputs; ++k) x.push_back(uniform());
    table.inputs.insert(table.inputs.end(), x.begin(), x.end());
    const float truth[kTargets] = {std::sin(3 * x[0]) + x[1] * x[2], x[3] * x[3] - std::abs(x[4])};
    for (const float value : truth) {
      const bool missing = random() % 8 == 0;
      table.targets.push_back(missing ? 1000 : value);  // any number: its weight is 0
      table.weights.push_back(missing ? 0 : 1);
    }
  }
  return table;
}

ulp::FeedBatch rows(const Table& table, int64_t first, int64_t count) {
  const auto part = [&](const std::vector<float>& all, int64_t width) {
    return std::span(all).subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
  };
  return {{count},
          {ulp::feed_of("inputs", part(table.inputs, kInputs)),
           ulp::feed_of("targets", part(table.targets, kTargets)),
           ulp::feed_of("weights", part(table.weights, kTargets))}};
}

// From where the session stands to the end of an epoch, with a rate that falls from epoch to epoch.
void train_until(ulp::Session& session, const Table& table, uint64_t epochs) {
  while (session.step() < epochs * kSteps) {
    const auto epoch = session.step() / kSteps;
    const auto first = static_cast<int64_t>(session.step() % kSteps) * kBatch;
    session.train_at(0.01 * std::pow(0.97, static_cast<double>(epoch)),
                     rows(table, first, std::min(kBatch, kExamples - first)));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Table table = make_table();
  for (const std::string policy : {"fp32", "size:0.5"}) {
    ulp::Settings settings = ulp::settings_of(argc, argv);
    settings.insert({{"policy", policy}, {"optimizer", "adamw"}});
    const ulp::SessionOptions options{.batch = {kBatch},
                                      .training = {{kLastBatch}},
                                      .evaluation = {{kExamples}},
                                      .settings = settings,
                                      .epoch_steps = kSteps};
    ulp::Session session(build, options);
    std::puts(session.plan().c_str());
    train_until(session, table, kEpochs / 2);
    session.save("regression.safetensors");

    ulp::Session resumed(build, options);
    resumed.load("regression.safetensors");
    train_until(resumed, table, kEpochs);
    const ulp::FeedBatch all = rows(table, 0, kExamples);
    std::printf("%s: loss %.4f, computed in fp32 %.4f\n\n", settings["policy"].c_str(),
                resumed.evaluate(all).mean(), resumed.evaluate_fp32(all).mean());
  }
} catch (const ulp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
