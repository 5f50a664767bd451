// Nothing is measured on a GPU that this build cannot use: cuda_backend() says so first.
#include "ulp/backend/cuda/runtime/measure.h"

#include <stdexcept>

namespace ulp {

Ceilings cuda_ceilings() { throw std::logic_error("no CUDA in this build"); }
std::unique_ptr<PlanClock> cuda_clock() { throw std::logic_error("no CUDA in this build"); }
size_t cuda_used_bytes() { throw std::logic_error("no CUDA in this build"); }

}  // namespace ulp
