// Which vector unit the codecs use: chosen once, at run time, and forced by name where a test or a
// user wants another. The choice changes the speed, never a bit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ulp {

// The names this machine can run, best first ("AVX3", "AVX2", ...); "reference", the scalar
// definition, last.
std::vector<std::string> simd_names();

// Forces one of simd_names(), or "auto" for the best. Throws an Error for another name. Not to be
// called while a codec runs.
void use_simd(std::string_view name);

std::string simd_in_use();

}  // namespace ulp
