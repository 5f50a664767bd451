// Elementwise patterns of backward.
#include "ulp/backend/cuda/batchnorm/batchnorm.h"
#include "ulp/backend/cuda/elementwise/fused_kernel.h"

namespace ulp::cuda {
namespace {

constexpr Pattern kPatterns[] = {
    {"batch_norm_grad(x,x)", quick_or<quick_norm_grad, launch_often<BatchNormGrad<X, X>>>},
    {"batch_norm_grad(relu_grad(x,x),x)",
     quick_or<quick_norm_relu_grad, launch_often<BatchNormGrad<ReluGrad<X, X>, X>>>},
    {"batch_norm_grad(sum(x,x),x)", launch_often<BatchNormGrad<Add<X, X>, X>>},
    {"relu_grad(x,x)", quick_or<quick_relu_grad, launch_often<ReluGrad<X, X>>>},
    {"relu_grad(sum(x,x),x)", quick_or<quick_relu_grad_sum, launch_often<ReluGrad<Add<X, X>, X>>>},
    {"sum(x,x)", launch_often<Add<X, X>>},
};

}  // namespace

FusedLaunch find_elementwise_grad(std::string_view text) { return find_in(kPatterns, text); }

}  // namespace ulp::cuda
