#include "ulp/run/run_folder.h"

#include <filesystem>
#include <system_error>

#include "ulp/base/error.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

bool holds_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "last.safetensors", error) || fs::exists(folder / "metrics.jsonl", error);
}

void make(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("train", "cannot make the folder {}: {}", folder, error.message());
}

// Nothing where it is taken.
std::unique_ptr<FileLock> claim(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) return nullptr;
  make(folder);
  // A run that is going on or done is not even locked: somebody may be about to resume it.
  if (holds_run(folder)) return nullptr;
  auto lock = std::make_unique<FileLock>(run_lock(folder));
  return lock->held() && !holds_run(folder) ? std::move(lock) : nullptr;
}

}  // namespace

std::string run_lock(const std::string& folder) { return folder + "/.lock"; }

RunFolder::RunFolder(const RunConfig& config, bool resume) : path_(out_of(config)) {
  if (config.out.empty() && !resume) {
    const std::string name = path_;
    for (int number = 2; (lock_ = claim(path_)) == nullptr; ++number)
      path_ = fmt::format("{}-{}", name, number);
    return;
  }
  if (!resume) make(path_);
  // Before anything is looked at: of two that start together one must not replace the other's files.
  lock_ = std::make_unique<FileLock>(run_lock(path_));
  if (!lock_->held()) fail("train", "another process is training in {}: stop it first", path_);
  if (!resume && holds_run(path_)) {
    fail("train", "{} holds a run already: go on with it by --resume {}, or name another folder with --out",
         path_, path_);
  }
}

}  // namespace ulp
