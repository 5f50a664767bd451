// Ratings: three text files, and four bytes that say where the first two end.
#include "ulp/data/ratings.h"

#include "fuzz/fuzz.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  Cutter cutter(input);
  for (const std::string kind : {"train.rating", "test.rating"}) {
    const size_t low = cutter.byte(), high = cutter.byte();
    file("few." + kind, cutter.take(low + 256 * high));
  }
  file("few.test.negative", cutter.rest());
  const RatingSet set = load_ratings("few", folder());
  expect(set.first.size() == static_cast<size_t>(set.users) + 1 && set.first.back() == set.met.size(),
         "users and their items differ");
  expect(set.test_items.size() == set.test_users.size() * set.candidates,
         "test users and their items differ");
  for (const int32_t item : set.test_items)
    expect(item >= 0 && item < set.items, "an item that there is not");
  for (uint64_t i = 0; i < 4 && !set.test_users.empty(); ++i) {
    const int32_t user = set.test_users.front(), item = draw_unmet(set, user, 1, 0, i);
    expect(item < set.items && !set.has_met(user, item), "an item that was met");
  }
}

}  // namespace ulp::fuzz
