// Trains a network. A session holds its weights, its optimizer state and the one arena in which
// steps run; every tensor is stored in the format that its policy gives it. All memory is planned
// before the first step; a step takes none for tensors.
//
// What a step does follows from the network, the settings and the batches: the same ones give the
// same bits, also after save and load. A session is for one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/network.h"
#include "ulp/shape.h"

#pragma GCC visibility push(default)
namespace ulp {

// An array for one source. The caller keeps it, unchanged, until the step is done.
struct Feed {
  std::string name;  // of the source's node
  Element element = Element::real;
  const void* values = nullptr;
  size_t elements = 0;
  // That of the source, as it is for the whole batch; another is an Error. Without axes only the
  // number of elements is compared.
  Shape shape = {};
};
inline Feed feed_of(std::string name, std::span<const float> values, const Shape& shape = {}) {
  return {std::move(name), Element::real, values.data(), values.size(), shape};
}
inline Feed feed_of(std::string name, std::span<const int32_t> values, const Shape& shape = {}) {
  return {std::move(name), Element::int32, values.data(), values.size(), shape};
}
inline Feed feed_of(std::string name, std::span<const uint8_t> values, const Shape& shape = {}) {
  return {std::move(name), Element::byte, values.data(), values.size(), shape};
}
// Of a temporary, the values would be gone before the step.
template <typename T>
Feed feed_of(std::string name, const std::vector<T>&& values, const Shape& shape = {}) = delete;
template <typename T, size_t count>
Feed feed_of(std::string name, const std::array<T, count>&& values, const Shape& shape = {}) = delete;

// What one step is fed. The first axis of every feed runs over the examples, or over a multiple of
// them, so that it can be cut into micro-batches.
struct FeedBatch {
  BatchShape shape = {};
  std::vector<Feed> feeds = {};
  uint32_t epoch = 0;  // names the random words of batches made from resident data

  // Null if there is none.
  const Feed* find(std::string_view name) const;
};

// What the outputs of a network hold after a run: for the reader that gets it, while it is called.
class Outputs {
 public:
  // Of one output: its name, and how it is read. One that was not kept has no reader.
  struct Source {
    std::string name;
    std::function<std::vector<float>()> read;
  };
  Outputs(std::vector<Source> sources, int64_t first, int64_t count)
      : sources_(std::move(sources)), first_(first), count_(count) {}
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  // The examples of the batch that these outputs are of.
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  bool has(std::string_view tensor) const;
  // By tensor name ("fc.out"), in fp32. Throws an Error for a tensor that is no output, or was not
  // kept.
  std::span<const float> operator[](std::string_view tensor) const;

 private:
  std::vector<Source> sources_;
  int64_t first_, count_;
  mutable std::map<std::string, std::vector<float>, std::less<>> values_;
};
// Called after each micro-batch, and after each piece of an evaluation. It must not call the session.
// What it throws comes out of the step once the step is done.
using OutputReader = std::function<void(const Outputs& outputs)>;

struct StepResult {
  double loss = 0;       // the sum of the terms, each times its weight
  double weight = 0;     // the sum of the weights; without weights, how many terms there are
  bool updated = false;  // an update was made, even at a rate of 0; false if the loss scale skipped it

  double mean() const { return loss / weight; }
};

// Options of training by name, as `ulp train` takes them: {{"policy", "size:0.5"}, {"lr", "0.1"}}.
// All of its sections Optimizer, Precision, Updates and Machine, and of Length steps, epochs and
// grad_accum. A name has underscores where the flag has dashes. A switch is "true" or "false".
using Settings = std::map<std::string, std::string>;
// From a command line: --policy size:0.5 --lr=0.1 --fused-backward. Throws an Error for an argument
// that is none, or has no value.
Settings settings_of(int argc, const char* const* argv);

struct SessionOptions {
  BatchShape batch = {};                    // of training: the largest, which decides the formats
  std::vector<BatchShape> training = {};    // other shapes that are trained, such as the last batch
  std::vector<BatchShape> evaluation = {};  // shapes that are evaluated; none: `batch`
  Settings settings = {};
  // Whether evaluate_fp32 is planned too. It takes no more memory than training, but on a device
  // what it keeps for each of its plans.
  bool evaluates_fp32 = true;
  // What schedules, warm-up and the growth of a loss scale call an epoch.
  uint64_t epoch_steps = 1000;
};

// The bytes that a session takes, and what for. The planned ones are those that it then takes.
struct SessionMemory {
  size_t weights = 0, optimizer = 0, activations = 0, gradients = 0, workspace = 0, snapshot = 0;
  size_t resident = 0;
  size_t planned_peak = 0;   // of all shapes, since the start
  size_t measured_peak = 0;  // the allocator's own; 0 before the first step
  double low_ratio = 0;      // of the elements that the policy chose for, the share stored low
  double bytes_per_parameter = 0;
};

// A tensor of the training graph, and what the last step reported when it wrote it. Gradients are
// written times the loss scale.
struct TensorReport {
  std::string name;
  std::string kind;    // activation, activation_grad, weight or weight_grad
  std::string format;  // of a weight: the one that products read it in
  size_t elements = 0;
  uint64_t written = 0, overflow = 0, underflow = 0, nan = 0;
  float largest = 0;  // magnitude; 0 for fp32, which reports nothing
};

// A tensor that overflowed in a step and has its high format from then on.
struct PromotionReport {
  uint64_t step = 0;
  std::string tensor, from, to;
  double overflow_ratio = 0;
};

class Session {
 public:
  // Builds and plans. Throws an Error for a network or for settings that cannot be followed.
  Session(BuildFunction build, SessionOptions options);
  ~Session();
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;

  // Copies an array into the memory of the device, where the node of that name reads it (`take`) in
  // graphs of that mode. Each such node needs its array, for training and for inference, before the
  // first step, load or look at a weight. Numbers that an operator does not take, such as labels of
  // no class, throw an Error, and nothing is kept.
  void keep_resident(Mode mode, const std::string& node, std::span<const uint8_t> bytes);

  // One step on a batch of a planned shape: the gradient of the mean loss and the update. The rate
  // is the schedule's, or `lr`. Then tensors of which too much overflowed are promoted. A batch that
  // does not fit throws an Error, and nothing has changed. A batch that changed during the step
  // throws an Error afterwards: what the step has done, all or a part, no batch gives, so load what
  // was saved. An Error also says that the loss scale has skipped 50 steps in a row.
  StepResult train(const FeedBatch& batch, const OutputReader& read = {});
  StepResult train_at(double lr, const FeedBatch& batch, const OutputReader& read = {});
  // The loss and the outputs in the session's formats; and computed in fp32 from the weights as they
  // are stored.
  StepResult evaluate(const FeedBatch& batch, const OutputReader& read = {});
  StepResult evaluate_fp32(const FeedBatch& batch, const OutputReader& read = {});

  // All weights and state, bit for bit, and where training stands, in one safetensors file, written
  // atomically. A session with the same network and settings that loads it goes on as this one
  // would; another throws an Error that says what differs. Arrays that are kept on the device are
  // not compared: hand over the same ones.
  void save(const std::string& path);
  void load(const std::string& path);

  uint64_t step() const;                                   // steps done
  uint64_t updates() const;                                // of them, those that changed the weights
  double learning_rate() const;                            // of the next step
  double loss_scale() const;                               // of the next step
  const std::vector<PromotionReport>& promotions() const;  // since the start, or since load

  SessionMemory memory() const;
  size_t parameters() const;  // elements of all weights
  // Of the network's tensors and their gradients, those with a format of their own.
  std::vector<TensorReport> tensors() const;
  // Both as text: memory, and the tensors with their formats.
  std::string plan() const;

  // Of a weight or running statistic by name, in fp32; and replaced, rounded as it is stored.
  std::vector<float> weight(const std::string& name) const;
  void set_weight(const std::string& name, std::span<const float> values);
  std::vector<std::string> weights() const;

 private:
  class Body;
  Body& body() const;
  std::unique_ptr<Body> body_;
};

}  // namespace ulp
#pragma GCC visibility pop
