// The elementwise operators, one struct each: what an operator is called, what it reads, what it
// computes and what its gradient is. The graph's rules, the reference, the CPU's loops, the CUDA
// kernels and the tests all take theirs from the lists at the end.
//
// Only IEEE operations, no fma, so that all processors give the same bits. A NaN that an operation
// makes is that of settle_nan: its sign, which a format without NaN keeps, would else depend on the
// processor. A value that is only passed on keeps its bits. Conditions are masks on patterns and
// arithmetic stays outside of them, so that a loop becomes vector code.
//
// This header uses the language and <cstdint> alone, so that any device compiler can read it.
#pragma once

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"

namespace ulp::elementwise {

ULP_HD constexpr float choose(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return bits_float(detail::select(mask, float_bits(a), float_bits(b)));
}

// What backward reads beside the gradient of the output. With `output` the input need not be saved
// for backward.
enum class Reads : uint8_t { output, input };

// An operator without an attribute.
struct NoAttribute {
  static constexpr const char* kAttribute = nullptr;
  static constexpr double kLeast = 0, kMost = 0;
};

// ---- activations: one input; grad(dout, saved, attribute) where `saved` is what kReads says ----

struct Relu : NoAttribute {
  static constexpr const char *kName = "relu", *kGradName = "relu_grad";
  static constexpr Reads kReads = Reads::output;
  // NaN stays, -0 becomes +0. Integers from the pattern of -0 to that of minus infinity become 0: a
  // comparison of floats would become the GPU's maximum, which makes a NaN of its own of any.
  ULP_HD static constexpr float forward(float x, float = 0) {
    const uint32_t bits = float_bits(x);
    const uint32_t mask = 0u - static_cast<uint32_t>(bits - 0x80000000u <= 0x7F800000u);
    return bits_float(bits & ~mask);
  }
  ULP_HD static constexpr float grad(float dout, float out, float = 0) {
    return choose(out > 0.0f, dout, 0.0f);
  }
};

// x, or slope x where x < 0.
struct LeakyRelu {
  static constexpr const char *kName = "leaky_relu", *kGradName = "leaky_relu_grad";
  static constexpr const char* kAttribute = "slope";
  static constexpr double kLeast = 0, kMost = 1;  // both excluded
  static constexpr Reads kReads = Reads::output;
  ULP_HD static constexpr float forward(float x, float slope) {
    const float below = slope * x;
    return choose(x < 0.0f, below, x);
  }
  ULP_HD static constexpr float grad(float dout, float out, float slope) {
    const float below = settle_nan(slope * dout);
    return choose(out < 0.0f, below, dout);
  }
};

struct Tanh : NoAttribute {
  static constexpr const char *kName = "tanh", *kGradName = "tanh_grad";
  static constexpr Reads kReads = Reads::output;
  ULP_HD static constexpr float forward(float x, float = 0) { return tanh_near(x); }
  ULP_HD static constexpr float grad(float dout, float out, float = 0) {
    return settle_nan(dout * (1.0f - out * out));
  }
};

struct Sigmoid : NoAttribute {
  static constexpr const char *kName = "sigmoid", *kGradName = "sigmoid_grad";
  static constexpr Reads kReads = Reads::output;
  ULP_HD static constexpr float forward(float x, float = 0) { return sigmoid_near(x); }
  ULP_HD static constexpr float grad(float dout, float out, float = 0) {
    return settle_nan(dout * (out * (1.0f - out)));
  }
};

// x sigmoid(x), also called swish. It is not monotone, so backward needs the input.
struct Silu : NoAttribute {
  static constexpr const char *kName = "silu", *kGradName = "silu_grad";
  static constexpr Reads kReads = Reads::input;
  ULP_HD static constexpr float forward(float x, float = 0) { return settle_nan(x * sigmoid_near(x)); }
  ULP_HD static constexpr float grad(float dout, float x, float = 0) {
    const float s = sigmoid_near(x);
    return settle_nan(dout * (s * (1.0f + x * (1.0f - s))));
  }
};

// ---- arithmetic: gradients are made of these operators (ulp/graph/ops/arithmetic.cc) ----

// Also one step of a sum from left to right.
struct Add {
  static constexpr const char* kName = "add";
  ULP_HD static constexpr float forward(float a, float b) { return settle_nan(a + b); }
};
struct Multiply {
  static constexpr const char* kName = "multiply";
  ULP_HD static constexpr float forward(float a, float b) { return settle_nan(a * b); }
};

// ---- the lists ----

template <typename... Ops>
struct OperatorList {
  // Calls visit(Op{}) for each operator, in order.
  template <typename Visit>
  static constexpr void for_each(Visit&& visit) {
    (visit(Ops{}), ...);
  }
};

using Activations = OperatorList<Relu, LeakyRelu, Tanh, Sigmoid, Silu>;
using Binaries = OperatorList<Add, Multiply>;

}  // namespace ulp::elementwise
