#include "ulp/report/found_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/report/other_records.h"
#include "ulp/run/run_folder.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// Deeper than anybody puts runs; the length of a path ends there too.
constexpr int kDeepest = 40;
constexpr size_t kMostNotes = 20;

class Search {
 public:
  explicit Search(FoundFiles& found) : found_(found) {}

  // `id`: of what is found in the folder, "" for the only one that was named.
  void look(const fs::path& folder, const std::string& id, int depth) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) return note(folder, std::strerror(errno));
    // Also where a link leads back to a folder above it.
    if (!seen_.emplace(info.st_dev, info.st_ino).second) return;
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      entries.push_back(*it);
    if (error) return note(folder, error.message());
    std::sort(entries.begin(), entries.end());
    for (const fs::directory_entry& entry : entries) add(folder, entry, id, depth);
  }

 private:
  void add(const fs::path& folder, const fs::directory_entry& entry, const std::string& id, int depth) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (entry.is_directory(error)) {
      if (name.starts_with('.') || depth == kDeepest) return;
      return look(entry.path(), id.empty() ? name : id + "/" + name, depth + 1);
    }
    if (error || !entry.is_regular_file(error)) return;
    const std::string own = id.empty() ? own_name(folder) : id;
    if (name == "config.toml") {
      found_.runs.push_back({own, folder.string()});
    } else if (name == "least-squares.csv") {
      found_.least_squares.push_back({own, entry.path().string()});
    } else if ((name.ends_with(".json") || name.ends_with(".jsonl")) && name != "metrics.jsonl" &&
               looks_like_bench(entry.path().string())) {
      found_.benches.push_back({id.empty() ? name : id + "/" + name, entry.path().string()});
    }
  }

  // Of a folder that was named as "." too.
  static std::string own_name(const fs::path& folder) {
    std::error_code error;
    const fs::path whole = fs::canonical(folder, error);
    const std::string name = (error ? folder : whole).filename().string();
    return name.empty() ? folder.string() : name;
  }

  void note(const fs::path& folder, const std::string& why) {
    if (++notes_ <= kMostNotes)
      found_.notes.push_back(fmt::format("cannot look into {}: {}", folder.string(), why));
  }

  FoundFiles& found_;
  std::set<std::pair<uint64_t, uint64_t>> seen_;
  size_t notes_ = 0;
};

// "runs/" and "runs/./" are "runs".
std::string tidy(const std::string& folder) {
  std::string text = fs::path(folder).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

template <typename Found>
void sort_and_name(std::vector<Found>& all, std::set<std::string>& taken) {
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.id < b.id; });
  for (Found& one : all) {
    const std::string name = one.id;
    for (int number = 2; !taken.insert(one.id).second; ++number) one.id = fmt::format("{}-{}", name, number);
  }
}

// A number, and what follows it; false where there is none.
template <typename Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return true;
}

}  // namespace

FoundFiles find_runs(std::span<const std::string> folders) {
  FoundFiles found;
  std::vector<std::string> names;
  Search search(found);
  for (const std::string& folder : folders) {
    std::error_code error;
    if (folder.empty()) fail("report", "DIR is empty: name a folder of runs");
    const fs::file_status status = fs::status(folder, error);
    if (status.type() == fs::file_type::not_found) fail("report", "there is no folder {}", folder);
    if (error) fail("report", "cannot look into {}: {}", folder, error.message());
    if (!fs::is_directory(status)) fail("report", "{} is no folder: name one that holds runs", folder);
    names.push_back(tidy(folder));
    search.look(folder, folders.size() == 1 ? "" : names.back(), 0);
  }
  found.title = fmt::format("{}", fmt::join(names, ", "));
  std::set<std::string> taken;
  sort_and_name(found.runs, taken);
  sort_and_name(found.benches, taken);
  sort_and_name(found.least_squares, taken);
  return found;
}

HeldLocks::HeldLocks() {
  // 1: FLOCK  ADVISORY  WRITE 20403 fe:00:10953208 0 EOF
  std::ifstream in("/proc/locks");
  for (std::string line; std::getline(in, line);) {
    const size_t place = line.find("WRITE ");
    if (line.find("FLOCK") == line.npos || place == line.npos || line.find("->") != line.npos) continue;
    std::string_view rest = std::string_view(line).substr(place + 6);
    const auto skip = [&](char c) {
      while (rest.starts_with(' ')) rest.remove_prefix(1);
      if (c != ' ' && rest.starts_with(c)) rest.remove_prefix(1);
    };
    Holder holder;
    unsigned major_number = 0, minor_number = 0;
    bool fine = take_number(rest, holder.process);
    skip(' ');
    fine = fine && take_number(rest, major_number, 16);
    skip(':');
    fine = fine && take_number(rest, minor_number, 16);
    skip(':');
    fine = fine && take_number(rest, holder.inode);
    if (!fine) continue;
    held_.emplace(makedev(major_number, minor_number), holder.inode);
    holders_.push_back(holder);
  }
}

bool HeldLocks::held(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  if (held_.contains({info.st_dev, info.st_ino})) return true;
  // btrfs and overlays tell stat another device than /proc/locks. There the holder's open files decide.
  for (const Holder& holder : holders_) {
    if (holder.inode != info.st_ino) continue;
    std::error_code error;
    const fs::path open = fmt::format("/proc/{}/fd", holder.process);
    for (fs::directory_iterator it(open, error), end; !error && it != end; it.increment(error)) {
      struct stat other {};
      if (::stat(it->path().c_str(), &other) == 0 && other.st_dev == info.st_dev &&
          other.st_ino == info.st_ino)
        return true;
    }
  }
  return false;
}

bool is_training(const std::string& folder, const HeldLocks& locks) { return locks.held(run_lock(folder)); }

}  // namespace ulp
