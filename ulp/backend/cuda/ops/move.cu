#include "ulp/backend/cuda/ops/move.h"

#include "ulp/backend/cuda/access/index.h"

namespace ulp::cuda {
namespace {

// Bytes that a thread writes at once.
constexpr uint32_t kChunk = 16;

// A position in the source that advances element by element of the result.
class Walker {
 public:
  __device__ Walker(const Walk& walk, uint64_t at) : walk_(walk) {
#pragma unroll
    for (int axis = 3; axis > 0; --axis) {
      const Divided d = divide(at, walk.extent[axis]);
      index_[axis] = d.rest;
      from_ += d.rest * walk.stride[axis];
      at = d.quotient;
    }
    from_ += at * walk.stride[0];
  }
  __device__ uint64_t from() const { return from_; }
  __device__ void next() {
    from_ += walk_.stride[3];
#pragma unroll
    for (int axis = 3; axis > 0; --axis) {
      if (++index_[axis] < walk_.extent[axis]) return;
      index_[axis] = 0;
      from_ += walk_.stride[axis - 1] - walk_.extent[axis] * walk_.stride[axis];
    }
  }

 private:
  const Walk& walk_;
  uint64_t from_ = 0;
  uint32_t index_[4] = {};
};

// A position in a row of parts, continuing into the next rows.
template <typename T>
class JoinWalker {
 public:
  __device__ JoinWalker(const RowParts<const T*>& parts, uint64_t at) : parts_(parts) {
    const Divided d = divide(at, parts.begin[parts.count]);
    row_ = d.quotient;
    while (d.rest >= parts.begin[k_ + 1]) ++k_;
    enter(d.rest - parts.begin[k_]);
  }
  __device__ T take() {
    if (left_ == 0) {
      if (++k_ == parts_.count) {
        k_ = 0;
        ++row_;
      }
      enter(0);
    }
    --left_;
    return *from_++;
  }

 private:
  __device__ void enter(uint32_t offset) {
    const uint32_t width = parts_.begin[k_ + 1] - parts_.begin[k_];
    from_ = parts_.part[k_] + row_ * width + offset;
    left_ = width - offset;
  }
  const RowParts<const T*>& parts_;
  const T* from_;
  uint64_t row_;
  uint32_t k_ = 0, left_;
};

// Writes a chunk of units, which take() returns one after the other; fewer at the end of the
// tensor.
template <typename T, typename Take>
__device__ inline void write_chunk(T* out, uint64_t units, uint64_t chunk, Take take) {
  constexpr uint32_t kUnits = kChunk / sizeof(T);
  const uint64_t first = chunk * kUnits;
  if (first + kUnits <= units) {
    T unit[kUnits];
#pragma unroll
    for (uint32_t i = 0; i < kUnits; ++i) unit[i] = take();
    uint4 raw;
    __builtin_memcpy(&raw, unit, sizeof raw);
    *reinterpret_cast<uint4*>(out + first) = raw;
  } else {
    for (uint64_t i = first; i < units; ++i) out[i] = take();
  }
}

__device__ inline uint64_t thread_number() { return blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; }
__device__ inline uint64_t thread_count() { return uint64_t{gridDim.x} * blockDim.x; }

template <typename T>
__device__ inline uint64_t chunks_of(uint64_t units) {
  return (units * sizeof(T) + kChunk - 1) / kChunk;
}

__device__ inline void copy_side(const uint32_t* in, uint32_t* out, uint32_t side) {
  for (uint64_t i = thread_number(); i < side; i += thread_count()) out[i] = in[i];
}

template <typename T>
__global__ void walk_units(Walk walk, uint64_t units, const T* in, T* out, const uint32_t* side_in,
                           uint32_t* side_out, uint32_t side) {
  for (uint64_t chunk = thread_number(); chunk < chunks_of<T>(units); chunk += thread_count()) {
    Walker walker(walk, chunk * (kChunk / sizeof(T)));
    write_chunk(out, units, chunk, [&] {
      const T unit = in[walker.from()];
      walker.next();
      return unit;
    });
  }
  copy_side(side_in, side_out, side);
}

// One code of any width; only its own bytes are read.
__device__ inline uint32_t load_code(const uint8_t* codes, uint32_t bits, uint64_t i) {
  const uint64_t first = i * bits, last = (first + bits - 1) / 8;
  uint64_t window = 0;
  uint32_t shift = 0;
  for (uint64_t byte = first / 8; byte <= last; ++byte, shift += 8) window |= uint64_t{codes[byte]} << shift;
  return static_cast<uint32_t>(window >> (first % 8)) & ((1u << bits) - 1);
}

// Codes that are not whole bytes, fewer than 32 bits each.
__global__ void walk_codes(Walk walk, uint64_t elements, uint32_t bits, const uint8_t* in, uint8_t* out,
                           const uint32_t* side_in, uint32_t* side_out, uint32_t side) {
  for (uint64_t g = thread_number(); g < groups_of(elements); g += thread_count()) {
    Walker walker(walk, g * kGroup);
    const uint64_t left = elements - g * kGroup;
    const uint32_t count = left < kGroup ? static_cast<uint32_t>(left) : kGroup;
    uint32_t code[8] = {};
    for (uint32_t i = 0; i < count; ++i) {
      set_at(code, i, load_code(in, bits, walker.from()));
      walker.next();
    }
    store_codes(out, bits, g, count, code);
  }
  copy_side(side_in, side_out, side);
}

__global__ void walk_values(Walk walk, StoredView in, WriteView out, const StepState* state) {
  RangeCount seen;
  for (uint64_t g = thread_number(); g < groups_of(out.stored.elements); g += thread_count()) {
    Walker walker(walk, g * kGroup);
    float x[8] = {};
    for (uint32_t i = 0; i < count_in(out.stored, g); ++i) {
      set_at(x, i, load_one(in, walker.from()));
      walker.next();
    }
    store(out, *state, g, x, seen);
  }
  report(seen, out.stats);
}

template <typename T>
__global__ void join_units(RowParts<const T*> parts, uint64_t units, T* out) {
  for (uint64_t chunk = thread_number(); chunk < chunks_of<T>(units); chunk += thread_count()) {
    JoinWalker<T> walker(parts, chunk * (kChunk / sizeof(T)));
    write_chunk(out, units, chunk, [&] { return walker.take(); });
  }
}

// Which part a block works on, and its index among that part's blocks. Parts get blocks in
// proportion to their work.
struct Shares {
  uint32_t first_block[kMostParts + 1];  // last entry: number of all blocks
};
struct Share {
  uint32_t part;
  uint64_t thread, threads;
};
__device__ inline Share share_of(const Shares& shares) {
  uint32_t part = 0, first = 0, next = shares.first_block[1];
#pragma unroll
  for (uint32_t k = 1; k < kMostParts; ++k) {
    if (blockIdx.x < shares.first_block[k]) continue;
    part = k;
    first = shares.first_block[k];
    next = shares.first_block[k + 1];
  }
  return {part, (blockIdx.x - first) * uint64_t{blockDim.x} + threadIdx.x,
          uint64_t{next - first} * blockDim.x};
}

template <typename T>
__global__ void divide_units(const T* in, uint32_t width, uint64_t rows, RowParts<T*> parts, Shares shares) {
  const Share share = share_of(shares);
  const uint32_t begin = parts.begin[share.part], own = parts.begin[share.part + 1] - begin;
  const uint64_t units = rows * own;
  for (uint64_t chunk = share.thread; chunk < chunks_of<T>(units); chunk += share.threads) {
    const Divided d = divide(chunk * (kChunk / sizeof(T)), own);
    const T* from = in + d.quotient * width + begin + d.rest;
    uint32_t left = own - d.rest;
    write_chunk(parts.part[share.part], units, chunk, [&] {
      if (left == 0) {
        from += width - own;
        left = own;
      }
      --left;
      return *from++;
    });
  }
}

__global__ void paste(const float* in, uint32_t own, uint64_t rows, float* out, uint32_t begin,
                      uint32_t width) {
  for (uint64_t i = thread_number(); i < rows * own; i += thread_count()) {
    const Divided d = divide(i, own);
    out[d.quotient * width + begin + d.rest] = in[i];
  }
}

// `whole`: groups of the result lie within one part.
template <bool whole>
__global__ void join_groups(RowParts<StoredView> parts, WriteView out, const StepState* state) {
  RangeCount seen;
  const uint32_t width = parts.begin[parts.count];
  for (uint64_t g = thread_number(); g < groups_of(out.stored.elements); g += thread_count()) {
    const Divided d = divide(g * kGroup, width);
    uint64_t row = d.quotient;
    uint32_t channel = d.rest, k = 0;
    while (channel >= parts.begin[k + 1]) ++k;
    float x[8] = {};
    if constexpr (whole) {
      const uint32_t own = parts.begin[k + 1] - parts.begin[k];
      load_stored(parts.part[k], (row * own + channel - parts.begin[k]) / kGroup, x);
    } else {
      for (uint32_t i = 0; i < count_in(out.stored, g); ++i) {
        const uint32_t own = parts.begin[k + 1] - parts.begin[k];
        set_at(x, i, load_one(parts.part[k], row * own + channel - parts.begin[k]));
        if (++channel < parts.begin[k + 1]) continue;
        if (++k < parts.count) continue;
        k = channel = 0;
        ++row;
      }
    }
    store(out, *state, g, x, seen);
  }
  report(seen, out.stats);
}

template <bool whole>
__global__ void divide_groups(StoredView in, uint32_t width, RowParts<WriteView> parts, Shares shares,
                              const StepState* state) {
  RangeCount seen;
  const Share share = share_of(shares);
  const WriteView& out = parts.part[share.part];
  const uint32_t begin = parts.begin[share.part], own = parts.begin[share.part + 1] - begin;
  for (uint64_t g = share.thread; g < groups_of(out.stored.elements); g += share.threads) {
    const Divided d = divide(g * kGroup, own);
    uint64_t from = d.quotient * width + begin + d.rest;
    float x[8] = {};
    if constexpr (whole) {
      load_stored(in, from / kGroup, x);
    } else {
      uint32_t left = own - d.rest;
      for (uint32_t i = 0; i < count_in(out.stored, g); ++i) {
        set_at(x, i, load_one(in, from++));
        if (--left > 0) continue;
        from += width - own;
        left = own;
      }
    }
    store(out, *state, g, x, seen);
  }
  report(seen, out.stats);
}

// Blocks for each part by its work, one thread per item.
template <typename Work>
Shares share_out(uint32_t count, Work work) {
  Shares shares{};
  for (uint32_t k = 0; k < count; ++k)
    shares.first_block[k + 1] =
        shares.first_block[k] + blocks_for(work(k), kThreads, kProcessors * 8 / count + 1);
  for (size_t k = count; k < kMostParts; ++k) shares.first_block[k + 1] = shares.first_block[count];
  return shares;
}

// Calls with the largest unit of 1 to 16 bytes that divides all widths.
template <typename Call>
void with_unit(uint32_t widths, const Call& call) {
  if (widths % 16 == 0) return call(uint4{});
  if (widths % 8 == 0) return call(uint64_t{});
  if (widths % 4 == 0) return call(uint32_t{});
  if (widths % 2 == 0) return call(uint16_t{});
  return call(uint8_t{});
}

// The same parts in units. The bitwise OR of the widths: a power of two divides it iff it divides
// all of them.
template <typename To, typename Part>
RowParts<To> in_units(const RowParts<Part>& parts, size_t size) {
  RowParts<To> made{};
  made.count = parts.count;
  for (uint32_t k = 0; k < parts.count; ++k) made.part[k] = reinterpret_cast<To>(parts.part[k]);
  for (uint32_t k = 0; k <= parts.count; ++k) made.begin[k] = parts.begin[k] / static_cast<uint32_t>(size);
  return made;
}

template <typename Part>
uint32_t all_begins(const RowParts<Part>& parts) {
  uint32_t bits = 0;
  for (uint32_t k = 0; k <= parts.count; ++k) bits |= parts.begin[k];
  return bits;
}

template <typename Part>
bool in_whole_groups(const RowParts<Part>& parts) {
  return all_begins(parts) % kGroup == 0;
}

uint32_t chunk_blocks(uint64_t bytes) { return blocks_for((bytes + kChunk - 1) / kChunk); }

}  // namespace

void move_codes(const Walk& walk, uint64_t elements, uint32_t bits, const uint8_t* in, uint8_t* out,
                const uint32_t* side_in, uint32_t* side_out, uint32_t side, Stream stream) {
  if (bits % 8 != 0 || bits == 24) {
    launch(walk_codes, {blocks_for(groups_of(elements)), kThreads}, stream, walk, elements, bits, in, out,
           side_in, side_out, side);
    return;
  }
  // If rows stay whole they are moved in larger units: the other strides are multiples of the row.
  const uint32_t bytes = bits / 8, row = walk.extent[3] * bytes;
  with_unit(walk.stride[3] == 1 ? row : bytes, [&](auto unit) {
    using T = decltype(unit);
    const uint32_t many = static_cast<uint32_t>(sizeof(T)) / bytes;
    Walk units = walk;
    units.extent[3] /= many;
    for (int axis = 0; axis < 3; ++axis) units.stride[axis] /= many;
    launch(walk_units<T>, {chunk_blocks(elements * bytes), kThreads}, stream, units, elements / many,
           reinterpret_cast<const T*>(in), reinterpret_cast<T*>(out), side_in, side_out, side);
  });
}

void move_values(const Walk& walk, const StoredView& in, const WriteView& out, const StepState* state,
                 Stream stream) {
  launch(walk_values, {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, walk, in, out, state);
}

void join_bytes(const RowParts<const uint8_t*>& parts, uint64_t rows, uint8_t* out, Stream stream) {
  const uint64_t bytes = rows * parts.begin[parts.count];
  with_unit(all_begins(parts), [&](auto unit) {
    using T = decltype(unit);
    launch(join_units<T>, {chunk_blocks(bytes), kThreads}, stream, in_units<const T*>(parts, sizeof(T)),
           bytes / sizeof(T), reinterpret_cast<T*>(out));
  });
}

void divide_bytes(const uint8_t* in, uint32_t width, uint64_t rows, const RowParts<uint8_t*>& parts,
                  Stream stream) {
  const Shares shares = share_out(parts.count, [&](uint32_t k) {
    return (rows * (parts.begin[k + 1] - parts.begin[k]) + kChunk - 1) / kChunk;
  });
  with_unit(all_begins(parts) | width, [&](auto unit) {
    using T = decltype(unit);
    launch(divide_units<T>, {shares.first_block[parts.count], kThreads}, stream,
           reinterpret_cast<const T*>(in), width / static_cast<uint32_t>(sizeof(T)), rows,
           in_units<T*>(parts, sizeof(T)), shares);
  });
}

void paste_columns(const float* in, uint32_t own, uint64_t rows, float* out, uint32_t begin, uint32_t width,
                   Stream stream) {
  launch(paste, {blocks_for(rows * own), kThreads}, stream, in, own, rows, out, begin, width);
}

void join_values(const RowParts<StoredView>& parts, const WriteView& out, const StepState* state,
                 Stream stream) {
  launch(in_whole_groups(parts) ? join_groups<true> : join_groups<false>,
         {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, parts, out, state);
}

void divide_values(const StoredView& in, uint32_t width, const RowParts<WriteView>& parts,
                   const StepState* state, Stream stream) {
  const Shares shares =
      share_out(parts.count, [&](uint32_t k) { return groups_of(parts.part[k].stored.elements); });
  launch(in_whole_groups(parts) && width % kGroup == 0 ? divide_groups<true> : divide_groups<false>,
         {shares.first_block[parts.count], kThreads}, stream, in, width, parts, shares, state);
}

}  // namespace ulp::cuda
