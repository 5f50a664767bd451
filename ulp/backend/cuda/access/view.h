// Tensors as kernels see them: address and storage, as plain structs that are passed as kernel
// arguments. codec.h reads and writes them on the device; operands.h makes them from a problem on
// the host.
#pragma once

#include <cstdint>

#include "ulp/backend/step_state.h"
#include "ulp/numeric/quick.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/stats.h"

namespace ulp::cuda {

enum class Stored : uint8_t { plain, split, scaled, s2fp8 };

struct StoredView {
  uint8_t* codes = nullptr;
  uint32_t* side = nullptr;
  uint64_t elements = 0;
  Stored kind = Stored::plain;
  bool fp32 = true;          // plain numbers, no codes
  bool random_high = false;  // split: the high part is rounded stochastically
  bool nonzero = false;      // scaled: only zero is written as zero
  uint8_t bits = 32;         // of a code; for split storage the high part's
  uint8_t extra = 0;         // split: N
  uint8_t side_bits = 0;     // split: extra bits for each code
  QuickCodec codec = {};     // of codes; for split storage the wide format's, for s2fp8 e5m2
};

// How a tensor is read: decoded, and for a weight with another operand format rounded to that.
struct ReadView {
  StoredView stored;
  bool rounds = false;  // to the operand format
  // The operand format is S2FP8, which needs the whole tensor, or scaled, which needs blocks: only
  // decode() of convert.h supports it.
  bool rounds_s2fp8 = false, rounds_scaled = false;
  bool operand_nonzero = false;  // scaled: only zero is written as zero
  Round mode = Round::nearest_even;
  uint32_t number = 0;           // of the random words
  QuickCodec operand = {};       // of the operand format
  EncodeStats* stats = nullptr;  // where rounding the operand is reported; null: nowhere
};

// How a tensor is written.
struct WriteView {
  StoredView stored;
  Round mode = Round::nearest_even;
  bool state = false;            // random words do not depend on the micro-batch
  bool sums = false;             // over uses and micro-batches: the first writes, the others add
  bool adds = false;             // this node is not the first of its step
  bool update = false;           // part of an update: a skipped step writes nothing (S2FP8 only)
  uint32_t number = 0;           // of the random words
  EncodeStats* stats = nullptr;  // null: not reported
};

// Whether threads can read and write a few neighbouring elements each (vector.h), fewer than a
// group.
ULP_HD constexpr bool reads_by_vectors(const StoredView& view) {
  if (view.kind == Stored::split) return false;
  if (view.bits == 16)
    return view.codec.short_out && view.codec.spec.sign_shift == 15 && view.codec.shift <= 16;
  return view.fp32 || view.bits == 8;
}
ULP_HD constexpr bool writes_by_vectors(const WriteView& view) {
  const StoredView& stored = view.stored;
  return stored.kind == Stored::plain && !view.sums && (stored.fp32 || stored.bits == 8 || stored.bits == 16);
}

// Elements are processed in groups of eight: whole bytes at any code width, and two draws of random
// words.
inline constexpr uint32_t kGroup = 8;

ULP_HD constexpr uint64_t groups_of(uint64_t elements) { return (elements + kGroup - 1) / kGroup; }

}  // namespace ulp::cuda
