#include "ulp/tasks/area.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

std::vector<float> scores(const Meter::State& state, const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end()) fail("checkpoint", "the state of the area has no '{}'", key);
  std::vector<float> all;
  const char *at = found->second.data(), *end = at + found->second.size();
  while (at != end) {
    float score = 0;
    const auto [rest, error] = std::from_chars(at, end, score);
    if (error != std::errc() || (rest != end && *rest != ' '))
      fail("checkpoint", "the state of the area has '{}' as '{}'", key, shown_text(found->second));
    all.push_back(score);
    at = rest == end ? rest : rest + 1;
  }
  return all;
}

}  // namespace

void RocArea::merge(const RocArea& other) {
  zeros_.insert(zeros_.end(), other.zeros_.begin(), other.zeros_.end());
  ones_.insert(ones_.end(), other.ones_.begin(), other.ones_.end());
}

double RocArea::value() const {
  if (zeros_.empty() || ones_.empty()) return 0.5;
  std::vector<float> zeros = zeros_, ones = ones_;
  for (std::vector<float>* kind : {&zeros, &ones}) {
    if (std::any_of(kind->begin(), kind->end(), [](float score) { return std::isnan(score); }))
      return std::numeric_limits<double>::quiet_NaN();
    std::sort(kind->begin(), kind->end());
  }
  // Of each of kind 1: how many of kind 0 are below, and how many not above. Whole numbers, so that
  // no order matters.
  uint64_t twice = 0;
  size_t below = 0, not_above = 0;
  for (const float score : ones) {
    while (below < zeros.size() && zeros[below] < score) ++below;
    while (not_above < zeros.size() && zeros[not_above] <= score) ++not_above;
    twice += below + not_above;
  }
  return static_cast<double>(twice) / 2 /
         (static_cast<double>(zeros.size()) * static_cast<double>(ones.size()));
}

Meter::State RocArea::save() const {
  return {{"zeros", fmt::format("{}", fmt::join(zeros_, " "))},
          {"ones", fmt::format("{}", fmt::join(ones_, " "))}};
}

void RocArea::restore(const Meter::State& state) {
  std::vector<float> zeros = scores(state, "zeros"), ones = scores(state, "ones");
  zeros_ = std::move(zeros);
  ones_ = std::move(ones);
}

}  // namespace ulp
