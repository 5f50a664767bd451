// The GPU's multiplying units: which operand types they take, which formats those types hold
// exactly, and which unit a product runs on.
//
// A unit is chosen only if its operand type holds both operands exactly: then every product is
// exact and only the fp32 sum rounds. Looser modes (tf32 for wider operands; native fp8, which sums
// with fewer bits) must be requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulp/backend/options.h"
#include "ulp/numeric/format.h"

namespace ulp::cuda {

enum class Unit : uint8_t {
  fp32,  // fused multiply-add, no tensor core
  tf32,  // operands are fp32 patterns whose low 13 bits the tensor core ignores
  fp16,
  bf16,
  e4m3,  // native fp8
};

std::span<const Unit> units();
std::string_view unit_name(Unit unit);
// Bytes of one operand element in memory.
size_t operand_bytes(Unit unit);
// The values that an operand may have. Tensor cores keep subnormal operands, so they count.
FloatFormat operand_format(Unit unit);

// The type in which a library writes a product's fp32 sums.
enum class Written : uint8_t {
  fp32,  // unchanged
  half,  // rounded once, to nearest even, to the operand type of a 16-bit unit
};
constexpr size_t written_bytes(Written written) { return written == Written::fp32 ? 4 : 2; }

// Whether every value of the format, and its infinity and NaN, is exactly an operand of the unit.
bool holds(Unit unit, const FloatFormat& format);
// Empty if it is, else the obstacle: "fp(6,9,0) needs 10 significant bits, bf16 has 8".
std::string why_not_held(Unit unit, const FloatFormat& format);

struct UnitChoice {
  Unit unit;
  std::string why;  // one short sentence
};

// The narrowest unit that holds both operands exactly: bf16, fp16, tf32, fp32 in this order. No
// format means values that are exact only in fp32 (decoded S2FP8).
UnitChoice choose_unit(const std::optional<FloatFormat>& a, const std::optional<FloatFormat>& b,
                       const KernelOptions& options = {});

}  // namespace ulp::cuda
