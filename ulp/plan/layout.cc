#include "ulp/plan/layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ulp {
namespace {

// Places each buffer at the lowest offset that is free during its live range.
size_t place(std::span<Buffer> buffers, std::span<const size_t> order) {
  std::vector<size_t> placed;  // by offset
  size_t arena = 0;
  for (const size_t index : order) {
    Buffer& buffer = buffers[index];
    size_t offset = 0;
    for (const size_t other_index : placed) {
      const Buffer& other = buffers[other_index];
      if (other.last < buffer.first || buffer.last < other.first) continue;
      if (offset + buffer.bytes <= other.offset) break;
      offset = std::max(offset, other.offset + other.bytes);
    }
    buffer.offset = offset;
    arena = std::max(arena, offset + buffer.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return buffers[a].offset < buffers[b].offset; }),
                  index);
  }
  return arena;
}

}  // namespace

size_t lay_out(std::span<Buffer> buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return buffers[i].last - buffers[i].first; };
  const auto by_size = [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; };
  const auto by_area = [&](size_t a, size_t b) {
    return buffers[a].bytes * static_cast<size_t>(length(a) + 1) >
           buffers[b].bytes * static_cast<size_t>(length(b) + 1);
  };
  const auto by_length = [&](size_t a, size_t b) { return length(a) > length(b); };
  size_t best = 0;
  std::vector<size_t> offsets(buffers.size());
  const auto attempt = [&](const auto& before) {
    std::stable_sort(order.begin(), order.end(), before);
    const size_t arena = place(buffers, order);
    if (best != 0 && arena >= best) return;
    best = arena;
    for (size_t i = 0; i < buffers.size(); ++i) offsets[i] = buffers[i].offset;
  };
  attempt(by_size);
  attempt(by_area);
  attempt(by_length);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].offset = offsets[i];
  return best;
}

size_t most_alive(std::span<const Buffer> buffers, int* step) {
  int steps = 0;
  for (const Buffer& buffer : buffers) steps = std::max(steps, buffer.last + 1);
  std::vector<ptrdiff_t> change(static_cast<size_t>(steps) + 1);
  for (const Buffer& buffer : buffers) {
    change[static_cast<size_t>(buffer.first)] += static_cast<ptrdiff_t>(buffer.bytes);
    change[static_cast<size_t>(buffer.last) + 1] -= static_cast<ptrdiff_t>(buffer.bytes);
  }
  ptrdiff_t alive = 0, most = 0;
  for (size_t i = 0; i < change.size(); ++i) {
    alive += change[i];
    if (alive <= most) continue;
    most = alive;
    if (step != nullptr) *step = static_cast<int>(i);
  }
  return static_cast<size_t>(most);
}

}  // namespace ulp
