#include "fuzz/fuzz.h"

#include <sanitizer/allocator_interface.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ulp/base/parallel.h"

namespace ulp::fuzz {
namespace {

constexpr double kMostSeconds = 1;
constexpr size_t kMostBytes = size_t{512} << 20;

// Bytes that the program has asked for and not given back.
std::atomic<size_t> live = 0;
std::atomic<size_t> limit = SIZE_MAX;

void on_malloc(const volatile void*, size_t bytes) {
  if (live.fetch_add(bytes) + bytes <= limit.load()) return;
  limit = SIZE_MAX;
  expect(false, "an input takes more than 512 MB");
}

void on_free(const volatile void* at) {
  if (at != nullptr) live -= __sanitizer_get_allocated_size(at);
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Folder {
 public:
  Folder() {
    const std::string shared = "/dev/shm";
    path_ = (std::filesystem::exists(shared) ? shared : std::filesystem::temp_directory_path().string()) +
            "/ulp_fuzz_XXXXXX";
    expect(::mkdtemp(path_.data()) != nullptr, "no folder can be made in " + path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void expect(bool is_so, std::string_view what) {
  if (is_so) return;
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::string folder() {
  static const Folder made;
  return made.path();
}

std::string file(std::string_view name, std::string_view bytes) {
  std::string path = folder() + "/" + std::string(name);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

uint8_t Cutter::byte() {
  const std::string_view one = take(1);
  return one.empty() ? 0 : static_cast<uint8_t>(one[0]);
}

std::string_view Cutter::take(size_t bytes) {
  const std::string_view taken = left_.substr(0, bytes);
  left_.remove_prefix(taken.size());
  return taken;
}

std::string_view Cutter::until(char mark) {
  const std::string_view taken = take(left_.find(mark));
  take(1);
  return taken;
}

}  // namespace ulp::fuzz

// Memory that was given back is not kept for long: what an input takes is measured.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=16:detect_leaks=1"; }

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace ulp::fuzz;
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  ulp::set_thread_count(1);
  folder();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulp::fuzz;
  const double begin = processor_seconds();
  limit = live + kMostBytes;
  tried([&] { try_input({reinterpret_cast<const char*>(data), size}); });
  limit = SIZE_MAX;
  expect(processor_seconds() - begin <= kMostSeconds, "an input takes more than a second");
  return 0;
}
