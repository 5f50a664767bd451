// A graph on the bench: the reference runs it node by node, and each node is given, with the very
// bytes that the reference read, to the kernels of a backend. What is demanded of them is in
// conformance.h; what is wrong goes to GoogleTest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/support/guarded.h"
#include "ulp/backend/kernel.h"

namespace ulp::conformance {

using Bytes = std::vector<uint8_t>;

inline size_t number(TensorId id) { return static_cast<size_t>(id.index); }

// What of a plan decides bits, beside formats.
struct Setting {
  std::string where = {};  // for messages
  KernelOptions compute = {};
};

// What a kernel left: of each output, and the range events of all tensors.
struct Result {
  std::vector<TensorId> ids;
  std::vector<Bytes> outputs;  // without the bytes that only align
  std::vector<EncodeStats> stats;
  std::string note;  // the task's
};

// How near the results of a kernel came to the reference's.
struct Tally {
  size_t tensors = 0, elements = 0;
  // Elements: of the same bits, one code apart, more than one.
  size_t identical = 0, next = 0, further = 0;
  // The largest error as a share of what is allowed. Of a code it is the least error of the number
  // before rounding that would explain it: none where the code is the reference's.
  double worst = 0;

  void merge(const Tally& other);
};

class Bench {
 public:
  // Nodes of one kind that one task runs; mostly one.
  using Unit = std::vector<NodeId>;

  // Memory for every tensor, full of garbage. The graph must outlive it.
  Bench(const Graph& graph, std::vector<TensorFormat> formats, Setting setting, const StepState& state);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // What a tensor holds, rounded to its format; and as it is stored.
  void set(TensorId id, std::span<const float> values);
  void set_bytes(TensorId id, std::span<const uint8_t> bytes);
  // What a source reads: fp32 or int32, which must outlive the bench.
  void feed(TensorId id, const void* values) { feeds_[number(id)] = values; }

  // All nodes that do something, one by one.
  std::vector<Unit> nodes() const;
  // Those that are checked: all kernels of the backend that take it but the reference; the
  // reference where it is alone.
  std::vector<const KernelDef*> kernels(const Backend& backend, const Unit& roots) const;
  // Runs a unit on the reference, whose results are returned, and holds the kernels of the backend
  // to them.
  Result check(const Unit& roots, const Backend& backend);
  // One of the reference's results becomes what later nodes read.
  void keep(const Result& result, size_t output);

  const std::map<Checked, Tally>& tallies() const { return tallies_; }

 private:
  // What a kernel is held to; `exact` and `allowed` where results have a bound.
  struct Goal {
    Result expected, exact;  // as stored; in fp32, what the reference would encode
    Allowed allowed;
    std::vector<TensorFormat> wide;  // the formats with all results in fp32
  };
  // Of which numbers range events are reported.
  enum class Events : uint8_t { sums, codes, codes_or_none };
  // A tensor as a kernel stored it, and the interval around the reference's number that each
  // element must be from.
  struct Stored {
    TensorId id;
    FloatFormat format;
    const Bytes &bytes, &reference;
    EncodeStats stats;
    std::span<const float> middle;
    std::span<const double> allowed;
    Events events = Events::sums;
  };

  // conformance_bench.cc
  PlanContext plan(std::span<const TensorFormat> formats) const;
  Rounding rounding(TensorId id) const;
  Result run(const KernelDef& kernel, const Unit& roots, std::span<const TensorFormat> formats, int threads,
             Device& device);
  void run_there(Device& device, Task& task, const Unit& roots, const std::vector<Guarded>& outputs,
                 const Guarded& workspace, Result& result, RunContext& run) const;
  View view(NodeId id);
  Goal make_goal(const Rule& rule, const Unit& roots, const Result& expected);

  // conformance_expect.cc
  void check_kernel(const KernelDef& kernel, const Goal& goal, const Unit& roots, Device& device);
  bool moves_codes(NodeId id) const;
  void expect_same(const Result& a, const Result& b, std::string_view which, bool moves = false);
  void expect_close(const KernelDef& kernel, const Goal& goal, const Unit& roots, const Result& result,
                    int threads, Device& device, Tally& tally);
  Events events_of(const Result& result, TensorId out) const;
  void expect_within(const Stored& stored, Tally& tally) const;
  void count_same(const Result& expected, const Result& result, Tally& tally) const;

  const Graph& graph_;
  const std::vector<TensorFormat> formats_;
  const Setting setting_;
  const StepState state_;
  std::vector<Guarded> memory_;  // by tensor
  std::vector<uint8_t*> data_;
  std::vector<const void*> feeds_;
  std::map<Checked, Tally> tallies_;
};

}  // namespace ulp::conformance
