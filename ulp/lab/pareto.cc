#include "ulp/lab/pareto.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ulp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The difference of two costs; 0 if both are infinite.
double difference(double a, double b) { return a == b ? 0 : a - b; }

}  // namespace

double Choice::cost() const { return mean(costs); }

double memory_of(const Choice& choice, MemoryKind kind) {
  return kind == MemoryKind::peak ? static_cast<double>(choice.peak_bytes)
                                  : static_cast<double>(choice.aggregate_bits) / 8;
}

std::vector<size_t> pareto_front(std::span<const Choice> choices, MemoryKind kind) {
  std::vector<size_t> order(choices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double x = memory_of(choices[a], kind), y = memory_of(choices[b], kind);
    return x != y ? x < y : choices[a].cost() < choices[b].cost();
  });
  std::vector<size_t> front;
  double least = kInfinity;
  for (const size_t i : order) {
    if (choices[i].cost() >= least) continue;
    least = choices[i].cost();
    front.push_back(i);
  }
  return front;
}

double excess_cost(std::span<const Choice> choices, size_t choice, MemoryKind kind) {
  const double memory = memory_of(choices[choice], kind);
  double least = choices[choice].cost();
  for (const Choice& other : choices) {
    if (memory_of(other, kind) <= memory) least = std::min(least, other.cost());
  }
  return difference(choices[choice].cost(), least);
}

double excess_cost_held_out(std::span<const Choice> choices, size_t choice, MemoryKind kind) {
  const Choice& own = choices[choice];
  const size_t seeds = own.costs.size();
  if (seeds < 2) return excess_cost(choices, choice, kind);
  double sum = 0;
  for (size_t out = 0; out < seeds; ++out) {
    // A sum of the others, not a difference: equal ones stay equal.
    const auto others = [out](const Choice& c) {
      double rest = 0;
      for (size_t i = 0; i < c.costs.size(); ++i) rest += i == out ? 0 : c.costs[i];
      return rest;
    };
    const Choice* best = &own;
    for (const Choice& other : choices) {
      if (memory_of(other, kind) <= memory_of(own, kind) && others(other) < others(*best)) best = &other;
    }
    sum += difference(own.costs[out], best->costs[out]);
  }
  return sum / static_cast<double>(seeds);
}

Path path_of(std::string name, std::span<const int> order) {
  Path path{std::move(name), {}};
  uint32_t low = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    low |= uint32_t{1} << order[i];
    path.low.push_back(low);
  }
  return path;
}

double least_memory(std::span<const Choice> choices, const Path& path, MemoryKind kind, double most_cost) {
  uint32_t all = 0;
  for (const Choice& choice : choices) all |= choice.low;
  double least = kInfinity;
  for (const Choice& choice : choices) {
    const bool shared = choice.low == 0 || choice.low == all;
    if (!shared && std::find(path.low.begin(), path.low.end(), choice.low) == path.low.end()) continue;
    if (choice.cost() <= most_cost) least = std::min(least, memory_of(choice, kind));
  }
  return least;
}

double spread_of_seeds(std::span<const Choice> choices) {
  double squares = 0;
  size_t freedom = 0;
  for (const Choice& choice : choices) {
    const double middle = choice.cost();
    if (!std::isfinite(middle)) continue;
    for (const double cost : choice.costs) squares += (cost - middle) * (cost - middle);
    freedom += choice.costs.size() - 1;
  }
  return freedom == 0 ? 0 : std::sqrt(squares / static_cast<double>(freedom));
}

}  // namespace ulp
