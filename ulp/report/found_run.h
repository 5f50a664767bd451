// What a report is of: the runs, benchmarks and experiments below folders. They are known by the
// files they leave, so that any folder above them can be named.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ulp {

struct FoundRun {
  std::string id;      // below what was named; unique among all that was found
  std::string folder;  // it has a config.toml
};

struct FoundFile {
  std::string id;  // as above
  std::string path;
};

struct FoundFiles {
  std::string title;  // the folders that were named
  std::vector<FoundRun> runs;
  std::vector<FoundFile> benches;        // lines of `ulp bench step --json`
  std::vector<FoundFile> least_squares;  // least-squares.csv of `ulp lab least-squares --out`
  std::vector<std::string> notes;        // folders that could not be looked into

  bool empty() const { return runs.empty() && benches.empty() && least_squares.empty(); }
};

// By id. Of one folder that is named, ids are paths below it, and a run that is named itself has
// the folder's name; of several, ids are paths as they were named. Links are followed, but no folder
// is looked into twice. Folders whose name begins with a dot are passed over. Throws an Error for
// what is no folder.
FoundFiles find_runs(std::span<const std::string> folders);

// The locks that processes of this machine hold (FileLock), as they are now. Nothing is locked to
// find out: a lock that is only tried would make a run that starts at that moment fail.
class HeldLocks {
 public:
  HeldLocks();

  // Whether somebody holds the lock of this file. False where there is no such file, and where the
  // kernel does not say: processes of another container are not seen.
  bool held(const std::string& path) const;

 private:
  using File = std::pair<uint64_t, uint64_t>;  // device and inode
  struct Holder {
    uint64_t inode = 0;
    int64_t process = 0;
  };
  std::set<File> held_;
  std::vector<Holder> holders_;  // of locks, whatever their device: some file systems have two numbers
};

// Whether somebody trains in a run's folder.
bool is_training(const std::string& folder, const HeldLocks& locks);

}  // namespace ulp
