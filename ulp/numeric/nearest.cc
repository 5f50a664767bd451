#include "ulp/numeric/nearest.h"

#include "ulp/base/error.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/scalar.h"

namespace ulp {

Nearest make_nearest(const FloatFormat& format, Overflow overflow) {
  const CodecSpec spec = make_spec(format, overflow);
  // Subnormal numbers are rounded by adding 2^23 of their spacings, which must be an fp32 number
  // too.
  if (const int highest = 127 - 23 + spec.man; spec.emin < -126 || spec.emin > highest) {
    fail("numeric",
         "the smallest normal number of {} is 2^{}: operations can be rounded to it where that is from "
         "2^-126 to 2^{}",
         format_name(format), spec.emin, highest);
  }
  Nearest made{};
  made.normal = static_cast<uint32_t>(spec.emin + 127) << 23;
  made.even = EvenByPattern::dropping(static_cast<uint32_t>(23 - spec.man));
  made.lift = bits_float(static_cast<uint32_t>(spec.emin - spec.man + 23 + 127) << 23);
  made.finite = decode_scalar(spec, spec.max_code);
  made.over = decode_scalar(spec, spec.over_code);
  made.nan = decode_scalar(spec, encode_nan(spec, kNanBits));
  if (made.nan > 0x7F800000u) made.nan = kNanBits;
  return made;
}

}  // namespace ulp
