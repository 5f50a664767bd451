#include "ulp/backend/slices.h"

#include <algorithm>
#include <numeric>

namespace ulp {

void BatchSlices::add_decoded(size_t granule, size_t item_elements) {
  quantum = std::lcm(quantum, static_cast<int64_t>(granule / std::gcd(granule, item_elements)));
  item_bytes += item_elements * sizeof(float);
}

int64_t BatchSlices::slice(int64_t slices) const {
  return std::min(items, whole_quanta((items + slices - 1) / slices));
}

int64_t BatchSlices::even_slice(int64_t slices) const {
  for (int64_t more = slices; more < 2 * slices && more <= items / quantum; ++more) {
    if (items % (more * quantum) == 0) return items / more;
  }
  return slice(slices);
}

int64_t BatchSlices::slices_within(size_t room) const {
  room = std::max<size_t>(room, 1);
  const size_t all = static_cast<size_t>(items) * item_bytes;
  return static_cast<int64_t>(std::max<size_t>((all + room - 1) / room, 1));
}

int64_t BatchSlices::slices_of_at_most(int64_t most) const {
  const int64_t whole = items <= most ? items : std::max(most / quantum * quantum, quantum);
  return (items + whole - 1) / whole;
}

int64_t BatchSlices::more_slices(int64_t slices) const {
  const int64_t before = even_slice(slices);
  while (slices < items && even_slice(slices) >= before) ++slices;
  return slices;
}

int64_t BatchSlices::slice_within(size_t room) const {
  if (item_bytes == 0) return items;
  const auto quanta = static_cast<int64_t>(room / item_bytes) / quantum;
  return std::min(items, std::max<int64_t>(quanta, 1) * quantum);
}

}  // namespace ulp
