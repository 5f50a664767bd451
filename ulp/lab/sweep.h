// A grid of training runs, from one TOML file: [base] has options that all share, each [[grid]] a
// name, options that hold for it, and axes, which are options with a list of values. Every
// combination of an axis' values with those of the others is a run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/run/config.h"

namespace ulp {

// The value that a run has on one axis, as text that ConfigField::set takes.
struct AxisValue {
  std::string key, value;

  bool operator==(const AxisValue&) const = default;
};

// A sweep may have a hundred thousand of them: what a grid has for all of its runs is there once.
struct SweepRun {
  std::string grid;
  std::vector<AxisValue> axes;  // in the order of the file
  // Below the sweep's: GRID/VALUE-VALUE-..., whatever else the file holds; but one that repeats an
  // earlier run has the folder of that.
  std::string folder;
  bool repeats = false;                        // an earlier run has the same configuration
  std::shared_ptr<const RunConfig> base = {};  // of the grid, without its axes; none: all defaults

  // Made anew by each call; out is empty.
  RunConfig config() const;
};

// The runs in the order of the file, the last axis first. Each configuration is checked; an Error
// names the file and line, or the grid and the values. `kernels` is what runs have that name none.
std::vector<SweepRun> parse_sweep(std::string_view text, const std::string& path,
                                  const std::string& kernels = {});
std::vector<SweepRun> load_sweep(const std::string& path, const std::string& kernels = {});

// "model squeezenet, policy size:0.5", for messages.
std::string axes_text(const std::vector<AxisValue>& axes);

}  // namespace ulp
