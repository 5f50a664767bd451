// The update rule: how the difference that an optimizer computes is written to the stored weight.
// It works with every optimizer.
//
//   master             fp32 weights
//   plain              narrow weights, rounded to nearest: updates below half a unit are lost
//   stochastic         narrow weights, rounded up or down at random so that the mean is right
//   kahan              narrow weights, and beside each what rounding has cost it so far, in the
//                      same format
//   stochastic+kahan   both: the sum is rounded at random, and what that cost is kept
//   extra:N            narrow weights with N more bits beside them (split.h), which only the update
//                      reads where products read the narrow format
//   extra:N:sr         the same with the narrow part rounded at random; one more bit restores the
//                      exact value
//
// Terms: what is stored is the weight's format; what products read of it, its operand, may be
// narrower.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/storage.h"
#include "ulp/optim/update.h"

namespace ulp {

struct UpdateRule {
  enum class Kind : uint8_t { master, plain, stochastic, kahan, stochastic_kahan, extra, extra_stochastic };
  Kind kind = Kind::master;
  int extra = 0;  // N

  // A compensation beside each weight, in its format.
  bool compensated() const { return kind == Kind::kahan || kind == Kind::stochastic_kahan; }
  // The new weight is rounded at random. Split storage does that by itself.
  bool stochastic() const { return kind == Kind::stochastic || kind == Kind::stochastic_kahan; }

  bool operator==(const UpdateRule&) const = default;
};

// Throws an Error, which lists the forms, for other text; N is checked where its format is known.
UpdateRule parse_update_rule(std::string_view text);
std::string update_rule_text(const UpdateRule& rule);
// "master (fp32 weights), plain ...", for help and messages.
std::string update_rule_forms();
// All rules, those with a number by a few of them: for tables, benchmarks and tests.
std::vector<UpdateRule> update_rules();

// The storage of a weight under the rule, for a weight of format `weight`; for master that must be
// fp32. Throws an Error if they do not go together, and says what would.
Storage stored_weight(const UpdateRule& rule, const Storage& weight);

// The new weight, before it is rounded into its storage, of the rules without compensation.
ULP_HD constexpr float direct_update(float weight, float decrease) { return settle_nan(weight - decrease); }

// A whole step of an fp32 weight.
template <typename Rule>
ULP_HD constexpr float master_step(const Rule& optimizer, const UpdateScalars& s, float weight, float grad,
                                   float* state) {
  return direct_update(weight, optimizer.decrease(s, weight, grad, state));
}

// Kahan's sum, Algorithm 1 of the BF16 paper. `sum` rounds the new weight; `near` rounds all other
// operations to the weight's format. If the weight does not move, its update stays in the
// compensation.
struct Compensated {
  float weight, compensation;
};
// NaN are left as the operations make them.
template <typename Near, typename Sum>
ULP_HD constexpr Compensated kahan_sum(float weight, float decrease, float compensation, const Near& near,
                                       const Sum& sum) {
  const float update = near(-decrease);
  const float compensated = near(update - compensation);
  const float next = sum(weight + compensated);
  return {next, near(near(next - weight) - compensated)};
}
template <typename Near, typename Sum>
ULP_HD constexpr Compensated kahan_update(float weight, float decrease, float compensation, const Near& near,
                                          const Sum& sum) {
  const Compensated made = kahan_sum(weight, decrease, compensation, near, sum);
  return {settle_nan(made.weight), settle_nan(made.compensation)};
}

// How many updates were not zero, and how many of these were cancelled: they changed neither the
// stored weight nor its compensation.
struct UpdateCounts {
  uint64_t updates = 0, cancelled = 0;

  void merge(const UpdateCounts& other) {
    updates += other.updates;
    cancelled += other.cancelled;
  }
  bool operator==(const UpdateCounts&) const = default;
};

}  // namespace ulp
