// The next character of a text: lines of a file, a small network that sees the characters before,
// bits per character.
//
// A line is an example, cut where it is longer than --length; its end is a character too. Lines of
// at most half the length form batches of their own, so that little is padded: there are two lengths
// of sequences. Padding has a weight of 0 in the loss. The last tenth of the lines is the test set.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>

#include "ulp/base/error.h"
#include "ulp/data/shuffle.h"
#include "ulp/graph/ops.h"
#include "ulp/tasks/list.h"

namespace ulp {
namespace {

constexpr std::string_view kModel = "charmlp";
constexpr Metric kBits{"bpc", false};
constexpr int64_t kContext = 8;  // characters that are seen
constexpr int64_t kWide = 128;   // of the hidden layer, at width 1
constexpr int64_t kNarrow = 16;  // of a character's row in the table
constexpr int32_t kNone = 0;     // before the first character of a line, and padding
constexpr std::string_view kLossSum = "loss_sum.sums";

// The examples of a text: characters as numbers, of which 0 is none of the text's.
struct Text {
  std::string name;
  uint32_t digest = 0;                // of the whole file
  std::array<int32_t, 256> number{};  // of bytes that occur
  int64_t characters = 1;             // numbers in all
  std::vector<std::vector<int32_t>> train, test;
};

Text read_text(const std::string& path, int64_t length) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("data", "cannot read {}: characters are learned from a text file, --data FILE", path);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) fail("data", "cannot read {}", path);
  Text text;
  text.name = path;
  text.digest = tensor_number(all);
  for (const char c : all) text.number[static_cast<uint8_t>(c)] = 1;
  text.number['\n'] = 1;
  for (int32_t& number : text.number) number = number == 0 ? 0 : static_cast<int32_t>(text.characters++);
  std::vector<std::vector<int32_t>> lines;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    // The end of the line is learned, too.
    for (size_t first = at; first <= end; first += static_cast<size_t>(length)) {
      std::vector<int32_t>& line = lines.emplace_back();
      for (size_t i = first; i <= std::min(end, first + static_cast<size_t>(length) - 1); ++i)
        line.push_back(text.number[static_cast<uint8_t>(i < all.size() ? all[i] : '\n')]);
    }
    at = end + 1;
  }
  if (lines.size() < 10) fail("data", "{} has {} lines: characters need 10 or more", path, lines.size());
  const auto cut = lines.end() - static_cast<std::ptrdiff_t>(lines.size() / 10);
  text.train.assign(std::make_move_iterator(lines.begin()), std::make_move_iterator(cut));
  text.test.assign(std::make_move_iterator(cut), std::make_move_iterator(lines.end()));
  return text;
}

// A batch: lines of one bucket.
struct Chosen {
  int64_t length = 0;
  std::vector<uint32_t> lines;
};

class LineStream : public BatchStream {
 public:
  // `shuffled`: another order of lines and of batches in each epoch.
  LineStream(const Text& text, Part part, int64_t length, int64_t batch, uint64_t seed, bool shuffled)
      : lines_(part == Part::train ? text.train : text.test),
        length_(length),
        batch_(batch),
        seed_(seed),
        shuffled_(shuffled) {
    seek(0, 0);
  }

  const FeedBatch& next() override {
    if (at_ == order_.size()) seek(epoch_ + 1, 0);
    const Chosen& chosen = order_[at_++];
    const size_t positions = chosen.lines.size() * static_cast<size_t>(chosen.length);
    context_.assign(positions * kContext, kNone);
    labels_.assign(positions, kNone);
    weights_.assign(positions, 0);
    for (size_t i = 0; i < chosen.lines.size(); ++i) {
      const std::vector<int32_t>& line = lines_[chosen.lines[i]];
      for (size_t t = 0; t < line.size(); ++t) {
        const size_t place = i * static_cast<size_t>(chosen.length) + t;
        labels_[place] = line[t];
        weights_[place] = 1;
        for (size_t back = 1; back <= std::min<size_t>(t, kContext); ++back)
          context_[place * kContext + back - 1] = line[t - back];
      }
    }
    fed_.shape = {static_cast<int64_t>(chosen.lines.size()), {chosen.length}};
    fed_.epoch = epoch_;
    fed_.feeds = {feed_of("context", std::span<const int32_t>(context_)),
                  feed_of("labels", std::span<const int32_t>(labels_)),
                  feed_of("weights", std::span<const float>(weights_))};
    return fed_;
  }

  void seek(uint32_t epoch, uint64_t batch) override {
    epoch_ = epoch;
    at_ = static_cast<size_t>(batch);
    order_.clear();
    std::vector<uint32_t> all(lines_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
    if (shuffled_) shuffle(all, seed_, 2 * epoch);
    for (const int64_t length : {length_ / 2, length_}) {
      std::vector<uint32_t> bucket;
      for (const uint32_t i : all) {
        if ((static_cast<int64_t>(lines_[i].size()) <= length_ / 2) == (length < length_))
          bucket.push_back(i);
      }
      for (size_t first = 0; first < bucket.size(); first += static_cast<size_t>(batch_)) {
        const size_t end = std::min(bucket.size(), first + static_cast<size_t>(batch_));
        order_.push_back({length,
                          {bucket.begin() + static_cast<std::ptrdiff_t>(first),
                           bucket.begin() + static_cast<std::ptrdiff_t>(end)}});
      }
    }
    if (!shuffled_) return;
    std::vector<uint32_t> places(order_.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<uint32_t>(i);
    shuffle(places, seed_, 2 * epoch + 1);
    std::vector<Chosen> mixed;
    for (const uint32_t place : places) mixed.push_back(std::move(order_[place]));
    order_ = std::move(mixed);
  }

  size_t examples() const override { return lines_.size(); }
  uint64_t batches() const override { return order_.size(); }

  // The shapes of all batches, each once.
  std::vector<BatchShape> shapes() const {
    std::vector<BatchShape> all;
    for (const Chosen& chosen : order_) {
      const BatchShape shape{static_cast<int64_t>(chosen.lines.size()), {chosen.length}};
      if (std::find(all.begin(), all.end(), shape) == all.end()) all.push_back(shape);
    }
    return all;
  }

 private:
  const std::vector<std::vector<int32_t>>& lines_;
  const int64_t length_, batch_;
  const uint64_t seed_;
  const bool shuffled_;
  uint32_t epoch_ = 0;
  size_t at_ = 0;
  std::vector<Chosen> order_;  // of the epoch
  std::vector<int32_t> context_, labels_;
  std::vector<float> weights_;
  FeedBatch fed_;
};

// The mean of -log2 of what the network gives to the character that comes.
class BitsMeter : public Meter {
 public:
  void add(const Outputs& outputs, const FeedBatch& batch) override {
    loss_ += static_cast<double>(outputs[kLossSum][0]);
    const Feed* weights = batch.find("weights");
    const auto* values = static_cast<const float*>(weights->values);
    const size_t each = weights->elements / static_cast<size_t>(batch.shape.examples);
    for (size_t i = 0; i < each * static_cast<size_t>(outputs.count()); ++i)
      characters_ += static_cast<double>(values[each * static_cast<size_t>(outputs.first()) + i]);
  }
  std::vector<double> values() const override {
    return {loss_ / std::numbers::ln2 / std::max(characters_, 1.0)};
  }
  void reset() override { loss_ = characters_ = 0; }
  void merge(const Meter& other) override {
    const auto& from = dynamic_cast<const BitsMeter&>(other);
    loss_ += from.loss_;
    characters_ += from.characters_;
  }
  State save() const override {
    return {{"nats", fmt::format("{}", loss_)}, {"characters", fmt::format("{}", characters_)}};
  }
  void restore(const State& state) override {
    loss_ = number(state, "nats");
    characters_ = number(state, "characters");
  }

 private:
  double loss_ = 0, characters_ = 0;
};

class CharacterTask : public LearningTask {
 public:
  CharacterTask(const TaskOptions& options, std::shared_ptr<const Text> text)
      : options_(options), text_(std::move(text)) {
    if (options.model != kModel)
      fail("tasks", "characters are learned by --model {}, got '{}'", kModel, options.model);
    const bool images = options.padding != 0 || options.mirror || !options.image_shape.empty();
    if (images || options.subset > 0 || options.label_smoothing != 0 || !options.data_dir.empty()) {
      fail("tasks",
           "characters have no use for --augment, --image-shape, --subset, --label-smoothing and --data-dir: "
           "leave them out");
    }
    if (options.length < 2) fail("tasks", "sequences must have 2 characters or more, got {}", options.length);
  }

  std::span<const Metric> metrics() const override { return {&kBits, 1}; }
  BatchShape batch() const override { return {options_.batch, {options_.length}}; }
  std::vector<BatchShape> training_shapes() const override { return lines(Part::train).shapes(); }
  std::vector<BatchShape> evaluation_shapes() const override { return lines(Part::test).shapes(); }
  std::unique_ptr<BatchStream> stream(Part part) const override {
    return std::make_unique<LineStream>(lines(part));
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<BitsMeter>(); }
  void keep_data(Engine&) const override {}
  size_t examples(Part part) const override { return lines(part).examples(); }
  std::unique_ptr<LearningTask> with_seed(uint64_t seed) const override {
    auto made = std::make_unique<CharacterTask>(*this);
    made->options_.seed = seed;
    return made;
  }
  NetworkId id() const override {
    return {options_.model, options_.width, fmt::format("{}", options_.length), text_->characters};
  }
  std::string data_text() const override {
    return fmt::format("; characters {}; text {:08x}", text_->characters, text_->digest);
  }

  BuildFunction build() const override {
    const double width = options_.width;
    return [width, characters = text_->characters](Builder& b, const BatchShape& shape) {
      const auto wide = [&](int64_t n) {
        return std::max<int64_t>(1, std::llround(static_cast<double>(n) * width));
      };
      const int64_t positions = shape.examples * shape.extents.at(0);
      const TensorId context = indices(b, "context", {positions, kContext});
      const TensorId labels = indices(b, "labels", {positions});
      Network made;
      made.weights = target(b, "weights", {positions});
      TensorId x = embedding(b, "table", context, characters, wide(kNarrow));
      x = flatten(b, "window", x);
      x = relu(b, "relu", linear(b, "fc1", x, {.out = wide(kWide)}));
      x = linear(b, "fc2", x, {.out = characters});
      made.loss = cross_entropy(b, "loss", x, labels);
      made.loss_sum = loss_sum(b, "loss_sum", made.loss, made.weights);
      made.outputs = {made.loss_sum};
      return made;
    };
  }

 private:
  LineStream lines(Part part) const {
    const bool train = part == Part::train;
    return {*text_,          part,
            options_.length, train ? options_.batch : options_.batch / options_.micro_batches,
            options_.seed,   train};
  }

  TaskOptions options_;
  std::shared_ptr<const Text> text_;
};

std::unique_ptr<LearningTask> make(const TaskOptions& options) {
  return std::make_unique<CharacterTask>(
      options, std::make_shared<const Text>(read_text(options.data, std::max<int64_t>(options.length, 2))));
}

// Lines of one character, all alike.
std::unique_ptr<LearningTask> sketch(const TaskOptions& options, const NetworkId& id, const DataSize& size) {
  TaskOptions sketched = options;
  const char* end = id.input.data() + id.input.size();
  if (!id.input.empty() && (std::from_chars(id.input.data(), end, sketched.length).ptr != end))
    fail("tasks", "the input of a network of characters is a length, got '{}'", id.input);
  auto text = std::make_shared<Text>();
  text->characters = std::max<int64_t>(id.classes, 2);
  const auto batch = static_cast<size_t>(std::max<int64_t>(options.batch, 1));
  const std::vector<int32_t> line(static_cast<size_t>(std::max<int64_t>(sketched.length, 2)), 1);
  text->train.assign(size.train > 0 ? size.train : batch, line);
  text->test.assign(size.test > 0 ? size.test : 1, line);
  return std::make_unique<CharacterTask>(sketched, std::move(text));
}

}  // namespace

const TaskInfo characters_task{
    .name = "characters",
    .about = "the next character of a text, --data FILE --model charmlp",
    .models = [] { return std::vector<std::string_view>{kModel}; },
    .takes_data = [](std::string_view data) { return data.find_first_of("./") != data.npos; },
    .make = make,
    .outline = make,
    .sketch = sketch};

}  // namespace ulp
