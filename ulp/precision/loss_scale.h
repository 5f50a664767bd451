// Loss scaling (mixed-precision training, section 3.2): the loss is multiplied by a factor so that
// gradients do not flush to zero in narrow formats, and gradients are divided by it before anything
// else looks at them. Powers of two change no other bit.
//
//   none                          1
//   S                             a factor that stays, above 0
//   auto                          a factor that stays, as large as the gradients of the first
//                                 batches allow
//   dynamic[:INIT[:GROWTH]]       starts at INIT (65536); a step whose gradients overflowed halves
//                                 it; GROWTH steps in a row that count (0: as many as an epoch has)
//                                 double it
//
// With any but `none`, a step whose gradients overflowed does not count. The factor stays within
// kLowest and kHighest, so it is never zero or infinite. A run whose steps are all skipped would go
// on for nothing: after kMaxSkips in a row `stuck` says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ulp {

struct LossScale {
  enum class Kind : uint8_t { none, fixed, automatic, dynamic };
  Kind kind = Kind::none;
  double initial = 1;
  uint64_t growth_steps = 0;  // dynamic; 0: an epoch

  bool operator==(const LossScale&) const = default;
};

// Throws an Error that lists the forms for other text. Printed back, it reads as the same value.
LossScale parse_loss_scale(std::string_view text);
std::string loss_scale_text(const LossScale& scale);

// What `auto` does. At the scale that was tried, the largest gradient was 1/headroom of the largest
// number of its format; a headroom below 1 means overflow. Returns the scale to try next: the
// largest power of two that leaves kMargin free, as far as this trial can tell. The search ends
// when it returns the scale that was tried.
double next_trial_scale(double tried, double headroom);

class LossScaler {
 public:
  static constexpr double kLowest = 0x1p-24, kHighest = 0x1p24;
  static constexpr uint64_t kMaxSkips = 50;
  // Of auto: gradients may grow so much before steps are skipped.
  static constexpr double kMargin = 8;

  // What a checkpoint keeps.
  struct State {
    double scale = 1;
    uint64_t good = 0;     // steps that counted since it last changed
    uint64_t skipped = 0;  // steps in a row that did not
    bool operator==(const State&) const = default;
  };

  LossScaler(const LossScale& config, uint64_t steps_per_epoch);

  double scale() const { return state_.scale; }
  // After the gradients of a step: whether it counts.
  bool accept(bool overflowed);
  // Whether a step that overflowed does not.
  bool skips() const { return config_.kind != LossScale::Kind::none; }
  bool stuck() const { return state_.skipped >= kMaxSkips; }

  // Whether its factor is one that must be measured, and that factor.
  bool measured() const { return config_.kind == LossScale::Kind::automatic; }
  void set(double scale) { state_.scale = scale; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScale config_;
  State state_;
};

}  // namespace ulp
