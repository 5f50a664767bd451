// What pilot steps measured of each group, as a file: `ulp sensitivity` writes it,
// sensitivity:R:FILE reads it.
//
//   {"model": "lenet", "width": 1, ..., "candidates": "hfp8",
//    "groups": [{"id": 0, "elements": 200704, "error": 1.3e-06}, ...]}
//
// Groups stand in the order of their numbers. An error is a number from 0 on, or "inf" where the
// gradient was not finite. Only the errors decide; the rest is for people and for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ulp {

struct Sensitivities {
  // What it was measured on: names and values as JSON, {"model", "\"lenet\""}, {"width", "1"}.
  std::vector<std::pair<std::string, std::string>> network = {};
  std::string candidates = {};
  std::vector<size_t> elements = {};  // by group
  std::vector<double> errors = {};    // by group

  bool operator==(const Sensitivities&) const = default;
};

// FILE of a policy sensitivity:R:FILE; "" of any other.
std::string sensitivity_file(std::string_view policy);

// Whole or not at all. Throws an Error if it cannot be written.
void save_sensitivities(const std::string& path, const Sensitivities& sensitivities);
// Throws an Error for a file that is none. What only messages use may be missing.
Sensitivities load_sensitivities(const std::string& path);

}  // namespace ulp
