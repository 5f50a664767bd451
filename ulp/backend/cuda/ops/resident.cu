#include "ulp/backend/cuda/ops/resident.h"

#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

// A block takes one of the `parts` of an example at a time: the source of its pixels is computed
// once.
__global__ void fill(ResidentImages set, const uint32_t* numbers, uint32_t count, uint32_t parts,
                     float* images, int32_t* labels) {
  const uint32_t row = static_cast<uint32_t>(set.width * set.channels);
  const uint32_t elements = static_cast<uint32_t>(set.height) * row;
  for (uint32_t work = blockIdx.x; work < count * parts; work += gridDim.x) {
    const uint32_t b = work / parts, part = work - b * parts;
    const uint32_t example = numbers[1 + b];
    const Placement from = placement(set.augment, numbers[0], example);
    const uint8_t* image = set.images + uint64_t{example} * elements;
    float* to = images + uint64_t{b} * elements;
    for (uint32_t i = part * blockDim.x + threadIdx.x; i < elements; i += parts * blockDim.x) {
      const auto y = static_cast<int32_t>(i / row), rest = static_cast<int32_t>(i % row);
      const int32_t x = rest / set.channels, channel = rest % set.channels;
      const uint8_t byte = placed_byte(image, set.height, set.width, set.channels, from, y, x, channel);
      to[i] = normalised(byte, set.normalise[channel]);
    }
    if (part == 0 && threadIdx.x == 0) labels[b] = set.labels[example];
  }
}

}  // namespace

void fill_batch(const ResidentImages& set, const uint32_t* numbers, uint32_t count, float* images,
                int32_t* labels, Stream stream) {
  // A few elements per thread: a small batch takes the time of one thread.
  const auto elements = static_cast<uint32_t>(set.height * set.width * set.channels);
  const uint32_t parts = (elements + 4 * kThreads - 1) / (4 * kThreads), most = 1u << 16;
  const uint64_t blocks = uint64_t{count} * parts;
  launch(fill,
         {static_cast<uint32_t>(blocks < 1      ? 1
                                : blocks > most ? most
                                                : blocks),
          kThreads},
         stream, set, numbers, count, parts, images, labels);
}

}  // namespace ulp::cuda
