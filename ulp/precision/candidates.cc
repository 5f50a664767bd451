#include "ulp/precision/candidates.h"

#include <stdexcept>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

struct CandidatePreset {
  std::string_view name, high, low, low_grad;
};

constexpr CandidatePreset kCandidatePresets[] = {
    {"hfp8", "fp(6,9,0)", "fp(4,3,4)", "fp(5,2,0)"},
    {"fp8", "bf16", "e4m3", "e5m2"},
    {"s2fp8", "bf16", "s2fp8", "s2fp8"},
};

const CandidatePreset& find_preset(std::string_view name) {
  std::vector<std::string_view> known;
  for (const CandidatePreset& preset : kCandidatePresets) {
    if (preset.name == name) return preset;
    known.push_back(preset.name);
  }
  fail("precision", "unknown candidates '{}': {}known are {}", name, nearest_hint(name, known),
       fmt::join(known, ", "));
}

Candidates::Pair checked(std::string_view what, Storage high, Storage low) {
  const double high_bits = element_bits(high), low_bits = element_bits(low);
  if (low_bits > high_bits) {
    fail("precision",
         "the low format of {}, {} ({} bits), is wider than the high one, {} ({} bits): it must have as many "
         "bits or fewer",
         what, storage_name(low), low_bits, storage_name(high), high_bits);
  }
  return {std::move(high), std::move(low)};
}

Storage named_or(std::string_view name, std::string_view otherwise) {
  return parse_storage(name.empty() ? otherwise : name);
}

}  // namespace

double element_bits(const Storage& storage) {
  if (const auto* plain = std::get_if<Plain>(&storage)) return plain->format.bits();
  if (const auto* split = std::get_if<Split>(&storage)) return split->high.bits() + split->side_bits();
  if (const auto* scaled = std::get_if<Scaled>(&storage)) {
    return scaled->element.bits() + 32.0 / static_cast<double>(kScaledBlock);
  }
  return 8;  // S2fp8
}

const Candidates::Pair& Candidates::operator[](Kind kind) const {
  switch (kind) {
    case Kind::activation:
      return activation;
    case Kind::activation_grad:
      return activation_grad;
    case Kind::weight:
      return weight;
    case Kind::weight_grad:
      return weight_grad;
    default:
      throw std::logic_error("no candidates for this kind of tensor");
  }
}

Candidates make_candidates(std::string_view preset, std::string_view hi, std::string_view lo,
                           std::string_view lo_grad, std::string_view weight_grad) {
  const CandidatePreset& base = find_preset(preset);
  const Storage high = named_or(hi, base.high);
  const Storage low = named_or(lo, base.low);
  const Storage low_grad = named_or(lo_grad, base.low_grad);
  const size_t slash = weight_grad.find('/');
  const Storage weight_high = weight_grad.empty() ? high : parse_storage(weight_grad.substr(0, slash));
  const Storage weight_low =
      slash == weight_grad.npos ? weight_high : parse_storage(weight_grad.substr(slash + 1));
  return {checked("activations", high, low), checked("activation gradients", high, low_grad),
          checked("weights", high, low), checked("weight gradients", weight_high, weight_low)};
}

}  // namespace ulp
