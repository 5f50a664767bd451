#include "apps/ulp/environment.h"
#include "apps/ulp/program.h"

int main(int argc, char** argv) {
  ulp::bound_spinning(argv);
  return ulp::run_program(argc, argv);
}
