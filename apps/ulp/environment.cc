#include "apps/ulp/environment.h"

#include <cstdlib>

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

}  // namespace

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

}  // namespace ulp
