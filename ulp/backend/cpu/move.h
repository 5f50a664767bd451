// Copies rows of codes: the inner loops of concat, split and shuffle.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulp::move {

// `bytes` bytes of each row; rows begin `from_stride` and `to_stride` bytes apart.
void copy_rows(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, size_t bytes,
               size_t rows);

// Rows of `channels` codes of 1, 2 or 4 bytes: channel g (channels / groups) + i goes to i groups +
// g.
void shuffle_rows(const uint8_t* from, uint8_t* to, size_t code_bytes, size_t channels, size_t groups,
                  size_t rows);

}  // namespace ulp::move
