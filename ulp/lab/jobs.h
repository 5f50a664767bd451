// Training runs as processes of their own, some at a time: one that crashes takes no other with it.
// A run that is finished is left alone, one that was stopped goes on from its last checkpoint.
//
// In a run's folder stand, beside what training writes, log.txt (what it printed) and, where it
// failed, error.txt.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ulp/base/file.h"
#include "ulp/run/config.h"

namespace ulp {

// The configuration's `out` is the folder of the run.
struct Job {
  RunConfig config;
};

enum class JobState : uint8_t {
  fresh,
  begun,  // and stopped, or running now
  failed,
  finished,
};

// The state of the run in the folder. Throws an Error if the run has another configuration, or one
// that cannot be read.
JobState job_state(const Job& job);
// Throws only for the first, which concerns all runs: a folder was named that belongs to others.
// The second is one run's own trouble.
void refuse_other_run(const Job& job);
// The last line that a failed run printed, if it could be kept.
std::string job_error(const std::string& folder);

// How often the user has asked to stop, and by which signal: for a signal handler to set. Each is
// passed on: the first makes a run save and end, the second kills it.
struct StopRequest {
  std::atomic<int> count = 0, signal = 0;
};

enum class JobEnd : uint8_t {
  finished,
  diverged,  // finished too, but its loss is not finite any more
  failed,
  interrupted,
};

class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void on_begin(size_t job, bool resumed) = 0;
  // `seconds` is how long this process of it ran, `why` the reason of one that failed or diverged: its
  // error.txt is a copy, which a folder that cannot be written does not have.
  virtual void on_end(size_t job, JobEnd end, double seconds, const std::string& why) = 0;
  // A stop was asked for, and so many are to save and end.
  virtual void on_stop(size_t running) = 0;
};

// Runs those that are not finished, by `ulp train`, in their order. Threads are divided among
// `at_a_time` unless a configuration names them. Returns when all have ended, or after a stop when
// those that run have.
void run_jobs(std::span<const Job> jobs, size_t at_a_time, JobObserver& observer, const StopRequest& stop);

// Makes a folder for runs, and keeps other processes from running there while the lock lives.
// Throws an Error if one does.
std::unique_ptr<FileLock> lock_job_folder(const std::string& folder);

}  // namespace ulp
