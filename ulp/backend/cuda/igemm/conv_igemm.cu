#include "ulp/backend/cuda/igemm/conv_igemm.h"

#include <cuda_runtime.h>

#include "ulp/backend/cuda/igemm/conv_halo.h"
#include "ulp/backend/cuda/igemm/conv_igemm_launch.h"
#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/backend/cuda/runtime/runtime.h"

namespace ulp::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function, looked up at run time, because programs are not linked with the driver.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &result),
          "asking the driver for tensor maps");
    if (result != cudaDriverEntryPointSuccess)
      check(cudaErrorSymbolNotFound, "asking the driver for tensor maps");
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

// Describes rows of `channels` codes of `bytes` bytes, copied in boxes. Swizzled boxes must start
// at multiples of 1024 bytes.
CUtensorMap describe_rows(const uint8_t* data, uint32_t bytes, uint32_t channels, uint64_t rows,
                          uint32_t box_channels, uint32_t box_rows, CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t extents[2] = {channels, rows}, pitch[1] = {uint64_t{channels} * bytes};
  const cuuint32_t box[2] = {box_channels, box_rows}, each[2] = {1, 1};
  const CUresult made =
      encoder()(&map, bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 2,
                const_cast<uint8_t*>(data), extents, pitch, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (made != CUDA_SUCCESS) check(cudaErrorInvalidValue, "describing images to the copy engine");
  return map;
}

// The swizzle that puts equal pieces of eight neighbouring rows into different banks.
CUtensorMapSwizzle swizzle_of(uint32_t row_bytes) {
  return row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : row_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                           : CU_TENSOR_MAP_SWIZZLE_NONE;
}

}  // namespace

// From the tensor core's rates, not measured: at this size fp16 saves about 25 of 50 microseconds,
// and launching the kernels for marked tiles takes about 10.
double fp16_operations() { return 20e9; }

uint32_t igemm_processors() {
  static const uint32_t processors = [] {
    int device = 0, major = 0, minor = 0, count = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
      cudaGetLastError();
      return kProcessors;
    }
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
          "asking what the GPU is");
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "asking what the GPU is");
    // wgmma exists in this generation only.
    return major == 9 && minor == 0 ? static_cast<uint32_t>(count) : 0;
  }();
  return processors;
}

void run_conv_igemm(const IgemmCall& call, OperandFeed feed, const uint8_t* in, Stream stream) {
  const IgemmShape& shape = call.shape;
  IgemmCall filled = call;
  filled.in = in;
  if (call.tiling.is_halo()) return start_halo(filled, feed, stream);
  const uint32_t bytes = feed_bytes(feed);
  const CUtensorMap map = describe_rows(
      in, bytes, shape.in_c, uint64_t{shape.images} * shape.in_h * shape.in_w, call.tiling.channels,
      call.tiling.box_rows,
      swizzles_rows(feed, call.tiling.channels) ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE);
  switch (feed) {
    case OperandFeed::bf16_from_8:
      return start_bf16_from_8(map, filled, stream);
    case OperandFeed::bf16:
      return start_bf16(map, filled, stream);
    case OperandFeed::tf32_from_8:
      return start_tf32_from_8(map, filled, stream);
    case OperandFeed::tf32_from_16:
      return start_tf32_from_16(map, filled, stream);
    case OperandFeed::fp16_from_8:
      return start_fp16_from_8(map, filled, stream);
    case OperandFeed::fp16_from_16:
      return start_fp16_from_16(map, filled, stream);
  }
}

void run_grad(const GradCall& call, const uint8_t* in, const uint8_t* grad, Stream stream) {
  const IgemmShape& shape = call.shape;
  const GradTiling& tiling = call.tiling;
  const uint32_t boxes = (tiling.input_rows + 255) / 256;
  (call.tf32 ? start_grad_tf32 : start_grad)(
      describe_rows(in, call.in_bytes, shape.in_c, uint64_t{shape.images} * shape.in_h * shape.in_w,
                    tiling.inputs, tiling.input_rows / boxes, swizzle_of(tiling.inputs * call.in_bytes)),
      describe_rows(grad, call.out_bytes, shape.out_c, shape.results(), tiling.outputs, kGradPixels,
                    swizzle_of(tiling.outputs * call.out_bytes)),
      call, stream);
}

}  // namespace ulp::cuda
