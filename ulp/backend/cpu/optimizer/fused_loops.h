// A step of a piece in two loops, for the common case: 16-bit weights under every rule, both states
// fp32 or both bf16, a gradient in fp32 or bf16. The first loop goes from the codes of all of them
// to the decrease of the weights and new codes of the states, the second from there to new codes of
// the weights. They are separate because the second would wait for the first's division and root,
// and few of its operations fit a processor's reorder buffer. They handle only pieces in range
// (step_codes.h): for others nothing is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cpu/optimizer/step_codes.h"
#include "ulp/backend/cpu/optimizer/step_loops.h"
#include "ulp/numeric/stats.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/rule.h"

namespace ulp::step {

// The same for all pieces of a step.
struct FusedKind {
  enum class Beside : uint8_t { nothing, compensation, extra8, extra16 };
  Beside beside = Beside::nothing;
  bool same = false;        // the weight has fp32's exponents
  bool stochastic = false;  // its 16 bits are rounded stochastically
  bool state_bf16 = false, grad_bf16 = false;
  const Codes* weight = nullptr;  // with its extra bits
  const Codes* bf16 = nullptr;
};

struct FusedRun {
  size_t n;  // <= kPiece
  const void* grad;
  void* state[2];  // as many as the optimizer has, else null
  uint16_t* weight;
  // Compensations or extra bits, 2 bytes each, or 1 for 8 bits without stochastic rounding.
  void* beside;
  const uint32_t* random;  // one word per element, if needed
  // These are added to.
  UpdateCounts* counts;
  EncodeStats* weight_stats;
  EncodeStats* state_stats;
  EncodeStats* compensation_stats;
};

// The new values, with even and odd elements separated: 0, 2, 4 ... and 1, 3, 5 ...; codes in words
// of two. They stay in the first cache until it is known that the piece was in range.
struct FusedMade {
  alignas(64) float decrease[2][kPiece / 2];
  alignas(64) float before[2][kPiece / 2];  // weights that take more than a shift to decode
  alignas(64) unsigned char state[2][4 * kPiece];
  alignas(64) uint32_t weight[kPiece / 2];
  alignas(64) unsigned char beside[2 * kPiece];
  EncodeStats stats[2];  // of the states
};

struct FusedStep {
  bool (*decrease)(const Optimizer&, const UpdateScalars&, const FusedKind&, const FusedRun&,
                   FusedMade&) = nullptr;
  bool (*weight)(const FusedKind&, const FusedRun&, FusedMade&) = nullptr;

  explicit operator bool() const { return decrease != nullptr && weight != nullptr; }
  // False if the piece was not in range or has an odd number of elements; then it is unchanged.
  bool operator()(const Optimizer& optimizer, const UpdateScalars& scalars, const FusedKind& kind,
                  const FusedRun& run) const;
};
// False if there are no such loops.
FusedStep fused_step(const Optimizer& optimizer, const FusedKind& kind);

}  // namespace ulp::step
