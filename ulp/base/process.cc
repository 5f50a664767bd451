#include "ulp/base/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace ulp {
namespace {

// A line such as "VmRSS:     1234 kB" of /proc/self/status.
size_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return 1024 * std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

}  // namespace

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
