// Loss scaling (mixed-precision training, section 3.2): the loss is multiplied by a factor so that gradients do not
// flush to zero in narrow formats, and gradients are divided by it before anything else looks at them. Powers of two
// change no other bit.
//
//   none                          1
//   S                             a factor that stays, above 0
//   dynamic[:INIT[:GROWTH]]       starts at INIT (65536); a step whose gradients overflowed does not count and halves it;
//                                 GROWTH steps in a row that count (0: as many as an epoch has) double it
//
// The factor stays within kLowest and kHighest, so it is never zero or infinite. A run whose steps are all skipped would
// go on for nothing: after kMaxSkips in a row `stuck` says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ulp {

struct LossScale {
  enum class Kind : uint8_t { none, fixed, dynamic };
  Kind kind = Kind::none;
  double initial = 1;
  uint64_t growth_steps = 0;  // dynamic; 0: an epoch

  bool operator==(const LossScale&) const = default;
};

// Throws an Error that lists the forms for other text. Printed back, it reads as the same value.
LossScale parse_loss_scale(std::string_view text);
std::string loss_scale_text(const LossScale& scale);

class LossScaler {
 public:
  static constexpr double kLowest = 0x1p-24, kHighest = 0x1p24;
  static constexpr uint64_t kMaxSkips = 50;

  // What a checkpoint keeps.
  struct State {
    double scale = 1;
    uint64_t good = 0;     // steps that counted since it last changed
    uint64_t skipped = 0;  // steps in a row that did not
    bool operator==(const State&) const = default;
  };

  LossScaler(const LossScale& config, uint64_t steps_per_epoch);

  double scale() const { return state_.scale; }
  // After the gradients of a step: whether it counts. Only a dynamic scale skips steps.
  bool accept(bool overflowed);
  bool stuck() const { return state_.skipped >= kMaxSkips; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScale config_;
  State state_;
};

}  // namespace ulp
