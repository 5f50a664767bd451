#include "apps/ulp/program.h"

int main(int argc, char** argv) { return ulp::run_program(argc, argv); }
