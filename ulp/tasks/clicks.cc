// Which advertisements are clicked: learned from counts and ids of rows, and measured by the area under
// the ROC curve of the test rows.
//
// Counts are learned as log(1 + count). Of made-up rows it is known how well any network could do:
// `best_auc` is the area of the chances that the clicks were drawn from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/data/clicks.h"
#include "ulp/graph/ops.h"
#include "ulp/models/recommenders.h"
#include "ulp/numeric/math.h"
#include "ulp/tasks/area.h"
#include "ulp/tasks/example_stream.h"
#include "ulp/tasks/list.h"

namespace ulp {
namespace {

constexpr std::string_view kModel = "dlrm";
constexpr std::string_view kScores = "score.out";
constexpr Metric kMetrics[] = {{"auc", true, false, false}, {"best_auc", true, false, false}};

std::string id_source(size_t table) { return fmt::format("ids{}", table); }

class ClickMaker : public BatchMaker {
 public:
  ClickMaker(std::shared_ptr<const ClickSet> set, Part part) : set_(std::move(set)), part_(part) {}

  void make(size_t slot, std::span<const uint32_t> examples, uint32_t) override {
    ClickRows& rows = slots_[slot].rows;
    set_->read(part_, examples, rows);
    std::vector<float>& numbers = slots_[slot].numbers;
    numbers.resize(rows.counts.size());
    std::transform(rows.counts.begin(), rows.counts.end(), numbers.begin(),
                   [](int32_t count) { return log_near(1.0f + static_cast<float>(count)); });
  }
  std::vector<Feed> feeds(size_t slot) const override {
    const ClickRows& rows = slots_[slot].rows;
    std::vector<Feed> all = {feed_of("numbers", std::span<const float>(slots_[slot].numbers)),
                             feed_of("clicked", std::span<const float>(rows.clicked))};
    for (size_t table = 0; table < kClickTables; ++table)
      all.push_back(
          feed_of(id_source(table), std::span(rows.table_row).subspan(table * rows.size(), rows.size())));
    return all;
  }

 private:
  struct Slot {
    ClickRows rows;
    std::vector<float> numbers;
  };
  const std::shared_ptr<const ClickSet> set_;
  const Part part_;
  std::array<Slot, ExampleStream::kSlots> slots_;
};

class ClickMeter : public Meter {
 public:
  explicit ClickMeter(std::optional<double> best) : best_(best) {}

  void add(const Outputs& outputs, const FeedBatch& batch) override {
    if (!outputs.has(kScores)) return;  // of a training step
    const auto* clicked = static_cast<const float*>(batch.find("clicked")->values) + outputs.first();
    for (const float score : outputs[kScores]) area_.add(score, *clicked++ > 0.5f);
  }
  std::vector<double> values() const override {
    std::vector<double> all = {area_.value()};
    if (best_) all.push_back(*best_);
    return all;
  }
  void reset() override { area_ = {}; }
  void merge(const Meter& other) override { area_.merge(dynamic_cast<const ClickMeter&>(other).area_); }
  State save() const override { return area_.save(); }
  void restore(const State& state) override { area_.restore(state); }

 private:
  const std::optional<double> best_;
  RocArea area_;
};

// How well the chances themselves rank the test rows; none where they are not known.
std::optional<double> best_area(const ClickSet& set) {
  const std::vector<float> scores = set.best_scores(Part::test);
  if (scores.empty()) return {};
  std::vector<uint32_t> every(scores.size());
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<uint32_t>(i);
  RocArea area;
  ClickRows rows;
  constexpr size_t kAtOnce = 4096;
  for (size_t first = 0; first < every.size(); first += kAtOnce) {
    set.read(Part::test, std::span(every).subspan(first, std::min(kAtOnce, every.size() - first)), rows);
    for (size_t i = 0; i < rows.size(); ++i) area.add(scores[first + i], rows.clicked[i] > 0.5f);
  }
  return area.value();
}

class ClickTask : public LearningTask {
 public:
  // Whether there is a best area, and it where the task is to be run.
  struct Best {
    bool known = false;
    std::optional<double> area = {};
  };
  ClickTask(const TaskOptions& options, std::shared_ptr<const ClickSet> set, Best best)
      : options_(options), set_(std::move(set)), best_(best) {
    const TaskOptions usual;
    if (options.model != kModel)
      fail("tasks", "clicks are learned by --model {}, got '{}'", kModel, options.model);
    const bool images = options.padding != 0 || options.mirror || !options.image_shape.empty();
    if (images || options.label_smoothing != 0 || options.length != usual.length) {
      fail("tasks",
           "clicks have no use for --augment, --image-shape, --label-smoothing and --length: leave them out");
    }
    const size_t all = set_->examples(Part::train);
    if (options.subset < 0 || static_cast<size_t>(options.subset) > all)
      fail("data", "{} has {} training examples, too few for a subset of {}", set_->name(), all,
           options.subset);
  }

  std::span<const Metric> metrics() const override { return std::span(kMetrics).first(best_.known ? 2 : 1); }
  BatchShape batch() const override { return {options_.batch}; }
  std::vector<BatchShape> training_shapes() const override {
    return shapes_of(examples(Part::train), options_.batch);
  }
  std::vector<BatchShape> evaluation_shapes() const override {
    return shapes_of(examples(Part::test), options_.batch / options_.micro_batches);
  }
  std::unique_ptr<BatchStream> stream(Part part) const override {
    const int64_t batch = part == Part::train ? options_.batch : options_.batch / options_.micro_batches;
    return std::make_unique<ExampleStream>(std::make_unique<ClickMaker>(set_, part), part,
                                           set_->examples(part), batch, options_.subset, options_.seed);
  }
  std::unique_ptr<Meter> meter() const override {
    if (!best_.known) return std::make_unique<ClickMeter>(std::nullopt);
    return std::make_unique<ClickMeter>(best_.area.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  void keep_data(Engine&) const override {}
  // What is only planned has not looked at its test rows.
  bool made_up() const override { return best_.known && !best_.area; }
  size_t examples(Part part) const override {
    return part == Part::train && options_.subset > 0 ? static_cast<size_t>(options_.subset)
                                                      : set_->examples(part);
  }
  std::unique_ptr<LearningTask> with_seed(uint64_t seed) const override {
    auto made = std::make_unique<ClickTask>(*this);
    made->options_.seed = seed;
    return made;
  }
  NetworkId id() const override {
    const auto& tables = set_->tables();
    const bool alike = std::all_of(tables.begin(), tables.end(), [&](int32_t n) { return n == tables[0]; });
    return {options_.model, options_.width,
            alike ? fmt::format("{}", tables[0]) : fmt::format("{}", fmt::join(tables, "x")), 2};
  }
  std::string data_text() const override {
    return fmt::format("; rows {}+{}; clicks {:08x}", set_->examples(Part::train), set_->examples(Part::test),
                       set_->digest());
  }
  std::vector<std::string> notes() const override {
    if (!best_.area) return {};
    return {fmt::format(
        "made-up rows: the chances that clicks are drawn from have a test auc of {:.4f}; a network "
        "exceeds it by luck alone",
        *best_.area)};
  }

  BuildFunction build() const override {
    DlrmOptions options{.width = options_.width};
    options.tables.assign(set_->tables().begin(), set_->tables().end());
    return [options](Builder& b, const BatchShape& shape) {
      const TensorId numbers = input(b, "numbers", {shape.examples, static_cast<int64_t>(kClickCounts)});
      std::vector<TensorId> ids;
      for (size_t table = 0; table < kClickTables; ++table)
        ids.push_back(indices(b, id_source(table), {shape.examples}));
      const TensorId clicked = target(b, "clicked", {shape.examples, 1});
      const TensorId scores = dlrm(b, numbers, ids, options);
      Network made;
      made.loss = bce_with_logits(b, "loss", scores, clicked);
      if (!b.training()) made.outputs = {scores};
      return made;
    };
  }

 private:
  TaskOptions options_;
  std::shared_ptr<const ClickSet> set_;
  Best best_;
};

std::unique_ptr<LearningTask> make(const TaskOptions& options) {
  auto set = load_clicks(options.data, options.data_dir);
  const std::optional<double> best = best_area(*set);
  return std::make_unique<ClickTask>(options, std::move(set), ClickTask::Best{best.has_value(), best});
}

// The rows of a file decide the sizes of the tables; those of made-up ones are in their name.
std::unique_ptr<LearningTask> outline(const TaskOptions& options) {
  if (!names_made_clicks(options.data)) return make(options);
  return std::make_unique<ClickTask>(options, load_clicks(options.data, options.data_dir),
                                     ClickTask::Best{true, {}});
}

// "10000" for all tables, or one number for each with x between.
std::array<int32_t, kClickTables> parse_tables(std::string_view text) {
  std::vector<int32_t> sizes;
  bool good = true;
  for (std::string_view rest = text; good;) {
    const std::string_view one = rest.substr(0, rest.find('x'));
    int32_t size = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), size);
    good = error == std::errc() && end == one.data() + one.size() && size > 0 && size <= 1 << 24;
    sizes.push_back(size);
    if (one.size() == rest.size()) break;
    rest.remove_prefix(one.size() + 1);
  }
  if (!good || (sizes.size() != 1 && sizes.size() != kClickTables)) {
    fail("tasks",
         "the input of a network of clicks is the size of its tables, such as 10000, or {} sizes with x "
         "between, "
         "got '{}'",
         kClickTables, text);
  }
  std::array<int32_t, kClickTables> tables{};
  for (size_t i = 0; i < kClickTables; ++i) tables[i] = sizes[sizes.size() == 1 ? 0 : i];
  return tables;
}

// Tables of some sizes, and rows that name any of their ids.
class SketchedClicks : public ClickSet {
 public:
  SketchedClicks(const std::array<int32_t, kClickTables>& tables, size_t train, size_t test) {
    name_ = "made-up clicks";
    tables_ = tables;
    train_ = train;
    test_ = test;
  }
  void read(Part, std::span<const uint32_t> numbers, ClickRows& rows) const override {
    rows.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      rows.clicked[i] = static_cast<float>(numbers[i] % 2);
      for (size_t k = 0; k < kClickCounts; ++k)
        rows.counts[i * kClickCounts + k] = static_cast<int32_t>(numbers[i] * (k + 1) % 100);
      for (size_t k = 0; k < kClickTables; ++k) {
        rows.table_row[k * numbers.size() + i] =
            static_cast<int32_t>(numbers[i] * 2654435761u % static_cast<uint32_t>(tables_[k]));
      }
    }
  }
  std::vector<float> best_scores(Part) const override { return {}; }
};

std::unique_ptr<LearningTask> sketch(const TaskOptions& options, const NetworkId& id, const DataSize& size) {
  const auto tables = parse_tables(id.input.empty() ? "10000" : id.input);
  const auto batch = static_cast<size_t>(std::max<int64_t>(options.batch, 1));
  auto set = std::make_shared<SketchedClicks>(tables, size.train > 0 ? size.train : batch,
                                              size.test > 0 ? size.test : batch);
  return std::make_unique<ClickTask>(options, std::move(set), ClickTask::Best{});
}

}  // namespace

const TaskInfo clicks_task{
    .name = "clicks",
    .about = "which advertisements are clicked, --data criteo, FILE or synthetic-clicks --model dlrm",
    .models = [] { return std::vector<std::string_view>{kModel}; },
    .takes_data = names_clicks,
    .make = make,
    .outline = outline,
    .sketch = sketch};

}  // namespace ulp
