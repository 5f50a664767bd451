// The metrics of a run that the doctor looks at. Its ranges are fine, so that nothing is planned.
#include "fuzz/fuzz.h"
#include "ulp/doctor/checkup.h"
#include "ulp/run/config.h"
#include "ulp/run/ranges.h"

namespace ulp::fuzz {
namespace {

void make_run() {
  RunConfig config;
  config.policy = "uniform";
  file("config.toml", config_text(config));
  const RangedTensor tensors[] = {{"relu1.out", Kind::activation, 100, "fp(4,3,4)", "fp(6,9,0)"},
                                  {"fc2.out", Kind::activation, 10, "fp(4,3,4)", "fp(6,9,0)"}};
  RangeFile ranges(folder() + "/ranges.bin", {"1x28x28", 10}, tensors, 0);
  for (uint64_t step = 1; step <= 4; ++step) {
    ranges.write({step, 2.5, 1, false, {{1.5f, 0, 0.01f}, {2.5f, 0, 0}}}, 4, true);
  }
}

}  // namespace

void try_input(std::string_view input) {
  static const bool made = (make_run(), true);
  expect(made, "no run was made");
  file("metrics.jsonl", input);
  const CheckUp result = check_up(folder());
  check_up_text(result);
  short_check_up_text(result);
}

}  // namespace ulp::fuzz
