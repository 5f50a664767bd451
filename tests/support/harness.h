// Training steps done twice: as a plan, in an arena that is poisoned before every run and has red
// zones around it; and node by node, every tensor in memory of its own. Both must leave the same
// bits and report the same range events, and the plan must take the memory that it says.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/backend/recorder.h"
#include "ulp/graph/format.h"
#include "ulp/models/model.h"
#include "ulp/plan/plan.h"

namespace ulp::harness {

// A whole step, and what it is fed: the images and labels of all micro-batches, one after another.
struct TrainingGraph {
  ClassifierGraph net;
  int micro_batches = 1;
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// Adds backward and update to a forward graph and makes up its images and labels.
void make_step(TrainingGraph& made, uint64_t image_seed, int micro_batches = 1, double clip_norm = 0);

// Every tensor that can be stored in another format than fp32, in the storage that is chosen for
// it.
std::vector<TensorFormat> choose_formats(const Graph& graph,
                                         const std::function<std::string(const TensorInfo&)>& choose);

// Plans on the CPU.
PlanOptions cpu_plan();
// Products whose bits depend neither on threads nor on the workspace; oneDNN's may be added up in
// another order.
KernelChoice reference_products();

// What the steps left.
struct Trained {
  // By name: state after the last step, the sums of each run, the results that were asked for.
  std::map<std::string, std::vector<uint8_t>> bits;
  std::vector<EncodeStats> stats;  // by tensor, of the last run
  // The same, of activations and their gradients, and of gradients of weights.
  std::vector<TensorRecord> records;
};

// The arena is full of `poison` before every run. Expects that no byte around it changes, and that
// memory is as planned.
Trained run_plan(const TrainingGraph& made, const std::vector<TensorFormat>& formats, PlanOptions options,
                 uint8_t poison);
// Of the options counts what changes numbers: backend, kernels and rounding; and the results.
Trained run_apart(const TrainingGraph& made, const std::vector<TensorFormat>& formats,
                  const PlanOptions& options);

void expect_same_bits(const Trained& apart, const Trained& planned, const std::string& what);
// Returns how many elements were compared.
size_t expect_same_records(const Graph& graph, const Trained& apart, const Trained& planned);
// Returns how many underflows and overflows were compared.
size_t expect_same_events(const Graph& graph, const Trained& apart, const Trained& planned);

}  // namespace ulp::harness
