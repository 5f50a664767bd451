#include "ulp/numeric/scalar.h"

#include "ulp/base/error.h"

namespace ulp {

CodecSpec make_spec(const FloatFormat& format, Overflow overflow) {
  // A format put together by hand may be none; the bit logic relies on its limits.
  check_format(format);
  if (overflow == Overflow::infinity && !format.has_inf()) {
    fail("rounding",
         "{} has no infinity to overflow to; use saturate, or a format that has one (fp16, bf16, e5m2)",
         format_name(format));
  }
  CodecSpec spec{};
  spec.man = format.man;
  spec.emin = format.emin();
  spec.sign_shift = format.exp + format.man;
  spec.max_code = format.max_code();
  // In an ieee format the code after the largest number is infinity.
  spec.over_code = overflow == Overflow::infinity ? spec.max_code + 1 : spec.max_code;
  if (format.specials == Specials::ieee && format.has_nan()) {
    spec.nan_keep = (1u << format.man) - 1;
    spec.nan_code = spec.max_code + 1;
    spec.nan_quiet = 1u << (format.man - 1);
  } else {
    // fn has one NaN, the code after the largest number; a format without NaN stores the largest
    // number.
    spec.nan_code = format.has_nan() ? spec.max_code + 1 : spec.max_code;
  }
  if (format.specials == Specials::ieee) {
    spec.special_keep = 0x7FFFFFu;
    spec.special_code = 0x7F800000u;
  } else {
    spec.special_code = 0x7FC00000u;
  }
  return spec;
}

}  // namespace ulp
