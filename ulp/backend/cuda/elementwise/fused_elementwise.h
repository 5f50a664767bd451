// Elementwise operators and reductions with the nodes that are computed inside them. A problem is a pattern, an expression over stored tensors
// such as relu(add(batch_norm(x),x)), that was compiled as a whole: values stay in registers, where an inlined node's
// output is rounded as if it were stored. A pattern's text names operators by their names and leaves by x; leaves and nodes
// are numbered in the order in which they are met, children before their node.
//
// The same elements are always added in the same order: everything here depends on shapes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Threads of a block of a reduction, and blocks that a processor holds at once: enough of them hide what each waits for.
inline constexpr uint32_t kReductionThreads = 256, kBlocksAtOnce = 3;

inline constexpr int kMaxLeaves = 8, kMaxStages = 8, kMaxChannelViews = 10;

inline constexpr float kShortLimit = 0x1p104f;

// How a value is rounded: one in a register, or a result. What follows `codec` is for nearest-even in few steps.
struct Rounder {
  enum class Unit : uint8_t { none, bf16, fp16 };  // whether the processor has instructions for the format

  bool on = false;     // off: fp32
  bool quick = true;   // to nearest-even in few steps
  bool exact = false;  // what comes are numbers of the format already: nothing is rounded
  Unit unit = Unit::none;
  Round mode = Round::nearest_even;
  uint32_t number = 0;           // of the random words
  EncodeStats* stats = nullptr;  // null: not reported
  QuickCodec codec = {};
  float limit = 0;         // no number up to here overflows; none from kShortLimit on is rounded in few steps
  float largest = 0;       // of the format
  float over = 0;          // what an overflow becomes
  uint32_t vanishing = 0;  // twice the pattern of the largest number that becomes 0
  uint32_t many = 0;       // 2^23 spacings of the binade of pattern p are p + many,
  uint32_t least = 0;      // or this where that is more
  uint32_t place = 0;      // what is missing then for a code
  float drop =
      0;  // of numbers of the format: times this the pattern has the code above `shift` other bits; 0: not so
};
// Off where the view is fp32.
Rounder make_rounder(bool fp32, const QuickCodec& codec, Round mode, uint32_t number);

// A tensor that is read. What follows the view is for codes of 8 and 16 bits in few steps.
struct Leaf {
  ReadView view;
  bool quick = false;
  bool same = false;      // a code is the upper half of its number
  uint8_t shift = 0;      // from the top of a register to the place in a number
  uint32_t mask = 0;      // of the bits that belong there
  float lift = 1;         // what is missing to the number
  float largest = 0;      // that is a number; codes beyond are special
  bool ordinary = false;  // there are none
};
Leaf make_leaf(const ReadView& view);

// What a node is told beside its inputs.
struct Stage {
  Rounder rounder;                    // of an inlined node
  float scalar = 0;                   // slope, scale of dropout, value of a seed
  float epsilon = 0, rows = 1;        // batch norm
  uint32_t threshold = 0, words = 0;  // dropout
};

struct FusedCall {
  const StepState* state = nullptr;
  uint64_t elements = 0, channels = 1;  // channels: 1 where nothing belongs to them
  int leaves = 0, stages = 0;
  Leaf leaf[kMaxLeaves];
  Stage stage[kMaxStages];
  ReadView view[kMaxChannelViews];  // channel inputs
  WriteView out[2];                 // plain, by groups; of a reduction: fp32, made as a whole
  Rounder rounder;                  // of the result
  float* partial = nullptr;         // of a reduction: partial_floats() of them
  uint32_t ticket = 0;              // of a reduction: which counters of finished blocks it has
  bool general = false;             // only by the kernels for all formats (batchnorm.h)
};

// How work is spread: thread q of `threads` takes groups q, q + threads ... A multiple of the groups after which channels
// repeat, so that each thread has eight channels and no others.
struct Spread {
  uint32_t blocks = 1, block = 1;  // threads launched
  uint32_t active = 1;             // of a block that work
  uint64_t threads = 1;            // in all that work
  uint64_t period = 1;             // groups after which channels repeat
  uint64_t rows = 1;               // of a reduction: rows of partial results
};
Spread spread_elements(uint64_t elements, uint64_t channels);
Spread spread_rows(uint64_t elements, uint64_t channels);

// Floats of partial results of a reduction.
size_t partial_floats(uint64_t elements, uint64_t channels);

// By a pattern's text; null where there is none.
using FusedLaunch = void (*)(const FusedCall& call, Stream stream);
FusedLaunch find_elementwise(std::string_view text);
FusedLaunch find_elementwise_grad(std::string_view text);
FusedLaunch find_reduction(std::string_view text);

// Many copies at once.
inline constexpr int kMaxCopies = 64;
struct Copies {
  const StepState* state = nullptr;
  int count = 0;
  struct One {
    ReadView in;
    WriteView out;
    uint32_t first_block = 0;  // filled in by the launch
  } one[kMaxCopies];
};
void launch_copies(const Copies& copies, Stream stream);

}  // namespace ulp::cuda
