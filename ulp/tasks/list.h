// Private to the folder: the list of tasks. Each row is defined in the source of its task.
#pragma once

#include <array>

#include "ulp/tasks/task.h"

namespace ulp {

extern const TaskInfo classification_task, characters_task, ranking_task, clicks_task;

inline auto all_tasks() {
  return std::array{classification_task, characters_task, ranking_task, clicks_task};
}

}  // namespace ulp
