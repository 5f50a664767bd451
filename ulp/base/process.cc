#include "ulp/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace ulp {
namespace {

// The number that a text begins with, behind spaces. Nothing for "max" and "unlimited".
std::optional<size_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

// The number behind a name at the start of a line. Nothing where there is no such line or file.
std::optional<size_t> number_of(const std::string& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name)) return number_in(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

// A line such as "VmRSS:     1234 kB".
std::optional<size_t> bytes_of(const std::string& file, std::string_view name) {
  const std::optional<size_t> kilobytes = number_of(file, name);
  return kilobytes ? std::optional(1024 * *kilobytes) : std::nullopt;
}

size_t status_bytes(std::string_view name) { return bytes_of("/proc/self/status", name).value_or(0); }

// How the two versions of control groups name the same things.
struct GroupFiles {
  std::string_view limit, used, active, inactive;
};
constexpr GroupFiles kGroups = {"memory.max", "memory.current", "active_file ", "inactive_file "};
constexpr GroupFiles kOldGroups = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ",
                                   "total_inactive_file "};

// What one group leaves. Pages of files count as used, and are given back when memory is asked for;
// tmpfs is no file to the kernel here, and stays.
size_t group_left(const std::string& folder, const GroupFiles& files) {
  const auto name = [&](std::string_view file) { return folder + "/" + std::string(file); };
  const std::optional<size_t> limit = number_of(name(files.limit), ""),
                              used = number_of(name(files.used), "");
  if (!limit || !used) return SIZE_MAX;
  const size_t freed = number_of(name("memory.stat"), files.active).value_or(0) +
                       number_of(name("memory.stat"), files.inactive).value_or(0);
  const size_t kept = *used - std::min(*used, freed);
  return *limit - std::min(*limit, kept);
}

// A group and all that it lies in. In a container the path may be one of the host, which is not
// there; then what is mounted is the container's own group.
size_t groups_left(const std::string& mount, std::string path, const GroupFiles& files) {
  size_t left = group_left(mount, files);
  while (path.size() > 1) {
    left = std::min(left, group_left(mount + path, files));
    path.resize(path.find_last_of('/') == path.npos ? 0 : path.find_last_of('/'));
  }
  return left;
}

size_t all_groups_left(const std::string& root) {
  size_t left = SIZE_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  // Lines such as 0::/user.slice and 4:memory:/docker/ab12.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kinds = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1), mount = root + "/sys/fs/cgroup";
    if (kinds == ",,") left = std::min(left, groups_left(mount, path, kGroups));
    if (kinds.find(",memory,") != kinds.npos)
      left = std::min(left, groups_left(mount + "/memory", path, kOldGroups));
  }
  return left;
}

size_t sum(size_t a, size_t b) { return a > SIZE_MAX - b ? SIZE_MAX : a + b; }

}  // namespace

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left;
  const std::string info = root + "/proc/meminfo";
  const std::optional<size_t> available = bytes_of(info, "MemAvailable:");
  const size_t swap = bytes_of(info, "SwapFree:").value_or(0);
  // The kernel leaves out what it would rather not touch: some hundredths.
  const size_t reserve = bytes_of(info, "MemTotal:").value_or(0) / 32;
  if (available) left.resident = sum(sum(*available, swap), reserve);
  // Whether a group may swap is not looked at: it is taken to.
  left.resident = std::min(left.resident, sum(all_groups_left(root), swap));

  const std::optional<size_t> limit = number_of(root + "/proc/self/limits", "Max address space ");
  const std::optional<size_t> mapped = bytes_of(root + "/proc/self/status", "VmSize:");
  if (limit && mapped) left.addresses = *limit - std::min(*limit, *mapped);
  return left;
}

size_t resident_bytes() { return status_bytes("VmRSS:"); }

size_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

bool forget_peak_resident() {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool done = write(file, "5", 1) == 1;
  close(file);
  return done;
}

}  // namespace ulp
