// histograms.jsonl in a run's folder: where the numbers of tensors lie, now and then over a run. One
// JSON object a line, of one of two kinds:
//
//   {"step":100,"tensor":"conv1.out","kind":"activation","format":"fp(4,3,4)","of":"x",
//    "lowest":-24,"counts":[3,0,7],"zero":0,"infinite":0,"nan":0}
//   {"step":100,"tensor":"conv1.out","kind":"activation","mu":-3.1,"m":4.2,"alpha":2.1,"beta":6.5}
//
// The first counts elements by floor(log2 |x|), from the exponent `lowest` on: of the tensor itself
// (`of` "x"), or of what S2FP8 stores of it ("y"). The second has the statistics of an S2FP8 tensor:
// mean and maximum of log2 |x|, and the factor and shift that follow from them. NaN and infinities
// are the strings "nan", "inf" and "-inf". Lines are in the order of their steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/report/curve.h"

namespace ulp {

struct HistogramRecord {
  std::string tensor, format, of;
  Kind kind = Kind::activation;
  uint64_t step = 0;
  int64_t lowest = 0;
  std::vector<uint64_t> counts;
  uint64_t zero = 0, infinite = 0, nan = 0;
};

struct ShiftedRecord {
  std::string tensor;
  Kind kind = Kind::activation;
  std::vector<uint64_t> step;
  std::vector<double> mu, m, alpha, beta;
};

struct HistogramBudget {
  size_t numbers = 200'000;  // counts of all histograms
  size_t points = 50'000;    // of all shifted tensors
  size_t columns = 240;      // steps of a shifted tensor
};

struct Histograms {
  std::vector<HistogramRecord> histograms;  // by step
  std::vector<ShiftedRecord> shifted;       // in the order of their first lines
};

// Of more steps than the budget has room for every second, fourth, ... is kept, and always the last.
// Notes get what could not be read. `complete`: nobody writes the file, so a torn last line is worth
// a note. No file is fine.
Histograms read_histograms(const std::string& path, const HistogramBudget& budget, bool complete,
                           std::vector<std::string>& notes);

}  // namespace ulp
