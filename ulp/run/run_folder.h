// The folder of a run, and the lock that keeps other processes out of it.
#pragma once

#include <memory>
#include <string>

#include "ulp/base/file.h"
#include "ulp/run/config.h"

namespace ulp {

// Of a run's folder: who holds its lock (ulp/base/file.h) may write there.
std::string run_lock(const std::string& folder);

// A folder that this process alone writes to while the object lives.
class RunFolder {
 public:
  // Of a new run: what `out` names, made if it is not there, or an Error if it holds a run already.
  // Where `out` is empty, the first of runs/NAME, runs/NAME-2, runs/NAME-3 ... in which there is no
  // run and nobody trains: two that start together get two folders. Of a resumed run: `out`. An
  // Error if another process trains there.
  RunFolder(const RunConfig& config, bool resume);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace ulp
