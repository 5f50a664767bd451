// Figure 2 of the paper on split weights: the memory of a few training steps over time, by what it
// is for, in mixed precision as is usual and with weights that carry extra bits. The model is a
// dummy: square linear layers with ReLUs between them, trained by SGD with momentum towards random
// targets.
//
// Every step of every scheme is run. The timeline is the plan's, and is checked against two things
// that do not know the plan: the high-water mark of the allocator, and how much the process grew.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulp {

struct DummyModel {
  int64_t layers = 48, width = 2048;
  int64_t batch = 8;

  int64_t parameters() const { return layers * width * width; }
};

// A model of about `parameters` parameters. One layer's gradient and decoded weight are all that a
// fused step holds beside its state, so there are always 48 layers, and the width follows. Throws
// an Error where that makes no layers, or too large ones.
DummyModel dummy_model(int64_t parameters, int64_t batch);

// How weights are kept and updated. All activations and their gradients are fp16.
struct MemoryScheme {
  std::string_view name;
  std::string_view weight, rule;  // of the optimizer; see ulp/optim/rule.h
  std::string_view gradient, momentum;
  // Copies of weights that products read: no copies, copies that are made in forward and given up
  // after their last use in backward, or copies that are kept to the end of the step.
  enum class Copies : uint8_t { none, to_last_use, to_end } copies = Copies::none;
  bool fused = false;  // backward and update
};

// The first is what others are compared with: the paper counts a weight and its fp16 copy as 6
// bytes throughout. The second gives each copy up as soon as backward is through with it.
std::span<const MemoryScheme> memory_schemes();

// The uses of memory; those that stay from step to step come first.
enum class MemoryUse : uint8_t { weights, extra_bits, momentum, copies, gradients, activations, workspace };
inline constexpr size_t kMemoryUses = 7;
std::string_view memory_use_name(size_t use);

// Memory in use while a node runs, or all nodes that run as one.
struct MemoryMoment {
  std::string node;
  std::array<size_t, kMemoryUses> bytes = {};

  size_t total() const;
};

struct MemoryProfile {
  const MemoryScheme* scheme = nullptr;
  size_t parameters = 0;
  std::vector<MemoryMoment> moments;  // of one step; all are alike
  size_t planned_peak = 0;            // state and arena
  size_t allocated_peak = 0;          // the allocator's high-water mark
  // The most that the process grew by while the scheme ran, from before its weights were made. 0
  // where the kernel does not say.
  size_t resident_growth = 0;
  std::vector<double> losses;  // the mean over a batch, by step

  const MemoryMoment& peak() const;
  double per_parameter(size_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(parameters);
  }
};

struct MemoryProfiles {
  bool complete = false;  // false: it was stopped
  int64_t steps = 0;
  std::vector<MemoryProfile> profiles;  // by scheme
};

// Steps that are done, of all schemes.
using MemoryProgress = std::function<void(size_t done, size_t all)>;

// Throws an Error where the machine has not so much memory.
MemoryProfiles profile_memory(const DummyModel& model, int64_t steps, const MemoryProgress& progress,
                              const std::atomic<bool>& stop);

// A line for every moment of all steps.
std::string memory_csv(const MemoryProfiles& result);
// Areas over each other, by use, over time. The scheme that gives copies up early is in the file
// above alone.
std::string memory_svg(const MemoryProfiles& result);
// The peaks, planned and measured, bytes a parameter by use at the peak, and what they are.
std::string memory_text(const MemoryProfiles& result);

}  // namespace ulp
