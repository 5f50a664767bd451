// Fused elementwise operators and reductions. A problem is a pattern: an expression over stored
// tensors such as relu(add(batch_norm(x),x)) that was compiled as a whole. Values stay in
// registers; the output of an inlined node is rounded as if it were stored. A pattern's text uses
// the operators' names, and x for leaves. Leaves and nodes are numbered in the order of a traversal
// that visits children before their node.
//
// The order of summation is fixed: it depends on shapes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Threads of a reduction block, and resident blocks per multiprocessor: enough of them hide
// latency.
inline constexpr uint32_t kReductionThreads = 256, kBlocksAtOnce = 3;

inline constexpr int kMaxLeaves = 8, kMaxStages = 8, kMaxChannelViews = 10;

inline constexpr float kShortLimit = 0x1p104f;

// How a value is rounded, in a register or as a result. The fields after `codec` are for the fast
// path, rounding to nearest even in few steps.
struct Rounder {
  // Whether the GPU has instructions for the format.
  enum class Native : uint8_t { none, bf16, fp16 };

  bool on = false;     // off: fp32
  bool quick = true;   // nearest even by the fast path
  bool exact = false;  // inputs are values of the format already: nothing is rounded
  Native native = Native::none;
  Round mode = Round::nearest_even;
  uint32_t number = 0;           // of the random words
  EncodeStats* stats = nullptr;  // null: not reported
  QuickCodec codec = {};
  float limit = 0;         // no value up to here overflows; the fast path ends at kShortLimit
  float largest = 0;       // largest value of the format
  float over = 0;          // what an overflow becomes
  uint32_t vanishing = 0;  // twice the pattern of the largest value that becomes 0
  EvenByAdder even = {};
  float drop = 0;  // value * drop has the code above `shift` low bits; 0: not so
};
// Off if the view is fp32.
Rounder make_rounder(bool fp32, const QuickCodec& codec, Round mode, uint32_t number);

// A tensor that is read. The fields after the view are for the fast path: codes of 8 and 16 bits in
// few steps.
struct Leaf {
  ReadView view;
  bool quick = false;
  bool same = false;      // a code is the upper half of its fp32 pattern
  uint8_t shift = 0;      // from the top of a register to the place in an fp32 pattern
  uint32_t mask = 0;      // of the bits that belong there
  float lift = 1;         // factor still missing
  float largest = 0;      // largest number; codes beyond are special
  bool ordinary = false;  // the format has no specials
  bool table = false;     // S2FP8: values are looked up by code; not quick
};
Leaf make_leaf(const ReadView& view);

// A node's parameters besides its inputs.
struct Stage {
  Rounder rounder;                    // of an inlined node
  float scalar = 0;                   // slope, dropout scale, or seed value
  float epsilon = 0, rows = 1;        // batch norm
  uint32_t threshold = 0, words = 0;  // dropout
};

struct FusedCall {
  const StepState* state = nullptr;
  uint64_t elements = 0, channels = 1;  // channels: 1 if nothing is per channel
  int leaves = 0, stages = 0;
  Leaf leaf[kMaxLeaves];
  Stage stage[kMaxStages];
  ReadView view[kMaxChannelViews];  // channel inputs
  WriteView out[2];                 // plain, by groups; of a reduction: fp32, written as a whole
  Rounder rounder;                  // of the result
  float* partial = nullptr;         // of a reduction: partial_floats() floats
  uint32_t ticket = 0;              // of a reduction: which counters of finished blocks it uses
  bool general = false;             // use only the kernels for all formats (batchnorm.h)
};

// How work is distributed: thread q of `threads` takes groups q, q + threads, ... `threads` is a
// multiple of the groups after which channels repeat, so each thread has the same eight channels
// throughout.
struct Spread {
  uint32_t blocks = 1, block = 1;  // threads launched
  uint32_t active = 1;             // threads of a block that work
  uint64_t threads = 1;            // threads that work, in all
  uint64_t period = 1;             // groups after which channels repeat
  uint64_t rows = 1;               // of a reduction: rows of partial results
};
Spread spread_elements(uint64_t elements, uint64_t channels);
Spread spread_rows(uint64_t elements, uint64_t channels);

// Floats of a reduction's partial results.
size_t partial_floats(uint64_t elements, uint64_t channels);

// Looked up by a pattern's text; null if there is none.
using FusedLaunch = void (*)(const FusedCall& call, Stream stream);
FusedLaunch find_elementwise(std::string_view text);
FusedLaunch find_elementwise_grad(std::string_view text);
FusedLaunch find_reduction(std::string_view text);
// Finds the kernel of an activation or its gradient alone. It is slower than a pattern, so it is
// asked last.
FusedLaunch find_activation(std::string_view text);
// The fastest of all these.
inline FusedLaunch find_fused(std::string_view text) {
  for (const auto search : {find_elementwise, find_elementwise_grad, find_reduction, find_activation}) {
    if (const FusedLaunch launch = search(text)) return launch;
  }
  return nullptr;
}

// Many copies in one launch.
inline constexpr int kMaxCopies = 64;
struct Copies {
  const StepState* state = nullptr;
  int count = 0;
  struct One {
    ReadView in;
    WriteView out;
    uint32_t first_block = 0;  // set by the launch
  } one[kMaxCopies];
};
void launch_copies(const Copies& copies, Stream stream);

}  // namespace ulp::cuda
