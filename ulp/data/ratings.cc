#include "ulp/data/ratings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "ulp/base/augment.h"
#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/data/readers.h"
#include "ulp/data/shuffle.h"
#include "ulp/data/tab_lines.h"

namespace ulp {
namespace {

constexpr std::array<std::string_view, 2> kPublished = {"ml-1m", "pinterest-20"};
constexpr std::string_view kTrain = ".train.rating", kTest = ".test.rating", kNegative = ".test.negative";
// A table has a row for each: a number beyond it is a mistake in the file.
constexpr int32_t kMostIds = 1 << 24;
constexpr size_t kLeastNegatives = 10;  // with fewer every item is among the first ten

constexpr std::string_view kNeed = "a line for each rating";

int32_t id_of(const TabLines& lines, std::string_view text, std::string_view what) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostIds) {
    lines.refuse("the {} must be a whole number from 0 to {}, got '{}'", what, kMostIds - 1,
                 shown_text(text));
  }
  return value;
}

struct Pairs {
  std::vector<int32_t> users, items;
};

// Lines "user item rating time", of which the last two only must be there.
Pairs read_pairs(const std::string& path, uint32_t& digest) {
  Pairs pairs;
  TabLines lines(path, kNeed, digest);
  while (lines.next()) {
    const auto fields = lines.fields();
    if (fields.size() != 4) {
      lines.refuse("a rating has 4 columns with tabs between (user, item, rating, time), this has {}",
                   fields.size());
    }
    pairs.users.push_back(id_of(lines, fields[0], "user"));
    pairs.items.push_back(id_of(lines, fields[1], "item"));
  }
  return pairs;
}

// "(user,item)".
void check_left_out(const TabLines& lines, int32_t user, int32_t item) {
  if (lines.fields()[0] != fmt::format("({},{})", user, item)) {
    lines.refuse("it must begin with ({},{}), as line {} of the test ratings says, got '{}'", user, item,
                 lines.number(), shown_text(lines.fields()[0]));
  }
}

void read_negatives(const std::string& path, const Pairs& test, RatingSet& set) {
  TabLines lines(path, kNeed, set.digest);
  while (lines.next()) {
    const size_t row = lines.number() - 1;
    if (row >= test.users.size()) {
      lines.refuse("there are {} test ratings, and each has one line here: this is one too many",
                   test.users.size());
    }
    check_left_out(lines, test.users[row], test.items[row]);
    const size_t count = lines.fields().size();
    if (set.candidates == 0 && count <= kLeastNegatives)
      lines.refuse("{} or more items are needed beside the one that was left out, got {}", kLeastNegatives,
                   count - 1);
    if (set.candidates == 0) set.candidates = count;
    if (count != set.candidates)
      lines.refuse("line 1 has {} items that were not met, this has {}", set.candidates - 1, count - 1);
    set.test_items.push_back(test.items[row]);
    for (const std::string_view field : lines.fields().subspan(1)) {
      const int32_t item = id_of(lines, field, "item");
      if (item >= set.items)
        lines.refuse("there is no item {}: the ratings have items 0 to {}", item, set.items - 1);
      set.test_items.push_back(item);
    }
  }
  if (lines.number() != test.users.size()) {
    fail("data", "{} has {} lines for {} test ratings: each needs one", path, lines.number(),
         test.users.size());
  }
}

// The files' common prefix.
std::string find_prefix(std::string_view name, const std::string& data_dir) {
  std::vector<std::string> places;
  const std::string& root = data_dir.empty() ? data_root() : data_dir;
  if (name.find('/') != name.npos) {
    if (!data_dir.empty()) fail("data", "{} names its folder itself: leave out --data-dir", name);
    places = {std::string(name)};
  } else if (!root.empty()) {
    for (const std::string& folder :
         {fmt::format("{}/movielens", root), fmt::format("{}/{}", root, name), root})
      places.push_back(fmt::format("{}/{}", folder, name));
  }
  for (const std::string& place : places) {
    for (const std::string_view packed : {"", ".gz"}) {
      if (is_there("data", fmt::format("{}{}{}", place, kTrain, packed))) return place;
    }
  }
  fail("data",
       "there are no ratings {}: {}{}; they are {}{}, {}{} and {}{}, for ml-1m from "
       "https://github.com/hexiangnan/neural_collaborative_filtering (Data)",
       name, places.empty() ? "set ULP_DATA, or say --data-dir DIR" : "looked for ", fmt::join(places, ", "),
       name, kTrain, name, kTest, name, kNegative);
}

std::string file_of(const std::string& prefix, std::string_view kind) {
  const std::string plain = fmt::format("{}{}", prefix, kind);
  return is_there("data", plain) ? plain : is_there("data", plain + ".gz") ? plain + ".gz" : plain;
}

}  // namespace

bool RatingSet::has_met(int32_t user, int32_t item) const {
  const auto begin = met.begin() + first[static_cast<size_t>(user)];
  return std::binary_search(begin, met.begin() + first[static_cast<size_t>(user) + 1], item);
}

void RatingSet::set_pairs(std::span<const int32_t> users_of_pairs, std::span<const int32_t> items_of_pairs) {
  if (users_of_pairs.size() > std::numeric_limits<uint32_t>::max())
    fail("data", "{} ratings are too many: at most 2^32 - 1", users_of_pairs.size());
  first.assign(static_cast<size_t>(users) + 1, 0);
  for (const int32_t user : users_of_pairs) ++first[static_cast<size_t>(user) + 1];
  for (size_t user = 0; user < static_cast<size_t>(users); ++user) first[user + 1] += first[user];
  met.resize(users_of_pairs.size());
  user_of.resize(met.size());
  std::vector<uint32_t> at(first.begin(), first.end() - 1);
  for (size_t i = 0; i < users_of_pairs.size(); ++i)
    met[at[static_cast<size_t>(users_of_pairs[i])]++] = items_of_pairs[i];
  for (int32_t user = 0; user < users; ++user) {
    const auto begin = met.begin() + first[static_cast<size_t>(user)];
    const auto end = met.begin() + first[static_cast<size_t>(user) + 1];
    std::sort(begin, end);
    std::fill(user_of.begin() + (begin - met.begin()), user_of.begin() + (end - met.begin()), user);
    int32_t different = begin == end ? 0 : 1;
    for (auto i = begin; i != end && i + 1 != end; ++i) different += *i != *(i + 1) ? 1 : 0;
    if (different == items)
      fail("data", "user {} of {} has met all {} items: none is left to tell apart from them", user, name,
           items);
  }
}

int32_t draw_unmet(const RatingSet& set, int32_t user, uint64_t seed, uint32_t epoch, uint64_t index) {
  for (uint64_t again = 0;; ++again) {
    const PhiloxWords words = data_words(seed, DataStream::negatives, epoch, index | again << 40);
    for (const uint32_t word : words.word) {
      const std::optional<uint32_t> item = fair_number(word, static_cast<uint32_t>(set.items));
      if (item && !set.has_met(user, static_cast<int32_t>(*item))) return static_cast<int32_t>(*item);
    }
  }
}

bool names_ratings(std::string_view name) {
  return name.find('/') != name.npos ||
         std::find(kPublished.begin(), kPublished.end(), name) != kPublished.end();
}

RatingSet load_ratings(std::string_view name, const std::string& data_dir) {
  const std::string prefix = find_prefix(name, data_dir);
  RatingSet set;
  set.name = name;
  set.digest = TabLines::kNoDigest;
  const Pairs train = read_pairs(file_of(prefix, kTrain), set.digest);
  const Pairs test = read_pairs(file_of(prefix, kTest), set.digest);
  for (const Pairs* pairs : {&train, &test}) {
    set.users = std::max(set.users, *std::max_element(pairs->users.begin(), pairs->users.end()) + 1);
    set.items = std::max(set.items, *std::max_element(pairs->items.begin(), pairs->items.end()) + 1);
  }
  set.set_pairs(train.users, train.items);
  set.test_users = test.users;
  read_negatives(file_of(prefix, kNegative), test, set);
  return set;
}

}  // namespace ulp
