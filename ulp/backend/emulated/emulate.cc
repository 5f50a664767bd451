#include "ulp/backend/emulated/emulate.h"

#include <ucontext.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {

void check_launch() {}

namespace emulated {

ulp_dim3 thread_index, block_index, block_dim, grid_dim;
unsigned char* dynamic_shared = nullptr;

namespace {

constexpr size_t kStack = size_t{128} << 10;

enum class Waits : uint8_t { not_at_all, for_warp, for_block, finished };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<unsigned char[]> stack;
  Waits waits = Waits::finished;
  uint64_t given = 0;
};

// One grid at a time: kernels are launched from one thread.
ucontext_t scheduler;
std::vector<Fiber> fibers;
size_t current = 0, living = 0;
const std::function<void()>* body = nullptr;

void fiber_main() {
  (*body)();
  fibers[current].waits = Waits::finished;
  swapcontext(&fibers[current].context, &scheduler);
}

void wait_for(Waits what) {
  fibers[current].waits = what;
  swapcontext(&fibers[current].context, &scheduler);
}

void begin(size_t index) {
  Fiber& fiber = fibers[index];
  if (!fiber.stack) fiber.stack = std::make_unique<unsigned char[]>(kStack);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  fiber.waits = Waits::not_at_all;
}

// Releases the fibers that wait for `what` if all running fibers in [first, last) do. True if one
// was released.
bool release(size_t first, size_t last, Waits what) {
  bool any = false;
  for (size_t i = first; i < last; ++i) {
    if (fibers[i].waits != what && fibers[i].waits != Waits::finished) return false;
    any = any || fibers[i].waits == what;
  }
  for (size_t i = first; any && i < last; ++i) {
    if (fibers[i].waits == what) fibers[i].waits = Waits::not_at_all;
  }
  return any;
}

void run_block(uint32_t threads) {
  for (size_t i = 0; i < threads; ++i) begin(i);
  for (living = threads; living > 0;) {
    bool moved = false;
    for (size_t i = 0; i < threads; ++i) {
      if (fibers[i].waits != Waits::not_at_all) continue;
      moved = true;
      current = i;
      thread_index.x = static_cast<unsigned>(i);
      swapcontext(&scheduler, &fibers[i].context);
      if (fibers[i].waits == Waits::finished) --living;
    }
    for (size_t first = 0; first < threads; first += 32) {
      moved = release(first, first + 32 < threads ? first + 32 : threads, Waits::for_warp) || moved;
    }
    moved = release(0, threads, Waits::for_block) || moved;
    if (!moved) throw std::logic_error("threads of a block wait at different barriers");
  }
}

}  // namespace

void run_grid(uint32_t blocks, uint32_t threads, size_t shared, const std::function<void()>& kernel) {
  if (threads == 0 || threads > 1024 || blocks == 0) throw std::logic_error("no grid that a GPU would take");
  if (fibers.size() < threads) fibers.resize(threads);
  // The memory is fresh, so that a read before a write shows.
  std::vector<uint64_t> memory((shared + 15) / 8);
  dynamic_shared = reinterpret_cast<unsigned char*>(memory.data());
  body = &kernel;
  grid_dim.x = blocks;
  block_dim.x = threads;
  for (uint32_t block = 0; block < blocks; ++block) {
    block_index.x = block;
    for (uint64_t& word : memory) word = 0x7FF4DEAD7FA4BEEFu;
    run_block(threads);
  }
}

void block_barrier() { wait_for(Waits::for_block); }
void warp_barrier() { wait_for(Waits::for_warp); }

uint64_t exchange(uint64_t value, unsigned lane) {
  const size_t self = current;
  fibers[self].given = value;
  warp_barrier();
  const uint64_t taken = fibers[self / 32 * 32 + lane].given;
  warp_barrier();
  return taken;
}

uint32_t reduce(uint32_t value, bool largest) {
  const size_t self = current, first = self / 32 * 32;
  fibers[self].given = value;
  warp_barrier();
  uint32_t made = 0;
  for (size_t i = first; i < first + 32 && i < block_dim.x; ++i) {
    const auto given = static_cast<uint32_t>(fibers[i].given);
    made = !largest ? made + given : given > made ? given : made;
  }
  warp_barrier();
  return made;
}

}  // namespace emulated
}  // namespace ulp::cuda
