#include "apps/ulp/pilot_options.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/ulp/progress.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

const ProgressOutput& output() {
  static const ProgressOutput standard = standard_output();
  return standard;
}

}  // namespace

RunConfig PilotCommandOptions::config() const {
  for (const RunOptions::Flag& flag : run.flags) {
    if (flag.field->name == "policy" && flag.option->count() > 0) {
      fail("config", "every group is tried, whatever the policy: leave --policy out");
    }
  }
  RunConfig config = run.settings();
  config.policy = "size:0";  // one of those that choose between high and low
  check(config);
  return config;
}

void add_pilot_options(CLI::App& command, PilotCommandOptions& options) {
  command.add_option("--pilot-batches", options.pilot.batches, "Batches to compare gradients on")
      ->type_name("COUNT")
      ->capture_default_str();
  command
      .add_option("--pilot-warmup", options.pilot.warmup,
                  "Steps to train before gradients are compared, in high formats: the first ones of the run")
      ->type_name("STEPS")
      ->capture_default_str();
  add_config_file(command, options.run);
  add_run_options(command, options.run, {"Model", "Data", "Length", "Optimizer", "Precision", "Machine"});
}

WorkLine::WorkLine(std::string what) : what_(std::move(what)), begin_(output().seconds()) {}

WorkLine::~WorkLine() {
  if (drawn_) output().write(fmt::format("\r{:<70}\r", ""));
}

void WorkLine::draw(size_t done, size_t all, size_t here) {
  const double now = output().seconds();
  if (!output().live || here == 0 || now - shown_ < 0.2) return;
  shown_ = now;
  drawn_ = true;
  const double left = (now - begin_) / static_cast<double>(here) * static_cast<double>(all - done);
  // Padded, so that a shorter line covers a longer one.
  output().write(fmt::format("\r{:<70}", fmt::format("{} {} {}/{}  {} left", what_, bar_text(done, all, 20),
                                                     done, all, duration_text(left))));
}

}  // namespace ulp
