// Who met what: pairs of users and items to learn from, and for each test user the item that was
// left out among others that the user has not met. The layout is that of the public code of neural
// collaborative filtering, three text files with one prefix:
//
//   PREFIX.train.rating   user, item, rating, time; with tabs between
//   PREFIX.test.rating    the same, the item that was left out
//   PREFIX.test.negative  (user,item), then items that the user has not met; with tabs between
//
// Users and items are numbers from 0. That there is a rating counts, not how high it is. Files may
// be gzip. A line that is not as it should be throws an Error with the file and the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulp {

struct RatingSet {
  std::string name;
  int32_t users = 0, items = 0;  // one more than the largest of the ratings
  uint32_t digest = 0;           // of the files

  // Of training: the items that a user has met, ascending, from met[first[user]] on.
  std::vector<uint32_t> first;  // (users + 1)
  std::vector<int32_t> met;
  std::vector<int32_t> user_of;  // (met.size())

  // Of each test user `candidates` items: the one that was left out, then those not met. Published
  // files have the left-out item among these for a few users.
  std::vector<int32_t> test_users;
  std::vector<int32_t> test_items;  // (test_users.size() * candidates)
  size_t candidates = 0;

  bool has_met(int32_t user, int32_t item) const;
  // Makes first, met and user_of from pairs in any order. Every item must be below `items`, every
  // user below `users`. Throws an Error where a user has met everything: there is nothing to tell
  // apart.
  void set_pairs(std::span<const int32_t> users_of_pairs, std::span<const int32_t> items_of_pairs);
};

// An item that the user has not met, each equally likely: a pure function of seed, epoch and index.
int32_t draw_unmet(const RatingSet& set, int32_t user, uint64_t seed, uint32_t epoch, uint64_t index);

// The set of this name: a prefix with a folder in it, or a name that is looked for in `data_dir`, or
// without one in the data root, and there in the folders `movielens` and NAME too.
RatingSet load_ratings(std::string_view name, const std::string& data_dir);

// Whether load_ratings might know it: it has a folder, or is a published set.
bool names_ratings(std::string_view name);

}  // namespace ulp
