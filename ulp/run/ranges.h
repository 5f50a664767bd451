// The range events of a run's tensors, step by step, in a file of its own (ranges.bin in the run's
// folder): largest magnitudes, and how much overflowed or was flushed to zero. The doctor reads it;
// training only appends.
//
// The file begins with one line of JSON that names the tensors and the model's input, then records
// of one size follow, each of one step and with a checksum: step, loss, scale, flags, checksum, and
// three fp32 numbers for each tensor, all little-endian. A process that is killed leaves at most
// one torn record at the end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/numeric/stats.h"

namespace ulp {

// The facts that a network is built from beside the configuration, so that it can be planned again
// without its data (NetworkId).
struct RangedModel {
  std::string input;  // "" and 0: the task has none
  int64_t classes = 0;
};

// A tensor that is not fp32 when the run starts, as it starts.
struct RangedTensor {
  std::string name;
  Kind kind = Kind::activation;
  uint64_t elements = 0;  // at the full batch
  std::string format;     // what it is stored as, or for a weight rounded to
  std::string high;       // what promotion gives it; the same where it is not low

  bool operator==(const RangedTensor&) const = default;
};

// The range of one tensor in one step.
struct TensorRange {
  float amax = 0;                     // largest magnitude before rounding; NaN if there was a NaN
  float overflow = 0, underflow = 0;  // shares of its elements: beyond the largest number, flushed to zero

  bool operator==(const TensorRange&) const = default;
};
TensorRange tensor_range(const EncodeStats& stats, uint64_t elements);

struct RangeRecord {
  uint64_t step = 0;  // from 1
  double loss = 0, scale = 1;
  bool skipped = false;
  std::vector<TensorRange> tensors;
};

class RangeFile {
 public:
  // Makes the file, or goes on with the one of a run that stands after `step` steps: later records
  // and a torn one are cut off. Where that is none, the file begins anew. Throws an Error for a
  // file that is none, and for one of other tensors of which something would be kept.
  RangeFile(const std::string& path, const RangedModel& model, std::span<const RangedTensor> tensors,
            uint64_t step);
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;
  ~RangeFile();

  // Appends in one write; as many ranges as there are tensors. Not every step is worth its bytes:
  // the first kAlways are written, then each stride-th so that about kMost lie in a run, the last,
  // and every one in which something happens for the first time: a tensor overflows, or more than
  // kFlushed of it is flushed, or has a NaN; and those that were skipped, and those that `must` be
  // there, as long as the file has no more than kAll records. On an Error (the disk is full) the
  // file is as it was before.
  static constexpr uint64_t kAlways = 256, kMost = 4096, kAll = 6000;
  static constexpr double kFlushed = 0.5;
  void write(const RangeRecord& record, uint64_t total_steps, bool must);

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t last_ = 0;          // the step that was written last
  uint64_t records_ = 0;       // in the file
  std::vector<uint8_t> seen_;  // by tensor: what has happened to it already
};

struct RangeHistory {
  RangedModel model;
  std::vector<RangedTensor> tensors;
  std::vector<RangeRecord> records;  // by step
};
// A torn record at the end is left out: one that is cut short, or does not match its checksum.
// Throws an Error for a file that is none or is damaged elsewhere.
RangeHistory load_ranges(const std::string& path);

}  // namespace ulp
