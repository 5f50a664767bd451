// Runs as processes of their own, as they are seen on standard output: a line where one begins and
// where one ends, with the time that is left. Ctrl-C makes those that run save and end.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/ulp/progress.h"
#include "ulp/lab/jobs.h"

namespace ulp {

// How long runs will take, by those of their kind that have ended, the nearest kind first: model,
// data and policy, then without the policy, then any.
class JobTimes {
 public:
  void add(const RunConfig& config, double seconds);
  // NaN before anything is known.
  double expected(const RunConfig& config) const;

 private:
  struct Sum {
    double seconds = 0;
    size_t count = 0;
  };
  std::map<std::string, Sum> sums_;
};

struct JobList {
  std::vector<Job> jobs;
  std::vector<std::string> names;  // for the lines
};

// Why a run failed, by its folder.
using JobFailures = std::map<std::string, std::string>;

// What all of them are, in one line, then runs those that are not finished. Returns those that failed; a
// finished one whose metrics cannot be read is among them. After a stop it says `go_on`, the command that
// continues, and throws what ends the program as the signal would have.
JobFailures run_visibly(const JobList& list, size_t at_a_time, const std::string& go_on);

}  // namespace ulp
