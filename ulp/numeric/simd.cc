#include "ulp/numeric/simd.h"

#include <hwy/highway.h>

#include <cstdint>
#include <cstdlib>

#include "ulp/base/error.h"
#include "ulp/numeric/kernels.h"

namespace ulp {
namespace kernels {
namespace {

struct Unit {
  std::string name;
  int64_t target;  // Highway's bit for it; 0 for the reference
};

const std::vector<Unit>& units() {
  static const std::vector<Unit> all = [] {
    std::vector<Unit> found;
    // Highway numbers targets best first.
    const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
    for (int bit = 0; bit < 63; ++bit) {
      const int64_t target = int64_t{1} << bit;
      if (targets & target) found.push_back({hwy::TargetName(target), target});
    }
    found.push_back({"reference", 0});
    return found;
  }();
  return all;
}

struct Choice {
  Unit unit;
  Table table;
};

Choice choose(const Unit& unit) {
  Choice choice{unit,
                {.encode = reference_encode,
                 .decode = reference_decode,
                 .random_words = reference_random_words,
                 .survey = reference_survey,
                 .squeeze = reference_squeeze,
                 .find_borders = reference_find_borders,
                 .encode_by_borders = nullptr,
                 .restore = reference_restore,
                 .look_up = reference_look_up}};
  if (unit.target != 0) {
    hwy::GetChosenTarget().Update(unit.target);
    fill_codec_kernels(choice.table);
    fill_s2fp8_kernels(choice.table);
  }
  return choice;
}

const Unit& find_unit(std::string_view name) {
  if (name == "auto" || name.empty()) return units().front();
  std::string known;
  for (const Unit& unit : units()) {
    if (unit.name == name) return unit;
    known += ", " + unit.name;
  }
  fail("simd", "unknown vector unit '{}'; this machine has: auto{}", name, known);
}

Choice& choice() {
  static Choice current = choose(find_unit("auto"));
  return current;
}

}  // namespace

const Table& table() { return choice().table; }

}  // namespace kernels

std::vector<std::string> simd_names() {
  std::vector<std::string> names;
  for (const auto& unit : kernels::units()) names.push_back(unit.name);
  return names;
}

void use_simd(std::string_view name) { kernels::choice() = kernels::choose(kernels::find_unit(name)); }

std::string simd_in_use() { return kernels::choice().unit.name; }

}  // namespace ulp
