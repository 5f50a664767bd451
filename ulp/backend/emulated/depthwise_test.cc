// The bf16 depthwise kernels against those for other storage, bit by bit, with values whose sums
// are exact in any order.
#include "ulp/backend/cuda/conv/depthwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ulp::cuda {
namespace {

const QuickCodec kBf16 =
    make_quick({7, -126, 15, 0x7F7Fu, 0x7F80u, 0x7Fu, 0x7F80u, 0x40u, 0x7FFFFFu, 0x7F800000u});

enum class Numbers { ordinary, vanishing, large, special_images, special_weights };

StoredView view_of(std::vector<uint16_t>& codes) {
  StoredView view;
  view.codes = reinterpret_cast<uint8_t*>(codes.data());
  view.elements = codes.size();
  view.fp32 = false;
  view.bits = 16;
  view.codec = kBf16;
  return view;
}
StoredView view_of(std::vector<float>& numbers) {
  StoredView view;
  view.codes = reinterpret_cast<uint8_t*>(numbers.data());
  view.elements = numbers.size();
  return view;
}

// Small whole numbers times 2^power, with a few infinities and NaN if requested.
std::vector<uint16_t> some(std::mt19937& random, size_t count, int power, bool special) {
  std::vector<uint16_t> codes(count);
  for (uint16_t& code : codes) {
    const float x = std::ldexp(static_cast<float>(random() % 17) - 8.0f, power);
    code = static_cast<uint16_t>(encode_even(kBf16, float_bits(x)).code);
    const uint32_t chance = special ? random() % 600 : 3;
    if (chance < 3) code = static_cast<uint16_t>(chance == 0 ? 0x7FC1u : chance == 1 ? 0xFF80u : 0x7F80u);
  }
  return codes;
}

// Runs `call` into bf16 and into fp32, from which the expected codes and events are computed here.
template <typename Call>
void expect_same(size_t elements, const Call& call) {
  std::vector<uint16_t> codes(elements, 0x1234);
  std::vector<float> numbers(elements);
  EncodeStats seen, expected;
  WriteView out;
  out.stored = view_of(codes);
  out.stats = &seen;
  call(out);
  WriteView plain;
  plain.stored = view_of(numbers);
  call(plain);
  size_t different = 0;
  for (size_t i = 0; i < elements; ++i) {
    const Encoded made = encode_even(kBf16, float_bits(numbers[i]));
    expected.overflow += made.event == RangeEvent::overflow ? 1 : 0;
    expected.underflow += made.event == RangeEvent::underflow ? 1 : 0;
    expected.nan += made.event == RangeEvent::nan ? 1 : 0;
    if (!std::isnan(numbers[i])) expected.amax = std::max(expected.amax, std::fabs(numbers[i]));
    // The sign of a zero may differ.
    if (made.code != codes[i] && (made.code | codes[i]) != 0x8000u) ++different;
  }
  EXPECT_EQ(different, 0u);
  EXPECT_EQ(seen.overflow, expected.overflow);
  EXPECT_EQ(seen.underflow, expected.underflow);
  EXPECT_EQ(seen.nan, expected.nan);
  EXPECT_EQ(seen.amax, expected.amax);
}

void check(uint32_t n, uint32_t h, uint32_t w, uint32_t c, uint32_t stride, Numbers numbers) {
  SCOPED_TRACE(testing::Message() << n << "x" << h << "x" << w << "x" << c << " stride " << stride
                                  << " numbers " << static_cast<int>(numbers));
  const ConvExtents32 conv = ConvExtents32{n, h, w, c, 0, 0, c, 3, 3, stride, stride, 1, 1, c}.with_output();
  const size_t pixels = conv.x_elements(), outputs = conv.out_elements();
  const int power = numbers == Numbers::vanishing ? -70 : numbers == Numbers::large ? 50 : 0;
  std::mt19937 random(n + h + w + c + stride);
  std::vector<uint16_t> x = some(random, pixels, power, numbers == Numbers::special_images);
  std::vector<uint16_t> dout = some(random, outputs, power, numbers == Numbers::special_images);
  std::vector<uint16_t> taps = some(random, size_t{9} * c, numbers == Numbers::large ? 60 : power,
                                    numbers == Numbers::special_weights);
  std::vector<float> bias_numbers(c, std::ldexp(3.0f, 2 * power + (numbers == Numbers::large ? 10 : 0)));
  const StepState state;
  ReadView weight, bias;
  weight.stored = view_of(taps);
  bias.stored = view_of(bias_numbers);
  for (const ReadView* added : {static_cast<const ReadView*>(nullptr), static_cast<const ReadView*>(&bias)}) {
    expect_same(outputs, [&](const WriteView& out) {
      depthwise_forward(conv, &state, view_of(x), weight, added, out, nullptr);
    });
  }
  expect_same(pixels, [&](const WriteView& dx) {
    depthwise_grad_input(conv, &state, view_of(dout), weight, dx, nullptr);
  });

  std::vector<float> decoded(pixels), made(size_t{9} * c), expected(size_t{9} * c);
  for (size_t i = 0; i < pixels; ++i) decoded[i] = bits_float(decode_quick(kBf16, x[i]));
  std::vector<double> partials(depthwise_partials(conv));
  depthwise_grad_weight(conv, view_of(x), view_of(dout), partials.data(), made.data(), nullptr);
  depthwise_grad_weight(conv, view_of(decoded), view_of(dout), partials.data(), expected.data(), nullptr);
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(float_bits(made[i]), float_bits(expected[i])) << i;
}

TEST(Depthwise, Bf16IsAsOtherStorage) {
  for (const Numbers numbers : {Numbers::ordinary, Numbers::vanishing, Numbers::large,
                                Numbers::special_images, Numbers::special_weights}) {
    for (const uint32_t stride : {1u, 2u}) {
      check(1, 1, 1, 8, stride, numbers);
      check(2, 8, 8, 32, stride, numbers);
      check(3, 4, 4, 16, stride, numbers);
      check(1, 7, 9, 12, stride, numbers);
      check(2, 17, 6, 8, stride, numbers);
      check(1, 33, 32, 4, stride, numbers);
      check(2, 2, 3, 240, stride, numbers);
      check(10, 20, 13, 36, stride, numbers);
    }
  }
}

}  // namespace
}  // namespace ulp::cuda
