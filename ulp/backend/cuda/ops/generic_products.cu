#include "ulp/backend/cuda/ops/generic_products.h"

#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {
namespace {

class WideSum {
 public:
  __device__ explicit WideSum(const QuickCodec&) {}
  __device__ void add(float a, float b) { sum_ += static_cast<double>(a) * static_cast<double>(b); }
  __device__ void add(float term) { sum_ += static_cast<double>(term); }
  __device__ double partial() const { return sum_; }
  __device__ float result() const { return settle_nan(static_cast<float>(sum_)); }

 private:
  double sum_ = 0;
};

// Products and additions are fp32, and each sum is rounded to nearest even before the next term. A
// NaN is settled first, because a format without NaN keeps its sign.
class NarrowSum {
 public:
  __device__ explicit NarrowSum(const QuickCodec& codec) : codec_(codec) {}
  __device__ void add(float a, float b) { add(a * b); }
  __device__ void add(float term) {
    const uint32_t wide = float_bits(settle_nan(sum_ + term));
    sum_ = bits_float(decode_quick(codec_, encode_even(codec_, wide).code));
  }
  __device__ double partial() const { return static_cast<double>(sum_); }
  __device__ float result() const { return settle_nan(sum_); }

 private:
  const QuickCodec& codec_;
  float sum_ = 0;
};

// The thread's first work item, and the distance to the next.
__device__ inline int64_t first_item() { return blockIdx.x * int64_t{blockDim.x} + threadIdx.x; }
__device__ inline int64_t item_step() { return int64_t{gridDim.x} * blockDim.x; }

template <typename Sum>
__device__ void finish(const Sum& sum, const Parts& parts, int64_t item, int64_t element, float* out) {
  if (parts.count > 1) {
    parts.partials[item] = sum.partial();
  } else {
    out[element] = sum.result();
  }
}

template <typename Sum>
__global__ void multiply(GenericProduct d, QuickCodec codec, Parts parts, const float* a, const float* b,
                         const float* bias, float* out) {
  const int64_t sums = d.batch * d.m * d.n, piece = (d.k + parts.count - 1) / parts.count;
  for (int64_t item = first_item(); item < sums * parts.count; item += item_step()) {
    const int64_t part = item / sums, element = item % sums;
    const int64_t column = element % d.n, row = element / d.n % d.m, matrix = element / d.n / d.m;
    const float* left = a + matrix * d.a_matrix + row * d.a_row;
    const float* right = b + matrix * d.b_matrix + column * d.b_column;
    const int64_t end = (part + 1) * piece < d.k ? (part + 1) * piece : d.k;
    Sum sum(codec);
    for (int64_t l = part * piece; l < end; ++l) sum.add(left[l * d.a_column], right[l * d.b_row]);
    if (bias != nullptr && part == 0) sum.add(bias[column]);
    finish(sum, parts, item, element, out);
  }
}

template <typename Sum>
__global__ void conv_forward(GroupedConv<int64_t> d, QuickCodec codec, const float* x, const float* weight,
                             const float* bias, float* out) {
  for (int64_t at = first_item(); at < d.n * d.out_h * d.out_w * d.out_c; at += item_step()) {
    const int64_t o = at % d.out_c, ox = at / d.out_c % d.out_w, oy = at / d.out_c / d.out_w % d.out_h;
    const int64_t image = at / d.out_c / d.out_w / d.out_h, first_channel = d.first_channel(o);
    Sum sum(codec);
    for (int64_t ky = 0; ky < d.kernel_h; ++ky) {
      const int64_t iy = oy * d.stride_h - d.padding_h + ky;
      if (iy < 0 || iy >= d.h) continue;
      for (int64_t kx = 0; kx < d.kernel_w; ++kx) {
        const int64_t ix = ox * d.stride_w - d.padding_w + kx;
        if (ix < 0 || ix >= d.w) continue;
        const float* pixel = x + ((image * d.h + iy) * d.w + ix) * d.c + first_channel;
        const float* tap = weight + ((o * d.kernel_h + ky) * d.kernel_w + kx) * d.group_c;
        for (int64_t i = 0; i < d.group_c; ++i) sum.add(pixel[i], tap[i]);
      }
    }
    if (bias != nullptr) sum.add(bias[o]);
    out[at] = sum.result();
  }
}

// A pixel receives from every output whose kernel covered it.
template <typename Sum>
__global__ void conv_grad_input(GroupedConv<int64_t> d, QuickCodec codec, const float* dout,
                                const float* weight, float* dx) {
  for (int64_t at = first_item(); at < d.n * d.h * d.w * d.c; at += item_step()) {
    const int64_t channel = at % d.c, ix = at / d.c % d.w, iy = at / d.c / d.w % d.h;
    const int64_t image = at / d.c / d.w / d.h;
    const int64_t i = channel % d.group_c, first_out = channel / d.group_c * d.group_out;
    Sum sum(codec);
    for (int64_t ky = 0; ky < d.kernel_h; ++ky) {
      const int64_t y = iy + d.padding_h - ky;
      if (y < 0 || y % d.stride_h != 0 || y / d.stride_h >= d.out_h) continue;
      for (int64_t kx = 0; kx < d.kernel_w; ++kx) {
        const int64_t x = ix + d.padding_w - kx;
        if (x < 0 || x % d.stride_w != 0 || x / d.stride_w >= d.out_w) continue;
        const float* pixel = dout + ((image * d.out_h + y / d.stride_h) * d.out_w + x / d.stride_w) * d.out_c;
        for (int64_t o = first_out; o < first_out + d.group_out; ++o) {
          sum.add(pixel[o], weight[((o * d.kernel_h + ky) * d.kernel_w + kx) * d.group_c + i]);
        }
      }
    }
    dx[at] = sum.result();
  }
}

// Parts are ranges of the batch's rows.
template <typename Sum>
__global__ void conv_grad_weight(GroupedConv<int64_t> d, QuickCodec codec, Parts parts, const float* x,
                                 const float* dout, float* dweight) {
  const int64_t sums = d.out_c * d.kernel_h * d.kernel_w * d.group_c, rows = d.n * d.out_h;
  const int64_t piece = (rows + parts.count - 1) / parts.count;
  for (int64_t item = first_item(); item < sums * parts.count; item += item_step()) {
    const int64_t part = item / sums, element = item % sums;
    const int64_t i = element % d.group_c, kx = element / d.group_c % d.kernel_w,
                  ky = element / d.group_c / d.kernel_w % d.kernel_h;
    const int64_t o = element / d.group_c / d.kernel_w / d.kernel_h, channel = d.first_channel(o) + i;
    const int64_t end = (part + 1) * piece < rows ? (part + 1) * piece : rows;
    Sum sum(codec);
    for (int64_t row = part * piece; row < end; ++row) {
      const int64_t iy = row % d.out_h * d.stride_h - d.padding_h + ky;
      if (iy < 0 || iy >= d.h) continue;
      const float* pixels = x + (row / d.out_h * d.h + iy) * d.w * d.c + channel;
      for (int64_t ox = 0; ox < d.out_w; ++ox) {
        const int64_t ix = ox * d.stride_w - d.padding_w + kx;
        if (ix < 0 || ix >= d.w) continue;
        sum.add(pixels[ix * d.c], dout[(row * d.out_w + ox) * d.out_c + o]);
      }
    }
    finish(sum, parts, item, element, dweight);
  }
}

__device__ inline int64_t pair_at(int64_t i, int64_t j) {
  return i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i;
}

// A thread for each place of a square, of which those below the diagonal count.
template <typename Sum>
__global__ void interact(GenericInteraction d, QuickCodec codec, const float* x, float* out) {
  const int64_t n = d.vectors, pairs = n * (n - 1) / 2;
  for (int64_t at = first_item(); at < d.examples * n * n; at += item_step()) {
    const int64_t j = at % n, i = at / n % n, example = at / n / n;
    if (j >= i) continue;
    const float *left = x + (example * n + i) * d.width, *right = x + (example * n + j) * d.width;
    Sum sum(codec);
    for (int64_t k = 0; k < d.width; ++k) sum.add(left[k], right[k]);
    out[example * pairs + pair_at(i, j)] = sum.result();
  }
}

template <typename Sum>
__global__ void interact_grad(GenericInteraction d, QuickCodec codec, const float* dout, const float* x,
                              float* dx) {
  const int64_t n = d.vectors, pairs = n * (n - 1) / 2;
  for (int64_t at = first_item(); at < d.examples * n * d.width; at += item_step()) {
    const int64_t k = at % d.width, i = at / d.width % n, example = at / d.width / n;
    Sum sum(codec);
    for (int64_t j = 0; j < n; ++j) {
      if (j != i) sum.add(dout[example * pairs + pair_at(i, j)], x[(example * n + j) * d.width + k]);
    }
    dx[at] = sum.result();
  }
}

__global__ void reduce_parts(Parts parts, int64_t sums, float* out) {
  for (int64_t at = first_item(); at < sums; at += item_step()) {
    double sum = 0;
    for (uint32_t part = 0; part < parts.count; ++part) sum += parts.partials[part * sums + at];
    out[at] = settle_nan(static_cast<float>(sum));
  }
}

__global__ void gather_rows(GenericTable d, const float* rows, const int32_t* indices, float* out) {
  for (int64_t at = first_item(); at < d.places * d.width; at += item_step()) {
    const int64_t row = indices[at / d.width];
    out[at] = row >= 0 && row < d.rows ? rows[row * d.width + at % d.width] : bits_float(0x7FC00000u);
  }
}

__global__ void clear_rows(int64_t elements, float* out) {
  for (int64_t at = first_item(); at < elements; at += item_step()) out[at] = 0;
}

// Sorts places by index, and by place among equal indices. A key is an index with its place below
// it, so keys are unique. First step: sort runs as long as a block has threads.
__global__ void sort_tiles(GenericTable d, const int32_t* indices, uint64_t* keys) {
  __shared__ uint64_t tile[kThreads];
  for (int64_t begin = blockIdx.x * int64_t{kThreads}; begin < d.places;
       begin += gridDim.x * int64_t{kThreads}) {
    const int64_t at = begin + threadIdx.x;
    const uint64_t key = at < d.places
                             ? uint64_t{static_cast<uint32_t>(indices[at])} << 32 | static_cast<uint32_t>(at)
                             : UINT64_MAX;
    tile[threadIdx.x] = key;
    __syncthreads();
    uint32_t rank = 0;
    for (uint32_t i = 0; i < kThreads; ++i) rank += tile[i] < key ? 1 : 0;
    if (at < d.places) keys[begin + rank] = key;
    __syncthreads();
  }
}

// Second step: merge two runs. A key's position is its rank in its own run plus the number of
// smaller keys in the other.
__global__ void merge_runs(int64_t count, int64_t run, const uint64_t* from, uint64_t* to) {
  for (int64_t at = first_item(); at < count; at += item_step()) {
    const uint64_t key = from[at];
    const int64_t pair = at & -(2 * run), middle = pair + run < count ? pair + run : count;
    const bool left = at < middle;
    int64_t low = left ? middle : pair, high = !left                    ? middle
                                               : pair + 2 * run < count ? pair + 2 * run
                                                                        : count;
    const int64_t other = low, own = at - (left ? pair : middle);
    while (low < high) {
      const int64_t half = (low + high) / 2;
      if (from[half] < key) {
        low = half + 1;
      } else {
        high = half;
      }
    }
    to[pair + own + (low - other)] = key;
  }
}

// Whether the key at `at`, of those in order, is the first of a row of the table.
__device__ inline bool begins_row(const GenericTable& d, const uint64_t* keys, int64_t at) {
  const uint64_t row = keys[at] >> 32;
  return row < static_cast<uint64_t>(d.rows) && (at == 0 || keys[at - 1] >> 32 != row);
}

// The sum of a block's numbers, in all its threads.
__device__ inline int32_t block_sum(int32_t mine) {
  __shared__ int32_t sums[kThreads];
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const int32_t sum = sums[0];
  __syncthreads();
  return sum;
}

// Counts for each block, which takes a place for each thread, how many of them begin a row.
__global__ void count_rows(GenericTable d, const uint64_t* keys, int32_t* counts) {
  const int64_t at = first_item();
  const int32_t count = block_sum(at < d.places && begins_row(d, keys, at) ? 1 : 0);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// Numbers the rows in order: the slot of a row is that of its first key.
__global__ void number_rows(GenericTable d, NamedRows named, const uint64_t* keys, const int32_t* counts) {
  __shared__ int32_t sums[kThreads];
  int32_t before = 0;
  for (uint32_t block = threadIdx.x; block < blockIdx.x; block += kThreads) before += counts[block];
  before = block_sum(before);
  const int64_t at = first_item();
  const bool begins = at < d.places && begins_row(d, keys, at);
  sums[threadIdx.x] = begins ? 1 : 0;
  __syncthreads();
  for (uint32_t step = 1; step < kThreads; step *= 2) {
    const int32_t other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  if (!begins) return;
  const int32_t slot = before + sums[threadIdx.x] - 1;
  named.slots[at] = slot;
  named.numbers[slot] = static_cast<int32_t>(keys[at] >> 32);
}

__global__ void clear_named(GenericTable d, NamedRows named, float* out) {
  for (int64_t at = first_item(); at < named.rows * d.width; at += item_step()) {
    out[at] = 0;
    if (at < named.rows) named.numbers[at] = -1;
  }
}

// The first place of an index adds all places of that index, in order. Without slots a row goes
// where it is in the table.
__global__ void add_rows(GenericTable d, const int32_t* slots, const float* dout, const uint64_t* keys,
                         float* out) {
  for (int64_t at = first_item(); at < d.places * d.width; at += item_step()) {
    const int64_t begin = at / d.width, column = at % d.width;
    if (!begins_row(d, keys, begin)) continue;
    const auto row = static_cast<uint32_t>(keys[begin] >> 32);
    double sum = 0;
    for (int64_t i = begin; i < d.places && keys[i] >> 32 == row; ++i)
      sum += static_cast<double>(dout[static_cast<uint32_t>(keys[i]) * d.width + column]);
    const int64_t to = slots == nullptr ? row : slots[begin];
    out[to * d.width + column] = settle_nan(static_cast<float>(sum));
  }
}

constexpr uint32_t kManyBlocks = kProcessors * 16;

Grid grid_for(int64_t work) {
  return {blocks_for(static_cast<uint64_t>(work), kThreads, kManyBlocks), kThreads};
}

}  // namespace

void generic_product(const GenericProduct& product, const SumRule& rule, const Parts& parts, const float* a,
                     const float* b, const float* bias, float* out, Stream stream) {
  const int64_t sums = product.batch * product.m * product.n;
  launch(rule.narrow ? multiply<NarrowSum> : multiply<WideSum>, grid_for(sums * parts.count), stream, product,
         rule.accumulator, parts, a, b, bias, out);
  if (parts.count > 1) launch(reduce_parts, grid_for(sums), stream, parts, sums, out);
}

void generic_conv(const ConvExtents& conv, const SumRule& rule, const float* x, const float* weight,
                  const float* bias, float* out, Stream stream) {
  launch(rule.narrow ? conv_forward<NarrowSum> : conv_forward<WideSum>,
         grid_for(static_cast<int64_t>(conv.out_elements())), stream, GroupedConv(conv), rule.accumulator, x,
         weight, bias, out);
}

void generic_conv_grad_input(const ConvExtents& conv, const SumRule& rule, const float* dout,
                             const float* weight, float* dx, Stream stream) {
  launch(rule.narrow ? conv_grad_input<NarrowSum> : conv_grad_input<WideSum>,
         grid_for(static_cast<int64_t>(conv.x_elements())), stream, GroupedConv(conv), rule.accumulator, dout,
         weight, dx);
}

void generic_conv_grad_weight(const ConvExtents& conv, const SumRule& rule, const Parts& parts,
                              const float* x, const float* dout, float* dweight, Stream stream) {
  const auto sums = static_cast<int64_t>(conv.weight_elements());
  launch(rule.narrow ? conv_grad_weight<NarrowSum> : conv_grad_weight<WideSum>, grid_for(sums * parts.count),
         stream, GroupedConv(conv), rule.accumulator, parts, x, dout, dweight);
  if (parts.count > 1) launch(reduce_parts, grid_for(sums), stream, parts, sums, dweight);
}

void generic_dot_interaction(const GenericInteraction& shape, const SumRule& rule, const float* x, float* out,
                             Stream stream) {
  launch(rule.narrow ? interact<NarrowSum> : interact<WideSum>,
         grid_for(shape.examples * shape.vectors * shape.vectors), stream, shape, rule.accumulator, x, out);
}

void generic_dot_interaction_grad(const GenericInteraction& shape, const SumRule& rule, const float* dout,
                                  const float* x, float* dx, Stream stream) {
  launch(rule.narrow ? interact_grad<NarrowSum> : interact_grad<WideSum>,
         grid_for(shape.examples * shape.vectors * shape.width), stream, shape, rule.accumulator, dout, x,
         dx);
}

void generic_embedding(const GenericTable& table, const float* rows, const int32_t* indices, float* out,
                       Stream stream) {
  launch(gather_rows, grid_for(table.places * table.width), stream, table, rows, indices, out);
}

namespace {

// The keys of all places in order, in one half of `keys` or the other.
const uint64_t* sort_places(const GenericTable& table, const int32_t* indices, uint64_t* keys,
                            Stream stream) {
  launch(sort_tiles, grid_for(table.places), stream, table, indices, keys);
  const uint64_t* sorted = keys;
  for (int64_t run = kThreads; run < table.places; run *= 2) {
    uint64_t* const to = sorted == keys ? keys + table.places : keys;
    launch(merge_runs, grid_for(table.places), stream, table.places, run, sorted, to);
    sorted = to;
  }
  return sorted;
}

}  // namespace

void generic_embedding_grad(const GenericTable& table, const float* dout, const int32_t* indices,
                            uint64_t* keys, float* out, Stream stream) {
  launch(clear_rows, grid_for(table.rows * table.width), stream, table.rows * table.width, out);
  const uint64_t* sorted = sort_places(table, indices, keys, stream);
  launch(add_rows, grid_for(table.places * table.width), stream, table, static_cast<const int32_t*>(nullptr),
         dout, sorted, out);
}

void generic_embedding_grad(const GenericTable& table, const NamedRows& named, const float* dout,
                            const int32_t* indices, uint64_t* keys, float* out, Stream stream) {
  launch(clear_named, grid_for(named.rows * table.width), stream, table, named, out);
  const uint64_t* sorted = sort_places(table, indices, keys, stream);
  // The half of `keys` that sorting leaves free holds the counts of blocks.
  auto* const counts = reinterpret_cast<int32_t*>(sorted == keys ? keys + table.places : keys);
  const Grid tiles{blocks_for(static_cast<uint64_t>(table.places), kThreads, UINT32_MAX), kThreads};
  launch(count_rows, tiles, stream, table, sorted, counts);
  launch(number_rows, tiles, stream, table, named, sorted, counts);
  launch(add_rows, grid_for(table.places * table.width), stream, table, named.slots, dout, sorted, out);
}

}  // namespace ulp::cuda
