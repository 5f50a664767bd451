// How near a training step is to what it cannot do without: the time of its convolutions alone, by
// oneDNN in the layouts that oneDNN prefers, plus the bytes that everything else must move, at the
// rate of a copy. All measured in one run, since machines are shared; the ratio is what counts.
//
//   step_bench [MODEL [BATCH [CHANNELS]]]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/timing.h"
#include "ulp/base/parallel.h"
#include "ulp/data/loader.h"
#include "ulp/runtime/init.h"
#include "ulp/session/engine.h"
#include "ulp/session/profile.h"
#include "ulp/tasks/classification.h"

namespace ulp {
namespace {

constexpr int kRounds = 15;

double time_of(const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
}

// One convolution primitive with everything in the layout it likes best.
class Convolution {
 public:
  Convolution(const Graph& graph, const Node& node, const dnnl::engine& engine) : engine_(engine) {
    using dnnl::memory;
    const bool forward = node.op->name == "conv2d", data = node.op->name == "conv2d_grad_input";
    const Shape& x = graph[forward ? node.in[0] : data ? node.out[0] : node.in[0]].shape;
    const Shape& y = graph[forward ? node.out[0] : data ? node.in[0] : node.in[1]].shape;
    const Shape& w = graph[forward || data ? node.in[1] : node.out[0]].shape;
    const int64_t groups = node.attrs.integer("groups");
    const auto any = [](const memory::dims& dims) {
      return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
    };
    const auto xs = any({x.n(), x.c(), x.h(), x.w()}), ys = any({y.n(), y.c(), y.h(), y.w()});
    const auto ws =
        groups == 1 ? any({w[0], w[3], w[1], w[2]}) : any({groups, w[0] / groups, w[3], w[1], w[2]});
    const memory::dims strides{node.attrs.integer("stride_h"), node.attrs.integer("stride_w")};
    const memory::dims padding{node.attrs.integer("padding_h"), node.attrs.integer("padding_w")};
    const auto algorithm = dnnl::algorithm::convolution_auto;
    dnnl::primitive_attr attr;
    const dnnl::convolution_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, algorithm, xs, ws, ys, strides, padding, padding}, attr, engine);
    if (forward) {
      primitive_ = dnnl::convolution_forward(hint);
      book(hint.src_desc(), DNNL_ARG_SRC);
      book(hint.weights_desc(), DNNL_ARG_WEIGHTS);
      book(hint.dst_desc(), DNNL_ARG_DST);
    } else if (data) {
      const dnnl::convolution_backward_data::primitive_desc desc(
          {algorithm, xs, ws, ys, strides, padding, padding}, attr, engine, hint);
      primitive_ = dnnl::convolution_backward_data(desc);
      book(desc.diff_src_desc(), DNNL_ARG_DIFF_SRC);
      book(desc.weights_desc(), DNNL_ARG_WEIGHTS);
      book(desc.diff_dst_desc(), DNNL_ARG_DIFF_DST);
    } else {
      const dnnl::convolution_backward_weights::primitive_desc desc(
          {algorithm, xs, ws, ys, strides, padding, padding}, attr, engine, hint);
      primitive_ = dnnl::convolution_backward_weights(desc);
      book(desc.src_desc(), DNNL_ARG_SRC);
      book(desc.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS);
      book(desc.diff_dst_desc(), DNNL_ARG_DIFF_DST);
    }
  }

  void run(dnnl::stream& stream) {
    primitive_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  void book(const dnnl::memory::desc& desc, int argument) {
    dnnl::memory memory(desc, engine_);
    // Values as training has them; zeros and subnormals would be another speed.
    float* values = static_cast<float*>(memory.get_data_handle());
    fill_initial(Init::normal(1), 3, static_cast<uint32_t>(argument),
                 {values, desc.get_size() / sizeof(float)});
    arguments_.emplace(argument, memory);
  }

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

bool is_convolution(const Node& node) { return node.op->name.starts_with("conv2d"); }

// What the steps other than convolutions read and write.
size_t bytes_of_the_rest(const Plan& plan) {
  size_t bytes = 0;
  for (const PlanStep& step : plan.steps()) {
    if (!is_convolution(plan.graph()[step.roots[0]])) bytes += moved_bytes(plan, step);
  }
  return bytes;
}

// Bytes read and written a second by a copy on all threads, far larger than the caches.
double copy_rate() {
  constexpr size_t kBytes = size_t{128} << 20;
  std::vector<uint8_t> from(kBytes, 1), to(kBytes);
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    seconds.push_back(time_of([&] {
      parallel_for(kBytes, size_t{1} << 20, [&](size_t begin, size_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, end - begin);
      });
    }));
  }
  return 2 * static_cast<double>(kBytes) / median(seconds);
}

void measure_step(const std::string& model, int64_t batch, int64_t channels) {
  EngineOptions options;
  ModelRequest wanted;
  wanted.name = model;
  wanted.image.channels = channels;
  options.build = classifier_build(wanted);
  options.batch = {batch};
  options.optimizer.momentum = 0.9;
  options.optimizer.weight_decay = 5e-4;
  Engine engine(options);
  engine.allocate();
  const Plan& plan = engine.training_plan();

  // Batches come from the loader, as in training.
  DataRequest request;
  request.height = request.width = 32;
  request.channels = channels;
  const ImageSet set = load_dataset("synthetic", request);
  LoaderOptions loading;
  loading.batch = batch;
  loading.drop_last = true;
  Loader loader(set, Part::train, loading);

  const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(cpu);
  std::vector<std::unique_ptr<Convolution>> convolutions;
  std::vector<std::string> kinds;
  for (const Node& node : plan.graph().nodes()) {
    if (!is_convolution(node)) continue;
    convolutions.push_back(std::make_unique<Convolution>(plan.graph(), node, cpu));
    kinds.emplace_back(node.op->name);
  }
  std::vector<std::vector<double>> seconds(convolutions.size());
  std::vector<double> steps, copies;
  double wait = 0;
  // In turns, so that whatever else the machine does falls on all of them.
  for (int round = 0; round < kRounds; ++round) {
    const double before = loader.waits().seconds;
    StepState state;
    state.step = static_cast<uint32_t>(round);
    state.update = update_scalars(options.optimizer, static_cast<uint64_t>(round), 0.1);
    steps.push_back(time_of([&] {
      const Batch& next = loader.next();
      engine.train(state, {{batch}, {feed_of("input", next.images), feed_of("labels", next.labels)}});
    }));
    if (round > 0) wait += loader.waits().seconds - before;
    for (size_t i = 0; i < convolutions.size(); ++i) {
      seconds[i].push_back(time_of([&] { convolutions[i]->run(stream); }));
    }
  }
  std::map<std::string, double> by_kind;
  double alone = 0;
  for (size_t i = 0; i < convolutions.size(); ++i) {
    const double time = median(seconds[i]);
    alone += time;
    by_kind[kinds[i]] += time;
  }
  const double rate = copy_rate();
  const size_t bytes = bytes_of_the_rest(plan);
  const double moving = static_cast<double>(bytes) / rate, step = median(steps);
  fmt::print("{} fp32, batch {}, {} threads, {} parameters\n", model, batch, thread_count(),
             plan.graph().parameters());
  for (const auto& [kind, time] : by_kind) fmt::print("  {:<22}{:>9.2f} ms\n", kind, 1e3 * time);
  fmt::print("  {:<22}{:>9.2f} ms\n", "convolutions alone", 1e3 * alone);
  fmt::print("  {:<22}{:>9.2f} ms  ({:.1f} MB at {:.1f} GB/s)\n", "bytes of the rest", 1e3 * moving,
             1e-6 * static_cast<double>(bytes), 1e-9 * rate);
  fmt::print("  {:<22}{:>9.2f} ms  ({:.0f} examples/s)\n", "step", 1e3 * step,
             static_cast<double>(batch) / step);
  fmt::print("  {:<22}{:>9.3f}\n", "ratio (at most 1.25)", step / (alone + moving));
  fmt::print("  {:<22}{:>9.3f} ms a step\n", "waiting for data", 1e3 * wait / (kRounds - 1));
}

}  // namespace
}  // namespace ulp

int main(int argc, char** argv) { return ulp::run_bench(argc, argv, ulp::measure_step); }
