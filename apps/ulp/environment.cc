#include "apps/ulp/environment.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "ulp/backend/kernel.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/data/dataset.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Turns of libgomp's waiting loop: about 0.1 ms. Long enough for the gap between two parallel loops
// of a step on idle cores, so that no thread sleeps there; short beside the 4 ms for which another
// process may hold a core.
constexpr const char* kSpins = "2000";

}  // namespace

void bound_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // By its own path: started as /proc/self/exe, it would be called exe in lists of processes.
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
  // Returns only if it fails. Then the program goes on as it is.
  execv(program.c_str(), argv);
}

void apply_simd_of_environment() {
  const std::string simd = variable("ULP_SIMD");
  try {
    if (!simd.empty()) use_simd(simd);
  } catch (const Error& error) {
    throw Error("simd", "the environment variable ULP_SIMD: " + std::string(error.message()));
  }
}

void apply_environment() {
  set_default_kernels(kernels_of_environment());
  set_data_root(variable("ULP_DATA"));
  // OpenMP reads it by itself; threads of our own do not.
  if (const int threads = std::atoi(variable("OMP_NUM_THREADS").c_str()); threads > 0)
    set_thread_count(threads);
}

std::string kernels_of_environment() { return variable("ULP_KERNELS"); }

size_t output_columns() {
  if (const int columns = std::atoi(variable("COLUMNS").c_str()); columns > 0)
    return static_cast<size_t>(columns);
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool output_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale = variable(name);
    if (locale.empty()) continue;
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

}  // namespace ulp
