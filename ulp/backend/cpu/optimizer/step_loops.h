// The inner loops of optimizer steps, compiled for every vector unit. A step goes through them in
// pieces that stay in the first cache: weights are decoded, the optimizer computes the decrease and
// its new states, and the rule writes the weights back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cpu/optimizer/step_codes.h"
#include "ulp/numeric/nearest.h"
#include "ulp/numeric/stats.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/rule.h"

namespace ulp::step {

// Elements of a piece: a multiple of every storage's granule.
inline constexpr size_t kPiece = 1024;

// Values that a loop reads in place: fp32 or bf16.
struct Array {
  const void* data = nullptr;
  bool bf16 = false;
};

// Computes the decrease of each weight and the new states.
struct DecreaseRun {
  const Optimizer* optimizer;
  const UpdateScalars* scalars;
  const Nearest* arithmetic;  // null: fp32; else no array is bf16
  size_t n;
  const float* weight;
  Array grad;
  Array state[2];  // as many as the optimizer has
  float* next[2];  // the new states; for an fp32 state, itself
  float* decrease;
};
void decrease(const DecreaseRun& run);

// Rounds fp32 values to nearest bf16, whose codes are given; adds events.
void write_bf16(const Codes& codes, size_t n, const float* in, uint16_t* out, EncodeStats& stats);

// What the rules share. `before` are the decoded weights; counts are added to.
struct WriteRun {
  size_t n;
  const float* before;
  const float* decrease;
  const uint32_t* random;  // one word per element; null: to nearest
  UpdateCounts* counts;
  EncodeStats* stats;  // of the weight
};

// fp32 weights, in place.
void write_fp32(const WriteRun& run, float* weight);

// 16-bit codes; `same`: with fp32's exponents.
void write_plain(const WriteRun& run, const Codes& codes, bool same, uint16_t* out);

// 16-bit codes and their compensation in the same format.
struct Compensation {
  uint16_t* codes;
  EncodeStats* stats;
};
void write_kahan(const WriteRun& run, const Codes& codes, bool same, const Nearest& near, uint16_t* out,
                 const Compensation& compensation);

// A 16-bit high part and extra bits in 1, 2 or 4 bytes each. With `random` the high part is rounded
// stochastically.
struct SplitArrays {
  uint16_t* high;
  void* side;
  size_t side_bytes;
};
void write_split(const WriteRun& run, const CodecSpec& wide, int extra, const SplitArrays& out);
void read_split(const CodecSpec& wide, int extra, size_t n, const SplitArrays& in, float* out);

// Extra bits of 1 to 15 bits each, packed without gaps as in split.h, to 16 bits each and back; n
// <= kPiece.
void unpack_side(const uint8_t* in, size_t n, int bits, uint16_t* out);
void pack_side(const uint16_t* in, size_t n, int bits, uint8_t* out);

// Weights of any storage: computes the new weights before rounding. `compare` gets the old weight
// if equality after storing means a lost update, else NaN.
void advance_any(const WriteRun& run, float* weight, float* compare);
void advance_any_kahan(const WriteRun& run, const CodecSpec& spec, const Nearest& near, float* compensation,
                       float* weight, float* compare);
uint64_t count_equal(const float* a, const float* b, size_t n);

// The sum of squares, in an order that depends on n alone.
double squares(const float* x, size_t n);

}  // namespace ulp::step
