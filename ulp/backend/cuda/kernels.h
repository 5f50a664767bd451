// The kernels of this folder by family, for each operator best first. Those of `emulated_families` are compiled for the CPU too.
#pragma once

#include <span>
#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp::cuda {

std::span<const KernelDef> source_kernels();  // where data comes in
std::span<const KernelDef>
fused_elementwise_kernels();  // elementwise operators and reductions, with what is computed inside them
std::span<const KernelDef> move_kernels();         // concat, split, shuffle, transpose
std::span<const KernelDef> pool_kernels();         // pooling
std::span<const KernelDef> loss_kernels();         // softmax, losses, counting
std::span<const KernelDef> norm_kernels();         // running statistics, layer norm
std::span<const KernelDef> depthwise_kernels();    // convolutions of single channels
std::span<const KernelDef> skinny_gemm_kernels();  // linear layers of few outputs
std::span<const KernelDef>
generic_product_kernels();                    // products one thread a sum: any shape, narrow accumulators
std::span<const KernelDef> update_kernels();  // gradient norms, optimizer steps

std::span<const KernelDef> conv_igemm_kernels();  // convolutions from codes to codes
std::span<const KernelDef> conv_wgrad_kernels();  // and gradients of their weights
std::span<const KernelDef>
pointwise_kernels();  // 1x1 convolutions of any even number of channels, from codes to codes
std::span<const KernelDef> conv_simt_kernels();  // convolutions of fp32 tensors, multiplied in fp32
// What convolutions prepare of their weights (Backend::make_preparation).
std::unique_ptr<Task> make_preparation(std::span<Task* const> tasks);
// A batch norm's reduction and the pass that uses it (Backend::make_merged).
std::unique_ptr<Task> make_merged(Task& first, Task& second);

// All of these and the libraries' (library.h), for which there must be a GPU.
std::vector<KernelDef> all_kernels();

}  // namespace ulp::cuda
