// The table of schemes: which storages, and how kernels compute.
#include "tests/conformance/conformance.h"

namespace ulp::conformance {

std::span<const Scheme> schemes() {
  const auto summed = [](const char* format, Round round = Round::nearest_even) {
    return KernelOptions{.round = round, .overflow = Overflow::infinity, .accumulator = parse_format(format)};
  };
  const KernelOptions stochastic{.round = Round::stochastic}, infinities{.overflow = Overflow::infinity};
  static const std::vector<Scheme> all = {
      {"fp32", {"fp32"}, {}, true},
      {"fp(6,9,0)", {"fp(6,9,0)"}, {}, true},
      {"fp(4,3,4)", {"fp(4,3,4)"}, {}, true},
      {"fp(4,3,4) stochastic", {"fp(4,3,4)"}, stochastic},
      {"bf16", {"bf16"}},
      {"e8m5", {"e8m5"}},
      {"s2fp8", {"s2fp8"}},
      {"mixed", {"fp32", "fp(6,9,0)", "fp(4,3,4)", "bf16", "e8m5", "s2fp8"}},
      {"fp16 with infinities", {"fp16"}, infinities},
      {"e5m2 with infinities", {"e5m2"}, {.round = Round::stochastic, .overflow = Overflow::infinity}},
      {"mixed with infinities",
       {"fp16", "e5m2", "e4m3", "fp(4,3,4)", "fp32", "s2fp8", "scaled(e5m2)", "scaled(e4m3)"},
       infinities},
      {"summed in fp16", {"fp16"}, {.accumulator = parse_format("fp16")}, true},
      {"summed in bf16", {"fp32", "bf16", "s2fp8"}, summed("bf16")},
      {"summed in e5m2", {"fp32", "e5m2"}, summed("e5m2")},
      {"summed in fp(6,9,0)", {"fp32", "fp(4,3,4)"}, summed("fp(6,9,0)", Round::stochastic)},
  };
  return all;
}

}  // namespace ulp::conformance
