// Which items a user will choose: learned from pairs of users and items that met, each beside items
// that did not meet, and measured by where the item that was left out stands among others.
//
// An epoch has every pair once, with four items drawn anew from those that the user has not met. Of
// each test user the left-out item is scored among 99 others. HR@10 is the share of users whose
// item is among the first ten, NDCG@10 gives it 1 / log2(place + 1).
//
// Narrow formats make many scores equal. Items of the left-out item's score stand in a random order:
// the metrics are their means over all orders, so a network that tells nothing apart is at chance.
// `ties` is how many others had that score, on average. A score that cannot be compared stands
// before the left-out item. Where that item is among the others too, which the published files have
// for a few users, it does not stand before itself.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/data/ratings.h"
#include "ulp/graph/ops.h"
#include "ulp/models/recommenders.h"
#include "ulp/tasks/example_stream.h"
#include "ulp/tasks/list.h"

namespace ulp {
namespace {

constexpr std::string_view kModel = "ncf";
constexpr std::string_view kScores = "score.out";
constexpr Metric kMetrics[] = {
    {"hr10", true, true, false}, {"ndcg10", true, false, false}, {"ties", false, false, false}};
constexpr size_t kPlaces = 10;
constexpr size_t kDrawn = 4;  // items not met, for each that was

class PairMaker : public BatchMaker {
 public:
  PairMaker(std::shared_ptr<const RatingSet> set, Part part, uint64_t seed)
      : set_(std::move(set)), part_(part), seed_(seed) {}

  void make(size_t slot, std::span<const uint32_t> examples, uint32_t epoch) override {
    Pairs& pairs = slots_[slot];
    pairs.users.resize(examples.size());
    pairs.items.resize(examples.size());
    pairs.labels.resize(examples.size());
    for (size_t i = 0; i < examples.size(); ++i) {
      const uint32_t example = examples[i];
      if (part_ == Part::test) {
        pairs.users[i] = set_->test_users[example / set_->candidates];
        pairs.items[i] = set_->test_items[example];
        pairs.labels[i] = example % set_->candidates == 0 ? 1.0f : 0.0f;
        continue;
      }
      const size_t pair = example / (1 + kDrawn);
      const bool met = example % (1 + kDrawn) == 0;
      pairs.users[i] = set_->user_of[pair];
      pairs.items[i] = met ? set_->met[pair] : draw_unmet(*set_, pairs.users[i], seed_, epoch, example);
      pairs.labels[i] = met ? 1.0f : 0.0f;
    }
  }
  std::vector<Feed> feeds(size_t slot) const override {
    const Pairs& pairs = slots_[slot];
    return {feed_of("users", std::span<const int32_t>(pairs.users)),
            feed_of("items", std::span<const int32_t>(pairs.items)),
            feed_of("labels", std::span<const float>(pairs.labels))};
  }

 private:
  struct Pairs {
    std::vector<int32_t> users, items;
    std::vector<float> labels;
  };
  const std::shared_ptr<const RatingSet> set_;
  const Part part_;
  const uint64_t seed_;
  std::array<Pairs, ExampleStream::kSlots> slots_;
};

// Scores come in the order of the test set, a user's items together and the left-out one first; a
// batch may end between two of them.
class PlaceMeter : public Meter {
 public:
  explicit PlaceMeter(size_t candidates) : candidates_(candidates) {}

  void add(const Outputs& outputs, const FeedBatch& batch) override {
    if (!outputs.has(kScores)) return;  // of a training step
    const auto* item = static_cast<const int32_t*>(batch.find("items")->values) + outputs.first();
    for (const float score : outputs[kScores]) {
      if (seen_ == 0) {
        left_out_ = score;
        left_out_item_ = *item;
      } else if (*item != left_out_item_) {
        if (score == left_out_) {
          ++tied_;
        } else if (!(score < left_out_)) {
          ++before_;
        }
      }
      ++item;
      if (++seen_ == candidates_) rank();
    }
  }
  std::vector<double> values() const override {
    const auto users = static_cast<double>(users_);
    return {hits_ / users, gain_ / users, ties_ / users};
  }
  void reset() override { *this = PlaceMeter(candidates_); }
  void merge(const Meter& other) override {
    const auto& from = dynamic_cast<const PlaceMeter&>(other);
    check_whole();
    from.check_whole();
    users_ += from.users_;
    hits_ += from.hits_;
    gain_ += from.gain_;
    ties_ += from.ties_;
  }
  State save() const override {
    check_whole();
    return {{"ranked", std::to_string(users_)},
            {"hits", fmt::format("{}", hits_)},
            {"gain", fmt::format("{}", gain_)},
            {"ties", fmt::format("{}", ties_)}};
  }
  void restore(const State& state) override {
    reset();
    users_ = count(state, "ranked");
    hits_ = number(state, "hits");
    gain_ = number(state, "gain");
    ties_ = number(state, "ties");
  }

 private:
  // The user whose last score has come.
  void rank() {
    const double share = 1 / static_cast<double>(tied_ + 1);  // of each place among the ties
    for (size_t place = before_; place <= before_ + tied_ && place < kPlaces; ++place) {
      hits_ += share;
      gain_ += share / std::log2(static_cast<double>(place) + 2);
    }
    ties_ += static_cast<double>(tied_);
    ++users_;
    seen_ = before_ = tied_ = 0;
  }
  void check_whole() const {
    if (seen_ != 0) throw std::logic_error("a user's items were not all scored");
  }

  size_t candidates_;
  uint64_t users_ = 0;
  double hits_ = 0, gain_ = 0, ties_ = 0;  // sums over users
  // Of the user whose scores are coming in.
  size_t seen_ = 0, before_ = 0, tied_ = 0;
  float left_out_ = 0;
  int32_t left_out_item_ = 0;
};

class RankingTask : public LearningTask {
 public:
  RankingTask(const TaskOptions& options, std::shared_ptr<const RatingSet> set)
      : options_(options), set_(std::move(set)) {
    const TaskOptions usual;
    if (options.model != kModel)
      fail("tasks", "ratings are learned by --model {}, got '{}'", kModel, options.model);
    const bool images = options.padding != 0 || options.mirror || !options.image_shape.empty();
    if (images || options.label_smoothing != 0 || options.length != usual.length) {
      fail(
          "tasks",
          "ratings have no use for --augment, --image-shape, --label-smoothing and --length: leave them out");
    }
    const size_t all = set_->met.size() * (1 + kDrawn);
    if (all > std::numeric_limits<uint32_t>::max())
      fail("data", "{} ratings are too many: at most 2^32 examples with those not met", set_->met.size());
    if (options.subset < 0 || static_cast<size_t>(options.subset) > all)
      fail("data", "{} has {} training examples, too few for a subset of {}", set_->name, all,
           options.subset);
  }

  std::span<const Metric> metrics() const override { return kMetrics; }
  BatchShape batch() const override { return {options_.batch}; }
  std::vector<BatchShape> training_shapes() const override {
    return shapes_of(examples(Part::train), options_.batch);
  }
  std::vector<BatchShape> evaluation_shapes() const override {
    return shapes_of(examples(Part::test), options_.batch / options_.micro_batches);
  }
  std::unique_ptr<BatchStream> stream(Part part) const override {
    const int64_t batch = part == Part::train ? options_.batch : options_.batch / options_.micro_batches;
    const size_t all = part == Part::train ? set_->met.size() * (1 + kDrawn) : set_->test_items.size();
    return std::make_unique<ExampleStream>(std::make_unique<PairMaker>(set_, part, options_.seed), part, all,
                                           batch, options_.subset, options_.seed);
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<PlaceMeter>(set_->candidates); }
  void keep_data(Engine&) const override {}
  size_t examples(Part part) const override {
    if (part == Part::test) return set_->test_items.size();
    return options_.subset > 0 ? static_cast<size_t>(options_.subset) : set_->met.size() * (1 + kDrawn);
  }
  std::unique_ptr<LearningTask> with_seed(uint64_t seed) const override {
    auto made = std::make_unique<RankingTask>(*this);
    made->options_.seed = seed;
    return made;
  }
  NetworkId id() const override {
    return {options_.model, options_.width, fmt::format("{}x{}", set_->users, set_->items), 2};
  }
  std::string data_text() const override {
    return fmt::format("; users {}; items {}; ratings {:08x}", set_->users, set_->items, set_->digest);
  }

  BuildFunction build() const override {
    const NcfOptions options{.users = set_->users, .items = set_->items, .width = options_.width};
    return [options](Builder& b, const BatchShape& shape) {
      const TensorId users = indices(b, "users", {shape.examples});
      const TensorId items = indices(b, "items", {shape.examples});
      const TensorId labels = target(b, "labels", {shape.examples, 1});
      const TensorId scores = ncf(b, users, items, options);
      Network made;
      made.loss = bce_with_logits(b, "loss", scores, labels);
      if (!b.training()) made.outputs = {scores};
      return made;
    };
  }

 private:
  TaskOptions options_;
  std::shared_ptr<const RatingSet> set_;
};

std::unique_ptr<LearningTask> make(const TaskOptions& options) {
  return std::make_unique<RankingTask>(
      options, std::make_shared<const RatingSet>(load_ratings(options.data, options.data_dir)));
}

// "6040x3706" into users and items.
std::pair<int32_t, int32_t> parse_tables(const std::string& text) {
  int32_t users = 0, items = 0;
  const char* end = text.data() + text.size();
  const auto [middle, error] = std::from_chars(text.data(), end, users);
  const bool one = error == std::errc() && middle != end && *middle == 'x';
  const auto [last, other] = std::from_chars(one ? middle + 1 : end, end, items);
  constexpr int32_t kMost = 1 << 24;
  if (!one || other != std::errc() || last != end || users < 1 || items < 2 || users > kMost || items > kMost)
    fail("tasks", "the input of a ranking network is users and items, such as 6040x3706, got '{}'", text);
  return {users, items};
}

// As MovieLens-1M, or with other tables: made-up pairs in which a user meets every other item at most.
std::unique_ptr<LearningTask> sketch(const TaskOptions& options, const NetworkId& id, const DataSize& size) {
  auto set = std::make_shared<RatingSet>();
  set->name = "made-up ratings";
  std::tie(set->users, set->items) = parse_tables(id.input.empty() ? "6040x3706" : id.input);
  const auto batch = static_cast<size_t>(std::max<int64_t>(options.batch, 1));
  const size_t pairs = ((size.train > 0 ? size.train : batch) + kDrawn) / (1 + kDrawn);
  std::vector<int32_t> users(pairs), items(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const PhiloxWords drawn = data_words(0, DataStream::noise, 0, i);
    users[i] = static_cast<int32_t>(drawn.word[0] % static_cast<uint32_t>(set->users));
    items[i] = static_cast<int32_t>(drawn.word[1] % static_cast<uint32_t>(set->items)) / 2 * 2;
  }
  set->set_pairs(users, items);
  set->candidates = 1 + kPlaces;
  const size_t tested = std::max<size_t>(1, size.test / set->candidates);
  for (size_t i = 0; i < tested; ++i) {
    set->test_users.push_back(static_cast<int32_t>(i % static_cast<size_t>(set->users)));
    for (size_t k = 0; k < set->candidates; ++k)
      set->test_items.push_back(static_cast<int32_t>((i + k) % static_cast<size_t>(set->items)));
  }
  return std::make_unique<RankingTask>(options, std::move(set));
}

}  // namespace

const TaskInfo ranking_task{.name = "ranking",
                            .about = "which items a user chooses, --data ml-1m or PREFIX --model ncf",
                            .models = [] { return std::vector<std::string_view>{kModel}; },
                            .takes_data = names_ratings,
                            .make = make,
                            .outline = make,
                            .sketch = sketch};

}  // namespace ulp
