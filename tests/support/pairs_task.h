// For tests of what knows tasks by their interface alone: pairs of numbers in two kinds, judged by
// the area under the curve, whose meter must see every score.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/tasks/area.h"

namespace ulp {

class AreaMeter : public Meter {
 public:
  void add(const Outputs& outputs, const FeedBatch& batch) override {
    const std::span<const float> scores = outputs["fc.out"];
    const auto* kinds = static_cast<const float*>(batch.find("kind")->values) + outputs.first();
    for (size_t i = 0; i < scores.size(); ++i) add(scores[i], kinds[i] > 0.5f);
  }
  void add(float score, bool kind) { area_.add(score, kind); }

  std::vector<double> values() const override { return {area_.value()}; }
  void reset() override { area_ = {}; }
  void merge(const Meter& other) override { area_.merge(dynamic_cast<const AreaMeter&>(other).area_); }
  State save() const override { return area_.save(); }
  void restore(const State& state) override { area_.restore(state); }

 private:
  RocArea area_;
};

// Four numbers an example, whose sum decides its kind but for noise.
class PairsTask : public LearningTask {
 public:
  static constexpr int64_t kTrain = 160, kTest = 64, kWide = 4;
  static constexpr Metric kArea{"auc", true, true};

  explicit PairsTask(const TaskOptions& options) : options_(options) {
    for (const int64_t count : {kTrain, kTest}) {
      Examples& part = count == kTrain ? train_ : test_;
      for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int64_t k = 0; k < kWide; ++k) {
          part.x.push_back(number(i, k, count));
          sum += part.x.back();
        }
        part.kind.push_back(sum + number(i, kWide, count) > 0 ? 1 : 0);
      }
    }
  }

  std::span<const Metric> metrics() const override { return {&kArea, 1}; }
  BuildFunction build() const override {
    return [](Builder& b, const BatchShape& shape) {
      const TensorId x = input(b, "x", {shape.examples, kWide});
      const TensorId y = linear(b, "fc", relu(b, "relu", linear(b, "hidden", x, {.out = 8})), {.out = 1});
      return Network{.loss = bce_with_logits(b, "loss", y, target(b, "kind", {shape.examples, 1})),
                     .outputs = {y}};
    };
  }
  BatchShape batch() const override { return {options_.batch}; }
  std::vector<BatchShape> training_shapes() const override { return {{options_.batch}}; }
  std::vector<BatchShape> evaluation_shapes() const override { return {{options_.batch}}; }
  std::unique_ptr<BatchStream> stream(Part part) const override {
    return std::make_unique<Stream>(part == Part::train ? train_ : test_, options_.batch);
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<AreaMeter>(); }
  void keep_data(Engine&) const override {}
  size_t examples(Part part) const override { return part == Part::train ? kTrain : kTest; }
  std::unique_ptr<LearningTask> with_seed(uint64_t) const override {
    return std::make_unique<PairsTask>(*this);
  }
  NetworkId id() const override { return {"logistic", 1, "", 0}; }
  std::string data_text() const override { return "; pairs 4"; }
  bool evaluates_fp32() const override { return false; }

 private:
  struct Examples {
    std::vector<float> x, kind;
  };
  class Stream : public BatchStream {
   public:
    Stream(const Examples& all, int64_t batch) : all_(all), batch_(static_cast<size_t>(batch)) {}
    const FeedBatch& next() override {
      const size_t first = at_++ % static_cast<size_t>(batches()) * batch_;
      fed_ = {{static_cast<int64_t>(batch_)},
              {feed_of("x", std::span(all_.x).subspan(first * kWide, batch_ * kWide)),
               feed_of("kind", std::span(all_.kind).subspan(first, batch_))}};
      return fed_;
    }
    void seek(uint32_t, uint64_t batch) override { at_ = static_cast<size_t>(batch); }
    size_t examples() const override { return all_.kind.size(); }
    uint64_t batches() const override { return all_.kind.size() / batch_; }

   private:
    const Examples& all_;
    const size_t batch_;
    size_t at_ = 0;
    FeedBatch fed_;
  };

  static float number(int64_t i, int64_t k, int64_t count) {
    const auto word = philox({{static_cast<uint32_t>(i), static_cast<uint32_t>(k), 0, 0}},
                             {{static_cast<uint32_t>(count), 3}})
                          .word[0];
    return static_cast<float>(word >> 8) * 0x1p-23f - 1;
  }

  TaskOptions options_;
  Examples train_, test_;
};

// The row of the table.
inline TaskInfo pairs_task() {
  const auto make = [](const TaskOptions& options) -> std::unique_ptr<LearningTask> {
    return std::make_unique<PairsTask>(options);
  };
  return {.name = "pairs",
          .about = "kinds of pairs, in tests",
          .models = [] { return std::vector<std::string_view>{"logistic"}; },
          .takes_data = [](std::string_view data) { return data == "pairs"; },
          .make = make,
          .outline = make,
          .sketch = [](const TaskOptions& options, const NetworkId&, const DataSize&)
              -> std::unique_ptr<LearningTask> { return std::make_unique<PairsTask>(options); }};
}

}  // namespace ulp
