// Activations, dropout, sums, products and copies: loops over ulp/backend/elementwise.h; and sums in
// which an operand is repeated.
#include "ulp/backend/elementwise.h"

#include <algorithm>
#include <vector>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp::ref {
namespace {

template <typename Op>
float attribute(const Call& call) {
  if constexpr (Op::kAttribute != nullptr) {
    return static_cast<float>(call.real(Op::kAttribute));
  } else {
    return 0;
  }
}

template <typename Op>
void forward(const Call& call) {
  const float scalar = attribute<Op>(call);
  const float* x = call.in(0);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = Op::forward(x[i], scalar);
}

template <typename Op>
void backward(const Call& call) {
  const float scalar = attribute<Op>(call);
  const float *dout = call.in(0), *saved = call.in(1);
  float* dx = call.out();
  for (size_t i = 0; i < call.elements(); ++i) dx[i] = Op::grad(dout[i], saved[i], scalar);
}

template <typename Op>
void binary(const Call& call) {
  const float *a = call.in(0), *b = call.in(1);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = Op::forward(a[i], b[i]);
}

void copy(const Call& call) { std::copy(call.in(0), call.in(0) + call.elements(), call.out()); }

// Also its gradient.
void dropout(const Call& call) {
  const elementwise::DropoutRule rule = elementwise::dropout_rule(call.real("p"));
  const RoundKey key = elementwise::dropout_key(call.state, static_cast<uint32_t>(call.integer("tensor")));
  const float* x = call.in(0);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = elementwise::dropout(x[i], random_word(key, i), rule);
}

void sum(const Call& call) {
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) {
    float total = call.in(0)[i];
    for (size_t k = 1; k < call.inputs.size(); ++k) total = elementwise::Add::forward(total, call.in(k)[i]);
    out[i] = total;
  }
}

void seed(const Call& call) {
  const float value = elementwise::seed(static_cast<float>(call.real("value")), call.state.loss_scale);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = value;
}

// Calls use(place in the larger tensor, place in the smaller) for all places of the larger, in order.
template <typename Use>
void for_repetitions(const Repetition& r, const Use& use) {
  int64_t larger = 0;
  for (int64_t i = 0; i < r.extent[0]; ++i) {
    for (int64_t j = 0; j < r.extent[1]; ++j) {
      for (int64_t k = 0; k < r.extent[2]; ++k) {
        for (int64_t l = 0; l < r.extent[3]; ++l)
          use(larger++, i * r.stride[0] + j * r.stride[1] + k * r.stride[2] + l * r.stride[3]);
      }
    }
  }
}

void broadcast_add(const Call& call) {
  float* out = call.out();
  for_repetitions(repetition(call.in_shape(0), call.out_shape()),
                  [&](int64_t at, int64_t from) { out[at] = call.in(0)[from]; });
  for_repetitions(repetition(call.in_shape(1), call.out_shape()), [&](int64_t at, int64_t from) {
    out[at] = elementwise::Add::forward(out[at], call.in(1)[from]);
  });
}

void broadcast_sum(const Call& call) {
  const Repetition all = repetition(call.out_shape(), call.in_shape(0));
  for (size_t i = 0; i < call.elements(); ++i) {
    double sum = 0;
    for_repetitions(all, [&](int64_t at, int64_t to) {
      if (to == static_cast<int64_t>(i)) sum += call.in(0)[at];
    });
    call.out()[i] = rounded(sum);
  }
}

}  // namespace

std::span<const KernelDef> elementwise_kernels() {
  static const std::vector<KernelDef> kernels = [] {
    std::vector<KernelDef> made;
    elementwise::Activations::for_each([&]<typename Op>(Op) {
      made.push_back(reference_elementwise<forward<Op>>(Op::kName));
      made.push_back(reference_elementwise<backward<Op>>(Op::kGradName));
    });
    elementwise::Binaries::for_each(
        [&]<typename Op>(Op) { made.push_back(reference_elementwise<binary<Op>>(Op::kName)); });
    made.push_back(reference_elementwise<dropout>("dropout"));
    made.push_back(reference_elementwise<dropout>("dropout_grad"));
    made.push_back(reference_elementwise<sum>("sum"));
    made.push_back(reference_elementwise<copy>("copy"));
    made.push_back(reference_elementwise<seed>("seed"));
    made.push_back(reference_kernel<broadcast_add>("broadcast_add"));
    made.push_back(reference_kernel<broadcast_sum>("broadcast_sum"));
    return made;
  }();
  return kernels;
}

}  // namespace ulp::ref
