// The version of the headers. The minor number grows when the interface changes, the last one when
// it does not. CMakeLists.txt reads these lines: they are the only place that names the version.
#pragma once

#define ULP_VERSION_MAJOR 0
#define ULP_VERSION_MINOR 1
#define ULP_VERSION_PATCH 0

#pragma GCC visibility push(default)
namespace ulp {

// Of the library that is linked: "0.1.0".
const char* version();

}  // namespace ulp
#pragma GCC visibility pop
