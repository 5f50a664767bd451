// Placement of buffers with live ranges in one arena.
#pragma once

#include <cstddef>
#include <span>

namespace ulp {

struct Buffer {
  size_t bytes = 0;
  int first = 0, last = 0;  // live range in steps, both ends included
  size_t offset = 0;        // set by lay_out
};

// Gives every buffer an offset such that no two that are live at the same step overlap; returns the
// arena's bytes. Tries several orders of placement and keeps the best.
size_t lay_out(std::span<Buffer> buffers);

// The most bytes live at one step: no layout needs less. `step`: when.
size_t most_alive(std::span<const Buffer> buffers, int* step = nullptr);

}  // namespace ulp
