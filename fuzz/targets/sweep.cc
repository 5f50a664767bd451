// The file of a sweep, up to the configurations of its runs. A few lists multiply to many runs, which
// may take their time: here ten commas, and so a thousand runs, are the most.
#include "ulp/lab/sweep.h"

#include <algorithm>

#include "fuzz/fuzz.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  if (std::ranges::count(input, ',') > 10) return;
  for (const SweepRun& run : parse_sweep(input, "sweep.toml")) check(run.config());
}

}  // namespace ulp::fuzz
