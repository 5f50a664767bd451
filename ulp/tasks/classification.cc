#include "ulp/tasks/classification.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/tasks/list.h"

namespace ulp {
namespace {

constexpr Metric kAccuracy{"acc", true, true};
constexpr std::string_view kSums = "accuracy.sums";

std::span<const uint8_t> bytes_of(std::span<const int32_t> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

// As `classify` sees it: of equal scores the first is the largest.
bool is_largest(std::span<const float> scores, size_t label) {
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(i < label ? scores[label] > scores[i] : scores[label] >= scores[i])) return false;
  }
  return true;
}

// The share of examples whose label has the largest score.
class AccuracyMeter : public Meter {
 public:
  // `scores`: the output that has them, or "".
  AccuracyMeter(std::shared_ptr<const ImageSet> set, std::string scores)
      : set_(std::move(set)), scores_(std::move(scores)) {}

  void add(const Outputs& outputs, const FeedBatch& batch) override {
    correct_ += static_cast<uint64_t>(outputs[kSums][1]);
    examples_ += static_cast<uint64_t>(outputs.count());
    if (!scores_.empty() && outputs.has(scores_)) add_classes(outputs, batch);
  }
  std::vector<ClassCount> by_class() const override { return classes_; }
  std::vector<double> values() const override {
    return {static_cast<double>(correct_) / static_cast<double>(std::max<uint64_t>(examples_, 1))};
  }
  void reset() override {
    correct_ = examples_ = 0;
    classes_.clear();
  }
  void merge(const Meter& other) override {
    const auto& from = dynamic_cast<const AccuracyMeter&>(other);
    correct_ += from.correct_;
    examples_ += from.examples_;
    if (classes_.empty()) {
      classes_ = from.classes_;
      return;
    }
    for (size_t i = 0; i < from.classes_.size(); ++i) {
      classes_[i].examples += from.classes_[i].examples;
      classes_[i].right += from.classes_[i].right;
    }
  }
  State save() const override {
    return {{"correct", std::to_string(correct_)}, {"examples", std::to_string(examples_)}};
  }
  void restore(const State& state) override {
    correct_ = count(state, "correct");
    examples_ = count(state, "examples");
  }

 private:
  // Scores are read in evaluation alone, so the examples are the test set's.
  void add_classes(const Outputs& outputs, const FeedBatch& batch) {
    if (classes_.empty()) {
      const std::vector<std::string> names = class_names_of(*set_);
      for (size_t label = 0; label < set_->classes; ++label)
        classes_.push_back({label < names.size() ? names[label] : std::to_string(label)});
    }
    const std::span<const float> scores = outputs[scores_];
    // Where batches are made on a device, it is told the numbers of the examples only.
    const Feed* labels = batch.find("labels");
    const Feed* fed = labels != nullptr ? labels : batch.find("examples");
    const auto* numbers = static_cast<const int32_t*>(fed->values) + outputs.first();
    for (int64_t i = 0; i < outputs.count(); ++i) {
      const int32_t label =
          labels != nullptr ? numbers[i] : set_->test.labels[static_cast<size_t>(numbers[i])];
      ClassCount& counted = classes_[static_cast<size_t>(label)];
      ++counted.examples;
      const auto first = static_cast<size_t>(i) * set_->classes;
      counted.right += is_largest(scores.subspan(first, set_->classes), static_cast<size_t>(label)) ? 1 : 0;
    }
  }

  std::shared_ptr<const ImageSet> set_;
  std::string scores_;
  uint64_t correct_ = 0, examples_ = 0;
  std::vector<ClassCount> classes_;
};

class ImageStream : public BatchStream {
 public:
  ImageStream(const ImageSet& set, Part part, const LoaderOptions& options) : loader_(set, part, options) {}

  const FeedBatch& next() override {
    const Batch& made = loader_.next();
    batch_.shape = {static_cast<int64_t>(made.count())};
    batch_.epoch = made.epoch;
    if (made.images.empty()) {
      // The numbers are below 2^31, as a set is an array in memory.
      batch_.feeds = {feed_of("examples", std::span(reinterpret_cast<const int32_t*>(made.examples.data()),
                                                    made.examples.size()))};
    } else {
      batch_.feeds = {feed_of("input", made.images), feed_of("labels", made.labels)};
    }
    return batch_;
  }
  void seek(uint32_t epoch, uint64_t batch) override { loader_.seek(epoch, batch); }
  size_t examples() const override { return loader_.examples(); }
  uint64_t batches() const override { return loader_.batches(); }

 private:
  Loader loader_;
  FeedBatch batch_;
};

DataRequest request_of(const TaskOptions& options) {
  DataRequest request;
  request.dir = options.data_dir;
  if (!options.image_shape.empty()) {
    // The shape may stand in a file that was written for another data set.
    if (const DatasetInfo& info = find_dataset(options.data); info.height > 0 && !info.marker.empty()) {
      fail("data", "image_shape is {}, and {} has a shape of its own: leave it out, or say --image-shape ''",
           options.image_shape, info.name);
    }
    parse_image_shape(options.image_shape, request);
  }
  request.seed = options.seed;
  return request;
}

std::unique_ptr<LearningTask> make(const TaskOptions& options) {
  return std::make_unique<ClassificationTask>(options, load_dataset(options.data, request_of(options)));
}

std::unique_ptr<LearningTask> outline(const TaskOptions& options) {
  std::optional<DataOutline> known = outline_dataset(options.data, request_of(options));
  if (!known) return make(options);
  return ClassificationTask::of_noise(options, std::move(known->set), known->train, known->test);
}

constexpr std::string_view kUsualInput = "3x32x32";

std::unique_ptr<LearningTask> sketch(const TaskOptions& options, const NetworkId& id, const DataSize& size) {
  if (id.classes < 2) fail("tasks", "there must be two classes or more, got {}", id.classes);
  const ImageSize image = parse_image_size(id.input.empty() ? kUsualInput : id.input);
  ImageSet set;
  set.name = "noise";
  set.height = static_cast<size_t>(image.height);
  set.width = static_cast<size_t>(image.width);
  set.channels = static_cast<size_t>(image.channels);
  set.classes = static_cast<size_t>(id.classes);
  const auto batch = static_cast<size_t>(std::max<int64_t>(options.batch, 1));
  return ClassificationTask::of_noise(options, std::move(set), size.train > 0 ? size.train : batch,
                                      size.test > 0 ? size.test : 1);
}

// Noise around grey, with about the deviation of the sketch, and random labels.
void fill_noise(const ImageSet& set, Examples& part, size_t count) {
  part.labels.resize(count);
  part.images.resize(count * set.image_bytes());
  const auto word = [](size_t i, uint32_t stream) {
    return philox({{static_cast<uint32_t>(i), 0, 0, stream}}, {{5, 8}}).word[0];
  };
  for (size_t i = 0; i < count; ++i) part.labels[i] = static_cast<int32_t>(word(i, 1) % set.classes);
  for (size_t i = 0; i < part.images.size(); ++i) {
    // The sum of four random bytes is nearly normal.
    const uint32_t random = word(i, 2);
    const uint32_t sum = (random & 255) + (random >> 8 & 255) + (random >> 16 & 255) + (random >> 24);
    part.images[i] = static_cast<uint8_t>(std::clamp<int32_t>(static_cast<int32_t>(sum) / 2 - 127, 0, 255));
  }
}

void check_unused(const TaskOptions& options) {
  if (options.length != TaskOptions{}.length)
    fail("tasks", "--length is of sequences: images in classes have no use for it");
}

// Images with more channels than a device makes batches of are made on the host.
TaskOptions without_many_channels(TaskOptions options, const ImageSet& set) {
  options.resident = options.resident && set.channels <= ImageBatchOptions::kMaxChannels;
  return options;
}

// Training has no use for scores, and with them its memory would be another.
Network network_of(const Builder& b, const Classifier& made, bool scores) {
  Network network;
  network.loss = made.loss;
  network.loss_sum = made.sums;
  network.outputs = {made.sums};
  if (scores && !b.training()) network.outputs.push_back(made.scores);
  return network;
}

}  // namespace

const TaskInfo classification_task{.name = "classification",
                                   .about = "images in classes, by a network of `ulp models`",
                                   .models =
                                       [] {
                                         std::vector<std::string_view> names;
                                         for (const ModelInfo& info : models()) names.push_back(info.name);
                                         return names;
                                       },
                                   .takes_data =
                                       [](std::string_view data) {
                                         const auto all = datasets();
                                         return std::any_of(
                                             all.begin(), all.end(),
                                             [&](const DatasetInfo& info) { return info.name == data; });
                                       },
                                   .make = make,
                                   .outline = outline,
                                   .sketch = sketch};

BuildFunction classifier_build(const ModelRequest& request, bool scores) {
  return [request, scores](Builder& b, const BatchShape& shape) {
    ModelRequest of = request;
    of.batch = shape.examples;
    const ImageSources sources = add_image_sources(b, of);
    return network_of(b, add_classifier(b, sources.input, sources.labels, of), scores);
  };
}

ClassificationTask::ClassificationTask(const TaskOptions& options, ImageSet set)
    : options_(without_many_channels(options, set)),
      set_(std::make_shared<ImageSet>(std::move(set))),
      train_examples_(set_->train.count()),
      test_examples_(set_->test.count()) {
  check_unused(options);
}

std::unique_ptr<ClassificationTask> ClassificationTask::of_noise(const TaskOptions& options, ImageSet shape,
                                                                 size_t train, size_t test) {
  shape.mean.assign(shape.channels, 0.5f);
  shape.deviation.assign(shape.channels, 0.25f);
  auto made = std::make_unique<ClassificationTask>(options, std::move(shape));
  made->train_examples_ = train;
  made->test_examples_ = test;
  made->noise_ = true;
  return made;
}

const ImageSet& ClassificationTask::set() const {
  if (noise_ && set_->train.count() == 0) {
    fill_noise(*set_, set_->train, train_examples_);
    fill_noise(*set_, set_->test, test_examples_);
  }
  return *set_;
}

std::span<const Metric> ClassificationTask::metrics() const { return {&kAccuracy, 1}; }

ModelRequest ClassificationTask::request() const {
  ModelRequest request;
  request.name = options_.model;
  request.width = options_.width;
  request.batch = options_.batch;
  request.image = {static_cast<int64_t>(set_->channels), static_cast<int64_t>(set_->height),
                   static_cast<int64_t>(set_->width)};
  request.classes = static_cast<int64_t>(set_->classes);
  request.label_smoothing = options_.label_smoothing;
  return request;
}

BuildFunction ClassificationTask::build() const {
  if (!options_.resident) return classifier_build(request(), options_.scores);
  std::array<ImageBatchOptions, 2> images;  // by mode
  for (const Mode mode : {Mode::training, Mode::inference}) {
    const bool training = mode == Mode::training;
    const LoaderOptions loader = loader_options(training ? Part::train : Part::test);
    ImageBatchOptions& made = images[training ? 0 : 1];
    made.rows = static_cast<int64_t>(stored(training ? Part::train : Part::test));
    made.height = static_cast<int64_t>(set_->height);
    made.width = static_cast<int64_t>(set_->width);
    made.channels = static_cast<int64_t>(set_->channels);
    made.augment = {loader.seed, loader.padding, loader.mirror};
    for (size_t c = 0; c < std::min(set_->channels, made.normalise.size()); ++c)
      made.normalise[c] = make_normalise(set_->mean[c], set_->deviation[c]);
  }
  return [request = request(), images, scores = options_.scores](Builder& b, const BatchShape& shape) {
    const ImageBatchOptions& options = images[b.training() ? 0 : 1];
    const TensorId examples = indices(b, "examples", {shape.examples});
    const TensorId input = image_batch(b, "input", examples, options);
    const TensorId labels = take(b, "labels", examples, options.rows);
    ModelRequest of = request;
    of.batch = shape.examples;
    return network_of(b, add_classifier(b, input, labels, of), scores);
  };
}

LoaderOptions ClassificationTask::loader_options(Part part) const {
  LoaderOptions options;
  options.batch = options_.batch;
  options.seed = options_.seed;
  options.images = !options_.resident;
  if (part == Part::test) {
    // No more examples at a time than training has, so that evaluation does not decide the memory.
    options.batch = options_.batch / options_.micro_batches;
    options.shuffle = false;
    return options;
  }
  if (options_.subset > 0) options.subset = options_.subset;
  options.padding = options_.padding;
  options.mirror = options_.mirror;
  return options;
}

size_t ClassificationTask::examples(Part part) const {
  return part == Part::train && options_.subset > 0 ? static_cast<size_t>(options_.subset) : stored(part);
}

std::vector<BatchShape> ClassificationTask::training_shapes() const {
  if (examples(Part::train) > stored(Part::train)) {
    fail("data", "{} has {} training examples, too few for a subset of {}", set_->name, stored(Part::train),
         options_.subset);
  }
  return shapes_of(examples(Part::train), options_.batch);
}

std::vector<BatchShape> ClassificationTask::evaluation_shapes() const {
  return shapes_of(examples(Part::test), options_.batch / options_.micro_batches);
}

std::unique_ptr<BatchStream> ClassificationTask::stream(Part part) const {
  return std::make_unique<ImageStream>(set(), part, loader_options(part));
}

std::unique_ptr<Meter> ClassificationTask::meter() const {
  return std::make_unique<AccuracyMeter>(set_, scores());
}

void ClassificationTask::keep_data(Engine& engine) const {
  if (!options_.resident) return;
  for (const Mode mode : {Mode::training, Mode::inference}) {
    const Examples& part = mode == Mode::training ? set().train : set().test;
    engine.keep_resident(mode, "input", part.images);
    engine.keep_resident(mode, "labels", bytes_of(part.labels));
  }
}

std::unique_ptr<LearningTask> ClassificationTask::with_seed(uint64_t seed) const {
  auto made = std::make_unique<ClassificationTask>(*this);
  made->options_.seed = seed;
  return made;
}

NetworkId ClassificationTask::id() const {
  return {options_.model, options_.width, fmt::format("{}x{}x{}", set_->channels, set_->height, set_->width),
          static_cast<int64_t>(set_->classes)};
}

std::string ClassificationTask::data_text() const {
  return fmt::format("; classes {}; input {}x{}x{}", set_->classes, set_->channels, set_->height,
                     set_->width);
}

Facts ClassificationTask::facts() const {
  Facts facts = LearningTask::facts();
  facts["mean"] = fmt::format("{}", fmt::join(set_->mean, " "));
  facts["deviation"] = fmt::format("{}", fmt::join(set_->deviation, " "));
  facts["border"] = std::to_string(set_->border);
  for (size_t i = 0; i < set_->class_names.size(); ++i)
    facts[fmt::format("class {}", i)] = set_->class_names[i];
  return facts;
}

std::vector<std::string> ClassificationTask::notes() const {
  constexpr size_t kShown = 5;
  const std::vector<std::string>& names = set_->skipped;
  if (names.empty()) return {};
  const std::span shown = std::span(names).first(std::min(kShown, names.size()));
  return {fmt::format("skipped {}: {}{}",
                      names.size() == 1 ? "a file that is no picture"
                                        : fmt::format("{} files that are no pictures", names.size()),
                      fmt::join(shown, ", "),
                      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "")};
}

std::string ClassificationTask::scores() const {
  if (!options_.scores) return "";
  ModelRequest one = request();
  one.batch = 1;
  const ClassifierGraph made = build_classifier(one, Mode::inference);
  return made.graph[made.scores].name;
}

}  // namespace ulp
