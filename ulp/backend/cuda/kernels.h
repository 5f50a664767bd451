// The kernels of this folder by family. backend_named() lists them best first for each operator.
// ulp/backend/emulated compiles them for the CPU too.
#pragma once

#include <span>
#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp::cuda {

std::span<const KernelDef> source_kernels();             // data that is fed
std::span<const KernelDef> fused_elementwise_kernels();  // fused elementwise, reductions
std::span<const KernelDef> move_kernels();               // concat, split, shuffle, transpose
std::span<const KernelDef> broadcast_kernels();          // sums in which an operand is repeated
std::span<const KernelDef> pool_kernels();               // pooling
std::span<const KernelDef> loss_kernels();               // softmax, losses, counting
std::span<const KernelDef> norm_kernels();               // running statistics, layer norm
std::span<const KernelDef> depthwise_kernels();          // depthwise convolutions
std::span<const KernelDef> skinny_gemm_kernels();        // linear layers with few outputs
std::span<const KernelDef> generic_product_kernels();    // any shape, narrow accumulators
std::span<const KernelDef> update_kernels();             // gradient norms, optimizer steps

std::span<const KernelDef> conv_igemm_kernels();  // convolutions from codes to codes
std::span<const KernelDef> conv_wgrad_kernels();  // and their weight gradients
std::span<const KernelDef> pointwise_kernels();   // 1x1 convolutions, codes to codes
std::span<const KernelDef> conv_simt_kernels();   // convolutions of fp32 tensors, in fp32
// Packs the weights of several convolutions (Backend::make_preparation).
std::unique_ptr<Task> make_preparation(std::span<Task* const> tasks);
// A batch norm's reduction and the pass that uses it in one launch (Backend::make_merged).
std::unique_ptr<Task> make_merged(Task& first, Task& second);

// A backend with all of these and the libraries' (library.h), without its device.
Backend backend_named(std::string_view name);

}  // namespace ulp::cuda
