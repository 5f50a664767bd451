// What a report shows beside runs: benchmarks of a step, and the least-squares experiment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/report/curve.h"
#include "ulp/report/found_run.h"
#include "ulp/run/config.h"

namespace ulp {

// One object of `ulp bench step --json`.
struct BenchRecord {
  struct Kernel {
    std::string op, kernel, operands;
    double seconds = 0, calls = 0;
  };
  std::string id, model, policy, label, device;
  double batch = 0, seconds = 0, planned_bytes = 0;
  Number aggregate_bits;  // if the line says it
  std::vector<Kernel> kernels;
  // What it says of the network and the step. Options that it does not speak of have their defaults.
  RunConfig config;
  std::string input;
  uint64_t classes = 0;
};

// Of every line of the file that is one; notes get the others.
std::vector<BenchRecord> read_benches(const FoundFile& file, std::vector<std::string>& notes);
// Whether a file begins as such lines do.
bool looks_like_bench(const std::string& path);

// Medians over seeds, by variant.
struct LeastSquaresRecord {
  struct Variant {
    std::string name;
    std::vector<uint64_t> step;
    std::vector<double> loss, excess, cancelled;
  };
  std::string id, title;
  std::vector<Variant> variants;
};

LeastSquaresRecord read_least_squares(const FoundFile& file, std::vector<std::string>& notes);

}  // namespace ulp
