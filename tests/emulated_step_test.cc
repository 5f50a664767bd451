// Whole training steps with the kernels for a GPU, emulated: what their plans fuse, merge, move or
// overwrite changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/harness.h"
#include "tests/support/plan_simulator.h"
#include "ulp/backend/emulated/emulated.h"

namespace ulp {
namespace {

harness::TrainingGraph make_graph(const std::string& name, int64_t side, double clip_norm = 0,
                                  double width = 0.25, int64_t batch = 3, int micro_batches = 1) {
  ModelRequest request;
  request.name = name;
  request.width = width;
  request.batch = batch;
  request.image = {3, side, side};
  harness::TrainingGraph made;
  made.net = build_classifier(request, Mode::training);
  harness::make_step(made, 7, micro_batches, clip_norm);
  return made;
}

void expect_same(const harness::TrainingGraph& made, const std::vector<std::string>& storages) {
  const std::vector<TensorFormat> formats = harness::choose_formats(
      made.net.graph,
      [&](const TensorInfo& tensor) { return storages[tensor.number / 7 % storages.size()]; });
  PlanOptions fused;
  fused.backend = &emulated_backend();
  PlanOptions early = fused;
  early.fused_backward = true;
  const harness::Trained apart = run_apart(made, formats, fused),
                         planned = run_plan(made, formats, fused, 0xFF);
  harness::expect_same_bits(apart, planned, "fused");
  harness::expect_same_events(made.net.graph, apart, planned);
  harness::expect_same_bits(apart, run_plan(made, formats, early, 0xAA), "fused backward");
}

TEST(EmulatedStep, PlansChangeNoBit) {
  expect_same(make_graph("resnet8", 16), {"fp(4,3,4)", "fp(5,2,0)"});
  expect_same(make_graph("resnet8", 16, 0.5), {"fp32", "fp(6,9,0)", "fp(4,3,4)", "bf16", "e8m5", "s2fp8"});
}

TEST(EmulatedStep, PlansChangeNoBitOfDepthwiseAndShuffledModels) {
  expect_same(make_graph("shufflenetv2", 32, 0, 0.25, 2), {"fp(4,3,4)", "bf16"});
}

// What convolutions prepare of their weights is made for many at once, a few launches a step, and
// the step takes hardly more memory than one in which each prepares for itself.
TEST(EmulatedStep, WeightsPreparedTogetherChangeNoBit) {
  const harness::TrainingGraph made = make_graph("resnet8", 8, 0, 1);
  const std::vector<std::string> storages = {"bf16", "fp(4,3,4)"};
  expect_same(made, storages);
  const std::vector<TensorFormat> formats = harness::choose_formats(
      made.net.graph,
      [&](const TensorInfo& tensor) { return storages[tensor.number / 7 % storages.size()]; });
  Backend alone = emulated_backend();
  alone.make_preparation = nullptr;
  PlanOptions options;
  options.backend = &emulated_backend();
  const Plan together(made.net.graph, formats, options);
  options.backend = &alone;
  const Plan apart(made.net.graph, formats, options);
  size_t tasks = 0, prepared = 0, launches = 0;
  for (const PlanStep& step : together.steps()) {
    tasks += step.task->prepared() > 0;
    prepared += step.prepared.has_value();
    launches += step.preparation != nullptr;
  }
  EXPECT_GE(tasks, 12u);
  EXPECT_GE(prepared + 2, tasks);
  EXPECT_GE(launches, 2u);
  EXPECT_LE(launches, 4u);
  EXPECT_LE(static_cast<double>(together.step_bytes()), 1.02 * static_cast<double>(apart.step_bytes()));
}

std::vector<TensorFormat> forward_and_grad(const Graph& graph, const std::string& forward,
                                           const std::string& grad) {
  return harness::choose_formats(
      graph, [&](const TensorInfo& tensor) { return is_gradient(tensor.kind) ? grad : forward; });
}

int count_merged(const Plan& plan) {
  int merged = 0;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const bool pair = plan.steps()[i].merged_task != nullptr;
    merged += pair;
    EXPECT_EQ(pair, i + 1 < plan.steps().size() && plan.steps()[i + 1].merged);
  }
  return merged;
}

// A batch norm's reduction and what follows it are one task in formats that models train in. The
// bits are those of two, the range events too.
TEST(EmulatedStep, MergedStepsChangeNoBit) {
  const harness::TrainingGraph once = make_graph("resnet8", 16, 0, 0.5),
                               twice = make_graph("resnet8", 8, 0, 1, 3, 2);
  struct Tried {
    const harness::TrainingGraph& made;
    const char *forward, *grad;
    size_t events;  // at least
  };
  for (const Tried& tried : {Tried{once, "bf16", "bf16", 0}, Tried{once, "fp(4,3,4)", "fp(5,2,0)", 1},
                             Tried{twice, "bf16", "bf16", 0}, Tried{twice, "fp(6,9,0)", "fp(6,9,0)", 0},
                             Tried{twice, "fp(2,13,0)", "fp(2,13,0)", 20}}) {
    SCOPED_TRACE(tried.forward);
    const Graph& graph = tried.made.net.graph;
    const std::vector<TensorFormat> formats = forward_and_grad(graph, tried.forward, tried.grad);
    PlanOptions merged, apart;
    merged.backend = apart.backend = &emulated_backend();
    apart.merge = false;
    EXPECT_GE(count_merged(Plan(graph, formats, merged)), 10);
    EXPECT_EQ(count_merged(Plan(graph, formats, apart)), 0);
    const harness::Trained first = run_plan(tried.made, formats, merged, 0xFF),
                           second = run_plan(tried.made, formats, apart, 0xFF);
    harness::expect_same_bits(second, first, "merged");
    EXPECT_GE(harness::expect_same_events(graph, second, first), tried.events);
  }
}

// At the sizes that are trained most steps that can be merged are, in hardly more memory.
TEST(EmulatedStep, JoinsMostNormsOfModels) {
  struct Tried {
    const char *model, *forward, *grad;
    int least;
  };
  for (const Tried& tried :
       {Tried{"resnet20", "bf16", "bf16", 38}, Tried{"resnet20", "fp(4,3,4)", "fp(5,2,0)", 38},
        Tried{"resnet18", "bf16", "bf16", 24}, Tried{"resnet18", "fp(4,3,4)", "fp(5,2,0)", 24}}) {
    SCOPED_TRACE(tried.model);
    SCOPED_TRACE(tried.forward);
    const harness::TrainingGraph made = make_graph(tried.model, 32, 0, 1, 128);
    const std::vector<TensorFormat> formats = forward_and_grad(made.net.graph, tried.forward, tried.grad);
    PlanOptions options;
    options.backend = &emulated_backend();
    const Plan merged(made.net.graph, formats, options);
    EXPECT_GE(count_merged(merged), tried.least);
    options.merge = false;
    const Plan apart(made.net.graph, formats, options);
    EXPECT_LE(static_cast<double>(merged.step_bytes()), 1.02 * static_cast<double>(apart.step_bytes()));
    options.tight = true;
    const Plan least(made.net.graph, formats, options);
    options.merge = true;
    const Plan tight(made.net.graph, formats, options);
    EXPECT_LE(tight.step_bytes(), least.step_bytes());
    EXPECT_GE(count_merged(tight), tried.least / 2);
  }
}

// Replayed on an abstract machine, in which what runs beside others does so until it is waited for.
TEST(EmulatedStep, PlansAreSound) {
  for (const std::string model : {"resnet8", "resnet20", "shufflenetv2", "mobilenetv2"}) {
    for (const int micro_batches : {1, 2}) {
      const harness::TrainingGraph made = make_graph(model, 32, 0.5, 0.5, 4, micro_batches);
      for (const std::string storage : {"bf16", "fp(4,3,4)"}) {
        const std::vector<TensorFormat> formats =
            harness::choose_formats(made.net.graph, [&](const TensorInfo&) { return storage; });
        for (const bool tight : {false, true}) {
          for (const bool fused_backward : {false, true}) {
            SCOPED_TRACE(model + " in " + storage);
            PlanOptions options;
            options.backend = &emulated_backend();
            options.tight = tight;
            options.fused_backward = fused_backward;
            options.micro_batches = micro_batches;
            options.results = {made.net.sums, made.net.loss};
            const Plan plan(made.net.graph, formats, options);
            EXPECT_EQ(harness::faults_of(plan), "");
            EXPECT_EQ(text_of(harness::simulate(plan, Phase::backward)), "");
          }
        }
      }
    }
  }
}

// Bytes of the arena that a step reads and writes.
struct Ranges {
  std::vector<std::pair<size_t, size_t>> read, written;  // begin, end

  static void add(std::vector<std::pair<size_t, size_t>>& to, size_t begin, size_t bytes) {
    if (bytes > 0) to.emplace_back(begin, begin + bytes);
  }

  Ranges() = default;
  // But for what it prepares for others.
  Ranges(const Plan& plan, size_t number) {
    const PlanStep& step = plan.steps()[number];
    if (step.merged) return;
    for (size_t i = number; i <= number + (step.merged_task != nullptr ? 1 : 0); ++i) {
      const PlanStep& one = plan.steps()[i];
      for (const auto* nodes : {&one.roots, &one.inlined}) {
        for (const NodeId id : *nodes) {
          for (const TensorId in : plan.graph()[id].in) {
            const TensorPlace& place = plan.place(in);
            if (place.home == Home::step) add(read, place.offset, place.bytes);
          }
        }
      }
      for (const NodeId id : one.roots) {
        for (const TensorId out : plan.graph()[id].out) {
          const TensorPlace& place = plan.place(out);
          if (place.home == Home::step) add(written, place.offset, place.bytes);
        }
      }
    }
    const size_t prepared = step.task->prepared();
    add(written, step.workspace, step.workspace_bytes() - (step.prepared ? prepared : 0));
    if (step.prepared) add(read, *step.prepared, prepared);
  }

  // What a step prepares for others.
  static Ranges prepared_by(const Plan& plan, size_t number) {
    Ranges made;
    for (const int member : plan.steps()[number].prepares) {
      const PlanStep& other = plan.steps()[static_cast<size_t>(member)];
      add(made.written, *other.prepared, other.task->prepared());
    }
    return made;
  }

  static bool meet(const std::vector<std::pair<size_t, size_t>>& a,
                   const std::vector<std::pair<size_t, size_t>>& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& x) {
      return std::any_of(b.begin(), b.end(),
                         [&](const auto& y) { return x.first < y.second && y.first < x.second; });
    });
  }
  bool disturbs(const Ranges& other) const {
    return meet(written, other.read) || meet(written, other.written) || meet(read, other.written);
  }
};

// Where steps run beside others, no byte that one writes is another's.
TEST(EmulatedStep, StepsBesideOthersDoNotMeetThem) {
  const harness::TrainingGraph once = make_graph("resnet20", 32, 0, 1, 128),
                               clipped = make_graph("resnet20", 32, 0.5, 1, 128);
  struct Tried {
    const harness::TrainingGraph& made;
    std::vector<std::string> storages;
    bool fused_backward;
    int micro_batches, least;  // pairs of steps beside each other
  };
  for (const Tried& tried :
       {Tried{once, {"bf16"}, false, 1, 40}, Tried{once, {"bf16", "fp(4,3,4)"}, false, 1, 40},
        Tried{once, {"bf16"}, false, 2, 40}, Tried{once, {"bf16"}, true, 1, 0},
        Tried{clipped, {"bf16"}, true, 1, 0}}) {
    const Graph& graph = tried.made.net.graph;
    const std::vector<TensorFormat> formats = harness::choose_formats(graph, [&](const TensorInfo& tensor) {
      return tried.storages[tensor.number / 7 % tried.storages.size()];
    });
    PlanOptions options;
    options.backend = &emulated_backend();
    options.fused_backward = tried.fused_backward;
    options.micro_batches = tried.micro_batches;
    const Plan plan(graph, formats, options);
    options.overlap = false;
    const Plan apart(graph, formats, options);
    int beside = 0, early = 0;
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      EXPECT_EQ(apart.steps()[i].live_until, 0);
      const PlanStep& step = plan.steps()[i];
      if (step.preparation != nullptr) {
        const Ranges prepared = Ranges::prepared_by(plan, i);
        const auto needed = static_cast<size_t>(step.prepares.front());
        EXPECT_FALSE(step.merged);
        EXPECT_FALSE(prepared.written.empty());
        for (size_t other = i; other < needed; ++other) {
          ++early;
          EXPECT_FALSE(prepared.disturbs(Ranges(plan, other))) << i << " and " << other;
          EXPECT_EQ(step.phase, plan.steps()[other].phase);
        }
        EXPECT_EQ(step.phase, plan.steps()[needed].phase);
      }
      const Ranges mine(plan, i);
      for (size_t other = i + 1; static_cast<int>(other) < plan.steps()[i].live_until; ++other) {
        ++beside;
        EXPECT_FALSE(mine.disturbs(Ranges(plan, other))) << i << " and " << other;
        EXPECT_TRUE(
            plan.steps()[i].phase == plan.steps()[other].phase ||
            (plan.steps()[i].phase == Phase::forward && plan.steps()[other].phase == Phase::backward));
      }
    }
    EXPECT_GE(beside, tried.least);
    EXPECT_GE(early, tried.least > 0 ? 2 : 0);
    EXPECT_LE(static_cast<double>(plan.step_bytes()), 1.02 * static_cast<double>(apart.step_bytes()));
    options.overlap = true;
    options.tight = true;
    const Plan tight(graph, formats, options);
    Backend alone = emulated_backend();
    alone.make_preparation = nullptr;
    options.backend = &alone;
    options.overlap = false;
    EXPECT_LE(tight.step_bytes(), Plan(graph, formats, options).step_bytes());
  }
}

}  // namespace
}  // namespace ulp
