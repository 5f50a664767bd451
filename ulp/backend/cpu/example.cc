#include "ulp/backend/cpu/example.h"

#include <algorithm>

#include "ulp/backend/slices.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops/move.h"

namespace ulp {
namespace example {
namespace {

// Elements of the largest operand that a thread takes at a time, unless an example has more: they
// stay in its cache.
constexpr size_t kChunk = size_t{1} << 14;

// How an operand is accessed.
enum class Reach : uint8_t {
  in_place,
  by_chunk,  // through a buffer per thread
  as_whole,  // through a buffer for all of it
};

struct Input {
  TensorId id;
  bool real;
  size_t item;    // bytes of an example as the function sees it; 0 if all share it
  size_t floats;  // elements of an example
  Reach reach = Reach::in_place;
  Reader reader = {};
  size_t place = 0;
};

struct Output {
  TensorId id;
  bool real;
  size_t item, floats;
  Reach reach = Reach::in_place;
  Writer writer = {};
  size_t place = 0;
};

class ExampleTask : public Task {
 public:
  ExampleTask(const Problem& problem, Function function, const Rule& rule);
  void run(const RunContext& context) override;

 private:
  // One thread's arguments and buffers.
  struct Part {
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<EncodeStats> stats;
  };

  void run_part(const RunContext& context, size_t part);

  const PlanContext& plan_;
  const Graph& graph_;
  const Node& node_;
  const Function function_;
  const size_t items_;
  const bool silent_;
  std::vector<Input> in_;
  std::vector<Output> out_;
  size_t chunk_ = 1;   // examples
  size_t stride_ = 0;  // bytes of a thread's buffers
  std::vector<Part> parts_;
  std::vector<const uint8_t*> base_in_;  // of this run; null if by chunk
  std::vector<uint8_t*> base_out_;
};

ExampleTask::ExampleTask(const Problem& problem, Function function, const Rule& rule)
    : plan_(problem.plan),
      graph_(problem.graph()),
      node_(problem.root()),
      function_(function),
      items_(rule.items(problem)),
      silent_(rule.silent) {
  size_t largest = 1;
  BatchSlices chunks{.items = static_cast<int64_t>(items_)};
  const auto by_chunk = [&](size_t granule, size_t floats) {
    chunks.add_decoded(granule, floats);
    return Reach::by_chunk;
  };
  for (size_t i = 0; i < node_.in.size(); ++i) {
    const TensorInfo& info = problem.tensor(node_.in[i]);
    const bool shared = (rule.shared >> i & 1) != 0;
    Input input{node_.in[i], info.element == Element::real, 0, info.elements() / items_};
    if (!shared) input.item = input.floats * element_bytes(info.element);
    if (input.real) {
      input.reader = Reader(problem, input.id);
      if (!input.reader.is_direct()) {
        input.reach = shared || input.reader.granule() == 0 ? Reach::as_whole
                                                            : by_chunk(input.reader.granule(), input.floats);
      }
    }
    if (!shared) largest = std::max(largest, input.floats);
    in_.push_back(input);
  }
  for (const TensorId id : node_.out) {
    const TensorInfo& info = problem.tensor(id);
    Output output{id, info.element == Element::real, 0, info.elements() / items_};
    output.item = output.floats * element_bytes(info.element);
    if (output.real) {
      output.writer = Writer(problem, node_, id);
      if (!output.writer.may_be_direct() || info.kind == Kind::grad_sum) {
        output.reach =
            output.writer.granule() == 0 ? Reach::as_whole : by_chunk(output.writer.granule(), output.floats);
      }
    }
    largest = std::max(largest, output.floats);
    out_.push_back(output);
  }
  // Every thread should get something.
  const auto threads = static_cast<size_t>(thread_count());
  const size_t wanted = std::min(std::max<size_t>(kChunk / largest, 1), (items_ + threads - 1) / threads);
  chunk_ = static_cast<size_t>(chunks.whole_quanta(static_cast<int64_t>(wanted)));

  Workspace shared, own;
  const auto place = [&](auto& operand, size_t elements) {
    if (operand.reach == Reach::as_whole) operand.place = shared.book(elements);
    if (operand.reach == Reach::by_chunk) operand.place = own.book(chunk_ * operand.floats);
  };
  for (Input& input : in_) place(input, input.reader.elements());
  for (Output& output : out_) place(output, output.writer.elements());
  const size_t begin = shared.bytes();
  for (Input& input : in_) input.place += input.reach == Reach::by_chunk ? begin : 0;
  for (Output& output : out_) output.place += output.reach == Reach::by_chunk ? begin : 0;
  stride_ = own.bytes();
  parts_.resize(std::min(threads, (items_ + chunk_ - 1) / chunk_));
  for (Part& part : parts_) {
    part.in.resize(in_.size());
    part.out.resize(out_.size());
    part.stats.resize(out_.size());
  }
  base_in_.resize(in_.size());
  base_out_.resize(out_.size());
  workspace_ = begin + parts_.size() * stride_;
}

void ExampleTask::run(const RunContext& context) {
  for (size_t i = 0; i < in_.size(); ++i) {
    const Input& input = in_[i];
    if (input.reach == Reach::in_place) base_in_[i] = context.bytes(input.id);
    if (input.reach == Reach::as_whole) {
      base_in_[i] = reinterpret_cast<const uint8_t*>(input.reader.all(context, floats(context, input.place)));
    }
  }
  for (size_t i = 0; i < out_.size(); ++i) {
    const Output& output = out_[i];
    float* direct = output.real ? output.writer.direct(context) : nullptr;
    base_out_[i] = direct != nullptr                 ? reinterpret_cast<uint8_t*>(direct)
                   : output.reach == Reach::in_place ? context.bytes(output.id)
                   : output.reach == Reach::as_whole ? context.workspace + output.place
                                                     : nullptr;
  }
  parallel_for(parts_.size(), 1, [&](size_t begin, size_t end) {
    for (size_t part = begin; part < end; ++part) run_part(context, part);
  });
  for (const Output& output : out_) {
    if (output.reach == Reach::as_whole) output.writer.all(context, floats(context, output.place));
  }
}

void ExampleTask::run_part(const RunContext& context, size_t number) {
  Part& part = parts_[number];
  std::fill(part.stats.begin(), part.stats.end(), EncodeStats{});
  const size_t chunks = (items_ + chunk_ - 1) / chunk_, offset = number * stride_;
  for (size_t chunk = chunks * number / parts_.size(); chunk < chunks * (number + 1) / parts_.size();
       ++chunk) {
    const size_t first = chunk * chunk_, count = std::min(chunk_, items_ - first);
    for (size_t i = 0; i < in_.size(); ++i) {
      const Input& input = in_[i];
      if (input.reach != Reach::by_chunk) {
        part.in[i] = base_in_[i] + first * input.item;
        continue;
      }
      float* buffer = floats(context, input.place + offset);
      input.reader.read(context, first * input.floats, {buffer, count * input.floats});
      part.in[i] = buffer;
    }
    for (size_t i = 0; i < out_.size(); ++i) {
      const Output& output = out_[i];
      part.out[i] = base_out_[i] != nullptr ? base_out_[i] + first * output.item
                                            : context.workspace + output.place + offset;
    }
    function_({{graph_, node_, part.in, part.out}, plan_, first, count});
    for (size_t i = 0; i < out_.size(); ++i) {
      const Output& output = out_[i];
      if (base_out_[i] != nullptr) continue;
      output.writer.write(context, first * output.floats,
                          {floats(context, output.place + offset), count * output.floats}, part.stats[i]);
    }
  }
  for (size_t i = 0; i < out_.size(); ++i) {
    if (out_[i].reach == Reach::by_chunk && !silent_) context.report(out_[i].id, part.stats[i]);
  }
}

}  // namespace

size_t Rule::items(const Problem& problem) const {
  const Node& node = problem.root();
  switch (item) {
    case Item::image:
      return static_cast<size_t>(problem.shape(node.in[0])[0]);
    case Item::row:
      return problem.shape(node.in[0]).rows();
    case Item::joined:
      return joined_rows(node, problem.shape(node.in[0])).count;
    case Item::result:
      return problem.shape(node.out[0]).rows();
    case Item::index:
      return problem.shape(node.in[1]).elements();
  }
  return 1;
}

std::string why_not(const Problem& problem) {
  if (!problem.inlined.empty() || problem.roots.size() != 1)
    return "it runs one node and computes nothing inside";
  return "";
}

std::unique_ptr<Task> make_task(const Problem& problem, Function function, const Rule& rule) {
  return std::make_unique<ExampleTask>(problem, function, rule);
}

}  // namespace example

std::span<const KernelDef> example_kernels() {
  static const std::vector<KernelDef> kernels = [] {
    std::vector<KernelDef> all;
    for (const auto family : {example::pool_kernels, example::loss_kernels, example::norm_kernels,
                              example::move_kernels, example::product_kernels}) {
      const auto some = family();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return kernels;
}

}  // namespace ulp
