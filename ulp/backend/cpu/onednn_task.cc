#include "ulp/backend/cpu/onednn_task.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ulp/backend/cpu/onednn.h"
#include "ulp/backend/slices.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace onednn {
namespace {

// Elements that a thread takes; a multiple of every granule.
constexpr size_t kGrain = size_t{1} << 16;
// Decoded slices of this many bytes are still in the cache when the primitive reads them: faster
// than larger ones.
constexpr size_t kNear = size_t{8} << 20;

void check(dnnl_status_t status, std::string_view what) {
  if (status != dnnl_success) fail("onednn", "{}: status {}", what, static_cast<int>(status));
}

// Primitives are made for a number of threads, and some rely on getting it.
class Threads {
 public:
  explicit Threads(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

void bind(const dnnl::memory& memory, const void* data) {
  if (memory.get_data_handle() != data) memory.set_data_handle(const_cast<void*>(data));
}

void encode_slice(const Writer& writer, const RunContext& context, size_t first, size_t n, const float* in) {
  parallel_for(n, kGrain, [&](size_t begin, size_t end) {
    EncodeStats stats;
    writer.write(context, first + begin, {in + begin, end - begin}, stats);
    context.report(writer.id(), stats);
  });
}

void add(float* total, const float* part, size_t n) {
  parallel_for(n, kGrain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) total[i] += part[i];
  });
}

// A primitive for a number of items with its arguments; only addresses change from run to run.
class Stage {
 public:
  Stage() = default;
  Stage(const OnednnProduct& product, const Offer& offer) : primitive_(offer.compile()) {
    for (size_t i = 0; i < product.in.size(); ++i) in.push_back(argument(product.in[i].arg, offer.in[i]));
    out = argument(product.out.arg, offer.out);
    if (product.weight) weight = argument(product.weight_arg, offer.weight);
    if (product.bias) bias = argument(DNNL_ARG_BIAS, offer.bias);
    if (offer.scratchpad > 0) {
      scratchpad =
          argument(DNNL_ARG_SCRATCHPAD, Desc({static_cast<int64_t>(offer.scratchpad)},
                                             dnnl::memory::data_type::u8, dnnl::memory::format_tag::x));
    }
  }

  void run() const {
    check(dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(args_.size()),
                                 args_.data()),
          "a primitive failed");
  }

  std::vector<dnnl::memory> in;
  dnnl::memory out, weight, bias, scratchpad;

 private:
  dnnl::memory argument(int arg, const Desc& desc) {
    dnnl::memory memory(desc, engine(), DNNL_MEMORY_NONE);
    args_.push_back({arg, memory.get()});
    return memory;
  }

  dnnl::primitive primitive_;
  std::vector<dnnl_exec_arg_t> args_;
};

// From one layout to another.
class Reorder {
 public:
  Reorder() = default;
  Reorder(const Desc& from, const Desc& to) {
    const dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attributes());
    space_ = pd.scratchpad_desc().get_size();
    primitive_ = dnnl::reorder(pd);
    from_ = dnnl::memory(from, engine(), DNNL_MEMORY_NONE);
    to_ = dnnl::memory(to, engine(), DNNL_MEMORY_NONE);
    args_ = {{DNNL_ARG_FROM, from_.get()}, {DNNL_ARG_TO, to_.get()}};
    if (space_ > 0) {
      scratchpad_ = dnnl::memory(pd.scratchpad_desc(), engine(), DNNL_MEMORY_NONE);
      args_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
    }
  }

  size_t space() const { return space_; }
  void run(const float* from, float* to, void* space) const {
    bind(from_, from);
    bind(to_, to);
    if (space_ > 0) bind(scratchpad_, space);
    check(dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(args_.size()),
                                 args_.data()),
          "a reorder failed");
  }

 private:
  dnnl::primitive primitive_;
  dnnl::memory from_, to_, scratchpad_;
  std::vector<dnnl_exec_arg_t> args_;
  size_t space_ = 0;
};

// How an operand that is sliced along the batch is accessed.
enum class Reach {
  in_place,  // it is fp32
  by_slice,  // each slice goes through a buffer
  as_whole,  // all of it is in a buffer
};

class ProductTask : public Task {
 public:
  ProductTask(const Problem& problem, OnednnProduct product);
  void run(const RunContext& context) override;

 private:
  // Offsets in the workspace.
  struct Places {
    size_t weight = 0, decoded_weight = 0, bias = 0, out = 0, total = 0, part = 0, plain = 0, scratchpad = 0,
           space = 0;
    std::array<size_t, 2> in = {};
    size_t bytes = 0;
  };

  bool choose(bool plain);
  Places place(const Offer& offer, int64_t slice, size_t scratchpad) const;
  bool surely_in_place() const { return writer_.may_be_direct() && !grad_sum_; }
  const float* load_weight(const RunContext& context) const;
  void run_slices(const RunContext& context, float* result);
  void finish(const RunContext& context, float* result) const;

  OnednnProduct product_;
  BatchSlices slices_;
  size_t limit_;
  int threads_;
  std::vector<Reader> in_;
  std::vector<Reach> reach_in_;
  Reader weight_, bias_;
  Writer writer_;
  Reach reach_out_ = Reach::in_place;
  bool grad_sum_ = false;

  int64_t slice_ = 0;
  Offer main_offer_, tail_offer_;
  Stage main_, tail_;
  bool reorders_ = false;
  Reorder reorder_;
  Places at_;
};

ProductTask::ProductTask(const Problem& problem, OnednnProduct product)
    : product_(std::move(product)),
      slices_{.items = product_.items},
      limit_(problem.plan.options.workspace),
      threads_(thread_count()) {
  for (const Sliced& operand : product_.in) {
    in_.emplace_back(problem, operand.id);
    const Reader& reader = in_.back();
    reach_in_.push_back(reader.is_direct()      ? Reach::in_place
                        : reader.granule() == 0 ? Reach::as_whole
                                                : Reach::by_slice);
    if (reach_in_.back() == Reach::by_slice) slices_.add_decoded(reader.granule(), operand.item);
  }
  if (product_.weight) weight_ = Reader(problem, product_.weight);
  if (product_.bias) bias_ = Reader(problem, product_.bias);
  writer_ = Writer(problem, problem.root(), product_.out.id);
  grad_sum_ = problem.tensor(product_.out.id).kind == Kind::grad_sum;
  if (!product_.summed() && !surely_in_place()) {
    reach_out_ = writer_.granule() == 0 ? Reach::as_whole : Reach::by_slice;
  }
  if (reach_out_ == Reach::by_slice) slices_.add_decoded(writer_.granule(), product_.out.item);

  // A last, smaller slice must take the weight in the layout of the others; if oneDNN cannot, all
  // take it as stored.
  if (!choose(false) && !choose(true)) fail("onednn", "no primitive for a part of {}", problem.root().name);
  main_ = Stage(product_, main_offer_);
  if (product_.items % slice_ != 0) tail_ = Stage(product_, tail_offer_);
  workspace_ = at_.bytes;
}

ProductTask::Places ProductTask::place(const Offer& offer, int64_t slice, size_t scratchpad) const {
  Places at;
  Workspace all;
  const auto items = static_cast<size_t>(slice);
  if (product_.weight) {
    at.weight = reorders_ ? all.book(offer.weight.get_size(), 1) : all.book(weight_.space());
  }
  if (product_.bias) at.bias = all.book(bias_.space());
  for (size_t i = 0; i < in_.size(); ++i) {
    if (reach_in_[i] == Reach::as_whole) at.in[i] = all.book(in_[i].elements());
  }
  if (reach_out_ == Reach::as_whole) at.out = all.book(writer_.elements());
  if (product_.summed() && (reorders_ || !surely_in_place())) at.total = all.book(offer.out.get_size(), 1);

  // Before, during and after the products: never at the same time.
  Workspace before = all, during = all, after = all;
  if (product_.weight && reorders_) {
    at.decoded_weight = before.book(weight_.space());
    at.space = before.book(reorder_.space(), 1);
  }
  for (size_t i = 0; i < in_.size(); ++i) {
    if (reach_in_[i] == Reach::by_slice) at.in[i] = during.book(items * product_.in[i].item);
  }
  if (reach_out_ == Reach::by_slice) at.out = during.book(items * product_.out.item);
  if (product_.summed() && slice < product_.items) at.part = during.book(offer.out.get_size(), 1);
  at.scratchpad = during.book(scratchpad, 1);
  if (product_.summed() && reorders_) {
    at.plain = after.book(surely_in_place() ? 0 : writer_.elements());
    at.space = after.book(reorder_.space(), 1);
  }
  at.bytes = std::max({before.bytes(), during.bytes(), after.bytes()});
  return at;
}

// The largest slices that stay within the limit. If not even the smallest do, slices of a quarter
// of it: what is kept besides them is too large already, and small slices would only be slow.
bool ProductTask::choose(bool plain) {
  const int64_t items = product_.items;
  const auto offer = [&](int64_t n, const Desc* layout) {
    return product_.offer(n, plain ? &product_.plain : layout);
  };
  const auto try_slice = [&](int64_t slice) {
    slice_ = slice;
    main_offer_ = offer(slice, nullptr);
    const Desc& layout = product_.summed() ? main_offer_.out : main_offer_.weight;
    reorders_ = (product_.summed() || product_.weight) && layout != product_.plain;
    if (reorders_) {
      reorder_ = product_.summed() ? Reorder(layout, product_.plain) : Reorder(product_.plain, layout);
    }
    size_t scratchpad = main_offer_.scratchpad;
    if (const int64_t rest = items % slice; rest != 0) {
      tail_offer_ = offer(rest, product_.summed() || product_.weight ? &layout : nullptr);
      scratchpad = std::max(scratchpad, tail_offer_.scratchpad);
    }
    at_ = place(main_offer_, slice, scratchpad);
    return at_.bytes <= limit_;
  };
  try {
    // Each slice costs another pass over the weights.
    const size_t weights = product_.summed() || product_.weight ? product_.plain.get_size() : 0;
    const int64_t fewest = std::max(slices_.slices_within(std::max(kNear, 2 * weights)),
                                    slices_.slices_of_at_most(product_.most_items()));
    if (slices_.slice(fewest) > product_.most_items()) {
      fail("onednn",
           "{} examples, the least that can be decoded at once, have more than 2^31 - 1 elements: "
           "store them in another format",
           slices_.slice(fewest));
    }
    for (int64_t slices = fewest;; slices *= 2) {
      const int64_t slice = slices_.slice(slices);
      if (try_slice(slice)) {
        // The memory besides the slices is known now: fewer slices may do.
        const size_t beside = at_.bytes - slices_.item_bytes * static_cast<size_t>(slice);
        const int64_t fewer = std::max(fewest, slices_.slices_within(limit_ > beside ? limit_ - beside : 0)),
                      larger = slices_.slice(fewer);
        if (larger > slice && try_slice(larger)) return true;
        return try_slice(slice);
      }
      if (slice <= slices_.least()) break;
    }
    try_slice(slices_.slice(std::clamp(slices_.slices_within(limit_ / 4), std::min(fewest, items), items)));
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

const float* ProductTask::load_weight(const RunContext& context) const {
  if (!reorders_) return weight_.all(context, floats(context, at_.weight));
  const float* plain = weight_.all(context, floats(context, at_.decoded_weight));
  reorder_.run(plain, floats(context, at_.weight), context.workspace + at_.space);
  return floats(context, at_.weight);
}

void ProductTask::run(const RunContext& context) {
  const Threads threads(threads_);
  float* result = writer_.direct(context);
  if (product_.summed() && (reorders_ || result == nullptr)) result = floats(context, at_.total);
  if (!product_.summed() && result == nullptr && reach_out_ == Reach::as_whole)
    result = floats(context, at_.out);
  run_slices(context, result);
  finish(context, result);
}

// `result` is null if each slice of it goes through a buffer.
void ProductTask::run_slices(const RunContext& context, float* result) {
  const float* weight = product_.weight ? load_weight(context) : nullptr;
  const float* bias = product_.bias ? bias_.all(context, floats(context, at_.bias)) : nullptr;
  std::array<const float*, 2> in = {};
  for (size_t i = 0; i < in_.size(); ++i) {
    if (reach_in_[i] == Reach::in_place) in[i] = in_[i].direct(context);
    if (reach_in_[i] == Reach::as_whole) in[i] = in_[i].all(context, floats(context, at_.in[i]));
  }

  for (int64_t first = 0; first < product_.items; first += slice_) {
    const int64_t n = std::min(slice_, product_.items - first);
    const Stage& stage = n == slice_ ? main_ : tail_;
    const auto from = [&](size_t item) { return static_cast<size_t>(first) * item; };
    for (size_t i = 0; i < in_.size(); ++i) {
      const size_t item = product_.in[i].item;
      if (in[i] != nullptr) {
        bind(stage.in[i], in[i] + from(item));
        continue;
      }
      float* buffer = floats(context, at_.in[i]);
      in_[i].read_on_threads(context, from(item), {buffer, static_cast<size_t>(n) * item});
      bind(stage.in[i], buffer);
    }
    if (weight != nullptr) bind(stage.weight, weight);
    if (bias != nullptr) bind(stage.bias, bias);
    if (stage.scratchpad) bind(stage.scratchpad, context.workspace + at_.scratchpad);
    if (product_.summed()) {
      float* part = floats(context, at_.part);
      bind(stage.out, first == 0 ? result : part);
      stage.run();
      if (first > 0) add(result, part, main_offer_.out.get_size() / sizeof(float));
      continue;
    }
    const size_t item = product_.out.item;
    float* buffer = floats(context, at_.out);
    bind(stage.out, result != nullptr ? result + from(item) : buffer);
    stage.run();
    if (result == nullptr) encode_slice(writer_, context, from(item), static_cast<size_t>(n) * item, buffer);
  }
}

void ProductTask::finish(const RunContext& context, float* result) const {
  float* direct = writer_.direct(context);
  if (product_.summed() && reorders_) {
    float* plain = direct != nullptr ? direct : floats(context, at_.plain);
    reorder_.run(result, plain, context.workspace + at_.space);
    result = plain;
  }
  if (direct == nullptr && result != nullptr) writer_.all(context, result);
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

const dnnl::stream& stream() {
  static const dnnl::stream only(engine());
  return only;
}

// Strict whatever the environment asks for: fp32 products are never rounded to bf16 or tf32.
dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

Desc dense(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides) {
  return {dims, dnnl::memory::data_type::f32, strides};
}

int64_t OnednnProduct::most_items() const {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  if ((weight || summed()) && plain.get_size() / sizeof(float) > kMost) return 0;
  size_t item = std::max<size_t>(out.item, 1);
  for (const Sliced& operand : in) item = std::max(item, operand.item);
  return static_cast<int64_t>(kMost / item);
}

std::string why_not(const Problem& problem, const std::function<OnednnProduct(const Problem&)>& describe) {
  if (!problem.inlined.empty() || problem.roots.size() != 1)
    return "it runs one node and computes nothing inside";
  if (problem.plan.options.accumulator) return "it accumulates in fp32";
  try {
    const OnednnProduct product = describe(problem);
    const int64_t most = product.most_items();
    if (most == 0) return "an operand has more than 2^31 - 1 elements for one example";
    product.offer(std::min(product.items, most), nullptr);
  } catch (const dnnl::error& error) {
    return fmt::format("oneDNN has no primitive for it: {}", error.what());
  }
  return "";
}

std::unique_ptr<Task> make_task(const Problem& problem, OnednnProduct product) {
  return std::make_unique<ProductTask>(problem, std::move(product));
}

}  // namespace onednn

std::span<const KernelDef> onednn_kernels() {
  using namespace onednn;
  static constexpr KernelDef kernels[] = {
      kernel<describe_conv>("conv2d"),
      kernel<describe_conv_grad_input>("conv2d_grad_input"),
      kernel<describe_conv_grad_weight>("conv2d_grad_weight"),
      kernel<describe_linear>("linear"),
      kernel<describe_linear_grad_input>("linear_grad_input"),
      kernel<describe_linear_grad_weight>("linear_grad_weight"),
      kernel<describe_matmul>("matmul"),
  };
  return kernels;
}

}  // namespace ulp
