// A run's folder for those who use its weights: which checkpoint, and what is known of the network
// without the data set.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ulp/run/checkpoint.h"
#include "ulp/run/config.h"
#include "ulp/tasks/task.h"

namespace ulp {

struct SavedRun {
  RunConfig config;        // its folder is the one that was named
  std::string which;       // best or last
  std::string checkpoint;  // the file
  std::string note;        // worth a line: the run has no best checkpoint. Else ""
};

// `which` is best, last, or "": best if there is one, else last. Throws an Error that begins with
// `part` for a folder without a run or without such a checkpoint.
SavedRun open_run(std::string_view part, const std::string& folder, const std::string& which);

// The facts that the checkpoint keeps of its data set. Runs of earlier versions kept none: then the
// data set is read.
Facts facts_of(const SavedRun& run, const CheckpointFile& file);

// The run's task without its data set.
std::unique_ptr<LearningTask> task_without_data(const TaskOptions& options, const Facts& facts);

}  // namespace ulp
