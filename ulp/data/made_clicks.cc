// Made-up clicks. Words are Philox's, and chances are made by additions, products, quotients and
// square roots alone, which are the same on every machine.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/text.h"
#include "ulp/data/clicks.h"

namespace ulp {
namespace {

constexpr std::string_view kName = "synthetic-clicks";
constexpr int64_t kRows = 1'000'000, kIds = 10'000, kMostIds = 1 << 20;
constexpr int64_t kMostTrain = int64_t{1} << 31, kMostTest = 500'000;

// How far each part of a chance spreads: one standard deviation of all effects of its kind together.
constexpr float kOfIds = 0.8f, kOfPairs = 0.35f, kOfCounts = 0.6f;
constexpr float kUsual = -0.75f;  // three of four are not clicked
constexpr uint64_t kBuckets = 8;  // into which pairs sort the ids of either table

// A number of mean 0 and deviation 1 that belongs to these words: a sum of four even ones.
float effect(uint64_t seed, uint64_t kind, uint64_t a, uint64_t b = 0) {
  uint64_t word = seed * 0x9E3779B97F4A7C15u + kind;
  for (const uint64_t next : {a, b}) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u + next;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    word ^= word >> 31;
  }
  int32_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int32_t>(word >> shift & 0xFFFF);
  constexpr float kDeviation = 37837.23f;  // 65536 / sqrt(3)
  return (static_cast<float>(sum) - 131070.0f) / kDeviation;
}

// Draws ranks below n so that rank r comes up in proportion to 1 / (r + 1), in constant time: each
// even place has a share of its own rank, and the rest belongs to one other (Walker's aliases).
class Zipf {
 public:
  explicit Zipf(uint32_t n) : other_(n), own_(n) {
    std::vector<double> share(n);
    double sum = 0;
    for (uint32_t r = 0; r < n; ++r) sum += share[r] = 1.0 / (r + 1);
    std::vector<uint32_t> small, large;
    for (uint32_t r = 0; r < n; ++r) {
      share[r] *= n / sum;
      (share[r] < 1 ? small : large).push_back(r);
    }
    std::fill(own_.begin(), own_.end(), ~uint32_t{0});
    for (uint32_t r = 0; r < n; ++r) other_[r] = r;
    while (!small.empty() && !large.empty()) {
      const uint32_t r = small.back(), from = large.back();
      small.pop_back();
      own_[r] = static_cast<uint32_t>(share[r] * 4294967295.0);
      other_[r] = from;
      share[from] -= 1 - share[r];
      if (share[from] >= 1) continue;
      large.pop_back();
      small.push_back(from);
    }
  }

  uint32_t draw(uint32_t word) const {
    const uint64_t place = uint64_t{word} * own_.size();
    const auto r = static_cast<uint32_t>(place >> 32);
    return static_cast<uint32_t>(place) <= own_[r] ? r : other_[r];
  }

 private:
  std::vector<uint32_t> other_, own_;
};

class MadeClicks : public ClickSet {
 public:
  MadeClicks(std::string_view name, int64_t rows, int64_t ids, uint64_t seed)
      : seed_(seed), zipf_(static_cast<uint32_t>(ids)) {
    name_ = name;
    train_ = static_cast<size_t>(rows);
    test_ = static_cast<size_t>(std::clamp<int64_t>(rows / 10, 1, kMostTest));
    tables_.fill(static_cast<int32_t>(ids));
    digest_ = 2166136261u;
    for (const uint64_t word : {uint64_t{1}, static_cast<uint64_t>(rows), static_cast<uint64_t>(ids), seed}) {
      for (int shift = 0; shift < 64; shift += 8) digest_ = (digest_ ^ (word >> shift & 0xFF)) * 16777619u;
    }
  }

  void read(Part part, std::span<const uint32_t> numbers, ClickRows& rows) const override {
    const size_t count = numbers.size();
    rows.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const Row row = make(part, numbers[i]);
      rows.clicked[i] = row.clicked ? 1.0f : 0.0f;
      for (size_t k = 0; k < kClickCounts; ++k)
        rows.counts[i * kClickCounts + k] = static_cast<int32_t>(row.count[k]);
      for (size_t k = 0; k < kClickTables; ++k)
        rows.table_row[k * count + i] = static_cast<int32_t>(row.id[k]);
    }
  }

  std::vector<float> best_scores(Part part) const override {
    std::vector<float> scores(examples(part));
    parallel_for(scores.size(), 256, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) scores[i] = make(part, i).score;
    });
    return scores;
  }

 private:
  struct Row {
    std::array<uint32_t, kClickTables> id;
    std::array<uint32_t, kClickCounts> count;
    float score;
    bool clicked;
  };

  // Test rows have numbers that no training row has.
  Row make(Part part, uint64_t number) const {
    if (part == Part::test) number += uint64_t{1} << 40;
    constexpr size_t kBlocks = (kClickTables + kClickCounts + 1 + 3) / 4;
    std::array<uint32_t, 4 * kBlocks> words;
    for (size_t block = 0; block < kBlocks; ++block) {
      const PhiloxWords drawn = data_words(seed_, DataStream::noise, static_cast<uint32_t>(block), number);
      std::copy_n(drawn.word, 4, words.begin() + static_cast<ptrdiff_t>(4 * block));
    }
    Row row{};
    for (size_t k = 0; k < kClickTables; ++k) row.id[k] = zipf_.draw(words[k]);
    for (size_t k = 0; k < kClickCounts; ++k) row.count[k] = count(k, words[kClickTables + k]);
    row.score = kUsual + of_ids(row) + of_pairs(row) + of_counts(row);
    const float chance = 0.5f + 0.5f * row.score / std::sqrt(1 + row.score * row.score);
    row.clicked = static_cast<float>(words[kClickTables + kClickCounts] >> 8) * 0x1p-24f < chance;
    return row;
  }

  // Odds with a long tail, on a scale of the column's own; some are missing, which reads as 0.
  static uint32_t count(size_t column, uint32_t word) {
    if ((word & 0xFF) < column % 4 * 24) return 0;
    const uint64_t below = word >> 8;
    return static_cast<uint32_t>((below << (column % 6 + 1)) / ((uint64_t{1} << 24) - below));
  }

  float of_ids(const Row& row) const {
    float sum = 0;
    for (size_t k = 0; k < kClickTables; ++k) sum += effect(seed_, 1 + k, row.id[k]);
    return sum * (kOfIds / std::sqrt(static_cast<float>(kClickTables)));
  }

  // Neighbouring tables in pairs. Ids of a table meet the other's by a few buckets, so that there is
  // something to learn for rare ones too.
  float of_pairs(const Row& row) const {
    constexpr size_t kPairs = kClickTables / 2;
    float sum = 0;
    for (size_t k = 0; k < kPairs; ++k)
      sum += effect(seed_, 100 + k, row.id[2 * k] % kBuckets, row.id[2 * k + 1] % kBuckets);
    return sum * (kOfPairs / std::sqrt(static_cast<float>(kPairs)));
  }

  // Counts by their number of bits: each bends towards a bound, and neighbours are multiplied.
  float of_counts(const Row& row) const {
    std::array<float, kClickCounts> bent{};
    for (size_t k = 0; k < kClickCounts; ++k) {
      const float bits = static_cast<float>(std::bit_width(row.count[k])) - static_cast<float>(k % 6 + 1);
      bent[k] = bits / (1 + std::fabs(bits));
    }
    float sum = 0;
    for (size_t k = 0; k < kClickCounts; ++k) {
      sum += effect(seed_, 200, k) * bent[k];
      sum += effect(seed_, 201, k) * bent[k] * bent[(k + 1) % kClickCounts];
    }
    return sum * (kOfCounts / std::sqrt(static_cast<float>(kClickCounts) * 0.5f));
  }

  const uint64_t seed_;
  const Zipf zipf_;
};

}  // namespace

bool names_made_clicks(std::string_view name) {
  return name.starts_with(kName) && (name.size() == kName.size() || name[kName.size()] == ':');
}

std::shared_ptr<const ClickSet> made_clicks(std::string_view name) {
  std::array<int64_t, 3> given = {kRows, kIds, 0};
  constexpr std::array<int64_t, 3> kLeast = {10, 1, 0}, kMost = {kMostTrain, kMostIds, int64_t{1} << 53};
  constexpr std::array<std::string_view, 3> kWhat = {"rows", "ids", "seed"};
  std::string_view rest = name.substr(std::min(kName.size() + 1, name.size()));
  for (size_t i = 0; !rest.empty() || (i == 0 && name.size() > kName.size()); ++i) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string_view text = rest.substr(0, colon);
    const bool known = i < given.size();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!known || error != std::errc() || end != text.data() + text.size() || value < kLeast[i] ||
        value > kMost[i] || colon + 1 == rest.size()) {
      fail("data", "'{}' is no set of made-up clicks: it is {}, {}:ROWS, {}:ROWS:IDS or {}:ROWS:IDS:SEED{}",
           shown_text(name), kName, kName, kName, kName,
           known ? fmt::format(", with {} from {} to {}", kWhat[i], kLeast[i], kMost[i]) : "");
    }
    given[i] = value;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return std::make_shared<const MadeClicks>(name, given[0], given[1], static_cast<uint64_t>(given[2]));
}

}  // namespace ulp
