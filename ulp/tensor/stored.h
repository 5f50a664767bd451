// Where the parts of a tensor lie in its bytes: its codes, and after them, aligned, what is stored beside codes.
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

}  // namespace ulp
