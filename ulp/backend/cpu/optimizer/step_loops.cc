// The optimizers' decreases, and small loops. Loops are functions of their own into which
// everything is inlined: otherwise the compiler exceeds its limit for the growth of a function and
// does not vectorise.
#include "ulp/backend/cpu/optimizer/step_loops.h"

#include <cstring>
#include <variant>

#include "ulp/numeric/bitpack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/optimizer/step_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::step::HWY_NAMESPACE {

// Values of a piece in place.
struct InFp32 {
  using Type = float;
  static HWY_INLINE float load(float x) { return x; }
};
struct InBf16 {
  using Type = uint16_t;
  static HWY_INLINE float load(uint16_t x) { return bits_float(static_cast<uint32_t>(x) << 16); }
};

// A branch would prevent vectorisation.
template <bool kNesterov>
struct FixedSgd {
  Sgd sgd;
  template <typename Arithmetic>
  HWY_INLINE float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                            const Arithmetic& arithmetic) const {
    return Sgd{sgd.momentum, sgd.weight_decay, kNesterov}.decrease(s, weight, grad, state, arithmetic);
  }
};

template <int states, typename Grad, typename First, typename Second, typename Rule, typename Arithmetic>
HWY_FLATTEN HWY_NOINLINE void decrease_loop(const DecreaseRun& run, const Rule& optimizer,
                                            const Arithmetic& given) {
  // Local copies, so that nothing can alias them.
  const Rule rule = optimizer;
  const UpdateScalars scalars = *run.scalars;
  const Arithmetic arithmetic = given;
  const size_t n = run.n;
  const float* HWY_RESTRICT weight = run.weight;
  const auto* HWY_RESTRICT grad = static_cast<const typename Grad::Type*>(run.grad.data);
  // An fp32 state is changed in place, so it is not restricted against itself.
  const auto* first = static_cast<const typename First::Type*>(run.state[0].data);
  const auto* second = static_cast<const typename Second::Type*>(run.state[1].data);
  float *HWY_RESTRICT next_first = run.next[0], *HWY_RESTRICT next_second = run.next[1];
  float* HWY_RESTRICT decrease = run.decrease;
  for (size_t i = 0; i < n; ++i) {
    float state[2] = {};
    if constexpr (states > 0) state[0] = First::load(sizeof(first[0]) == 4 ? next_first[i] : first[i]);
    if constexpr (states > 1) state[1] = Second::load(sizeof(second[0]) == 4 ? next_second[i] : second[i]);
    decrease[i] = rule.decrease(scalars, weight[i], Grad::load(grad[i]), state, arithmetic);
    if constexpr (states > 0) next_first[i] = state[0];
    if constexpr (states > 1) next_second[i] = state[1];
  }
}

template <int states, typename Grad, typename Rule>
HWY_INLINE void decrease_with(const DecreaseRun& run, const Rule& rule) {
  if constexpr (states == 0) {
    decrease_loop<0, Grad, InFp32, InFp32>(run, rule, Wide{});
  } else if constexpr (states == 1) {
    run.state[0].bf16 ? decrease_loop<1, Grad, InBf16, InFp32>(run, rule, Wide{})
                      : decrease_loop<1, Grad, InFp32, InFp32>(run, rule, Wide{});
  } else if (run.state[0].bf16) {
    run.state[1].bf16 ? decrease_loop<2, Grad, InBf16, InBf16>(run, rule, Wide{})
                      : decrease_loop<2, Grad, InBf16, InFp32>(run, rule, Wide{});
  } else {
    run.state[1].bf16 ? decrease_loop<2, Grad, InFp32, InBf16>(run, rule, Wide{})
                      : decrease_loop<2, Grad, InFp32, InFp32>(run, rule, Wide{});
  }
}

template <int states, typename Rule>
void decrease_by(const DecreaseRun& run, const Rule& rule) {
  if (run.arithmetic != nullptr) {
    decrease_loop<states, InFp32, InFp32, InFp32>(run, rule, *run.arithmetic);
  } else if (run.grad.bf16) {
    decrease_with<states, InBf16>(run, rule);
  } else {
    decrease_with<states, InFp32>(run, rule);
  }
}

template <typename Op>
bool decrease_if(const DecreaseRun& run) {
  const Op* op = std::get_if<Op>(run.optimizer);
  if (op != nullptr) decrease_by<Op::kStates>(run, *op);
  return op != nullptr;
}
template <typename... Ops>
void decrease_any(const DecreaseRun& run, OptimizerList<Ops...>) {
  (decrease_if<Ops>(run) || ...);
}

void decrease(const DecreaseRun& run) {
  if (const Sgd* sgd = std::get_if<Sgd>(run.optimizer)) {
    if (sgd->states() == 0) return decrease_by<0>(run, FixedSgd<false>{*sgd});
    return sgd->nesterov ? decrease_by<1>(run, FixedSgd<true>{*sgd})
                         : decrease_by<1>(run, FixedSgd<false>{*sgd});
  }
  decrease_any(run, Optimizers{});
}

// Four values of b bits are one group of 4 b bits, and two groups begin at each b bytes. Between
// groups and values all lanes of a vector do the same; only groups are moved one by one.
constexpr size_t kGroups = kPiece / 4;

void unpack_side(const uint8_t* in, size_t n, int width, uint16_t* out) {
  const auto bits = static_cast<uint32_t>(width);
  const uint64_t four = (uint64_t{1} << (4 * bits)) - 1, two = (uint64_t{1} << (2 * bits)) - 1;
  const uint64_t one = (uint64_t{1} << bits) - 1, ones = one | one << 32;
  const size_t second = bits / 2, odd = 4 * (bits % 2);
  alignas(64) uint64_t groups[kGroups];
  // Each group is read as eight bytes, which must not go past the last value's.
  const size_t bytes = (n * bits + 7) / 8;
  size_t pairs = 0;
  for (; pairs < n / 8 && pairs * bits + second + 8 <= bytes; ++pairs) {
    uint64_t low, high;
    std::memcpy(&low, in + pairs * bits, 8);
    std::memcpy(&high, in + pairs * bits + second, 8);
    groups[2 * pairs] = low & four;
    groups[2 * pairs + 1] = (high >> odd) & four;
  }
  for (size_t k = 0; k < 2 * pairs; ++k) {
    const uint64_t halves = (groups[k] & two) | (groups[k] >> (2 * bits)) << 32;
    groups[k] = (halves & ones) | (halves & ~ones) << (16 - bits);
  }
  std::memcpy(out, groups, pairs * 16);
  if (const size_t done = 8 * pairs; done < n) {
    alignas(64) uint32_t rest[kPiece];
    unpack_bits(in + pairs * bits, n - done, width, rest);
    for (size_t i = done; i < n; ++i) out[i] = static_cast<uint16_t>(rest[i - done]);
  }
}

void pack_side(const uint16_t* in, size_t n, int width, uint8_t* out) {
  const auto bits = static_cast<uint32_t>(width);
  const uint64_t two = (uint64_t{1} << (2 * bits)) - 1, one = (uint64_t{1} << bits) - 1,
                 ones = one | one << 32;
  const size_t second = bits / 2, odd = 4 * (bits % 2);
  alignas(64) uint64_t groups[kGroups];
  // A group is written as eight bytes, whose excess the next one overwrites; not past the last
  // value's.
  const size_t bytes = (n * bits + 7) / 8;
  size_t pairs = 0;
  while (pairs < n / 8 && pairs * bits + second + 8 <= bytes) ++pairs;
  std::memcpy(groups, in, pairs * 16);
  for (size_t k = 0; k < 2 * pairs; ++k) {
    const uint64_t halves = (groups[k] & ones) | (groups[k] >> (16 - bits) & ones << bits);
    groups[k] = (halves & two) | (halves >> 32) << (2 * bits);
  }
  for (size_t k = 0; k < pairs; ++k) {
    const uint64_t low = groups[2 * k], high = groups[2 * k + 1] << odd;
    const uint64_t shared = odd != 0 ? low >> (8 * second) : 0;  // the byte shared by both groups
    const uint64_t rest = high | shared;
    std::memcpy(out + k * bits, &low, 8);
    std::memcpy(out + k * bits + second, &rest, 8);
  }
  if (const size_t done = 8 * pairs; done < n) {
    alignas(64) uint32_t rest[kPiece];
    for (size_t i = done; i < n; ++i) rest[i - done] = in[i];
    pack_bits(rest, n - done, width, out + pairs * bits);
  }
}

uint64_t count_equal(const float* a, const float* b, size_t n) {
  uint32_t equal = 0;
  for (size_t i = 0; i < n; ++i) equal += static_cast<uint32_t>(a[i] == b[i]);
  return equal;
}

double squares(const float* x, size_t n) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  }
  for (size_t k = 0; i + k < n; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

}  // namespace ulp::step::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::step {

HWY_EXPORT(decrease);
HWY_EXPORT(unpack_side);
HWY_EXPORT(pack_side);
HWY_EXPORT(count_equal);
HWY_EXPORT(squares);

void decrease(const DecreaseRun& run) { HWY_DYNAMIC_DISPATCH(decrease)(run); }
void unpack_side(const uint8_t* in, size_t n, int bits, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(unpack_side)(in, n, bits, out);
}
void pack_side(const uint16_t* in, size_t n, int bits, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(pack_side)(in, n, bits, out);
}
uint64_t count_equal(const float* a, const float* b, size_t n) {
  return HWY_DYNAMIC_DISPATCH(count_equal)(a, b, n);
}
double squares(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(squares)(x, n); }

}  // namespace ulp::step
#endif
