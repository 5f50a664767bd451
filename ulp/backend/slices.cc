#include "ulp/backend/slices.h"

#include <algorithm>
#include <numeric>

namespace ulp {

void BatchSlices::add_decoded(size_t granule, size_t unit_elements) {
  quantum = std::lcm(quantum, static_cast<int64_t>(granule / std::gcd(granule, unit_elements)));
  unit_bytes += unit_elements * sizeof(float);
}

int64_t BatchSlices::step(int64_t slices) const {
  return std::min(units, whole_quanta((units + slices - 1) / slices));
}

int64_t BatchSlices::even_step(int64_t slices) const {
  for (int64_t more = slices; more < 2 * slices && more <= units / quantum; ++more) {
    if (units % (more * quantum) == 0) return units / more;
  }
  return step(slices);
}

int64_t BatchSlices::slices_within(size_t room) const {
  room = std::max<size_t>(room, 1);
  const size_t all = static_cast<size_t>(units) * unit_bytes;
  return static_cast<int64_t>(std::max<size_t>((all + room - 1) / room, 1));
}

int64_t BatchSlices::slices_of_at_most(int64_t most) const {
  const int64_t whole = units <= most ? units : std::max(most / quantum * quantum, quantum);
  return (units + whole - 1) / whole;
}

int64_t BatchSlices::more_slices(int64_t slices) const {
  const int64_t before = even_step(slices);
  while (slices < units && even_step(slices) >= before) ++slices;
  return slices;
}

int64_t BatchSlices::step_within(size_t room) const {
  if (unit_bytes == 0) return units;
  const auto quanta = static_cast<int64_t>(room / unit_bytes) / quantum;
  return std::min(units, std::max<int64_t>(quanta, 1) * quantum);
}

}  // namespace ulp
