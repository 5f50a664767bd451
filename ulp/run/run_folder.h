// The folder of a run, and the lock that keeps other processes out of it.
#pragma once

#include <memory>
#include <string>

#include "ulp/base/file.h"
#include "ulp/run/config.h"

namespace ulp {

// The lock file of a run's folder: the process that holds the lock (ulp/base/file.h) may write
// there.
std::string run_lock(const std::string& folder);

// A folder that this process alone writes to while the object lives.
class RunFolder {
 public:
  // Takes the folder of a run. A new run gets the folder that `out` names, which is made if it is
  // not there; a folder that holds a run already is an Error. If `out` is empty, it gets the first
  // of runs/NAME, runs/NAME-2, runs/NAME-3 ... in which there is no run and nobody trains: two that
  // start together get two folders. A resumed run gets `out`. If another process trains there, that
  // is an Error.
  RunFolder(const RunConfig& config, bool resume);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace ulp
