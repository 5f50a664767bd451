// The options of a run, as lines "name value": each by itself, then all together, up to what a run
// is made from.
#include "fuzz/fuzz.h"
#include "ulp/run/config.h"

namespace ulp::fuzz {
namespace {

void set(RunConfig& config, const ConfigField& field, std::string_view value) {
  field.set(config, value);
  field.check(config);
  RunConfig again = config;
  field.set(again, field.get(config));
  expect(again == config, "the text of a value is that of another");
}

}  // namespace

void try_input(std::string_view input) {
  RunConfig config;
  for (Cutter cutter(input); !cutter.empty();) {
    Cutter line(cutter.until('\n'));
    const std::string_view name = line.until(' ');
    set(config, find_config_field(name), line.rest());
  }
  tried([&] { update_options(config); });
  tried([&] { precision_options(config); });
  tried([&] { kernel_options(config); });
  tried([&] { augment_of(config); });
  tried([&] { promotion_of(config); });
  tried([&] { loss_scale_of(config); });
  out_of(config);
  check(config);
  optimizer_config(config);
  const Schedule schedule = schedule_of(config);
  const uint64_t steps = total_steps(config, 10);
  for (const uint64_t step : {uint64_t{0}, uint64_t{7}, steps}) rate(schedule, 0.1, step, 10, steps);
}

}  // namespace ulp::fuzz
