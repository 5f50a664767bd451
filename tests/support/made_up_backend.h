// Backends of made-up kernels, to plan with: their tasks do nothing, but say what they need. Every
// trait that a kernel can have comes together with every other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/plan/plan.h"

namespace ulp::harness {

// Of the kernel that takes a problem, and of its task.
struct Traits {
  bool in_place = false, side_stream = false;
  bool takes_inlined = true;  // else it declines problems with inlined nodes
  bool declines = false;      // all problems
  size_t workspace = 0;       // beside what is prepared
  size_t prepared = 0;
  bool begins_pair = false, ends_pair = false;  // as which half of two merged steps it can run
  size_t pair_workspace = 0;                    // of the merged task, given by its first half
  std::vector<TensorId> reads_range = {};
};

struct BackendTraits {
  std::function<Traits(const Problem& problem)> of = [](const Problem&) { return Traits{}; };
  bool fuses = false, merges = false;
  bool prepares = false, pairs = false;  // it has make_preparation, make_merged
};

// By the name of the root.
std::function<Traits(const Problem& problem)> traits_by_name(std::vector<std::pair<std::string, Traits>> list,
                                                             Traits others = {});

// The backend that the plan needs lives with it.
class MadeUpPlan {
 public:
  // fp32 everywhere where no formats are given.
  MadeUpPlan(const Graph& graph, const BackendTraits& traits, PlanOptions options = {},
             std::vector<TensorFormat> formats = {});
  const Plan& operator*() const { return *plan_; }
  const Plan* operator->() const { return plan_.get(); }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace ulp::harness
