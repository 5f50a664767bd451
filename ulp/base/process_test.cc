#include "ulp/base/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp.h"

namespace ulp {
namespace {

// A machine of 64 GB, of which 10 are available.
class MemoryOf : public ::testing::Test {
 protected:
  MemoryOf() {
    file("proc/meminfo",
         "MemTotal:       67108864 kB\nMemFree:          100 kB\nMemAvailable:   10485760 kB\n"
         "SwapTotal:      0 kB\nSwapFree:       0 kB\n");
  }
  void file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    put(path, text);
  }
  size_t resident() const { return memory_left(root_.path()).resident; }
  size_t addresses() const { return memory_left(root_.path()).addresses; }

  static constexpr size_t kGiB = size_t{1} << 30;
  static constexpr size_t kMachine = 12 * kGiB;  // available, and the kernel's reserve
  TempFolder root_;
};

TEST_F(MemoryOf, AMachine) {
  EXPECT_EQ(resident(), kMachine);
  EXPECT_EQ(addresses(), SIZE_MAX);
  file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 10485760 kB\nSwapFree: 1048576 kB\n");
  EXPECT_EQ(resident(), kMachine + kGiB);
}

TEST_F(MemoryOf, AMachineThatDoesNotTell) {
  for (const char* text : {"", "MemTotal: 67108864 kB\n", "MemAvailable: much\n", "MemAvailable:\n"}) {
    file("proc/meminfo", text);
    EXPECT_EQ(resident(), SIZE_MAX) << text;
  }
  EXPECT_EQ(memory_left((root_ / "nothing")).least(), SIZE_MAX);
}

TEST_F(MemoryOf, AControlGroup) {
  file("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(resident(), kMachine) << "groups without files";
  file("sys/fs/cgroup/a/b/memory.max", "max\n");
  file("sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(resident(), kMachine) << "no limit";
  // Of 3 GB used one is of files, which the kernel gives back.
  file("sys/fs/cgroup/a/b/memory.max", std::to_string(4 * kGiB));
  file("sys/fs/cgroup/a/b/memory.current", std::to_string(3 * kGiB));
  EXPECT_EQ(resident(), kGiB);
  file("sys/fs/cgroup/a/b/memory.stat",
       "anon 5\nfile 99999999999\nshmem 7\ninactive_file 536870912\nactive_file 536870912\n");
  EXPECT_EQ(resident(), 2 * kGiB);
  // The tightest of those that it lies in.
  file("sys/fs/cgroup/a/memory.max", std::to_string(4 * kGiB));
  file("sys/fs/cgroup/a/memory.current", std::to_string(4 * kGiB - 5));
  EXPECT_EQ(resident(), 5u);
  file("sys/fs/cgroup/a/memory.current", std::to_string(5 * kGiB));
  EXPECT_EQ(resident(), 0u);
  file("sys/fs/cgroup/a/memory.max", "a lot");
  EXPECT_EQ(resident(), 2 * kGiB);
}

TEST_F(MemoryOf, AControlGroupOfTheFirstVersion) {
  file("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/ab12\n0::/\n");
  const std::string limit = "/memory.limit_in_bytes", used = "/memory.usage_in_bytes";
  file("sys/fs/cgroup/memory" + limit, "9223372036854771712\n");
  file("sys/fs/cgroup/memory" + used, "1000\n");
  EXPECT_EQ(resident(), kMachine) << "the limit that stands for none";
  // In a container its own group is mounted, and the path is the host's.
  file("sys/fs/cgroup/memory" + limit, std::to_string(3 * kGiB));
  file("sys/fs/cgroup/memory" + used, std::to_string(2 * kGiB));
  file("sys/fs/cgroup/memory/memory.stat",
       "inactive_file 9999999999\ntotal_inactive_file 7\ntotal_active_file 5\n");
  EXPECT_EQ(resident(), kGiB + 12);
  file("sys/fs/cgroup/memory/docker/ab12" + limit, "4096");
  file("sys/fs/cgroup/memory/docker/ab12" + used, "96");
  EXPECT_EQ(resident(), 4000u);
}

TEST_F(MemoryOf, ALimitOfAddresses) {
  file("proc/self/status", "VmPeak:   900 kB\nVmSize:   800 kB\n");
  file("proc/self/limits",
       "Limit                     Soft Limit           Hard Limit           Units\n"
       "Max address space         unlimited            unlimited            bytes\n");
  EXPECT_EQ(addresses(), SIZE_MAX);
  file("proc/self/limits", "Max address space         1048576              unlimited            bytes\n");
  EXPECT_EQ(addresses(), 1048576u - 800 * 1024);
  file("proc/self/limits", "Max address space         1024                 unlimited            bytes\n");
  EXPECT_EQ(addresses(), 0u);
}

// As the kernel really writes them.
TEST(Memory, OfThisProcess) {
  const MemoryLeft free = memory_left();
  EXPECT_GT(free.resident, size_t{1} << 20);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{size_t{1} << 40, size_t{1} << 40};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(0);
    const size_t left = memory_left().addresses;
    ::_exit(left < limit.rlim_cur && left > 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ulp
