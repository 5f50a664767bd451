#include "ulp/numeric/codec.h"

#include "ulp/base/error.h"
#include "ulp/numeric/runs.h"

namespace ulp {

size_t packed_bytes(int bits, size_t n) {
  check_elements(0, n);
  return (n * static_cast<size_t>(bits) + 7) / 8;
}

EncodeStats encode(const FloatFormat& format, const Rounding& rounding, std::span<const float> in,
                   std::span<uint8_t> out, uint64_t first, ExponentHistogram* histogram) {
  const int bits = format.bits();
  const size_t bytes = packed_bytes(bits, in.size());
  if (out.size() < bytes) {
    fail("codec", "{} numbers in {} need {} bytes, the output has {}", in.size(), format_name(format), bytes,
         out.size());
  }
  check_elements(first, in.size());
  const CodecSpec spec = make_spec(format, rounding.overflow);
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    return encode_packed(spec, rounding, in.data() + begin, n, first + begin,
                         out.data() + packed_bytes(bits, begin));
  });
}

void decode(const FloatFormat& format, std::span<const uint8_t> in, std::span<float> out) {
  const int bits = format.bits();
  const size_t bytes = packed_bytes(bits, out.size());
  if (in.size() < bytes) {
    fail("codec", "{} numbers in {} take {} bytes, the input has {}", out.size(), format_name(format), bytes,
         in.size());
  }
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  const bool stream = out.size_bytes() >= kStreamBytes;
  auto body = [&](size_t begin, size_t n) {
    decode_packed(spec, in.data() + packed_bytes(bits, begin), n, out.data() + begin, stream);
  };
  if (conv_simt_bytes(bits)) {
    // Nothing in between to keep near the core: one kernel call per thread.
    parallel_for(out.size(), kGrainRuns * kernels::kRun,
                 [&](size_t begin, size_t end) { body(begin, end - begin); });
  } else {
    for_runs(out.size(), body);
  }
}

}  // namespace ulp
