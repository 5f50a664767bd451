#include "ulp/run/saved_run.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "ulp/base/error.h"
#include "ulp/data/dataset.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string fact(const Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  if (found == facts.end())
    fail("checkpoint", "it says nothing of '{}': it is not a checkpoint of a run", name);
  return found->second;
}

}  // namespace

SavedRun open_run(std::string_view part, const std::string& folder, const std::string& which) {
  if (folder.empty()) fail(part, "DIR is empty: name the folder of a run");
  const fs::path file = fs::path(folder) / "config.toml";
  if (!is_there(file.string())) fail(part, "{} holds no run: there is no {}", folder, file.string());
  const auto path = [&](const std::string& name) { return folder + "/" + name + ".safetensors"; };
  SavedRun run;
  run.config = load_config(file.string());
  run.config.out = folder;
  const bool falls_back = which.empty() && !is_there(path("best")) && is_there(path("last"));
  run.which = falls_back ? "last" : which.empty() ? "best" : which;
  run.checkpoint = path(run.which);
  if (!is_there(run.checkpoint)) {
    fail(part, "{} is not there yet: the run has not come to a checkpoint", run.checkpoint);
  }
  if (falls_back) {
    run.note = fmt::format("{} has no best.safetensors, which comes with the end of an epoch: taking {}",
                           folder, run.checkpoint);
  }
  return run;
}

Facts facts_of(const SavedRun& run, const CheckpointFile& file) {
  Facts facts = file.facts();
  if (facts.empty()) facts = make_task(task_options(run.config))->facts();
  // Checkpoints have the names of folders; what was published under a name follows from the name.
  const std::span<const std::string_view> names = published_class_names(run.config.data);
  if (facts["classes"] == std::to_string(names.size())) {
    for (size_t i = 0; i < names.size(); ++i) facts.emplace(fmt::format("class {}", i), names[i]);
  }
  return facts;
}

std::unique_ptr<LearningTask> task_without_data(const TaskOptions& options, const Facts& facts) {
  NetworkId id;
  id.input = fact(facts, "input");
  const std::string classes = fact(facts, "classes");
  const char* end = classes.data() + classes.size();
  if (const auto [rest, error] = std::from_chars(classes.data(), end, id.classes);
      error != std::errc{} || rest != end) {
    fail("checkpoint", "'{}' is no number of classes: it is not a checkpoint of a run", classes);
  }
  // The data is not there to choose from.
  TaskOptions sketched = options;
  sketched.subset = 0;
  sketched.image_shape.clear();
  return sketch_task(sketched, id);
}

}  // namespace ulp
