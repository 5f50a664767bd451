// The options of commands that try out choices of groups: those of a run, less what it writes and its policy.
#pragma once

#include <functional>
#include <string>

#include "apps/ulp/options.h"
#include "ulp/run/sensitivity.h"

namespace ulp {

struct PilotCommandOptions {
  RunOptions run;
  SensitivityOptions pilot;

  // Checked. Throws an Error for what cannot be run, and for a policy: every group is tried,
  // whatever it says. One in the file is passed over, so that the file of a run can be used.
  RunConfig config() const;
};

void add_pilot_options(CLI::App& command, PilotCommandOptions& options);

// A line that is redrawn while work goes on, with the time that is left; nothing where nobody looks at it.
class WorkLine {
 public:
  explicit WorkLine(std::string what);
  ~WorkLine();
  WorkLine(const WorkLine&) = delete;
  WorkLine& operator=(const WorkLine&) = delete;

  // `here` of the pieces that are done have been done since the beginning: the others take no time any more.
  void draw(size_t done, size_t all, size_t here);

 private:
  const std::string what_;
  const double begin_;
  double shown_ = 0;
  bool drawn_ = false;
};

}  // namespace ulp
