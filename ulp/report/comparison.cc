#include "ulp/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/report/runs_table.h"

namespace ulp {
namespace {

constexpr double kHalfWidth = 1.7;
constexpr size_t kShownGroups = 8, kMostSeeds = 100;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squares_of(std::span<const double> values) {
  if (values.empty()) return 0;
  const double mean = mean_of(values);
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [mean](double sum, double x) { return sum + (x - mean) * (x - mean); });
}

size_t freedom(std::span<const double> values) { return values.empty() ? 0 : values.size() - 1; }

double half_width(double s, size_t a, size_t b) {
  return kHalfWidth * s * std::sqrt(1 / static_cast<double>(a) + 1 / static_cast<double>(b));
}

// "policy fp32 (3 runs), policy size:1 (1 run)"
std::string groups_text(const std::vector<RunRecord>& runs) {
  std::vector<RunRecord> labelled = runs;
  label_groups(labelled);
  std::vector<std::pair<std::string, size_t>> groups;
  std::map<std::string, size_t> places;
  for (const RunRecord& run : labelled) {
    const auto [place, fresh] = places.try_emplace(run.group, groups.size());
    if (fresh) groups.emplace_back(run.label, 0);
    ++groups[place->second].second;
  }
  std::string text;
  for (size_t i = 0; i < std::min(groups.size(), kShownGroups); ++i) {
    const auto& [label, count] = groups[i];
    text += fmt::format("{}{} ({} {})", i == 0 ? "" : ", ", label, count, count == 1 ? "run" : "runs");
  }
  if (groups.size() > kShownGroups) text += fmt::format(" and {} more", groups.size() - kShownGroups);
  return fmt::format("{} groups: {}", groups.size(), text);
}

void check_side(const NamedRuns& side) {
  if (side.runs.empty()) fail("compare", "{} holds no run", side.name);
  for (const RunRecord& run : side.runs) {
    if (!run.config) fail("compare", "{}: its config.toml cannot be read", run.folder);
  }
  const bool one = std::all_of(side.runs.begin(), side.runs.end(),
                               [&](const RunRecord& run) { return run.group == side.runs[0].group; });
  if (!one) {
    fail("compare",
         "{} holds runs that differ in more than the seed, {}; name runs of one group, as by '{}/*-s?'",
         side.name, groups_text(side.runs), side.name);
  }
}

// Settings that say what is learned from what. Where the data lie matters if that is what they are.
void check_same_task(const RunRecord& a, const RunRecord& b) {
  for (const char* const name : {"task", "data", "image_shape", "length", "data_dir"}) {
    const std::string x = setting_of(a, name), y = setting_of(b, name);
    const bool counts = std::string_view(name) != "data_dir" || setting_of(a, "data") == "folder";
    if (counts && x != y)
      fail("compare", "{} is {} in {} and {} in {}: their metrics cannot be compared", name,
           x.empty() ? "none" : x, a.folder, y.empty() ? "none" : y, b.folder);
  }
}

struct Sides {
  Score score;
  bool known = false;
};

// The metric stands in the line of an epoch; a run without one says nothing about it.
void take_score(Sides& sides, const NamedRuns& side) {
  for (const RunRecord& run : side.runs) {
    if (run.epochs.count() == 0) continue;
    if (sides.known && !(run.score == sides.score))
      fail("compare", "the metric of {} is {} and that of others {}: they cannot be compared", run.folder,
           run.score.name, sides.score.name);
    sides = {run.score, true};
  }
}

void add(SeedValues& spread, const Number& number) {
  if (number) spread.values.push_back(*number);
}

ComparedSide side_of(const NamedRuns& named, PlanBook& book, std::vector<std::string>& notes) {
  ComparedSide side;
  side.name = named.name;
  std::map<std::string, std::string> seeds;
  std::string problem;  // of the plan: one for all, which differ in nothing that a plan depends on
  for (const RunRecord& run : named.runs) {
    const std::string seed = setting_of(run, "seed");
    // The same numbers again are not another sample.
    if (const auto [first, fresh] = seeds.try_emplace(seed, run.id); !fresh) {
      notes.push_back(fmt::format("{} has the seed of {} and is left out", run.id, first->second));
      continue;
    }
    side.runs.push_back(run.id);
    side.seeds.push_back(seed);
    if (run.state == RunState::diverged) ++side.diverged;
    if (run.state != RunState::done && run.state != RunState::diverged) {
      ++side.unfinished;
      notes.push_back(fmt::format("{} is {} ({}): its figures are those so far", run.id,
                                  run_state_name(run.state), progress_text(run)));
    }
    const bool has_best = run.best && std::isfinite(*run.best);
    if (has_best) side.best.values.push_back(*run.best);
    if (has_best && run.state != RunState::diverged) side.within.push_back(*run.best);
    if (!has_best) notes.push_back(fmt::format("{} has no {} yet", run.id, run.score.word()));
    add(side.last_loss, run.last_loss);
    add(side.peak_bytes, run.peak_bytes);
    add(side.seconds, run.seconds);
    side.promotions.values.push_back(static_cast<double>(run.promotions.size()));
    if (run.epochs.count() > 0) add(side.train_loss, run.epochs.train_loss.back());
    double low = 0, count = 0;
    for (const Number& ratio : run.epochs.low_ratio) {
      if (!ratio) continue;
      low += *ratio;
      ++count;
    }
    if (count > 0) side.low_ratio.values.push_back(low / count);
    const RunPlan& plan = book.plan_of(run, false);
    if (plan.problem.empty()) {
      side.aggregate_bits.values.push_back(static_cast<double>(plan.aggregate_bits_after(run.promotions)));
    } else {
      problem = fmt::format("{} has no aggregate: {}", run.id, plan.problem);
    }
  }
  if (!problem.empty()) notes.push_back(problem);
  return side;
}

}  // namespace

Number SeedValues::mean() const { return values.empty() ? Number() : mean_of(values); }
Number SeedValues::least() const {
  return values.empty() ? Number() : *std::min_element(values.begin(), values.end());
}
Number SeedValues::most() const {
  return values.empty() ? Number() : *std::max_element(values.begin(), values.end());
}

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::better ? "better" : verdict == Verdict::worse ? "worse" : "not decided";
}

Difference difference_of(std::span<const double> a, std::span<const double> b,
                         std::span<const double> within_a, std::span<const double> within_b,
                         bool higher_is_better) {
  Difference difference;
  if (a.empty() || b.empty()) return difference;
  const double d = mean_of(b) - mean_of(a);
  difference.d = d;
  const size_t degrees = freedom(within_a) + freedom(within_b);
  if (degrees == 0) return difference;
  const double s = std::sqrt((squares_of(within_a) + squares_of(within_b)) / static_cast<double>(degrees));
  const double h = half_width(s, a.size(), b.size());
  difference.s = s;
  difference.h = h;
  const double gain = higher_is_better ? d : -d;
  if (gain - h > 0) difference.verdict = Verdict::better;
  if (gain + h < 0) difference.verdict = Verdict::worse;
  return difference;
}

Comparison compare_runs(const NamedRuns& a, const NamedRuns& b, PlanBook& book) {
  check_side(a);
  check_side(b);
  std::set<std::string> folders;
  for (const RunRecord& run : a.runs) folders.insert(run.folder);
  for (const RunRecord& run : b.runs) {
    if (folders.count(run.folder) > 0) fail("compare", "{} is on both sides", run.folder);
  }
  check_same_task(a.runs[0], b.runs[0]);
  Sides sides;
  take_score(sides, a);
  take_score(sides, b);

  Comparison found;
  found.score = sides.known ? sides.score : a.runs[0].score;
  for (const auto& [name, value] : a.runs[0].settings) {
    const std::string other = setting_of(b.runs[0], name);
    if (name != "seed" && name != "out" && value != other) found.settings.push_back({name, value, other});
  }
  found.a = side_of(a, book, found.notes);
  found.b = side_of(b, book, found.notes);
  found.difference = difference_of(found.a.best.values, found.b.best.values, found.a.within, found.b.within,
                                   found.score.higher_is_better);
  return found;
}

size_t seeds_to_decide(const Comparison& comparison) {
  const Difference& difference = comparison.difference;
  if (!difference.d || !difference.s) return 0;
  const size_t a = comparison.a.best.count(), b = comparison.b.best.count();
  for (size_t more = 1; more <= kMostSeeds; ++more) {
    if (half_width(*difference.s, a + more, b + more) < std::abs(*difference.d)) return more;
  }
  return 0;
}

}  // namespace ulp
