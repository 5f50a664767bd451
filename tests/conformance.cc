#include "tests/conformance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "tests/guarded.h"
#include "ulp/backend/access.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/tensor/memory.h"

namespace ulp::conformance {
namespace {

using Bytes = std::vector<uint8_t>;

size_t number(TensorId id) { return static_cast<size_t>(id.index); }

constexpr uint8_t kGarbage = 0xFF;  // floats of it are NaN

// The codes of a tensor and what is beside them, without the bytes that only align.
Bytes stored(const TensorInfo& tensor, const Storage& storage, const uint8_t* data) {
  if (tensor.element != Element::real) {
    return {data, data + tensor.elements() * (tensor.element == Element::int32 ? 4 : 1)};
  }
  const StorageSize size = storage_size(storage, tensor.elements());
  Bytes bytes(data, data + size.code_bytes);
  const uint8_t* side = data + aligned_bytes(size.code_bytes);
  bytes.insert(bytes.end(), side, side + 4 * size.side_words);
  return bytes;
}

// What a kernel left: of each output, and the range events of all tensors.
struct Result {
  std::vector<TensorId> ids;
  std::vector<Bytes> outputs;
  std::vector<EncodeStats> stats;
  std::string note;  // the task's
};

std::string text(const EncodeStats& s) {
  return fmt::format("overflow {}, underflow {}, NaN {}, amax {}", s.overflow, s.underflow, s.nan, s.amax);
}

void expect_events(const EncodeStats& expected, const EncodeStats& reported, std::string_view what) {
  if (expected != reported) ADD_FAILURE() << what << ": " << text(expected) << "; but " << text(reported);
}

class Bench {
 public:
  Bench(const Case& one, const Scheme& scheme)
      : scheme_(scheme), where_(one.name + " in " + std::string(scheme.name)) {
    one.build(sketch_);
    choose_formats();
    fill_memory();
    state_.seed = 11;
    state_.step = 3;
    state_.loss_scale = 128;
    state_.micro_batch = sketch_.micro_batch;
    OptimizerConfig config;
    config.kind = OptimizerKind::adam;
    state_.update = update_scalars(config, 1, 0.05, 1.0 / 128);
    // Nodes one by one; neighbouring updates and sums of squares also as one task, as plans run them.
    std::vector<NodeId> updates, squares;
    for (size_t i = 0; i < graph().node_count(); ++i) {
      const NodeId id{static_cast<int32_t>(i)};
      if (graph()[id].op->form == Form::view) continue;
      units_.push_back({id});
      if (graph()[id].op == &kUpdate) updates.push_back(id);
      if (graph()[id].op == &kGradSquares) squares.push_back(id);
    }
    if (updates.size() > 1) units_.push_back(updates);
    if (squares.size() > 1) units_.push_back(squares);
  }

  std::vector<Checked> reached(const Backend& backend) const {
    std::vector<Checked> all;
    for (const auto& roots : units_) {
      for (const KernelDef* kernel : kernels(backend, roots)) all.push_back({kernel->op, kernel->name});
    }
    return all;
  }

  void check(const Backend& backend) {
    Device& device = device_of(backend);
    for (const auto& roots : units_) {
      const Node& node = graph()[roots[0]];
      const Result expected =
          run(*kernels(reference_backend(), roots).front(), roots, formats_, 1, host_device());
      if (const std::optional<Rule> rule = rule_of(node.op->name); !rule) {
        ADD_FAILURE() << "no rule for " << node.op->name;
      } else {
        const Goal goal = make_goal(*rule, roots, expected);
        for (const KernelDef* kernel : kernels(backend, roots)) check_kernel(*kernel, goal, roots, device);
      }
      keep(expected);
    }
  }

 private:
  const Graph& graph() const { return sketch_.graph; }

  void choose_formats() {
    const auto pick = [&](uint32_t hash) {
      return parse_storage(scheme_.storages[hash % scheme_.storages.size()]);
    };
    const Storage fp32 = parse_storage("fp32");
    for (const TensorInfo& tensor : graph().tensors()) {
      const Storage storage = pick(tensor.number / 7);
      switch (tensor.kind) {
        case Kind::activation:
        case Kind::activation_grad:
        case Kind::weight_grad:
          formats_.push_back({storage, {}});
          break;
        case Kind::weight:
        case Kind::optimizer:
          formats_.push_back({sketch_.narrow_state ? storage : fp32, {}});
          if (tensor.kind == Kind::weight && !sketch_.narrow_state && storage != fp32)
            formats_.back().operand = storage;
          set_storage(tensor, formats_.back());
          break;
        default:
          formats_.push_back({fp32, {}});
      }
    }
    for (size_t i = 0; i < formats_.size(); ++i) {
      formats_[i] = formats_[number(graph().format_of({static_cast<int32_t>(i)}))];
    }
  }

  void set_storage(const TensorInfo& tensor, TensorFormat& format) const {
    const bool weight = tensor.kind == Kind::weight || tensor.name.ends_with(".compensation");
    if (const std::string& name = weight ? sketch_.weights : sketch_.states; !name.empty())
      format = {parse_storage(name), {}};
  }

  // Signs and magnitudes of all kinds; some round to zero and some overflow in the narrow formats.
  float random_value() {
    const auto word = static_cast<uint32_t>(random_());
    const float unit = std::uniform_real_distribution<float>(-1, 1)(random_) * sketch_.scale;
    if (sketch_.specials && word % 16 == 3) {
      static constexpr float kInfinity = std::numeric_limits<float>::infinity();
      static const std::array<float, 12> kSpecials = {
          std::nanf(""), -std::nanf(""), std::nanf("77"), kInfinity, -kInfinity, 0.0f,
          -0.0f,         0x1p-149f,      -0x1.8p-130f,    0x1p-126f, 1e30f,      -1e30f};
      return kSpecials[word / 16 % kSpecials.size()];
    }
    if (word % 16 == 1) return std::ldexp(unit, -15);
    if (word % 32 == 2) return std::ldexp(unit, 6);
    return std::ldexp(unit, -static_cast<int>(word / 32 % 4));
  }
  std::vector<float> random_values(const TensorInfo& tensor) {
    std::vector<float> values(tensor.elements());
    for (float& value : values) {
      value = random_value();
      // Variances, running or Adam's, are not negative.
      if (tensor.kind == Kind::statistic || tensor.kind == Kind::optimizer) value = std::abs(value);
    }
    return values;
  }

  void fill_memory() {
    for (size_t i = 0; i < graph().tensor_count(); ++i) {
      const TensorInfo& tensor = graph().tensors()[i];
      memory_.emplace_back(tensor_bytes(tensor, formats_[i].storage), kGarbage);
      if (sketch_.below.contains(static_cast<int32_t>(i))) {
        std::uniform_int_distribution<int32_t> any(
            0, static_cast<int32_t>(sketch_.below.at(static_cast<int32_t>(i)) - 1));
        std::vector<int32_t>& feed = index_feeds_[i];
        for (size_t k = 0; k < tensor.elements(); ++k) feed.push_back(any(random_));
      } else if (tensor.element == Element::real) {
        feeds_[i] = random_values(tensor);
        if (!tensor.producer || is_state(tensor.kind) || tensor.kind == Kind::grad_sum) set(i, feeds_[i]);
      }
    }
    for (size_t i = 0; i < graph().tensor_count(); ++i) {
      data_.push_back(memory_[number(graph().bytes_of({static_cast<int32_t>(i)}))].data());
      const void* feed = index_feeds_.contains(i) ? static_cast<const void*>(index_feeds_[i].data())
                                                  : static_cast<const void*>(feeds_[i].data());
      feed_data_.push_back(feed);
    }
  }

  void set(size_t i, std::span<const float> values) {
    const Storage& storage = formats_[i].storage;
    const StorageSize size = storage_size(storage, values.size());
    uint8_t* data = memory_[i].data();
    encode(storage, {{}, rounding({static_cast<int32_t>(i)}).overflow, {}}, values, {data, size.code_bytes},
           {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words});
  }

  // The reference's results are what later nodes read, except gradients: those get fresh numbers, as what arrives from
  // a loss is often all small, or all alike.
  void keep(const Result& result) {
    for (size_t k = 0; k < result.ids.size(); ++k) {
      const size_t i = number(result.ids[k]);
      const TensorInfo& tensor = graph().tensors()[i];
      if (tensor.kind == Kind::activation_grad || tensor.kind == Kind::weight_grad) {
        set(number(graph().bytes_of(result.ids[k])), random_values(tensor));
        continue;
      }
      const Bytes& bytes = result.outputs[k];
      const bool real = tensor.element == Element::real;
      const size_t codes =
          real ? storage_size(formats_[i].storage, tensor.elements()).code_bytes : bytes.size();
      std::copy_n(bytes.data(), codes, data_[i]);
      std::copy(bytes.begin() + static_cast<ptrdiff_t>(codes), bytes.end(), data_[i] + aligned_bytes(codes));
    }
  }

  PlanContext plan(std::span<const TensorFormat> formats) const {
    return {graph(), formats, scheme_.round, scheme_.overflow, scheme_.workspace, scheme_.accumulator};
  }

  // All kernels but the reference that take it; the reference where it is alone.
  std::vector<const KernelDef*> kernels(const Backend& backend, const std::vector<NodeId>& roots) const {
    const PlanContext context = plan(formats_);
    const Problem problem{context, {}, roots, {}};
    std::vector<const KernelDef*> take;
    for (const KernelDef& kernel : backend.kernels) {
      if (kernel.op != problem.root().op->name || !kernel.why_not(problem).empty()) continue;
      if (kernel.name != "reference" || take.empty()) take.push_back(&kernel);
    }
    if (take.empty())
      ADD_FAILURE() << where_ << ": no kernel of " << backend.name << " takes " << problem.root().name;
    return take;
  }

  Result run(const KernelDef& kernel, const std::vector<NodeId>& roots, std::span<const TensorFormat> formats,
             int threads, Device& device) {
    set_thread_count(threads);
    const PlanContext context = plan(formats);
    const Problem problem{context, {}, roots, {}};
    const std::unique_ptr<Task> task = kernel.make(problem);
    Result result;
    result.note = task->note();
    for (const NodeId root : roots) {
      result.ids.insert(result.ids.end(), graph()[root].out.begin(), graph()[root].out.end());
    }
    result.stats.resize(graph().tensor_count());
    // What is changed in place starts as it is, the rest as garbage.
    std::vector<uint8_t*> data = data_;
    std::vector<Guarded> outputs;
    outputs.reserve(result.ids.size());
    for (const TensorId id : result.ids) {
      const TensorInfo& tensor = graph()[id];
      const size_t bytes = tensor_bytes(tensor, formats[number(id)].storage);
      outputs.emplace_back(bytes, kGarbage);
      data[number(id)] = outputs.back().data();
      if (is_state(tensor.kind) || tensor.kind == Kind::grad_sum)
        std::memcpy(data[number(id)], data_[number(id)], bytes);
    }
    const Guarded workspace(task->workspace(), kGarbage);
    RunContext run;
    run.data = data;
    run.feeds = feed_data_;
    run.state = &state_;
    run.workspace = workspace.data();
    run.stats = result.stats.data();
    if (device.on_host()) {
      task->run(run);
    } else {
      run_there(device, *task, roots, outputs, workspace, result, run);
    }
    EXPECT_TRUE(workspace.whole()) << where_ << ": " << problem.root().name << " wrote beyond its workspace";
    for (size_t k = 0; k < outputs.size(); ++k) {
      EXPECT_TRUE(outputs[k].whole()) << where_ << ": wrote beyond " << graph()[result.ids[k]].name;
      result.outputs.push_back(
          stored(graph()[result.ids[k]], formats[number(result.ids[k])].storage, outputs[k].data()));
    }
    return result;
  }

  void run_there(Device& device, Task& task, const std::vector<NodeId>& roots,
                 const std::vector<Guarded>& outputs, const Guarded& workspace, Result& result,
                 RunContext& run) const {
    There there(device);
    std::vector<uint8_t*> data(graph().tensor_count());
    std::vector<const void*> feeds(graph().tensor_count());
    for (const NodeId root : roots) {
      for (const TensorId in : graph()[root].in)
        data[number(in)] = there.take(memory_[number(graph().bytes_of(in))]);
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      const TensorId id = result.ids[k];
      data[number(id)] = there.take(outputs[k]);
      if (graph()[graph()[id].producer].in.empty())
        feeds[number(id)] = there.take(feed_data_[number(id)], sizeof(float) * graph()[id].elements());
    }
    run.data = data;
    run.feeds = feeds;
    run.workspace = there.take(workspace);
    run.state = reinterpret_cast<const StepState*>(there.take(&state_, sizeof state_));
    const size_t bytes = sizeof(EncodeStats) * result.stats.size();
    run.stats = reinterpret_cast<EncodeStats*>(there.take(result.stats.data(), bytes));
    there.run(task, run);
    there.bring();
    device.download(result.stats.data(), reinterpret_cast<const uint8_t*>(run.stats), bytes);
  }

  // What a kernel is held to; `exact` and `allowed` where results have a bound.
  struct Goal {
    Result expected, exact;  // as stored; in fp32, what the reference would encode
    Allowed allowed;
    std::vector<TensorFormat> wide;  // the formats with all results in fp32
  };

  Goal make_goal(const Rule& rule, const std::vector<NodeId>& roots, const Result& expected) {
    Goal goal{expected, {}, {}, formats_};
    if (rule.allowed == nullptr || (is_product(rule.op) && scheme_.accumulator)) return goal;
    for (const TensorId out : expected.ids) goal.wide[number(out)] = {parse_storage("fp32"), {}};
    goal.exact = run(*kernels(reference_backend(), roots).front(), roots, goal.wide, 1, host_device());
    for (const NodeId root : roots) {
      for (std::vector<double>& bounds : rule.allowed(view(root))) goal.allowed.push_back(std::move(bounds));
    }
    return goal;
  }

  void check_kernel(const KernelDef& kernel, const Goal& goal, const std::vector<NodeId>& roots,
                    Device& device) {
    SCOPED_TRACE(fmt::format("{}: {} by {}/{}", where_, graph()[roots[0]].name, kernel.op, kernel.name));
    // Primitives of a library may be cut in another way on another number of threads.
    const bool library = kernel.name == "onednn";
    const Result one = run(kernel, roots, formats_, 1, device), two = run(kernel, roots, formats_, 2, device);
    if (!library) expect_same(one, two, "one thread and two");
    if (goal.allowed.empty()) {
      expect_same(goal.expected, two, "the reference and the kernel", moves_codes(roots[0]));
      return;
    }
    expect_close(kernel, goal, roots, two, 2, device);
    if (library) expect_close(kernel, goal, roots, one, 1, device);
    for (const TensorId in : graph()[roots[0]].in) {
      expect_events(goal.expected.stats[number(in)], two.stats[number(in)], "reading " + graph()[in].name);
    }
  }

  // Joining or splitting tensors of one format rounds nothing: a kernel may move codes without looking at them.
  bool moves_codes(NodeId id) const {
    const Node& node = graph()[id];
    const auto alike = [&](TensorId tensor) {
      return formats_[number(tensor)].storage == formats_[number(node.in[0])].storage;
    };
    return (node.op == &kConcat || node.op == &kSplit) &&
           std::all_of(node.in.begin(), node.in.end(), alike) &&
           std::all_of(node.out.begin(), node.out.end(), alike);
  }

  void expect_same(const Result& a, const Result& b, std::string_view which, bool moves = false) {
    for (size_t k = 0; k < a.ids.size(); ++k) {
      const auto [x, y] = std::mismatch(a.outputs[k].begin(), a.outputs[k].end(), b.outputs[k].begin());
      if (x == a.outputs[k].end()) continue;
      ADD_FAILURE() << which << " differ in " << graph()[a.ids[k]].name << ", "
                    << storage_name(formats_[number(a.ids[k])].storage) << " of "
                    << shape_text(graph()[a.ids[k]].shape) << ", byte " << x - a.outputs[k].begin() << ": "
                    << static_cast<int>(*x) << " and " << static_cast<int>(*y);
    }
    for (size_t i = 0; i < a.stats.size(); ++i) {
      if (moves && b.stats[i] == EncodeStats{}) continue;
      expect_events(a.stats[i], b.stats[i],
                    fmt::format("{} report other events of {}, {}", which, graph().tensors()[i].name,
                                storage_name(formats_[i].storage)));
    }
  }

  View view(NodeId id) {
    const PlanContext context = plan(formats_);
    const Problem problem{context, {}, {id}, {}};
    std::vector<EncodeStats> ignored(graph().tensor_count());
    RunContext run;
    run.data = data_;
    run.state = &state_;
    run.stats = ignored.data();
    View v{graph(), graph()[id], {}, {}, state_.update.grad_scale};
    for (const TensorId in : graph()[id].in) {
      v.integers.push_back(reinterpret_cast<const int32_t*>(data_[number(in)]));
      v.real.emplace_back();
      if (graph()[in].element != Element::real) continue;
      const Reader reader(problem, in);
      v.real.back().resize(reader.elements());
      const float* values = reader.all(run, v.real.back().data());
      if (values != v.real.back().data()) std::copy_n(values, reader.elements(), v.real.back().data());
    }
    return v;
  }

  void expect_close(const KernelDef& kernel, const Goal& goal, const std::vector<NodeId>& roots,
                    const Result& result, int threads, Device& device) {
    ASSERT_EQ(goal.allowed.size(), result.ids.size());
    for (size_t k = 0; k < result.ids.size(); ++k) {
      const TensorId out = result.ids[k];
      if (graph()[out].element != Element::real) {
        const double a = double_of(result.outputs[k]), b = double_of(goal.exact.outputs[k]);
        const bool same = a == b || (std::isnan(a) && std::isnan(b));
        EXPECT_TRUE(same || std::abs(a - b) <= goal.allowed[k][0])
            << graph()[out].name << ": " << a << ", not " << b;
        continue;
      }
      const std::vector<float> middle = floats_of(goal.exact.outputs[k]);
      std::vector<double> allowed = goal.allowed[k];
      ASSERT_EQ(allowed.size(), middle.size());
      if (graph()[out].kind == Kind::grad_sum) {  // the addition to what is there rounds too
        for (size_t i = 0; i < middle.size(); ++i) allowed[i] += std::abs(middle[i]) * 0x1p-23;
      }
      const Storage& storage = formats_[number(out)].storage;
      if (const Plain* plain = std::get_if<Plain>(&storage)) {
        expect_within(out, plain->format, result.outputs[k], result.stats[number(out)], middle, allowed,
                      events_of(result, out));
        continue;
      }
      // Every code of such a storage hangs on the whole tensor. So the kernel is asked for fp32, that is held to the
      // bound, and encoding it must give what the kernel stores.
      const Result own = run(kernel, roots, goal.wide, threads, device);
      expect_within(out, parse_format("fp32"), own.outputs[k], {}, middle, allowed);
      const std::vector<float> values = floats_of(own.outputs[k]);
      const StorageSize size = storage_size(storage, values.size());
      Bytes codes(size.code_bytes);
      std::vector<uint32_t> side(size.side_words);
      const EncodeStats stats = encode(storage, rounding(out), values, codes, side);
      const auto* words = reinterpret_cast<const uint8_t*>(side.data());
      codes.insert(codes.end(), words, words + 4 * side.size());
      EXPECT_EQ(codes, result.outputs[k]) << graph()[out].name << " is not its own fp32 result encoded once";
      expect_events(stats, result.stats[number(out)], graph()[out].name);
    }
  }

  static double double_of(const Bytes& bytes) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  static std::vector<float> floats_of(const Bytes& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  Rounding rounding(TensorId id) const {
    return tensor_rounding(plan(formats_), graph()[id], formats_[number(id)].storage, state_);
  }

  // Of which numbers range events are reported.
  enum class Events : uint8_t { sums, codes, codes_or_none };

  // What a GPU's library writes in bf16 itself is looked at as it is stored, or, but for gradients of weights, not at all
  // (docs/gpu.md). The task says so.
  Events events_of(const Result& result, TensorId out) const {
    if (!result.note.ends_with("the library writes bf16")) return Events::sums;
    EXPECT_EQ(storage_name(formats_[number(out)].storage), "bf16");
    return graph()[out].kind == Kind::weight_grad ? Events::codes : Events::codes_or_none;
  }

  // Encoding is monotone, also with a given random word: a stored value is right if it lies between what the ends of
  // the interval are encoded to, and the number of events between those that must and those that may have happened.
  // The sign of a NaN, which a format without NaN keeps, is nobody's business where numbers are added up.
  void expect_within(TensorId id, const FloatFormat& format, const Bytes& bytes, const EncodeStats& stats,
                     std::span<const float> middle, std::span<const double> allowed,
                     Events of = Events::sums) {
    const bool narrow = format != parse_format("fp32");
    std::vector<float> values(middle.size());
    decode(format, bytes, values);
    const Rounding how = rounding(id);
    const CodecSpec spec = make_spec(format, how.overflow);
    const auto stored_as = [&](float x, uint32_t random, EncodeStats& events) {
      if (!narrow) return x;  // as it is: an infinity stays one
      const Encoded made = encode_scalar(spec, how.mode, float_bits(x), random);
      const float value = bits_float(decode_scalar(spec, made.code)), seen = of == Events::sums ? x : value;
      events = {made.event == RangeEvent::overflow, made.event == RangeEvent::underflow,
                made.event == RangeEvent::nan, std::isnan(seen) ? 0 : std::abs(seen)};
      return value;
    };
    EncodeStats least, most;
    size_t wrong = 0;
    for (size_t i = 0; i < middle.size(); ++i) {
      if (std::isinf(allowed[i])) {  // anything
        most.merge({1, 1, 1, std::numeric_limits<float>::infinity()});
        continue;
      }
      // Rounding the ends to fp32 is monotone too: it shuts out no number between them.
      const float low = static_cast<float>(middle[i] - allowed[i]),
                  high = static_cast<float>(middle[i] + allowed[i]);
      const uint32_t random = how.mode == Round::stochastic ? random_word(how.key, i) : 0;
      EncodeStats a, b;
      const float from = stored_as(low, random, a), to = stored_as(high, random, b);
      const bool right = std::isnan(middle[i])
                             ? std::isnan(values[i]) || std::abs(values[i]) == std::abs(from)
                             : values[i] >= from && values[i] <= to;
      if (!right && ++wrong <= 3) {
        ADD_FAILURE() << graph()[id].name << ", " << format_name(format) << " of "
                      << shape_text(graph()[id].shape) << ", element " << i << " is " << values[i]
                      << ", not in [" << from << ", " << to << "]; the reference has " << middle[i]
                      << ", allowed are " << allowed[i];
      }
      const bool around_zero = low <= 0 && high >= 0;
      least.overflow += std::min(a.overflow, b.overflow);
      most.overflow += std::max(a.overflow, b.overflow);
      least.underflow += around_zero ? 0 : std::min(a.underflow, b.underflow);
      most.underflow += around_zero && low < high ? 1 : std::max(a.underflow, b.underflow);
      least.nan += a.nan;
      most.nan += b.nan;
      least.amax = std::max(least.amax, around_zero ? 0 : std::min(a.amax, b.amax));
      most.amax = std::max({most.amax, a.amax, b.amax});
    }
    EXPECT_EQ(wrong, 0u) << "elements of " << graph()[id].name;
    if (of == Events::codes_or_none && stats == EncodeStats{}) return;
    const bool counted = least.overflow <= stats.overflow && stats.overflow <= most.overflow &&
                         least.underflow <= stats.underflow && stats.underflow <= most.underflow &&
                         least.nan <= stats.nan && stats.nan <= most.nan && least.amax <= stats.amax &&
                         stats.amax <= most.amax;
    if (narrow && !counted) {
      ADD_FAILURE() << graph()[id].name << ", " << format_name(format) << " reports " << text(stats)
                    << ", not between " << text(least) << " and " << text(most);
    }
  }

  Sketch sketch_;
  const Scheme& scheme_;
  const std::string where_;
  std::vector<TensorFormat> formats_;
  std::mt19937 random_{20261115};
  std::vector<Guarded> memory_;  // by tensor
  std::map<size_t, std::vector<float>> feeds_;
  std::map<size_t, std::vector<int32_t>> index_feeds_;
  std::vector<uint8_t*> data_;
  std::vector<const void*> feed_data_;
  StepState state_;
  std::vector<std::vector<NodeId>> units_;
};

}  // namespace

std::vector<Checked> reached(const Case& one, const Scheme& scheme, const Backend& backend) {
  return Bench(one, scheme).reached(backend);
}

void check(const Case& one, const Scheme& scheme, const Backend& backend) {
  Bench(one, scheme).check(backend);
}

}  // namespace ulp::conformance
