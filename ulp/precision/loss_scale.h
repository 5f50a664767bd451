// Loss scaling (mixed-precision training, section 3.2): the loss is multiplied by a factor so that
// gradients do not flush to zero in narrow formats, and gradients are divided by it before anything
// else looks at them. Powers of two change no other bit.
//
//   none                            1
//   S                               a factor that stays, above 0
//   constant:S                      the same, and every step counts
//   auto                            a factor that stays, as large as the gradients of the first
//                                   batches allow
//   dynamic[:INIT[:GROWTH]]         starts at INIT (65536); a step whose gradients overflowed
//                                   halves it; GROWTH steps in a row that count (0: as many as an
//                                   epoch has) double it
//   back-off[:INIT[:GROWTH[:LEAST]]]  dynamic that never falls below LEAST (1), where every step
//                                   counts
//   exponential:INIT:STEPS[:FACTOR] starts at INIT and is multiplied by FACTOR (2) after every
//                                   STEPS steps; every step counts
//
// A step that counts although gradients overflowed is taken with the largest numbers of their
// formats, or with infinities where the run keeps those. Under the other kinds such a step is
// skipped. The factor stays within kLowest and kHighest, so it is never zero or infinite. A run
// whose steps are all skipped would go on for nothing: after kMaxSkips in a row `stuck` says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ulp {

struct LossScale {
  enum class Kind : uint8_t { none, fixed, constant, automatic, dynamic, back_off, exponential };
  Kind kind = Kind::none;
  double initial = 1;
  uint64_t growth_steps = 0;  // dynamic, back_off, exponential; 0: an epoch
  double least = 0;           // back_off
  double factor = 2;          // exponential

  // Whether a step whose gradients overflowed may be skipped.
  bool may_skip() const { return kind == Kind::fixed || kind == Kind::automatic || adapts(); }
  // Whether an overflow makes the factor smaller.
  bool adapts() const { return kind == Kind::dynamic || kind == Kind::back_off; }

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
    uint64_t good = 0;     // steps since it last changed that counted towards the next growth
    uint64_t skipped = 0;  // steps in a row that did not
    bool operator==(const State&) const = default;
  };

  LossScaler(const LossScale& config, uint64_t steps_per_epoch);

  double scale() const { return state_.scale; }
  // After the gradients of a step: whether it counts.
  bool accept(bool overflowed);
  // Whether the next step does not count if it overflows.
  bool skips() const { return config_.may_skip() && !at_least(); }
  bool stuck() const { return state_.skipped >= kMaxSkips; }

  // Whether its factor is one that must be measured, and that factor.
  bool measured() const { return config_.kind == LossScale::Kind::automatic; }
  void set(double scale) { state_.scale = scale; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool at_least() const { return config_.kind == LossScale::Kind::back_off && state_.scale <= config_.least; }
  void grow(double factor);

  LossScale config_;
  State state_;
};

}  // namespace ulp
