// How a batch is cut into slices that are decoded one after another, so that their workspace is
// bounded. Pure arithmetic: what a slice needs besides, and whether a library can run it, is the
// caller's to find out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulp {

struct BatchSlices {
  int64_t items = 1;      // images, rows or matrices of the batch
  int64_t quantum = 1;    // slices have multiples of it, except for the last
  size_t item_bytes = 0;  // workspace that grows with a slice, for each of its items

  // Adds a tensor that is decoded to, or encoded from, fp32 slice by slice. A slice of its packed
  // codes may begin at every `granule` elements (Reader::granule).
  void add_decoded(size_t granule, size_t item_elements);

  // Items of a slice if there are this many: as equal as the quantum allows, the last may be smaller.
  int64_t slice(int64_t slices) const;
  // The same, but without a smaller last slice if fewer than twice as many slices make that possible.
  int64_t even_slice(int64_t slices) const;
  // All bytes divided by `room`, rounded up: with fewer slices none would fit. A slice has whole
  // items and quanta, so one of that many may still take more. A room of 0 counts as 1.
  int64_t slices_within(size_t room) const;
  // The fewest slices of at most `most` items each, or of a quantum where that is more.
  int64_t slices_of_at_most(int64_t most) const;
  // The next number of slices whose even_slice is smaller; `items` if there is none.
  int64_t more_slices(int64_t slices) const;
  // The largest slice of whole quanta that takes at most `room` bytes; at least a quantum, at most all.
  int64_t slice_within(size_t room) const;

  // The smallest slice.
  int64_t least() const { return quantum < items ? quantum : items; }
  int64_t whole_quanta(int64_t n) const { return (n + quantum - 1) / quantum * quantum; }
};

}  // namespace ulp
