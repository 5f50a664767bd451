// ulp with one device more, `emulated`: the CUDA kernels run on the CPU. For tests without a GPU.
#include "apps/ulp/environment.h"
#include "apps/ulp/program.h"
#include "ulp/backend/emulated/emulated.h"
#include "ulp/runtime/registry.h"

int main(int argc, char** argv) {
  ulp::bound_spinning(argv);
  ulp::add_backend("emulated", ulp::emulated_backend);
  return ulp::run_program(argc, argv);
}
