// How convolutions from codes to codes are cut on a GPU: tiles and their pixels, weights as blocks,
// parts of gradients. All of it is arithmetic on the host.
#include "ulp/backend/cuda/igemm/conv_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/square_conv.h"
#include "ulp/backend/cuda/igemm/conv_halo.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

namespace ulp {
namespace {

using cuda::Divisor;
using cuda::IgemmPart;
using cuda::IgemmShape;
using cuda::IgemmTiling;
using cuda::OperandFeed;

constexpr OperandFeed kFeeds[] = {OperandFeed::bf16_from_8, OperandFeed::bf16,
                                  OperandFeed::tf32_from_8, OperandFeed::tf32_from_16,
                                  OperandFeed::fp16_from_8, OperandFeed::fp16_from_16};
constexpr uint32_t kProcessors = 132;

TEST(ConvTiling, DivisorsAreExact) {
  constexpr uint32_t kEnd = uint32_t{1} << 31;
  std::vector<uint32_t> divisors;
  for (uint32_t d = 1; d <= 1100; ++d) divisors.push_back(d);
  for (uint32_t bits = 10; bits < 31; ++bits) {
    for (const uint32_t d : {(1u << bits) - 1, 1u << bits, (1u << bits) + 1, 3u << (bits - 1)}) {
      if (d < kEnd) divisors.push_back(d);
    }
  }
  divisors.push_back(kEnd - 1);
  for (const uint32_t d : divisors) {
    const Divisor divisor = Divisor::of(d);
    // A quotient that is wrong is wrong next to a multiple, and the larger the multiple the sooner.
    const uint32_t last = (kEnd - 1) / d;
    for (const uint32_t q : {0u, 1u, 2u, last / 3, last / 2, last - 1, last}) {
      if (q > last) continue;
      for (const uint32_t n : {q * d - 1, q * d, q * d + 1, q * d + d - 1}) {
        if (n < kEnd) {
          EXPECT_EQ(divisor.quotient(n), n / d) << n << " / " << d;
        }
      }
    }
    EXPECT_EQ(divisor.quotient(kEnd - 1), (kEnd - 1) / d) << d;
  }
}

ConvExtents32 square(uint32_t images, uint32_t size, uint32_t c, uint32_t k, uint32_t kernel, uint32_t stride,
                     uint32_t padding) {
  return square_conv(images, size, c, k, kernel, stride, padding).as<uint32_t>();
}

// Operands of gradients of weights in tf32 are the numbers that codes stand for.
TEST(ConvTiling, GradientsOfWeightsMeetNumbersAsTheyAre) {
  const auto codec_of = [](std::string_view name) {
    return make_quick(make_spec(parse_format(name), Overflow::saturate));
  };
  const QuickCodec wide = codec_of("fp(6,9,0)"), narrow = codec_of("fp(4,3,4)");
  cuda::GradCall call;
  call.tf32 = true;
  call.in_bytes = 1;
  call.out_bytes = 2;
  call.shape = cuda::forward_part(square(1, 8, 16, 16, 3, 1, 1)).shape;
  cuda::complete(call, narrow, wide);
  EXPECT_EQ(call.factor, 1);
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto top = static_cast<int32_t>(code << 16);
    const float value = bits_float(static_cast<uint32_t>(top >> call.out_shift) & call.out_mask);
    EXPECT_EQ(float_bits(value * call.out_factor), decode_quick(wide, code)) << code;
  }
  for (uint32_t code = 0; code < 0x100; ++code) {
    const auto signs = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(code)));
    const float value = bits_float((signs << call.in_shift & call.in_mask) << 16);
    EXPECT_EQ(float_bits(value * bits_float(call.lift[0] << 16)), decode_quick(narrow, code)) << code;
  }
}

// Copies of gradients as tf32 take twice the room of bf16.
TEST(ConvTiling, GradientsOfWeightsFit) {
  for (const bool tf32 : {false, true}) {
    for (const uint32_t c : {16u, 48u, 64u, 512u}) {
      for (const uint32_t size : {1u, 4u, 32u, 56u}) {
        for (const uint32_t stride : {1u, 2u}) {
          const IgemmShape shape = cuda::forward_part(square(64, size, c, c, 3, stride, 1)).shape;
          const auto tiling = cuda::make_grad_tiling(shape, 2, 2, tf32, kProcessors);
          ASSERT_TRUE(tiling) << size;
          EXPECT_LE(tiling->shared, 227u * 1024);
          EXPECT_GE(tiling->stages, 2u);
          EXPECT_GE(uint64_t{tiling->pieces} * tiling->each * cuda::kGradPixels, shape.results());
        }
      }
    }
  }
}

TEST(ConvTiling, EveryWeightHasAPlaceOfItsOwn) {
  for (const uint32_t columns : {32u, 64u, 128u}) {
    for (const uint32_t channels : {16u, 32u, 64u}) {
      for (const bool tf32 : {false, true}) {
        std::vector<int> taken(columns * channels);
        for (uint32_t n = 0; n < columns; ++n) {
          for (uint32_t c = 0; c < channels; ++c) {
            const uint32_t at = cuda::block_position(columns, channels, tf32, n, c);
            ASSERT_LT(at, taken.size());
            ++taken[at];
          }
        }
        EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), static_cast<ptrdiff_t>(taken.size()));
      }
    }
  }
}

// Natural blocks: channels of the input lie in order.
TEST(ConvTiling, EveryWeightOfAHaloTileHasAPlaceOfItsOwn) {
  for (const uint32_t columns : {16u, 32u, 64u}) {
    for (const uint32_t channels : {16u, 32u, 64u}) {
      std::vector<int> taken(columns * channels);
      for (uint32_t n = 0; n < columns; ++n) {
        for (uint32_t c = 0; c < channels; ++c) {
          const uint32_t at = cuda::block_position(columns, channels, false, n, c, true);
          ASSERT_LT(at, taken.size());
          ++taken[at];
          EXPECT_EQ(at % 8, c % 8);
          EXPECT_EQ(at / (8 * columns), c / 8);
        }
      }
      EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), static_cast<ptrdiff_t>(taken.size()));
    }
  }
}

// All pixels that a tile's results look at lie in its input stage.
void expect_covered(const IgemmShape& shape, const IgemmTiling& tiling, const std::string& what) {
  cuda::IgemmCall call;
  call.shape = shape;
  call.tiling = tiling;
  cuda::complete(call, OperandFeed::bf16, {});
  const auto pixel = [&](uint32_t result, int64_t row, int64_t column) {
    const uint32_t q = result % shape.out_w, p = result / shape.out_w % shape.out_h,
                   image = result / shape.out_w / shape.out_h;
    const int64_t y = int64_t{p} * shape.stride_h + row, x = int64_t{q} * shape.stride_w + column;
    const bool inside = y >= 0 && x >= 0 && y < shape.in_h && x < shape.in_w;
    return std::pair{inside, int64_t{image} * shape.in_h * shape.in_w + y * shape.in_w + x};
  };
  for (uint32_t result = 0; result < shape.results(); ++result) {
    const int64_t first = pixel(result / tiling.rows * tiling.rows, 0, 0).second + call.part[0].lowest;
    for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
      const auto [inside, at] =
          pixel(result, shape.row[tap / shape.columns], shape.column[tap % shape.columns]);
      if (!inside) continue;
      ASSERT_GE(at, first) << what << " result " << result;
      ASSERT_LT(at, first + tiling.input_rows) << what << " result " << result;
    }
  }
}

TEST(ConvTiling, InputStagesHaveEveryPixelOfTheirTile) {
  size_t fitted = 0;
  for (const uint32_t size : {1u, 2u, 3u, 7u, 8u, 13u, 32u}) {
    for (const uint32_t kernel : {1u, 2u, 3u, 5u}) {
      for (const uint32_t stride : {1u, 2u, 3u}) {
        for (const uint32_t padding : {0u, 1u, 2u}) {
          if (size + 2 * padding < kernel || size < stride) continue;
          for (const uint32_t images : {1u, 5u, 19u}) {
            const ConvExtents32 conv = square(images, size, 16, 64, kernel, stride, padding);
            std::vector<IgemmPart> parts = cuda::gradient_parts(conv);
            parts.push_back(cuda::forward_part(conv));
            for (const IgemmPart& part : parts) {
              for (const uint32_t rows : {128u, 256u}) {
                IgemmTiling tiling;
                tiling.rows = rows;
                tiling.columns = 32;
                // The gradient has 16 output channels.
                if (!cuda::make_tiling(part.shape, OperandFeed::bf16, kProcessors, tiling)) continue;
                ++fitted;
                EXPECT_GE(tiling.boxes * tiling.box_rows, tiling.input_rows);
                EXPECT_LE(tiling.box_rows, 256u);
                expect_covered(part.shape, tiling,
                               std::to_string(images) + " images of " + std::to_string(size) + " kernel " +
                                   std::to_string(kernel) + " stride " + std::to_string(stride) +
                                   " padding " + std::to_string(padding));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(fitted, 1000u);
}

// Every result is at one place of one tile, and each of its taps finds its pixel, or zeros, where
// it looks.
void expect_halo(const IgemmShape& shape, const IgemmTiling& tiling, const std::string& what) {
  cuda::IgemmCall call;
  call.shape = shape;
  call.tiling = tiling;
  cuda::complete(call, OperandFeed::bf16, {});
  std::vector<int> written(size_t{shape.images} * shape.full_h * shape.full_w);
  for (uint32_t index = 0; index < tiling.row_tiles; ++index) {
    const cuda::HaloTile tile = cuda::halo_tile(call, index);
    for (uint32_t i = 0; i < tiling.halo.pieces * cuda::kPiece; ++i) {
      const uint32_t result = cuda::halo_result(call, tile, i);
      if (result == cuda::kNoPixel) continue;
      ++written.at(result);
      const uint32_t x = result % shape.full_w, y = result / shape.full_w % shape.full_h,
                     image = result / shape.full_w / shape.full_h;
      const int64_t p = (y - shape.first_h) / shape.step_h, q = (x - shape.first_w) / shape.step_w;
      for (uint32_t tap = 0; tap < shape.taps(); ++tap) {
        const int64_t row = p + shape.row[tap / shape.columns],
                      column = q + shape.column[tap % shape.columns];
        const bool inside = row >= 0 && column >= 0 && row < shape.in_h && column < shape.in_w;
        const auto pixel = static_cast<uint32_t>((image * shape.in_h + row) * shape.in_w + column);
        ASSERT_GE(call.part[0].offset[tap], 0) << what;
        const uint32_t at = i + static_cast<uint32_t>(call.part[0].offset[tap]);
        ASSERT_LT(at, tiling.halo.pixels) << what;
        ASSERT_EQ(cuda::halo_pixel(call, tile, at), inside ? pixel : cuda::kNoPixel) << what;
      }
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(std::count(written.begin(), written.end(), 1)), shape.results()) << what;
  EXPECT_EQ(std::count_if(written.begin(), written.end(), [](int times) { return times > 1; }), 0) << what;
}

TEST(ConvTiling, HaloTilesHaveEveryPixelOfTheirResults) {
  size_t fitted = 0;
  for (const uint32_t size : {1u, 2u, 3u, 7u, 8u, 13u, 32u}) {
    for (const uint32_t kernel : {1u, 2u, 3u, 5u}) {
      for (const uint32_t stride : {1u, 2u}) {
        for (const uint32_t padding : {0u, 1u, 2u, 4u}) {
          if (size + 2 * padding < kernel || size < stride) continue;
          for (const uint32_t images : {1u, 5u}) {
            ConvExtents32 conv = square(images, size, 16, 16, kernel, stride, padding);
            if (size > 8) {
              conv.w -= 4;  // not as wide as high
              conv = conv.with_output();
            }
            std::vector<IgemmPart> parts = cuda::gradient_parts(conv);
            parts.push_back(cuda::forward_part(conv));
            for (const IgemmPart& part : parts) {
              for (const uint32_t together : {1u, 2u, 3u}) {
                for (uint32_t rows = 1; rows <= part.shape.out_h; rows += 3) {
                  IgemmTiling tiling;
                  tiling.columns = 16;
                  tiling.halo.images = together;
                  tiling.halo.rows = together == 1 ? rows : part.shape.out_h;
                  if (!cuda::make_halo(part.shape, OperandFeed::bf16, kProcessors, tiling)) continue;
                  ++fitted;
                  EXPECT_LE(tiling.shared, 227u * 1024);
                  expect_halo(part.shape, tiling,
                              std::to_string(images) + " images of " + std::to_string(size) + " kernel " +
                                  std::to_string(kernel) + " stride " + std::to_string(stride) + " padding " +
                                  std::to_string(padding) + " together " + std::to_string(together) +
                                  " rows " + std::to_string(rows));
                  if (together > 1) break;
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(fitted, 1000u);
}

// Not where there is stride, few taps or many channels, nor where rows have no room.
TEST(ConvTiling, PadsWhereChannelsAreFew) {
  const auto halo = [](const ConvExtents32& conv, OperandFeed feed = OperandFeed::bf16) {
    return cuda::choose_halo(cuda::forward_part(conv).shape, feed, kProcessors);
  };
  for (const OperandFeed feed : {OperandFeed::bf16, OperandFeed::bf16_from_8}) {
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (const uint32_t images : {128u, 1024u}) {
        const auto tiling = halo(square(images, 32 >> layer, 16 << layer, 16 << layer, 3, 1, 1), feed);
        ASSERT_TRUE(tiling);
        EXPECT_GE(tiling->grid, 120u);
      }
    }
    const auto tiling = halo(square(1024, 32, 64, 64, 3, 1, 1), feed);
    ASSERT_TRUE(tiling);
    EXPECT_EQ(tiling->columns, 64u);
    EXPECT_EQ(tiling->halo.rows, 16u);
    EXPECT_EQ(tiling->input_stages, 2u);
    EXPECT_FALSE(halo(square(128, 32, 64, 64, 3, 2, 1), feed));
    EXPECT_FALSE(halo(square(128, 32, 64, 64, 1, 1, 0), feed));
    EXPECT_FALSE(halo(square(128, 32, 48, 64, 3, 1, 1), feed));
    EXPECT_FALSE(halo(square(128, 32, 64, 128, 3, 1, 1), feed));
    EXPECT_FALSE(halo(square(1, 4096, 64, 64, 3, 1, 1), feed));
  }
  EXPECT_FALSE(halo(square(128, 32, 16, 16, 3, 1, 1), OperandFeed::tf32_from_16));
  EXPECT_FALSE(halo(square(128, 32, 16, 16, 3, 1, 1), OperandFeed::fp16_from_8));
}

// Each of a weight's taps is in one part: so it is rounded, and counted, once.
TEST(ConvTiling, PartsShareTheTaps) {
  for (const uint32_t kernel : {1u, 2u, 3u, 4u, 5u}) {
    for (const uint32_t stride : {1u, 2u, 3u}) {
      for (const uint32_t padding : {0u, 1u, 2u}) {
        std::vector<int> taken(kernel * kernel);
        uint64_t results = 0;
        for (const IgemmPart& part : cuda::gradient_parts(square(2, 9, 16, 16, kernel, stride, padding))) {
          for (uint32_t tap = 0; tap < part.shape.taps(); ++tap) ++taken.at(part.source[tap]);
          results += part.shape.results();
        }
        EXPECT_EQ(taken, std::vector<int>(kernel * kernel, 1));
        EXPECT_EQ(results, 2u * 9 * 9);
      }
    }
  }
}

// What was quickest on an H200.
TEST(ConvTiling, ChoosesTheQuickestTiling) {
  const auto chosen = [](const IgemmShape& shape, OperandFeed feed = OperandFeed::bf16_from_8) {
    const auto tiling = cuda::choose_tiling(shape, feed, kProcessors);
    return tiling ? std::pair{tiling->rows, tiling->columns} : std::pair{0u, 0u};
  };
  using Tile = std::pair<uint32_t, uint32_t>;
  const auto forward = [&](uint32_t images, uint32_t size, uint32_t c, uint32_t k, uint32_t kernel,
                           uint32_t stride) {
    return cuda::forward_part(square(images, size, c, k, kernel, stride, kernel / 2)).shape;
  };
  for (const OperandFeed feed : kFeeds)
    EXPECT_EQ(chosen(forward(1024, 32, 64, 64, 3, 1), feed), Tile(128, 64));
  for (const OperandFeed feed : kFeeds)
    EXPECT_EQ(chosen(forward(1024, 16, 128, 128, 3, 1), feed), Tile(256, 128));
  for (const OperandFeed feed : kFeeds)
    EXPECT_EQ(chosen(forward(1024, 4, 512, 512, 3, 1), feed), Tile(256, 128));
  EXPECT_EQ(chosen(forward(1024, 32, 64, 128, 3, 2)), Tile(256, 128));
  EXPECT_EQ(chosen(forward(1024, 32, 64, 128, 1, 2)), Tile(256, 128));
  EXPECT_EQ(chosen(forward(128, 16, 128, 128, 3, 1)), Tile(256, 128));
  EXPECT_EQ(chosen(forward(128, 8, 256, 256, 3, 1)), Tile(128, 128));
  EXPECT_EQ(chosen(forward(128, 4, 512, 512, 3, 1)), Tile(128, 64));
  EXPECT_EQ(chosen(forward(128, 32, 16, 16, 3, 1)), Tile(256, 32));
  EXPECT_EQ(chosen(forward(128, 16, 32, 32, 3, 1)), Tile(128, 32));
  EXPECT_EQ(chosen(forward(128, 8, 64, 64, 3, 1)), Tile(128, 32));
  EXPECT_EQ(chosen(cuda::gradient_parts(square(1024, 32, 64, 128, 3, 2, 1))[3].shape), Tile(128, 64));
  EXPECT_EQ(chosen(cuda::gradient_parts(square(1024, 16, 128, 256, 3, 2, 1))[3].shape), Tile(256, 128));
  // Tiles with a row of so many pixels have no room.
  EXPECT_EQ(chosen(forward(1, 4096, 64, 64, 3, 1)), Tile(0, 0));
}

// Parts of a gradient whose extents are even are done at once, but for fp16, and all parts are in
// some launch.
TEST(ConvTiling, PartsOfOneExtentMerge) {
  for (const uint32_t size : {8u, 16u, 32u, 9u}) {
    for (const uint32_t kernel : {1u, 3u}) {
      for (const uint32_t c : {16u, 64u, 512u}) {
        for (const OperandFeed feed : kFeeds) {
          const auto parts = cuda::gradient_parts(square(128, size, c, 2 * c, kernel, 2, kernel / 2));
          const auto tilings = cuda::choose_tilings(parts, feed, kProcessors);
          ASSERT_EQ(tilings.size(), parts.size());
          std::vector<cuda::IgemmCall> calls;
          uint32_t merged = 0;
          for (size_t i = 0; i < parts.size(); ++i) {
            cuda::IgemmCall call;
            call.shape = parts[i].shape;
            call.tiling = tilings[i];
            cuda::complete(call, feed, QuickCodec{});
            expect_covered(parts[i].shape, tilings[i], "part " + std::to_string(i));
            if (calls.empty() || !cuda::merge_calls(calls.back(), call, feed)) calls.push_back(call);
          }
          for (const cuda::IgemmCall& call : calls) {
            merged += call.parts;
            for (uint32_t i = 0; i < call.parts; ++i) {
              EXPECT_EQ(call.part[i].stationary && call.tiling.column_tiles > 1, false);
              EXPECT_LE(16 * (call.part[i].stages + 2 * call.tiling.input_stages), 1024u);
            }
          }
          EXPECT_EQ(merged, 4u);
          EXPECT_EQ(calls.size(), size % 2 == 0 && !cuda::feeds_fp16(feed) ? 1u : 4u)
              << size << " " << kernel << " " << c;
        }
      }
    }
  }
}

TEST(ConvTiling, StationaryWeightsHaveABarrierEach) {
  for (const uint32_t kernel : {1u, 3u, 5u}) {
    for (const uint32_t c : {16u, 32u, 64u, 96u, 512u}) {
      for (const uint32_t k : {16u, 32u, 64u}) {
        for (const OperandFeed feed : kFeeds) {
          const IgemmShape shape = cuda::forward_part(square(8, 8, c, k, kernel, 1, kernel / 2)).shape;
          const auto tiling = cuda::choose_tiling(shape, feed, kProcessors);
          ASSERT_TRUE(tiling);
          EXPECT_LE(16 * (tiling->stages + 2 * tiling->input_stages), 1024u);
          EXPECT_LE(tiling->shared, 227u * 1024);
          EXPECT_EQ(tiling->stationary && tiling->stages != tiling->chunks * kernel * kernel, false);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulp
