#include "ulp/backend/cuda/library/tensor_cores.h"

#include <fmt/format.h>

#include <array>

namespace ulp::cuda {
namespace {

struct Row {
  Unit unit;
  std::string_view name;
  size_t bytes;
  FloatFormat format;
};

constexpr std::array kUnits{Unit::fp32, Unit::tf32, Unit::fp16, Unit::bf16, Unit::e4m3};

constexpr std::array kRows{
    Row{Unit::fp32, "fp32", 4, {8, 23, 127, Specials::ieee}},
    Row{Unit::tf32, "tf32", 4, {8, 10, 127, Specials::ieee}},
    Row{Unit::fp16, "fp16", 2, {5, 10, 15, Specials::ieee}},
    Row{Unit::bf16, "bf16", 2, {8, 7, 127, Specials::ieee}},
    Row{Unit::e4m3, "e4m3", 1, {4, 3, 7, Specials::fn}},
};

const Row& row(Unit unit) { return kRows[static_cast<size_t>(unit)]; }

std::string why_not_held(Unit unit, const std::optional<FloatFormat>& format) {
  if (format) return why_not_held(unit, *format);
  return unit == Unit::fp32 ? "" : "an operand is exact in fp32 alone";
}

}  // namespace

std::span<const Unit> units() { return kUnits; }
std::string_view unit_name(Unit unit) { return row(unit).name; }
size_t operand_bytes(Unit unit) { return row(unit).bytes; }
FloatFormat operand_format(Unit unit) { return row(unit).format; }

bool holds(Unit unit, const FloatFormat& format) { return why_not_held(unit, format).empty(); }

std::string why_not_held(Unit unit, const FloatFormat& format) {
  // A number is an operand iff it has no more significant bits, is a multiple of the operand's
  // smallest number, and is not above its largest. Every format has a number with all its
  // significant bits, a smallest one and a largest one, so the conditions are also necessary.
  const FloatFormat to = operand_format(unit);
  const std::string name = format_name(format);
  if (format.man > to.man) {
    return fmt::format("{} needs {} significant bits, {} has {}", name, format.man + 1, unit_name(unit),
                       to.man + 1);
  }
  if (format.emin() - format.man < to.emin() - to.man) {
    return fmt::format("{} goes down to 2^{}, {} to 2^{}", name, format.emin() - format.man, unit_name(unit),
                       to.emin() - to.man);
  }
  if (largest(format) > largest(to)) {
    return fmt::format("{} goes up to {:.6g}, {} to {:.6g}", name, largest(format), unit_name(unit),
                       largest(to));
  }
  if (format.has_inf() && !to.has_inf()) {
    return fmt::format("{} has infinities, {} has none", name, unit_name(unit));
  }
  if (format.has_nan() && !to.has_nan()) {
    return fmt::format("{} has NaN, {} has none", name, unit_name(unit));
  }
  return "";
}

UnitChoice choose_unit(const std::optional<FloatFormat>& a, const std::optional<FloatFormat>& b,
                       const KernelOptions& options) {
  if (!options.tensor_core) return {Unit::fp32, "tensor cores are off"};
  const auto obstacle = [&](Unit unit) {
    std::string why = why_not_held(unit, a);
    return why.empty() ? why_not_held(unit, b) : why;
  };
  if (options.fp8_native && obstacle(Unit::e4m3).empty()) {
    return {Unit::e4m3, "native fp8 was asked for; its sums have fewer bits than fp32"};
  }
  if (options.cold_shape && obstacle(Unit::tf32).empty()) {
    return {Unit::tf32, "few steps run it: tf32 holds both exactly, and its kernels need no compiling"};
  }
  std::string why, last;
  for (const Unit unit : {Unit::bf16, Unit::fp16, Unit::tf32}) {
    const std::string obstacle_here = obstacle(unit);
    if (obstacle_here.empty()) {
      if (unit != Unit::bf16) return {unit, why};
      return {unit, a == b ? fmt::format("bf16 holds {} exactly", format_name(*a))
                           : fmt::format("bf16 holds {} and {} exactly", format_name(*a), format_name(*b))};
    }
    if (obstacle_here != last) why += (why.empty() ? "" : "; ") + obstacle_here;
    last = obstacle_here;
  }
  if (options.tf32) return {Unit::tf32, "tf32 was asked for and rounds: " + last};
  return {Unit::fp32, last};
}

}  // namespace ulp::cuda
