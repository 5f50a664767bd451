// Activations, dropout, sums, products and copies: loops over ulp/backend/elementwise.h.
#include "ulp/backend/elementwise.h"

#include "ulp/backend/ref/plain.h"

namespace ulp::ref {
namespace {

template <float (*op)(float)>
void unary(const Call& call) {
  const float* x = call.in(0);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = op(x[i]);
}

template <float (*op)(float, float)>
void binary(const Call& call) {
  const float *a = call.in(0), *b = call.in(1);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = op(a[i], b[i]);
}

void leaky_relu(const Call& call) {
  const auto slope = static_cast<float>(call.real("slope"));
  const float* x = call.in(0);
  float* out = call.out();
  for (size_t i = 0; i < call.elements(); ++i) out[i] = elementwise::leaky_relu(x[i], slope);
}

void leaky_relu_grad(const Call& call) {
  const auto slope = static_cast<float>(call.real("slope"));
  const float *dout = call.in(0), *out = call.in(1);
  float* dx = call.out();
  for (size_t i = 0; i < call.elements(); ++i) dx[i] = elementwise::leaky_relu_grad(dout[i], out[i], slope);
}

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
    for (size_t k = 1; k < call.inputs.size(); ++k) total = elementwise::add(total, call.in(k)[i]);
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
  static constexpr KernelDef kKernels[] = {
      plain_elementwise<unary<elementwise::relu>>("relu"),
      plain_elementwise<binary<elementwise::relu_grad>>("relu_grad"),
      plain_elementwise<leaky_relu>("leaky_relu"),
      plain_elementwise<leaky_relu_grad>("leaky_relu_grad"),
      plain_elementwise<unary<elementwise::tanh>>("tanh"),
      plain_elementwise<binary<elementwise::tanh_grad>>("tanh_grad"),
      plain_elementwise<unary<elementwise::sigmoid>>("sigmoid"),
      plain_elementwise<binary<elementwise::sigmoid_grad>>("sigmoid_grad"),
      plain_elementwise<dropout>("dropout"),
      plain_elementwise<dropout>("dropout_grad"),
      plain_elementwise<binary<elementwise::add>>("add"),
      plain_elementwise<binary<elementwise::multiply>>("multiply"),
      plain_elementwise<sum>("sum"),
      plain_elementwise<unary<elementwise::copy>>("copy"),
      plain_elementwise<seed>("seed"),
  };
  return kKernels;
}

}  // namespace ulp::ref
