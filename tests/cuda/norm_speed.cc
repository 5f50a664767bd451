// Kernels of batch norms and activations on a GPU, one by one: in graphs of 20 launches, as in
// training, as shares of the rate of a copy in the same run; the general kernels beside those of
// batchnorm.h, whose results are compared; then reductions with the passes that use them, in two
// launches and merged in one (batchnorm_grid.h), whose results must be the same. "cold": tensors
// come from memory; "hot": the same ones again and again, from the cache as far as they fit.
//   norm_speed [only shapes whose name has this in it [only formats whose name has this in it]]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/batchnorm/batchnorm_grid.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/backend/cuda/runtime/runtime.h"
#include "ulp/base/philox.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/storage.h"
#include "ulp/tensor/stored.h"

namespace {

using namespace ulp;
using namespace ulp::cuda;

class Piece {
 public:
  explicit Piece(size_t bytes) : bytes_(aligned_bytes(bytes) + 64), data_(gpu().allocate(bytes_)) {}
  ~Piece() { gpu().release(data_, bytes_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  size_t bytes_;
  uint8_t* data_;
};

cudaStream_t the_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
    return made;
  }();
  return stream;
}

// Seconds of one of `launches` pieces of work that are replayed together.
double seconds_of(int launches, const std::function<void(int)>& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  check(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeRelaxed), "recording");
  for (int i = 0; i < launches; ++i) work(i);
  check(cudaStreamEndCapture(the_stream(), &graph), "recording");
  check(cudaGraphInstantiate(&ready, graph, 0), "recording");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "making an event");
  check(cudaEventCreate(&end), "making an event");
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    check(cudaEventRecord(begin, the_stream()), "recording an event");
    check(cudaGraphLaunch(ready, the_stream()), "launching");
    check(cudaEventRecord(end, the_stream()), "recording an event");
    check(cudaEventSynchronize(end), "waiting");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "reading a clock");
    if (i >= 3) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return 1e-3 * times[times.size() / 2] / launches;
}

// About normal, of so many different numbers.
std::vector<float> numbers(size_t n, uint32_t seed, float scale, float shift, bool positive) {
  std::vector<float> made(n);
  for (size_t i = 0; i < n; ++i) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), seed, 0, 0}}, {{5, 6}});
    double sum = 0;
    for (const uint32_t word : words.word) sum += word * 0x1p-32 - 0.5;
    made[i] = static_cast<float>(sum * std::sqrt(3.0)) * scale + shift;
    if (positive) made[i] = std::max(made[i], 0.0f);
  }
  return made;
}

// x: of what is normalised. more: of what is added to it. forward: of activations. dout: of the
// gradient that comes. grad: of one that is added to it, and of what is made of them.
struct Formats {
  std::string name, x, more, forward, dout, grad, weight;
};
struct Layer {
  std::string name;
  size_t pixels, channels;
};

// Comparisons that failed.
int different = 0;

// Tensors of one layer, in several sets.
class Bench {
 public:
  Bench(const Layer& layer, const Formats& formats, double copy_rate)
      : layer_(layer), formats_(formats), copy_(copy_rate), elements_(layer.pixels * layer.channels) {
    of_x_ = parse_storage(formats.x);
    of_more_ = parse_storage(formats.more);
    forward_ = parse_storage(formats.forward);
    of_dout_ = parse_storage(formats.dout);
    grad_ = parse_storage(formats.grad);
    const size_t largest = std::max(
        {bytes_of(of_x_), bytes_of(of_more_), bytes_of(forward_), bytes_of(of_dout_), bytes_of(grad_)});
    sets_ = std::clamp<size_t>((size_t{200} << 20) / (3 * largest) + 1, 1, 20);
    for (size_t s = 0; s < sets_; ++s) {
      x_.push_back(filled(of_x_, 1, 1.5f, 0.3f, false));
      more_.push_back(filled(of_more_, 2, 1.0f, 0.0f, true));
      active_.push_back(filled(forward_, 3, 1.0f, 0.1f, true));
      dout_.push_back(filled(of_dout_, 4, 0.1f, 0.0f, false));
      other_.push_back(filled(grad_, 5, 0.1f, 0.0f, false));
      out_.push_back(std::make_unique<Piece>(largest));
    }
    const size_t c = layer.channels;
    for (int i = 0; i < 6; ++i) {
      // gamma, beta, mean, variance, sums
      const float scale[] = {0.2f, 0.2f, 0.2f, 0.1f, 100.0f, 100.0f}, shift[] = {1, 0, 0.3f, 2.2f, 0, 0};
      channel_.push_back(std::make_unique<Piece>(4 * c));
      const std::vector<float> some = numbers(c, 10 + static_cast<uint32_t>(i), scale[i], shift[i], false);
      gpu().upload(channel_.back()->data(), some.data(), 4 * c);
    }
    partial_ = std::make_unique<Piece>(4 * partial_floats(elements_, c));
    result_ = std::make_unique<Piece>(8 * c);
    stats_ = std::make_unique<Piece>(16 * sizeof(EncodeStats));
    state_ = std::make_unique<Piece>(sizeof(StepState));
    const StepState state;
    gpu().upload(state_->data(), &state, sizeof state);
  }

  void all() {
    run("batch_stats(x)", {&x_});
    run("relu(batch_norm(x))", {&x_});
    run("relu(add(batch_norm(x),x))", {&x_, &more_});
    run("relu(add(batch_norm(x),batch_norm(x)))", {&x_, &more_});
    run("relu_grad(x,x)", {&dout_, &active_});
    run("relu_grad(sum(x,x),x)", {&dout_, &other_, &active_});
    run("batch_norm_sums(x,x)", {&dout_, &x_});
    run("batch_norm_sums(relu_grad(x,x),x)", {&dout_, &active_, &x_});
    run("batch_norm_grad(x,x)", {&dout_, &x_});
    // Gradients within a block have one format.
    if (of_dout_ == grad_) run("batch_norm_grad(relu_grad(x,x),x)", {&dout_, &active_, &x_});
    pair("batch_stats(x)", {&x_}, "batch_norm(x)", {&x_});
    pair("batch_stats(x)", {&x_}, "relu(batch_norm(x))", {&x_});
    pair("batch_stats(x)", {&x_}, "relu(add(batch_norm(x),x))", {&x_, &more_});
    pair("batch_stats(x)", {&x_}, "relu(add(x,batch_norm(x)))", {&more_, &x_});
    pair("batch_norm_sums(x,x)", {&dout_, &x_}, "batch_norm_grad(x,x)", {&dout_, &x_});
    pair("batch_norm_sums(relu_grad(x,x),x)", {&dout_, &active_, &x_}, "batch_norm_grad(relu_grad(x,x),x)",
         {&dout_, &active_, &x_});
  }

 private:
  using Pieces = std::vector<std::unique_ptr<Piece>>;

  size_t bytes_of(const Storage& storage) const { return storage_size(storage, elements_).code_bytes; }
  const Storage& format_of(const Pieces* leaf) const {
    return leaf == &x_       ? of_x_
           : leaf == &more_  ? of_more_
           : leaf == &dout_  ? of_dout_
           : leaf == &other_ ? grad_
                             : forward_;
  }
  // What an activation lets pass keeps its format.
  const Storage& format_of(const std::string& pattern, const std::string& op) const {
    if (pattern.find("_grad") == std::string::npos && pattern.find("_sums") == std::string::npos)
      return forward_;
    return op == "relu_grad" && pattern.find("sum(") == std::string::npos ? of_dout_ : grad_;
  }
  static std::string root(const std::string& pattern) { return pattern.substr(0, pattern.find('(')); }
  static bool reduces(const std::string& pattern) {
    return pattern.starts_with("batch_stats") || pattern.starts_with("batch_norm_sums");
  }

  std::unique_ptr<Piece> filled(const Storage& storage, uint32_t seed, float scale, float shift,
                                bool positive) {
    // A few different numbers, over and over; an odd number of them, so that channels differ.
    constexpr size_t kSome = (size_t{1} << 20) - 8;
    static std::map<std::string, std::vector<uint8_t>> made;
    std::vector<uint8_t>& codes = made[storage_name(storage) + std::to_string(seed)];
    if (codes.empty()) {
      codes.resize(storage_size(storage, kSome).code_bytes);
      encode(storage, {}, numbers(kSome, seed, scale, shift, positive), codes, {});
    }
    const size_t bytes = bytes_of(storage);
    auto piece = std::make_unique<Piece>(bytes);
    for (size_t at = 0; at < bytes; at += codes.size()) {
      gpu().upload(piece->data() + at, codes.data(), std::min(codes.size(), bytes - at));
    }
    return piece;
  }

  ReadView read(const Storage& storage, const Piece& piece, size_t elements) const {
    ReadView view;
    view.stored = stored_view(storage, Overflow::saturate, elements);
    view.stored.codes = piece.data();
    return view;
  }
  ReadView channel(int i) {
    ReadView view = read(parse_storage("fp32"), *channel_[static_cast<size_t>(i)], layer_.channels);
    if (i < 2 && !formats_.weight.empty()) {
      view.rounds = true;
      view.operand = make_quick(make_spec(parse_format(formats_.weight), Overflow::saturate));
      view.stats = stats_->as<EncodeStats>() + 8 + i;
    }
    return view;
  }
  Rounder rounder(const Storage& storage, bool exact) const {
    Rounder made =
        make_rounder(false, stored_view(storage, Overflow::saturate, 8).codec, Round::nearest_even, 0);
    made.exact = exact;
    return made;
  }

  FusedCall call(const std::string& pattern, const std::vector<const Pieces*>& leaves, size_t set,
                 bool general) {
    FusedCall made;
    made.state = state_->as<StepState>();
    made.elements = elements_;
    made.general = general;
    if (pattern.find("batch") != std::string::npos) made.channels = layer_.channels;
    for (const Pieces* leaf : leaves)
      made.leaf[made.leaves++] = make_leaf(read(format_of(leaf), *(*leaf)[set], elements_));
    // Nodes in the order in which they end.
    std::vector<std::string> open;
    int views = 0;
    for (size_t at = 0; at < pattern.size(); ++at) {
      if (std::isalpha(pattern[at]) != 0 && (at == 0 || pattern[at - 1] == '(' || pattern[at - 1] == ',')) {
        const size_t end = pattern.find_first_of("(,)", at);
        if (pattern[end] == '(') open.push_back(pattern.substr(at, end - at));
      }
      if (pattern[at] != ')') continue;
      Stage& stage = made.stage[made.stages++];
      const std::string op = open.back();
      open.pop_back();
      stage.epsilon = 1e-5f;
      stage.rows = static_cast<float>(layer_.pixels);
      const std::vector<int> which = op == "batch_norm"        ? std::vector<int>{0, 1, 2, 3}
                                     : op == "batch_norm_grad" ? std::vector<int>{0, 2, 3, 4, 5}
                                     : op == "batch_norm_sums" ? std::vector<int>{2, 3}
                                                               : std::vector<int>{};
      for (const int i : which) made.view[views++] = channel(i);
      stage.rounder = rounder(format_of(pattern, op), op == "relu" || op == "relu_grad");
      stage.rounder.stats = stats_->as<EncodeStats>() + made.stages;
      if (open.empty()) {
        made.rounder = stage.rounder;
        made.out[0].stats = stage.rounder.stats;
      }
    }
    if (reduces(pattern)) {
      for (size_t i = 0; i < 2; ++i) {
        made.out[i] = {};
        made.out[i].stored = stored_view(parse_storage("fp32"), Overflow::saturate, layer_.channels);
        made.out[i].stored.codes = result_->data() + 4 * i * layer_.channels;
      }
      made.partial = partial_->as<float>();
    } else {
      made.out[0].stored = stored_view(format_of(pattern, root(pattern)), Overflow::saturate, elements_);
      made.out[0].stored.codes = out_[set]->data();
    }
    return made;
  }

  static FusedLaunch find(const std::string& pattern) {
    for (const auto search : {find_elementwise, find_elementwise_grad, find_reduction}) {
      if (const FusedLaunch launch = search(pattern)) return launch;
    }
    return nullptr;
  }

  struct Made {
    std::vector<uint8_t> bytes;
    std::vector<float> sums;
    std::vector<EncodeStats> stats;
  };
  Made once(const std::string& pattern, const std::vector<const Pieces*>& leaves, bool general) {
    check(cudaMemset(stats_->data(), 0, 16 * sizeof(EncodeStats)), "clearing");
    const size_t bytes = bytes_of(format_of(pattern, root(pattern)));
    check(cudaMemset(out_[0]->data(), 0xA5, bytes), "clearing");
    check(cudaDeviceSynchronize(), "clearing");
    find(pattern)(call(pattern, leaves, 0, general), the_stream());
    check(cudaDeviceSynchronize(), "running");
    Made made;
    if (reduces(pattern)) {
      made.sums.resize(2 * layer_.channels);
      gpu().download(made.sums.data(), result_->data(), 8 * layer_.channels);
    } else {
      made.bytes.resize(bytes);
      gpu().download(made.bytes.data(), out_[0]->data(), made.bytes.size());
    }
    made.stats.resize(16);
    gpu().download(made.stats.data(), stats_->data(), 16 * sizeof(EncodeStats));
    return made;
  }

  void run(const std::string& pattern, const std::vector<const Pieces*>& leaves) {
    size_t moved = reduces(pattern) ? 0 : bytes_of(format_of(pattern, root(pattern)));
    for (const Pieces* leaf : leaves) moved += bytes_of(format_of(leaf));
    const auto bytes = static_cast<double>(moved);
    const Made old = once(pattern, leaves, true), now = once(pattern, leaves, false),
               again = once(pattern, leaves, false);
    double off = 0;
    for (size_t i = 0; i < old.sums.size(); ++i) {
      off =
          std::max(off, std::abs(double{old.sums[i]} - now.sums[i]) / (std::abs(double{old.sums[i]}) + 1e-3));
    }
    const bool same = old.bytes == now.bytes && old.stats == now.stats && now.sums == again.sums;
    double seconds[2][2];
    for (const bool general : {true, false}) {
      for (const bool hot : {false, true}) {
        std::vector<FusedCall> calls;
        for (size_t s = 0; s < sets_; ++s) calls.push_back(call(pattern, leaves, hot ? 0 : s, general));
        seconds[general ? 0 : 1][hot ? 1 : 0] = seconds_of(
            20, [&](int i) { find(pattern)(calls[static_cast<size_t>(i) % sets_], the_stream()); });
      }
    }
    different += same ? 0 : 1;
    fmt::print("{:<22} {:<5} {:<40} {:8.1f} {:4.0f}% {:8.1f} | {:8.1f} {:4.0f}% {:8.1f} | {:5.2f}x {}{}\n",
               layer_.name, formats_.name, pattern, 1e6 * seconds[0][0], 100 * bytes / seconds[0][0] / copy_,
               1e6 * seconds[0][1], 1e6 * seconds[1][0], 100 * bytes / seconds[1][0] / copy_,
               1e6 * seconds[1][1], seconds[0][0] / seconds[1][0], same ? "same" : "DIFFERS",
               old.sums.empty() ? "" : fmt::format(" sums {:.0e}", off));
    std::fflush(stdout);
  }

  // What a reduction makes is what the pass reads.
  struct Pair {
    FusedCall first, second;
  };
  Pair calls(const std::string& first, const std::vector<const Pieces*>& first_leaves,
             const std::string& second, const std::vector<const Pieces*>& second_leaves, size_t set) {
    Pair made{call(first, first_leaves, set, false), call(second, second_leaves, set, false)};
    const bool backward = first.starts_with("batch_norm_sums");
    for (size_t i = 0; i < 2; ++i) made.first.out[i].stored.codes = channel_[(backward ? 4 : 2) + i]->data();
    // What is inlined in both is reported once.
    if (backward && made.second.stages > 1) made.second.stage[0].rounder.stats = nullptr;
    return made;
  }
  void launch(const std::string& first, const std::string& second, const Pair& made, bool merged) {
    if (merged) {
      find_grid_launch(first, second)(made.first, made.second, false, the_stream());
    } else {
      find(first)(made.first, the_stream());
      find(second)(made.second, the_stream());
    }
  }

  void pair(const std::string& first, const std::vector<const Pieces*>& first_leaves,
            const std::string& second, const std::vector<const Pieces*>& second_leaves) {
    const auto at = [&](size_t set) { return calls(first, first_leaves, second, second_leaves, set); };
    const Pair one = at(0);
    if (!find_grid_launch(first, second)(one.first, one.second, true, the_stream())) return;
    const size_t bytes = bytes_of(format_of(second, root(second)));
    Made made[2];
    double seconds[2][2];
    // The last time after many others.
    bool same = true;
    for (int turn = 0; turn < 2; ++turn) {
      for (const bool merged : {false, true}) {
        check(cudaMemset(stats_->data(), 0, 16 * sizeof(EncodeStats)), "clearing");
        check(cudaMemset(out_[0]->data(), 0xA5, bytes), "clearing");
        for (const size_t i : {0, 1})
          check(cudaMemset(one.first.out[i].stored.codes, 0xFF, 4 * layer_.channels), "clearing");
        check(cudaDeviceSynchronize(), "clearing");
        launch(first, second, one, merged);
        check(cudaDeviceSynchronize(), "running");
        Made& to = made[merged ? 1 : 0];
        to.bytes.resize(bytes + 8 * layer_.channels);
        gpu().download(to.bytes.data(), out_[0]->data(), bytes);
        for (const size_t i : {0, 1}) {
          gpu().download(to.bytes.data() + bytes + 4 * i * layer_.channels, one.first.out[i].stored.codes,
                         4 * layer_.channels);
        }
        to.stats.resize(16);
        gpu().download(to.stats.data(), stats_->data(), 16 * sizeof(EncodeStats));
      }
      same = same && made[0].bytes == made[1].bytes && made[0].stats == made[1].stats;
      if (turn > 0) break;
      for (const bool merged : {false, true}) {
        for (const bool hot : {false, true}) {
          std::vector<Pair> some;
          for (size_t s = 0; s < sets_; ++s) some.push_back(at(hot ? 0 : s));
          seconds[merged ? 1 : 0][hot ? 1 : 0] = seconds_of(
              20, [&](int i) { launch(first, second, some[static_cast<size_t>(i) % sets_], merged); });
        }
      }
    }
    different += same ? 0 : 1;
    fmt::print("{:<22} {:<5} {:<40} {:8.1f}       {:8.1f} | {:8.1f}       {:8.1f} | {:5.2f}x {}\n",
               layer_.name, formats_.name, "+ " + second, 1e6 * seconds[0][0], 1e6 * seconds[0][1],
               1e6 * seconds[1][0], 1e6 * seconds[1][1], seconds[0][1] / seconds[1][1],
               same ? "same, merged" : "merged DIFFERS");
    std::fflush(stdout);
  }

  Layer layer_;
  Formats formats_;
  double copy_;
  size_t elements_, sets_ = 1;
  Storage of_x_, of_more_, forward_, of_dout_, grad_;
  Pieces x_, more_, active_, dout_, other_, out_, channel_;
  std::unique_ptr<Piece> partial_, result_, stats_, state_;
};

double copy_rate() {
  constexpr size_t kBytes = size_t{1} << 30;
  const Piece from(kBytes), to(kBytes);
  return 2 * static_cast<double>(kBytes) / seconds_of(4, [&](int) {
           check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, the_stream()),
                 "copying");
         });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "", only_formats = argc > 2 ? argv[2] : "";
  const Layer layers[] = {
      {"resnet18 1024 64x32", 1024 * 1024, 64}, {"resnet18 1024 128x16", 1024 * 256, 128},
      {"resnet18 1024 256x8", 1024 * 64, 256},  {"resnet18 1024 512x4", 1024 * 16, 512},
      {"resnet18 128 64x32", 128 * 1024, 64},   {"resnet18 128 128x16", 128 * 256, 128},
      {"resnet18 128 256x8", 128 * 64, 256},    {"resnet18 128 512x4", 128 * 16, 512},
      {"resnet20 128 16x32", 128 * 1024, 16},   {"resnet20 128 32x16", 128 * 256, 32},
      {"resnet20 128 64x8", 128 * 64, 64},
  };
  const std::string w = "fp(6,9,0)", f = "fp(4,3,4)", g = "fp(5,2,0)";
  const Formats formats[] = {
      {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16", ""},
      {"8bit", f, f, f, g, g, f},
      {"16bit", w, w, w, w, w, w},
      // A block of 8 bits among such of 16, one of 16 among such of 8, and one with a norm's input
      // of more bits.
      {"in 16", f, w, f, w, g, f},
      {"in 8", w, f, w, g, w, w},
      {"x 16", w, f, f, g, g, f},
  };
  const double rate = copy_rate();
  fmt::print(
      "copy {:.0f} GB/s; microseconds a launch, share of a copy's rate when cold, microseconds when hot\n",
      1e-9 * rate);
  fmt::print("{:<22} {:<5} {:<40} {:>8} {:>5} {:>8} | {:>8} {:>5} {:>8} |\n", "layer", "", "pattern",
             "general", "", "hot", "quick", "", "hot");
  for (const Formats& format : formats) {
    if (format.name.find(only_formats) == std::string::npos) continue;
    for (const Layer& layer : layers) {
      if (layer.name.find(only) == std::string::npos) continue;
      Bench(layer, format, rate).all();
    }
  }
  fmt::print("{} different\n", different);
  return different == 0 ? 0 : 1;
}
