// A source of its own: where the compiler sees these beside their callers, it takes them for a
// mismatch.
#include "tests/support/temp.h"

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<size_t> count = 0;

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}

void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace ulp {

size_t allocations() { return count; }

}  // namespace ulp
