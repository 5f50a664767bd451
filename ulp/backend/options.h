// How the kernels of a plan compute, beside graph and formats. This one struct goes whole from the
// command line (kernel_options in ulp/run/config_table.cc) through the engine and the plan to the
// kernels.
#pragma once

#include <cstddef>
#include <optional>

#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"

namespace ulp {

struct KernelOptions {
  Round round = Round::nearest_even;       // how activations and gradients are written
  Overflow overflow = Overflow::saturate;  // infinity: in formats that have one; the others saturate
  size_t workspace = size_t{64} << 20;     // what a task should keep below by working in slices
  // What the sums of matrix products and convolutions are rounded to, to nearest-even, after each
  // product that is added, in the reference's order. None: fp32 in any order, which is not the same
  // as naming fp32 here.
  std::optional<FloatFormat> accumulator = {};
  // What the operations of optimizer steps are rounded to, each; none: fp32.
  std::optional<FloatFormat> arithmetic = {};

  // On which units of a GPU products may be computed. Tensor cores are taken only where they hold
  // both operands exactly; the other two are looser, and only taken where they are asked for.
  bool tensor_core = true;
  bool tf32 = false;        // for fp32 and S2FP8, whose numbers it cuts to 10 bits
  bool fp8_native = false;  // forward, for operands in e4m3, summed in fewer bits
  bool cold_shape =
      false;  // few steps run the plan: a unit that needs no compilation rather than the fastest
};

}  // namespace ulp
