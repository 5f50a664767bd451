#include "ulp/graph/format.h"

namespace ulp {

bool is_fp32(const Storage& storage) {
  static const FloatFormat fp32 = parse_format("fp32");
  const Plain* plain = std::get_if<Plain>(&storage);
  return plain != nullptr && plain->format == fp32;
}

}  // namespace ulp
