// Orders of examples as pure functions of their seed: the same on every machine and for any number
// of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ulp {

// A number below n from a random word, each equally likely; none if the word is one of those that
// are too many.
std::optional<uint32_t> fair_number(uint32_t word, uint32_t n);

// Shuffles the items: every order equally likely, a different one for each (seed, epoch).
void shuffle(std::span<uint32_t> items, uint64_t seed, uint32_t epoch);

// `count` of the numbers below `total`, ascending: every choice equally likely. The choice for a
// smaller count is part of the choice for a larger one.
std::vector<uint32_t> choose_subset(size_t total, size_t count, uint64_t seed);

}  // namespace ulp
