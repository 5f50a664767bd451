// Where the parts of a tensor lie in its bytes: its codes, and after them, aligned, what is stored
// beside codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/numeric/storage.h"
#include "ulp/tensor/memory.h"

namespace ulp {

struct StoredParts {
  std::span<uint8_t> codes;
  std::span<uint32_t> side;
};

inline StoredParts stored_parts(const Storage& storage, uint8_t* data, size_t elements) {
  const StorageSize size = storage_size(storage, elements);
  return {{data, size.code_bytes},
          {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words}};
}

// What elements from `first` on have of both: `first` is a multiple of the elements that a word or
// a scale serves.
inline StoredParts stored_slice(const Storage& storage, uint8_t* data, size_t elements, size_t first) {
  const StoredParts parts = stored_parts(storage, data, elements);
  const StorageSize before = storage_size(storage, first);
  // S2FP8 has one pair of numbers for all elements.
  const size_t words = std::holds_alternative<S2fp8>(storage) ? 0 : before.side_words;
  return {parts.codes.subspan(before.code_bytes), parts.side.subspan(words)};
}

}  // namespace ulp
