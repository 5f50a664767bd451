// The optimizers there are. Everything else (names, defaults, checks, checkpoints, CPU and CUDA
// kernels, tests) goes through this list: a new optimizer is a header with a struct, and an entry
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "ulp/optim/adagrad.h"
#include "ulp/optim/adam.h"
#include "ulp/optim/lion.h"
#include "ulp/optim/sgd.h"

namespace ulp {

template <typename... Ops>
struct OptimizerList {
  using Variant = std::variant<Ops...>;
  static constexpr size_t kCount = sizeof...(Ops);
  static constexpr size_t kMostBytes = [] {
    size_t most = 0;
    ((most = sizeof(Ops) > most ? sizeof(Ops) : most), ...);
    return most;
  }();

  // Calls visit.operator()<Op>() for each, in order.
  template <typename Visit>
  static constexpr void for_each(Visit&& visit) {
    (visit.template operator()<Ops>(), ...);
  }
  // The same for the one of this number; for none where there is none.
  template <typename Visit>
  static constexpr void visit(size_t number, Visit&& visit) {
    size_t i = 0;
    ((i++ == number ? visit.template operator()<Ops>() : void()), ...);
  }
};

using Optimizers = OptimizerList<Sgd, Adam, AdamW, Adagrad, Lion>;

// By its place in the list.
enum class OptimizerKind : uint8_t { sgd, adam, adamw, adagrad, lion };
static_assert(static_cast<size_t>(OptimizerKind::lion) + 1 == Optimizers::kCount);

}  // namespace ulp
