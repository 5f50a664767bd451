// Where data comes in: what the caller feeds is written in the tensor's format, and batches are
// made of data that stays in memory.
#include <cstring>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/base/error.h"
#include "ulp/graph/ops/batch.h"

namespace ulp::ref {
namespace {

class FeedTask : public Task {
 public:
  explicit FeedTask(const Problem& problem)
      : node_(problem.root()), out_(node_.out[0]), tensor_(problem.tensor(out_)) {
    if (tensor_.element == Element::real) writer_ = Writer(problem, node_, out_);
  }

  void run(const RunContext& context) override {
    const void* feed = context.feeds[static_cast<size_t>(out_.index)];
    if (feed == nullptr) fail("backend", "nothing is fed to '{}'", node_.name);
    if (tensor_.element == Element::real) {
      writer_.all(context, static_cast<const float*>(feed));
    } else {
      std::memcpy(context.bytes(out_), feed, tensor_.elements() * element_bytes(tensor_.element));
    }
  }

 private:
  const Node& node_;
  const TensorId out_;
  const TensorInfo& tensor_;
  Writer writer_;
};

class FromBytesTask : public Task {
 public:
  explicit FromBytesTask(const Problem& problem)
      : node_(problem.root()),
        elements_(problem.tensor(node_.out[0]).elements()),
        normalise_{static_cast<float>(node_.attrs.real("shift")),
                   static_cast<float>(node_.attrs.real("scale"))},
        writer_(problem, node_, node_.out[0]) {
    Workspace book;
    space_ = book.book(elements_);
    workspace_ = book.bytes();
  }

  void run(const RunContext& context) override {
    const uint8_t* from = context.bytes(node_.in[0]);
    float* made = floats(context, space_);
    for (size_t i = 0; i < elements_; ++i) made[i] = normalised(from[i], normalise_);
    writer_.all(context, made);
  }

 private:
  const Node& node_;
  const size_t elements_;
  const Normalise normalise_;
  Writer writer_;
  size_t space_ = 0;
};

// What the operators of batch.h have: the array that is fed, and the numbers of the examples.
class ResidentTask : public Task {
 public:
  explicit ResidentTask(const Problem& problem)
      : node_(problem.root()), tensor_(problem.tensor(node_.out[0])), rows_(node_.attrs.integer("rows")) {}

 protected:
  size_t examples() const { return static_cast<size_t>(tensor_.shape[0]); }
  // Of the array; a row has as many elements as an example of the output.
  size_t row_elements() const { return tensor_.elements() / examples(); }
  const void* data(const RunContext& context) const {
    const void* feed = context.feeds[static_cast<size_t>(node_.out[0].index)];
    if (feed == nullptr) fail("backend", "no data is kept for '{}'", node_.name);
    return feed;
  }
  // The row of example `i` of the batch.
  size_t row(const RunContext& context, size_t i) const {
    const int32_t number = context.as<const int32_t>(node_.in[0])[i];
    if (number < 0 || number >= rows_) {
      fail("backend", "'{}' has {} examples, there is no number {}", node_.name, rows_, number);
    }
    return static_cast<size_t>(number);
  }

  const Node& node_;
  const TensorInfo& tensor_;

 private:
  const int64_t rows_;
};

class ImageBatchTask : public ResidentTask {
 public:
  explicit ImageBatchTask(const Problem& problem)
      : ResidentTask(problem), options_(image_batch_options(node_)), writer_(problem, node_, node_.out[0]) {
    Workspace book;
    space_ = book.book(tensor_.elements());
    workspace_ = book.bytes();
  }

  void run(const RunContext& context) override {
    float* made = floats(context, space_);
    const auto* bytes = static_cast<const uint8_t*>(data(context));
    const auto h = static_cast<int32_t>(options_.height), w = static_cast<int32_t>(options_.width),
               c = static_cast<int32_t>(options_.channels);
    for (size_t i = 0; i < examples(); ++i) {
      const size_t example = row(context, i);
      const Placement from = placement(options_.augment, context.state->epoch, example);
      const uint8_t* image = bytes + example * row_elements();
      float* to = made + i * row_elements();
      for (int32_t y = 0; y < h; ++y) {
        for (int32_t x = 0; x < w; ++x) {
          for (int32_t channel = 0; channel < c; ++channel) {
            *to++ = normalised(placed_byte(image, h, w, c, from, y, x, channel),
                               options_.normalise[static_cast<size_t>(channel)]);
          }
        }
      }
    }
    writer_.all(context, made);
  }

 private:
  const ImageBatchOptions options_;
  Writer writer_;
  size_t space_ = 0;
};

// Whether of int32 or of fp32, elements are four bytes that are copied.
class TakeTask : public ResidentTask {
 public:
  using ResidentTask::ResidentTask;

  void run(const RunContext& context) override {
    const auto* from = static_cast<const int32_t*>(data(context));
    auto* to = context.as<int32_t>(node_.out[0]);
    for (size_t i = 0; i < examples(); ++i) {
      std::memcpy(to + i * row_elements(), from + row(context, i) * row_elements(),
                  row_elements() * sizeof(int32_t));
    }
  }
};

template <typename Made>
constexpr KernelDef reference(std::string_view op) {
  return {op, "reference", takes_one_node, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> source_kernels() {
  static constexpr KernelDef kKernels[] = {
      reference<FeedTask>("input"),
      reference<FeedTask>("indices"),
      reference<FeedTask>("target"),
      reference<FeedTask>("bytes"),
      reference<FromBytesTask>("from_bytes"),
      reference<ImageBatchTask>("image_batch"),
      reference<TakeTask>("take"),
      reference<TakeTask>("take_target"),
  };
  return kKernels;
}

}  // namespace ulp::ref
