// Which convolutions conv_igemm_check checks, and which it times.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/cuda/igemm_work.h"

namespace ulp::cuda {

inline constexpr Format k434{"fp(4,3,4)"}, k520{"fp(5,2,0)"}, k690{"fp(6,9,0)"}, kBf16{"bf16"}, kE4m3{"e4m3"};

inline std::vector<Work> checked() {
  constexpr OperandFeed k8 = OperandFeed::bf16_from_8;
  return {
      {"one pixel", same_conv(3, 1, 16, 16, 3, 1), false, k8, k434, k434, k434},
      {"forward", {3, 5, 7, 16, 5, 7, 24, 3, 3, 1, 1, 1, 1}, false, k8, k434, k434, k434},
      {"forward", same_conv(5, 9, 48, 64, 3, 1), false, k8, k434, k434, k520, true},
      {"forward", same_conv(6, 16, 128, 128, 3, 1), false, k8, k434, k434, k434, true},
      {"forward", same_conv(7, 12, 80, 256, 3, 1), false, k8, k520, kE4m3, kE4m3, true},
      {"5x5", same_conv(4, 13, 32, 96, 5, 1), false, k8, k434, k434, kBf16},
      {"stride 2", same_conv(6, 16, 64, 128, 3, 2), false, k8, k434, k434, k434},
      {"1x1 stride 2", same_conv(6, 16, 64, 128, 1, 2), false, k8, k434, k434, k434, true},
      {"1x1", same_conv(6, 16, 64, 40, 1, 1), false, k8, k434, k434, k434},
      {"gradient", same_conv(6, 16, 64, 64, 3, 1), true, k8, k520, k434, k520},
      {"gradient", same_conv(6, 9, 16, 48, 3, 1), true, k8, k520, k434, k520, true},
      {"gradient stride 2", same_conv(6, 16, 64, 128, 3, 2), true, k8, k520, k434, k520, true},
      {"gradient stride 2", same_conv(5, 9, 24, 32, 3, 2), true, k8, k520, k434, k690},
      {"gradient stride 3", same_conv(5, 11, 32, 16, 5, 3), true, k8, k520, k434, k520},
      {"gradient 1x1 stride 2", same_conv(6, 16, 64, 128, 1, 2), true, k8, k520, k434, k520, true},
      {"bf16", same_conv(6, 16, 64, 64, 3, 1), false, OperandFeed::bf16, kBf16, kBf16, kBf16, true},
      {"bf16 8 channels", same_conv(6, 16, 8, 64, 3, 1), false, OperandFeed::bf16, kBf16, kBf16, kBf16},
      {"bf16 gradient stride 2", same_conv(6, 16, 64, 128, 3, 2), true, OperandFeed::bf16, kBf16, kBf16,
       kBf16, true},
      {"tf32", same_conv(6, 16, 64, 64, 3, 1), false, OperandFeed::tf32_from_8, k434, k690, k690},
      {"tf32 gradient stride 2", same_conv(6, 16, 64, 128, 3, 2), true, OperandFeed::tf32_from_8, k520, k690,
       k690, true},
      {"tf32", same_conv(6, 16, 64, 64, 3, 1), false, OperandFeed::tf32_from_16, k690, k690, k690, true},
      {"tf32 gradient", same_conv(6, 16, 24, 40, 3, 1), true, OperandFeed::tf32_from_16, k690, k690, k690},
      {"tf32 16 channels", same_conv(6, 16, 16, 16, 3, 1), false, OperandFeed::tf32_from_16, k690, k690,
       k690},
  };
}

// With few channels: images that are not square, and one; kernels that are larger than they are and
// that are not; padding that there is not, and more than the kernel needs; columns that are no
// channels; batches that leave a part of a tile.
inline std::vector<Work> checked_halo() {
  constexpr OperandFeed k8 = OperandFeed::bf16_from_8, k16 = OperandFeed::bf16;
  std::vector<Work> all;
  for (const bool gradient : {false, true}) {
    const std::string_view name = gradient ? "gradient" : "forward";
    const auto both = [&](const ConvExtents32& conv, bool rounds) {
      all.push_back({name, conv, gradient, k8, gradient ? k520 : k434, k434, gradient ? k520 : k434, rounds});
      all.push_back({name, conv, gradient, k16, kBf16, kBf16, kBf16, rounds});
    };
    both({1, 7, 9, 16, 7, 9, 16, 3, 3, 1, 1, 1, 1}, false);
    both({7, 7, 9, 16, 7, 9, 16, 3, 3, 1, 1, 1, 1}, true);
    both({5, 9, 7, 32, 9, 7, 64, 3, 3, 1, 1, 1, 1}, true);
    both({13, 8, 8, 64, 8, 8, 32, 3, 3, 1, 1, 1, 1}, false);
    both({5, 13, 11, 64, 13, 11, 16, 5, 5, 1, 1, 2, 2}, true);
    both({3, 12, 12, 16, 10, 10, 64, 3, 3, 1, 1, 0, 0}, false);
    both({3, 6, 5, 32, 8, 9, 32, 3, 3, 1, 1, 2, 3}, true);
    both({5, 2, 3, 16, 2, 3, 16, 5, 5, 1, 1, 2, 2}, true);
    both({3, 6, 10, 64, 6, 8, 64, 1, 3, 1, 1, 0, 0}, true);
    both(same_conv(3, 32, 16, 16, 3, 1), true);
    both(same_conv(3, 16, 32, 32, 3, 1), true);
    both(same_conv(3, 32, 64, 64, 3, 1), true);
    both(same_conv(300, 8, 64, 64, 3, 1), true);
  }
  all.push_back({"40 columns", same_conv(6, 9, 16, 40, 3, 1), false, k8, k520, k434, kBf16, true});
  all.push_back({"gradient of 8", same_conv(6, 9, 8, 64, 3, 1), true, k16, kBf16, kBf16, k520, true});
  return all;
}

// In fp16, with and without numbers that it does not have.
inline std::vector<Work> checked_in_fp16() {
  using Outside = Work::Outside;
  constexpr OperandFeed k16 = OperandFeed::fp16_from_16, k8 = OperandFeed::fp16_from_8;
  std::vector<Work> all;
  for (const Outside outside :
       {Outside::nothing, Outside::few, Outside::full, Outside::over, Outside::everywhere, Outside::weight,
        Outside::largest_unknown, Outside::largest_wrong}) {
    all.push_back({"fp16", same_conv(6, 16, 64, 64, 3, 1), false, k16, k690, k690, k690, true, outside});
    all.push_back({"fp16", same_conv(40, 16, 128, 128, 3, 1), false, k16, k690, k690, k690, true, outside});
    all.push_back(
        {"fp16 80 channels", same_conv(7, 12, 80, 256, 3, 1), false, k16, k690, k690, k520, false, outside});
    all.push_back(
        {"fp16 16 channels", same_conv(6, 16, 16, 16, 3, 1), false, k16, k690, k690, k690, false, outside});
    all.push_back(
        {"fp16 stride 2", same_conv(6, 16, 64, 128, 3, 2), false, k16, k690, k690, k690, true, outside});
    all.push_back(
        {"fp16 gradient", same_conv(6, 16, 24, 40, 3, 1), true, k16, k690, k690, k690, false, outside});
    all.push_back({"fp16 gradient stride 2", same_conv(6, 16, 64, 128, 3, 2), true, k16, k690, k690, k690,
                   true, outside});
    if (outside == Outside::largest_unknown || outside == Outside::largest_wrong) continue;
    all.push_back({"fp16", same_conv(6, 16, 64, 64, 3, 1), false, k8, k520, k690, k690, true, outside});
    all.push_back({"fp16 gradient stride 2", same_conv(6, 16, 64, 128, 3, 2), true, k8, k520, k690, k690,
                   true, outside});
    if (outside == Outside::nothing || outside == Outside::weight)
      all.push_back({"fp16", same_conv(6, 16, 128, 128, 3, 1), false, k8, k434, k690, k434, false, outside});
  }
  return all;
}

// ResNet-20's layers and ResNet-18's first.
inline std::vector<Work> timed_halo() {
  std::vector<Work> all;
  const auto each = [&](const ConvExtents32& conv) {
    all.push_back({"forward", conv, false, OperandFeed::bf16_from_8, k434, k434, k434, true});
    all.push_back({"gradient", conv, true, OperandFeed::bf16_from_8, k520, k434, k520, true});
    all.push_back({"forward", conv, false, OperandFeed::bf16, kBf16, kBf16, kBf16, true});
    all.push_back({"gradient", conv, true, OperandFeed::bf16, kBf16, kBf16, kBf16, true});
  };
  for (const uint32_t images : {128u, 1024u}) {
    for (uint32_t layer = 0; layer < 3; ++layer)
      each(same_conv(images, 32u >> layer, 16u << layer, 16u << layer, 3, 1));
    each(same_conv(images, 32, 64, 64, 3, 1));
  }
  return all;
}

// ResNet-18's layers with two batches.
inline std::vector<Work> timed() {
  std::vector<Work> all;
  for (const uint32_t images : {1024u, 128u}) {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const uint32_t c = 64u << layer, size = 32u >> layer;
      const ConvExtents32 conv = same_conv(images, size, c, c, 3, 1);
      if (layer > 0) {
        all.push_back({"forward", conv, false, OperandFeed::bf16_from_8, k434, k434, k434, true});
        all.push_back({"gradient", conv, true, OperandFeed::bf16_from_8, k520, k434, k520, true});
        all.push_back({"forward", conv, false, OperandFeed::bf16, kBf16, kBf16, kBf16, true});
      }
      all.push_back({"forward", conv, false, OperandFeed::tf32_from_16, k690, k690, k690, true});
      all.push_back({"forward", conv, false, OperandFeed::tf32_from_8, k434, k690, k690, true});
      all.push_back({"fp16 forward", conv, false, OperandFeed::fp16_from_16, k690, k690, k690, true});
      all.push_back({"fp16 forward, few outside", conv, false, OperandFeed::fp16_from_16, k690, k690, k690,
                     true, Work::Outside::few});
      all.push_back({"fp16 forward, few marked", conv, false, OperandFeed::fp16_from_16, k690, k690, k690,
                     true, Work::Outside::over});
      all.push_back({"fp16 forward", conv, false, OperandFeed::fp16_from_8, k434, k690, k690, true});
      all.push_back({"gradient", conv, true, OperandFeed::tf32_from_16, k690, k690, k690, true});
      all.push_back({"fp16 gradient", conv, true, OperandFeed::fp16_from_16, k690, k690, k690, true});
      if (layer == 0) continue;
      const ConvExtents32 down = same_conv(images, 2 * size, c / 2, c, 3, 2);
      const ConvExtents32 shortcut = same_conv(images, 2 * size, c / 2, c, 1, 2);
      all.push_back({"stride 2", down, false, OperandFeed::bf16_from_8, k434, k434, k434, true});
      all.push_back({"gradient stride 2", down, true, OperandFeed::bf16_from_8, k520, k434, k520, true});
      all.push_back({"gradient stride 2", down, true, OperandFeed::bf16, kBf16, kBf16, kBf16, true});
      all.push_back({"gradient stride 2", down, true, OperandFeed::tf32_from_16, k690, k690, k690, true});
      all.push_back(
          {"fp16 gradient stride 2", down, true, OperandFeed::fp16_from_16, k690, k690, k690, true});
      all.push_back({"1x1 stride 2", shortcut, false, OperandFeed::bf16_from_8, k434, k434, k434, true});
      all.push_back(
          {"gradient 1x1 stride 2", shortcut, true, OperandFeed::bf16_from_8, k520, k434, k520, true});
    }
  }
  return all;
}

}  // namespace ulp::cuda
