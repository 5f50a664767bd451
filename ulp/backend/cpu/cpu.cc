#include "ulp/backend/cpu/cpu.h"

#include "ulp/backend/cpu/column.h"
#include "ulp/backend/cpu/example.h"
#include "ulp/backend/cpu/fused_elementwise.h"
#include "ulp/backend/cpu/narrow.h"
#include "ulp/backend/cpu/onednn.h"
#include "ulp/backend/cpu/optimizer/update.h"
#include "ulp/backend/ref/reference.h"

namespace ulp {

const Backend& cpu_backend() {
  static const Backend backend = [] {
    Backend made{"cpu", {}, true};
    for (const auto kernels : {onednn_kernels(), narrow_kernels(), fused_elementwise_kernels(),
                               example_kernels(), column_kernels(), update_kernels(), reference_kernels()}) {
      made.kernels.insert(made.kernels.end(), kernels.begin(), kernels.end());
    }
    return made;
  }();
  return backend;
}

}  // namespace ulp
