#include "ulp/version.h"

#define ULP_TEXT_OF(x) #x
#define ULP_TEXT(x) ULP_TEXT_OF(x)

namespace ulp {

const char* version() {
  return ULP_TEXT(ULP_VERSION_MAJOR) "." ULP_TEXT(ULP_VERSION_MINOR) "." ULP_TEXT(ULP_VERSION_PATCH);
}

}  // namespace ulp
