// Activations, dropout, sums, products and copies: loops over ulp/backend/elementwise.h.
#include "ulp/backend/elementwise.h"

#include <algorithm>
#include <vector>

#include "ulp/backend/ref/reference_task.h"

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
    return made;
  }();
  return kernels;
}

}  // namespace ulp::ref
