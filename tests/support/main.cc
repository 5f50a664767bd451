// The main of every test program: GoogleTest's, with the vector unit that ULP_SIMD names.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "ulp/numeric/simd.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    if (const char* simd = std::getenv("ULP_SIMD"); simd != nullptr) ulp::use_simd(simd);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ULP_SIMD: %s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
