// Batch norm with what follows it in forward: an activation, a sum.
#include "ulp/backend/cuda/channelwise_args.h"

namespace ulp::cuda {
namespace {

namespace el = ulp::elementwise;

// Channel values of a norm in shared memory: mean, scale and beta of all channels.
struct Norm {
  ChannelInput gamma, beta;
  const float *mean, *variance;
  float epsilon;

  bool take(const ReadView* view, const Stage& stage) {
    if (!gamma.take(view[0]) || !beta.take(view[1]) || !plain_channels(view[2]) || !plain_channels(view[3]))
      return false;
    mean = floats_of(view[2]);
    variance = floats_of(view[3]);
    epsilon = stage.epsilon;
    return true;
  }
};

// kNorms of the kLeaves inputs are normalised, the first ones; two are added.
template <int kLeaves, int kNorms>
struct ForwardArgs {
  Course course;
  uint32_t channels;
  const uint8_t* in[kLeaves];
  Reading reading[kLeaves];
  QuickCodec codec[kLeaves];
  Norm norm[kNorms];
  Target norm_target[kNorms];  // where the norm is not the last that is rounded: of the sum
  Target target;               // of what is rounded last
  EncodeStats* relu_stats;
  uint8_t* out;
};

// kFirst, kSecond: of the inputs; where there is one, it is both. kOut: of the result, and of the sum.
// A group in which something is special, element by element as the general kernels do.
template <Code kFirst, Code kSecond, Code kOut, int kLeaves, int kNorms, bool kRelu>
__attribute__((noinline)) static __device__ void forward_long(const ForwardArgs<kLeaves, kNorms>& a,
                                                              const float* tile, uint32_t group,
                                                              uint32_t channel) {
  RangeCount norm[2], sum, relu;
#pragma unroll 1
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint64_t element = uint64_t{group} * kGroup + i;
    float x[kLeaves];
#pragma unroll
    for (int k = 0; k < kLeaves; ++k) {
      x[k] = k == 0 ? load_long<kFirst>(a.codec[k], a.in[k], element)
                    : load_long<kSecond>(a.codec[k], a.in[k], element);
      if (k < kNorms) {
        const float* at = tile + 3 * k * a.channels + channel + i;
        x[k] = el::batch_norm(x[k], at[0], at[a.channels], at[2 * a.channels]);
        if (kLeaves > 1) x[k] = round_long(a.norm_target[k].codec, x[k], norm[k]);
      }
    }
    const float y = kLeaves > 1 ? el::add(x[0], x[kLeaves - 1]) : x[0];
    uint32_t code = code_long(a.target.codec, y, sum);
    if constexpr (kRelu) {
      const float z = el::relu(bits_float(decode_quick(a.target.codec, code)));
      code = code_long(a.target.codec, z, relu);
    }
    store_long<kOut>(a.out, element, code);
  }
  if constexpr (kLeaves > 1) {
#pragma unroll
    for (int k = 0; k < kNorms; ++k) report_now(norm[k], a.norm_target[k].stats);
  }
  report_now(sum, a.target.stats);
  if constexpr (kRelu) report_now(relu, a.relu_stats);
}

template <Code kFirst, Code kOut, int kLeaves>
constexpr int forward_at_once() {
  return kLeaves == 1 && !kHalves<kFirst> && !kHalves<kOut> ? 4 : 2;
}
// Of a processor at once. mixed: of several codes.
template <int kLeaves, int kNorms>
constexpr uint32_t forward_blocks(bool mixed) {
  return kLeaves == 1 ? (mixed ? 3 : 4) : kNorms == 1 ? 3 : 2;
}

// An output may lie where an input of codes as wide lies: a thread reads groups before it writes them, and nobody else reads them.
template <Code kFirst, Code kSecond, Code kOut, int kLeaves, int kNorms, bool kRelu>
__global__ void __launch_bounds__(kQuickThreads,
                                  forward_blocks<kLeaves, kNorms>(kFirst != kOut || kSecond != kOut))
    run_forward(const __grid_constant__ ForwardArgs<kLeaves, kNorms> a) {
  ULP_SHARED(float, tile);
  constexpr int kAtOnce = forward_at_once<kFirst, kOut, kLeaves>();
  // What a norm is rounded to before it is added.
  constexpr Code kNorm = kFirst == kOut && kSecond == kOut ? kOut : Code::none;
  const uint32_t q = blockIdx.x * a.course.active + threadIdx.x;
  uint32_t group = threadIdx.x < a.course.active ? q : a.course.groups;
  Packed<kFirst> first[kAtOnce];
  Packed<kSecond> second[kAtOnce];
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.course.threads;
      if (g >= a.course.groups) continue;
      first[u] = load_packed<kFirst>(a.in[0], g);
      if constexpr (kLeaves > 1) second[u] = load_packed<kSecond>(a.in[1], g);
    }
  };
  load();
  for (uint32_t c = threadIdx.x; c < a.channels; c += kQuickThreads) {
#pragma unroll
    for (int k = 0; k < kNorms; ++k) {
      const Norm& norm = a.norm[k];
      float* to = tile + 3 * k * a.channels + c;
      const float gamma = norm.gamma.at(c);
      to[0] = norm.mean[c];
      to[a.channels] = el::multiply(gamma, el::batch_inv(norm.variance[c], norm.epsilon));
      to[2 * a.channels] = norm.beta.at(c);
    }
  }
  __syncthreads();
  const uint32_t channel = threadIdx.x % a.course.period * kGroup;
  float mean[kNorms][8], scale[kNorms][8], beta[kNorms][8];
#pragma unroll
  for (int k = 0; k < kNorms; ++k) {
    const float* from = tile + 3 * k * a.channels + channel;
    take_eight(from, mean[k]);
    take_eight(from + a.channels, scale[k]);
    take_eight(from + 2 * a.channels, beta[k]);
  }

  Within seen[4];  // the norms where they are added to something, what is rounded last, the activation
  uint32_t most_relu = 0;
  while (group < a.course.groups) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.course.threads;
      if (g >= a.course.groups) break;
      float x[kLeaves][8], most[kNorms] = {};
      bool fine = true;
      unpack<kFirst>(first[u], a.reading[0], x[0]);
      if constexpr (kLeaves > 1) unpack<kSecond>(second[u], a.reading[1], x[1]);
#pragma unroll
      for (int k = 0; k < kNorms; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[k][i] = (x[k][i] - mean[k][i]) * scale[k][i] + beta[k][i];
        if constexpr (kLeaves > 1) {
          most[k] = largest_of(x[k]);
          fine = fine && most[k] <= a.norm_target[k].limit;
        }
      }
      Packed<kOut> made;
      if constexpr (kLeaves > 1) {
        uint32_t vanished[kNorms];
#pragma unroll
        for (int k = 0; k < kNorms; ++k) {
          vanished[k] = vanishing_in(a.norm_target[k], x[k]);
          round_within<kNorm>(a.norm_target[k], x[k]);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) x[0][i] = x[0][i] + x[1][i];
        const float sum = largest_of(x[0]);
        fine = fine && sum <= a.target.limit;
        if (fine) {
#pragma unroll
          for (int k = 0; k < kNorms; ++k) seen[k].add(vanished[k], most[k]);
          seen[2].add(vanishing_in(a.target, x[0]), sum);
        }
      } else {
        const float sum = largest_of(x[0]);
        fine = sum <= a.target.limit;
        if (fine) seen[2].add(vanishing_in(a.target, x[0]), sum);
      }
      if (!fine) {
        forward_long<kFirst, kSecond, kOut, kLeaves, kNorms, kRelu>(a, tile, g, channel);
        continue;
      }
      if constexpr (kRelu) {
        made = pack_relu<kOut>(x[0], a.target);
        most_relu = most_of<kOut, false>(most_relu, made);
      } else {
        made = pack<kOut>(x[0], a.target);
      }
      store_packed<kOut>(a.out, g, made);
    }
    group += kAtOnce * a.course.threads;
    load();
  }
  if constexpr (kRelu) {
    seen[3].amax = number_of(a.target.codec, most_code<kOut>(most_relu));
  }
  EncodeStats* const stats[4] = {kLeaves > 1 ? a.norm_target[0].stats : nullptr,
                                 kLeaves > 1 && kNorms > 1 ? a.norm_target[kNorms - 1].stats : nullptr,
                                 a.target.stats, kRelu ? a.relu_stats : nullptr};
  report_all<4>(seen, stats);
  if (blockIdx.x == 0) {
#pragma unroll
    for (int k = 0; k < kNorms; ++k) {
      report_channels(a.norm[k].gamma, a.channels);
      report_channels(a.norm[k].beta, a.channels);
    }
  }
}

// Calls `function` with the codes of the first input, of the second and of the result. Of two inputs one has the result's.
template <int kLeaves, typename Function>
bool with_codes(Code first, Code second, Code out, const Function& function) {
  if (first == out && second == out) {
    return choose_code<Code::bf16, Code::e4, Code::e5, Code::wide>(
        out, [&]<Code kOut> { return function.template operator()<kOut, kOut, kOut>(); });
  }
  return choose_code<Code::e4, Code::wide>(out, [&]<Code kOut> {
    constexpr Code kOther = kOut == Code::e4 ? Code::wide : Code::e4;
    if constexpr (kLeaves == 1) {
      return first == kOther && function.template operator()<kOther, kOther, kOut>();
    } else {
      if (first == kOther && second == kOut) return function.template operator()<kOther, kOut, kOut>();
      return first == kOut && second == kOther && function.template operator()<kOut, kOther, kOut>();
    }
  });
}

// kBegin: the input that is normalised first.
template <int kLeaves, int kNorms, bool kRelu, int kBegin>
bool launch_forward(const PipelineCall& call, Stream stream) {
  ForwardArgs<kLeaves, kNorms> a;
  const auto leaf = [&](int i) -> const Leaf& { return call.leaf[(i + kBegin) % kLeaves]; };
  // Stages: the norms, the sum, the activation. The last one's rounder is the call's.
  constexpr int kStages = kNorms + (kLeaves > 1 ? 1 : 0) + (kRelu ? 1 : 0);
  const auto rounder = [&](int i) -> const Rounder& {
    return i + 1 == kStages ? call.rounder : call.stage[i].rounder;
  };
  const auto stats = [&](int i) {
    return i + 1 == kStages ? call.out[0].stats : call.stage[i].rounder.stats;
  };
  const Code first = code_of(leaf(0)), second = code_of(leaf(kLeaves - 1)), out = code_of(call.rounder);
  const bool mixed = first != out || second != out;
  if (!writes_plain(call.out[0]) ||
      !a.course.take(call.elements, call.channels, forward_blocks<kLeaves, kNorms>(mixed)))
    return false;
  constexpr int kLast = kStages - (kRelu ? 2 : 1);  // that is rounded
  if (code_of(rounder(kLast)) != out) return false;
  if (kRelu && !(call.rounder.exact && call.rounder.codec == rounder(kLast).codec)) return false;
  if (kLeaves > 1) {
    // Kernels of one code round norms to that, others to e4 or wide.
    for (int i = 0; i < kNorms; ++i) {
      const Code norm = code_of(rounder(i));
      if (mixed ? norm != Code::e4 && norm != Code::wide : norm != out) return false;
    }
  }
  for (int i = 0; i < kNorms; ++i) {
    if (!a.norm[i].take(call.view + 4 * i, call.stage[i])) return false;
    a.norm_target[i] = target_of(rounder(i), stats(i));
  }
  for (int i = 0; i < kLeaves; ++i) {
    const StoredView& stored = leaf(i).view.stored;
    a.in[i] = stored.codes;
    a.reading[i] = reading_of(stored.codec);
    a.codec[i] = stored.codec;
  }
  a.target = target_of(rounder(kLast), stats(kLast));
  a.relu_stats = call.out[0].stats;
  a.out = call.out[0].stored.codes;
  a.channels = static_cast<uint32_t>(call.channels);
  const Grid grid{a.course.blocks(), kQuickThreads, 3 * kNorms * sizeof(float) * a.channels};
  return with_codes<kLeaves>(first, second, out, [&]<Code kFirst, Code kSecond, Code kOut> {
    launch(run_forward<kFirst, kSecond, kOut, kLeaves, kNorms, kRelu>, grid, stream, a);
    return true;
  });
}

}  // namespace

bool quick_norm(const PipelineCall& call, Stream stream) {
  return launch_forward<1, 1, false, 0>(call, stream);
}
bool quick_relu_norm(const PipelineCall& call, Stream stream) {
  return launch_forward<1, 1, true, 0>(call, stream);
}
bool quick_norm_add(const PipelineCall& call, Stream stream) {
  return launch_forward<2, 1, false, 0>(call, stream);
}
bool quick_add_norm(const PipelineCall& call, Stream stream) {
  return launch_forward<2, 1, false, 1>(call, stream);
}
bool quick_relu_norm_add(const PipelineCall& call, Stream stream) {
  return launch_forward<2, 1, true, 0>(call, stream);
}
bool quick_relu_add_norm(const PipelineCall& call, Stream stream) {
  return launch_forward<2, 1, true, 1>(call, stream);
}
bool quick_relu_norm_norm(const PipelineCall& call, Stream stream) {
  return launch_forward<2, 2, true, 0>(call, stream);
}

}  // namespace ulp::cuda
