// Which choices of groups are worth having: those that no other beats in memory and in what they
// cost at once. Pure functions of what was measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ulp {

// Some groups low, the others high, and what became of it.
struct Choice {
  uint32_t low = 0;  // bit g: group g is low
  uint64_t aggregate_bits = 0;
  double low_ratio = 0;
  size_t peak_bytes = 0;           // of a step, as planned
  std::vector<double> costs = {};  // one for each seed; the smaller the better, infinite: useless

  double cost() const;  // their mean
  bool operator==(const Choice&) const = default;
};

enum class MemoryKind : uint8_t { aggregate, peak };

// In bytes.
double memory_of(const Choice& choice, MemoryKind kind);

// Numbers of the choices that no other beats, by memory, the least first: from one to the next the
// cost falls. A choice of infinite cost is none of them.
std::vector<size_t> pareto_front(std::span<const Choice> choices, MemoryKind kind);

// By how much the cost of a choice is above the least cost among choices that take no more memory.
// It is 0 on the front.
double excess_cost(std::span<const Choice> choices, size_t choice, MemoryKind kind);

// excess_cost without the luck of the draw. The least of many noisy costs lies below what that
// choice would cost if it were measured again; so here the best is found by all seeds but one and
// judged by that one, each in turn, and the differences are averaged. May be below 0. With a single
// seed it is excess_cost.
double excess_cost_held_out(std::span<const Choice> choices, size_t choice, MemoryKind kind);

// Choices that a way of choosing passes through, smaller memory later: the beginnings of an order
// of groups.
struct Path {
  std::string name;
  std::vector<uint32_t> low;  // each as Choice::low; neither none nor all of the groups
};
Path path_of(std::string name, std::span<const int> order);

// The least memory among the path's choices, and those that every path has (no group and all groups
// low), whose cost is at most this. Infinite where there is none.
double least_memory(std::span<const Choice> choices, const Path& path, MemoryKind kind, double most_cost);

// Standard deviation over seeds, within each choice, averaged over choices of finite cost as
// variances are. 0 with one seed.
double spread_of_seeds(std::span<const Choice> choices);

}  // namespace ulp
