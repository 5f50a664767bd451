// Kernels that find out how to take a problem while they look whether they can.
#pragma once

#include "ulp/backend/kernel.h"
#include "ulp/base/error.h"

namespace ulp {

// `describe(problem, description)` says why not; the task is made from the problem and the description.
template <typename Made, auto describe, typename Description>
constexpr KernelDef described(std::string_view op, std::string_view name, bool side_stream = false) {
  return {op,
          name,
          [](const Problem& problem) -> std::string {
            Description made;
            return describe(problem, made);
          },
          [](const Problem& problem) -> std::unique_ptr<Task> {
            Description made;
            if (const std::string why = describe(problem, made); !why.empty())
              fail("kernels", "{}: {}", problem.root().name, why);
            return std::make_unique<Made>(problem, made);
          },
          false,
          side_stream};
}

}  // namespace ulp
