// For tests: a graph under construction with values for its weights and feeds, run in fp32 on the
// reference, and its gradients compared with differences of the loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/node_runner.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/graph/builder.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"

namespace ulp::ref {

// Differences are taken at multiples of this; values are multiples of 2^-10, so a moved weight is
// exact.
inline constexpr float kStep = 0x1p-6f;

class Trial {
 public:
  Graph graph;
  Builder b{graph, Mode::training};
  StepState state;
  bool by_rows = false;  // gradients of tables have the rows that are looked up

  // Numbers of magnitude 1/4 to 1: no step of the differences, at most 2 kStep, reaches a kink at
  // 0.
  std::vector<float> random(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) {
      const auto k = static_cast<float>(std::uniform_int_distribution<int>(256, 1024)(random_));
      value = (random_() & 1) != 0 ? k / 1024 : -k / 1024;
    }
    return values;
  }

  // Numbers an eighth apart, in random order: no step makes two of them equal.
  std::vector<float> spaced(size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = (static_cast<float>(i) - static_cast<float>(n) / 2) / 8;
    std::shuffle(values.begin(), values.end(), random_);
    return values;
  }

  // Shapes are copies: adding tensors moves the graph's own.
  TensorId weight(const std::string& name, Shape shape) { return b.weight(name, shape, Init::constant(0)); }
  // An activation that a weight alone decides, so that gradients of activations are differenced
  // too.
  TensorId operand(const std::string& name, Shape shape) {
    const TensorId zero = input(name + ".zero", shape, std::vector<float>(shape.elements()));
    return add(b, name, zero, weight(name + ".weight", shape));
  }
  TensorId operand(const std::string& name, Shape shape, std::vector<float> values) {
    const TensorId made = operand(name, shape);
    set(name + ".weight", std::move(values));
    return made;
  }

  TensorId input(const std::string& name, Shape shape, std::vector<float> values = {}) {
    const TensorId id = ulp::input(b, name, shape);
    feed(id, values.empty() ? random(shape.elements()) : std::move(values));
    return id;
  }
  TensorId target(const std::string& name, Shape shape, std::vector<float> values = {}) {
    const TensorId id = ulp::target(b, name, shape);
    feed(id, values.empty() ? random(shape.elements()) : std::move(values));
    return id;
  }
  TensorId indices(const std::string& name, Shape shape, std::vector<int32_t> values) {
    const TensorId id = ulp::indices(b, name, shape);
    index_feeds_[id.index] = std::move(values);
    return id;
  }
  void feed(TensorId id, std::vector<float> values) { feeds_[id.index] = std::move(values); }
  // The value of a state tensor; random for weights that are given none.
  void set(const std::string& name, std::vector<float> values) { values_[name] = std::move(values); }

  // Any tensor (n, ...) becomes a loss: its mean squared distance from a random target.
  TensorId distance(TensorId y) { return mse(b, "distance", y, target("goal", b.shape(y))); }

  // Once the graph is complete. The node runner refers to what is fed here.
  NodeRunner& start(std::vector<TensorFormat> formats = {}) {
    runner_ = std::make_unique<NodeRunner>(graph, std::move(formats), reference_backend());
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      const TensorInfo& tensor = graph[id];
      if (!is_state(tensor.kind)) continue;
      std::vector<float>& values = values_[tensor.name];
      if (values.empty()) {
        values = tensor.kind == Kind::weight ? random(tensor.elements())
                                             : std::vector<float>(tensor.elements(), tensor.init.value);
      }
      runner_->set(id, values);
    }
    refeed();
    runner_->state = state;
    return *runner_;
  }
  void refeed() {
    for (const auto& [index, values] : feeds_) runner_->feed({index}, values.data());
    for (const auto& [index, values] : index_feeds_) runner_->feed({index}, values.data());
  }

  std::vector<float> run(TensorId wanted) {
    start().run();
    return runner_->get(wanted);
  }

  // Differentiates the loss and compares the gradient of every weight with differences of the mean
  // loss.
  void check(TensorId loss) {
    differentiate(graph, loss, {.by_rows = [&](TensorId, int64_t) { return by_rows; }});
    NodeRunner& runner = start();
    runner.run();
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      if (graph[id].kind != Kind::weight || !graph[id].grad) continue;
      runner.run();
      compare(runner, id, loss);
    }
  }

  const std::vector<float>& value(const std::string& name) { return values_[name]; }

 private:
  double mean_loss(NodeRunner& runner, TensorId id, const std::vector<float>& values, TensorId loss) {
    runner.set(id, values);
    runner.run(Phase::forward);
    double sum = 0;
    const std::vector<float> losses = runner.get(loss);
    for (const float one : losses) sum += one;
    return sum / static_cast<double>(losses.size());
  }

  // Of all rows of a table.
  std::vector<float> gradient(NodeRunner& runner, TensorId id) const {
    const TensorInfo& weight = graph[id];
    std::vector<float> some = runner.get(weight.grad);
    if (!graph[weight.grad].rows) return some;
    const std::vector<uint8_t> bytes = runner.bytes(graph[weight.grad].rows);
    std::vector<int32_t> rows(graph[graph[weight.grad].rows].elements());
    std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(int32_t));
    const auto width = static_cast<size_t>(weight.shape.back());
    std::vector<float> all(weight.elements());
    for (size_t i = 0; i < rows.size() && rows[i] >= 0; ++i)
      std::copy_n(&some[i * width], width, &all[static_cast<size_t>(rows[i]) * width]);
    return all;
  }

  // Four points a weight: what is left of the Taylor series is f''''' kStep^4 / 30, about 1e-8
  // here. The loss is near 1 and carries roundings to fp32 of some 1e-7, which 1.5 / kStep makes
  // 1e-5 in a difference. So what is allowed in the norm is 1e-4 of the gradient's, and 2e-5 an
  // element besides.
  void compare(NodeRunner& runner, TensorId id, TensorId loss) {
    const std::vector<float> grad = gradient(runner, id);
    std::vector<float> values = values_[graph[id].name];
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float at = values[i];
      const auto moved = [&](float by) {
        values[i] = at + by;
        return mean_loss(runner, id, values, loss);
      };
      const double near = moved(kStep) - moved(-kStep), far = moved(2 * kStep) - moved(-2 * kStep);
      values[i] = at;
      const double difference = (8 * near - far) / (12 * static_cast<double>(kStep));
      error += (grad[i] - difference) * (grad[i] - difference);
      norm += difference * difference;
    }
    runner.set(id, values);
    error = std::sqrt(error);
    norm = std::sqrt(norm);
    const double noise = 2e-5 * std::sqrt(static_cast<double>(values.size()));
    EXPECT_LE(error, 1e-4 * norm + noise) << graph[id].name << ": the gradient's norm is " << norm;
    worst_ = std::max(worst_, error / (1e-4 * norm + noise));
    largest_ = std::max(largest_, norm / noise);
  }

 public:
  // Of all weights: the error as a share of what is allowed, and the gradient's norm in units of
  // the noise. A trial in which every gradient vanishes proves nothing unless that is its point.
  double worst() const { return worst_; }
  double largest() const { return largest_; }

 private:
  std::mt19937 random_{20261115};
  std::map<int32_t, std::vector<float>> feeds_;
  std::map<int32_t, std::vector<int32_t>> index_feeds_;
  std::map<std::string, std::vector<float>> values_;
  std::unique_ptr<NodeRunner> runner_;
  double worst_ = 0, largest_ = 0;
};

}  // namespace ulp::ref
