#include "ulp/backend/cuda/library/library_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "ulp/backend/cuda/library/library.h"
#include "ulp/backend/slices.h"
#include "ulp/base/error.h"
#include "ulp/tensor/memory.h"

namespace ulp::cuda {
namespace {

// Units of a slice: slices of any code width then begin at whole groups.
constexpr int64_t kLeast = 8;
constexpr size_t kAlignment = 256;            // of the libraries' workspace
constexpr size_t kEnough = size_t{32} << 20;  // workspace that a library may always have

DecodedType target_of(Unit unit) {
  switch (unit) {
    case Unit::bf16:
      return DecodedType::bf16;
    case Unit::fp16:
      return DecodedType::fp16;
    case Unit::e4m3:
      return DecodedType::e4m3;
    default:
      return DecodedType::fp32;
  }
}

bool dense(const Matrix& matrix) { return matrix.channels == matrix.padded && matrix.more == 0; }

// An operand on its way to the library.
class Input {
 public:
  Input() = default;
  Input(const Problem& problem, const Matrix& matrix, Unit unit)
      : matrix_(matrix), operand_(problem, matrix.id), size_(operand_bytes(unit)), target_(target_of(unit)) {
    const bool fits = operand_bytes(unit) == sizeof(float)
                          ? operand_.fp32()
                          : operand_.plain() && operand_.format() == operand_format(unit);
    in_place_ = fits && dense(matrix) && !matrix.window;
    once_ = matrix.whole || !operand_.in_groups();
  }

  // Bytes per item of a slice.
  size_t item_bytes() const { return in_place_ || once_ ? 0 : matrix_.rows * matrix_.padded * size_; }

  void book(Workspace& space, int64_t items, int64_t slice) {
    if (in_place_) return;
    const auto copies = static_cast<uint64_t>(matrix_.whole ? 1 : once_ ? items : slice);
    at_ = space.book(copies * (matrix_.rows + matrix_.more) * matrix_.padded, size_);
    // An operand that is rounded as a whole is padded afterwards.
    if (!operand_.in_groups() && matrix_.channels != matrix_.padded)
      unpadded_ = space.book(operand_.elements());
  }

  // Work done once, before the slices.
  void begin(const RunContext& context, int64_t items, void* convert_space) const {
    if (in_place_ || !once_) return;
    const uint64_t rows = matrix_.rows * static_cast<uint64_t>(matrix_.whole ? 1 : items);
    uint8_t* out = context.workspace + at_;
    if (operand_.in_groups() || matrix_.channels == matrix_.padded) {
      load(context, 0, rows, out, convert_space);
    } else {
      decode(operand_.view(context), context.state, Rows::all(operand_.elements()), DecodedType::fp32,
             floats(context, unpadded_), convert_space, context.stream);
      copy_rows(reinterpret_cast<float*>(out), matrix_.padded, floats(context, unpadded_), matrix_.channels,
                rows, matrix_.channels, context.stream);
    }
    if (matrix_.more > 0)
      clear_bytes(out + rows * matrix_.padded * size_, matrix_.more * matrix_.padded * size_, context.stream);
  }

  // The operand of items from `first` on.
  const void* slice(const RunContext& context, int64_t first, int64_t items, void* convert_space) const {
    const uint64_t skipped = matrix_.whole ? 0 : static_cast<uint64_t>(first) * matrix_.rows;
    if (in_place_) return context.bytes(matrix_.id) + skipped * matrix_.channels * size_;
    uint8_t* out = context.workspace + at_;
    if (once_) return out + skipped * matrix_.padded * size_;
    if (matrix_.window) {
      gather_windows(operand_.view(context).stored, *matrix_.window, static_cast<uint64_t>(first),
                     static_cast<uint64_t>(items), static_cast<uint32_t>(matrix_.padded), target_, out,
                     context.stream);
    } else {
      load(context, skipped, static_cast<uint64_t>(items) * matrix_.rows, out, convert_space);
    }
    return out;
  }

 private:
  void load(const RunContext& context, uint64_t first, uint64_t rows, void* out, void* convert_space) const {
    decode(operand_.view(context), context.state, {first, rows, matrix_.channels, matrix_.padded}, target_,
           out, convert_space, context.stream);
  }

  Matrix matrix_;
  Operand operand_;
  size_t size_ = sizeof(float);
  DecodedType target_ = DecodedType::fp32;
  bool in_place_ = false;
  bool once_ = false;  // decoded completely before the slices
  size_t at_ = 0, unpadded_ = 0;
};

// Whether the library may write the bf16 result itself: one pass fewer over it, no slices and no
// fp32 array.
//
// Same as encode(): every sum is fp32 and rounded once, to nearest even. bf16 has fp32's exponents,
// so ties, subnormals, signed zeros and, with `inf`, infinities give the same codes; the NaN of a
// GPU's sums, 0x7FFFFFFF, becomes 0x7FFF either way. Only bf16: fp16 sums overflow, and loss
// scaling depends on these events.
//
// Different: a sum of 2^128 or more becomes infinity, as in an fp32 tensor, even where encode()
// would saturate; and no range events are counted, as for an fp32 tensor. A result that is the same
// for all slices, hence the gradient of a weight, is small: it goes through recode(), which
// corrects both, except that values below 2^-134 are zero by then and not counted. So a step whose
// gradients contain an infinity is still detected: the infinity ends up in the gradient of a
// weight.
bool library_writes(const Problem& problem, const LibraryProduct& product) {
  const Matrix& out = product.out;
  const Result result(problem, problem.root(), out.id);
  return product.unit.unit == Unit::bf16 && !product.bias &&
         problem.format(out.id).storage == Storage(Plain{operand_format(Unit::bf16)}) &&
         result.form().mode == Round::nearest_even && !result.form().sums && dense(out) &&
         out.channels % kGroup == 0;
}

// A result on its way from the library.
class Output {
 public:
  Output() = default;
  Output(const Problem& problem, const Matrix& matrix, Written written)
      : matrix_(matrix), result_(problem, problem.root(), matrix.id), written_(written) {
    in_place_ = (written == Written::half || result_.direct()) && dense(matrix);
    // A storage that needs a pass over all values first gets them in one array without gaps.
    const bool gathers = !result_.in_groups() && !matrix.whole;
    sliced_ = !matrix.whole && !in_place_ && !(gathers && dense(matrix));
    collects_ = !result_.in_groups() && !(matrix.whole && dense(matrix));
  }

  Written written() const { return written_; }

  size_t item_bytes() const { return sliced_ ? matrix_.rows * matrix_.padded * sizeof(float) : 0; }

  void book(Workspace& space, int64_t items, int64_t slice) {
    if (collects_) all_ = space.book(result_.elements());
    if (sliced_) at_ = space.book(static_cast<uint64_t>(slice) * matrix_.rows * matrix_.padded);
    if (!matrix_.whole) return;
    if (!in_place_) at_ = space.book(array());
    if (slice < items) part_ = space.book(array());
  }

  // Bytes that another storage of a summed result would need in addition.
  size_t reserve() const {
    if (!matrix_.whole) return 0;
    return aligned_bytes(in_place_ ? array() * sizeof(float) : 0) +
           aligned_bytes(collects_ ? 0 : result_.elements() * sizeof(float));
  }

  // Where the library writes the slice.
  void* slice(const RunContext& context, int64_t first) const {
    if (matrix_.whole) return first == 0 ? total(context) : floats(context, part_);
    if (sliced_) return floats(context, at_);
    const uint64_t skipped = static_cast<uint64_t>(first) * matrix_.rows * matrix_.channels;
    return (in_place_ ? context.bytes(matrix_.id) : context.workspace + all_) +
           skipped * written_bytes(written_);
  }

  // Processes a finished slice.
  void take(const RunContext& context, int64_t first, int64_t items, const void* made,
            void* convert_space) const {
    const auto* slice = static_cast<const float*>(made);
    if (matrix_.whole) {
      if (first > 0) add_array(static_cast<float*>(total(context)), slice, array(), context.stream);
      return;
    }
    if (!sliced_) return;
    const Rows rows{static_cast<uint64_t>(first) * matrix_.rows, static_cast<uint64_t>(items) * matrix_.rows,
                    matrix_.channels, matrix_.padded};
    if (collects_) {
      copy_rows(floats(context, all_) + rows.first * rows.channels, rows.channels, slice, rows.padded,
                rows.count, rows.channels, context.stream);
    } else {
      encode(result_.view(context), context.state, rows, slice, convert_space, context.stream);
    }
  }

  void finish(const RunContext& context, void* convert_space) const {
    if (written_ == Written::half && matrix_.whole) recode(result_.view(context), context.stream);
    if (in_place_ || (!matrix_.whole && !collects_)) return;
    const auto* sums = static_cast<const float*>(total(context));
    if (collects_ && matrix_.whole) {
      copy_rows(floats(context, all_), matrix_.channels, sums, matrix_.padded, matrix_.rows, matrix_.channels,
                context.stream);
    }
    const Rows rows =
        collects_ ? Rows::all(result_.elements()) : Rows{0, matrix_.rows, matrix_.channels, matrix_.padded};
    encode(result_.view(context), context.state, rows, collects_ ? floats(context, all_) : sums,
           convert_space, context.stream);
  }

 private:
  uint64_t array() const { return (matrix_.rows + matrix_.more) * matrix_.padded; }
  void* total(const RunContext& context) const {
    return in_place_ ? context.bytes(matrix_.id) : context.workspace + at_;
  }

  Matrix matrix_;
  Result result_;
  Written written_ = Written::fp32;
  bool in_place_ = false;  // the library writes the tensor itself
  bool sliced_ = false;    // a slice goes through a buffer
  bool collects_ = false;  // all values are collected in an array before they are encoded
  size_t at_ = 0, part_ = 0, all_ = 0;
};

// Plans waiting to be compiled.
struct Waiting {
  std::mutex mutex;
  std::map<std::shared_ptr<ConvPlan>, int> plans;  // and how many tasks have them
};
Waiting& waiting() {
  static auto* const all = new Waiting;
  return *all;
}

class LibraryTask : public Task {
 public:
  LibraryTask(const Problem& problem, LibraryProduct product)
      : product_(std::move(product)),
        a_(problem, product_.a, product_.unit.unit),
        b_(problem, product_.b, product_.unit.unit),
        convert_bytes_(convert_bytes(problem)) {
    if (product_.bias) {
      bias_ = Input(problem,
                    {.id = product_.bias,
                     .whole = true,
                     .channels = product_.out.channels,
                     .padded = product_.out.padded},
                    Unit::fp32);
    }
    if (library_writes(problem, product_)) {
      out_ = Output(problem, product_.out, Written::half);
      cut(problem.plan.options.workspace);
      // Partial sums are added in fp32.
      if (why_not_.empty() && (!product_.out.whole || slice_ == product_.items)) return;
    }
    out_ = Output(problem, product_.out, Written::fp32);
    cut(problem.plan.options.workspace);
  }

  // Why the library has no plan for it; then it cannot run.
  const std::string& why_not() const { return why_not_; }

  // Registers its plans for the next compilation. They are compiled before anything runs, unless
  // the task is gone by then: plans are also made only for inspection.
  void announce() {
    announced_ = true;
    count(1);
  }
  ~LibraryTask() override {
    if (announced_) count(-1);
  }

  void run(const RunContext& context) override {
    void* space = context.workspace + convert_;
    a_.begin(context, product_.items, space);
    b_.begin(context, product_.items, space);
    if (product_.bias) bias_.begin(context, 1, space);
    const auto library = (reinterpret_cast<uintptr_t>(context.workspace) + library_ + kAlignment - 1) /
                         kAlignment * kAlignment;
    for (int64_t first = 0; first < product_.items; first += slice_) {
      const int64_t n = std::min(slice_, product_.items - first);
      const void* a = a_.slice(context, first, n, space);
      const void* b = b_.slice(context, first, n, space);
      void* slice = out_.slice(context, first);
      (n == slice_ ? main_ : tail_).run(context.stream, a, b, slice, reinterpret_cast<void*>(library));
      if (product_.bias) {
        add_to_rows(static_cast<float*>(slice), static_cast<const float*>(bias_.slice(context, 0, 1, space)),
                    static_cast<uint64_t>(n) * product_.out.rows, product_.out.padded, context.stream);
      }
      out_.take(context, first, n, slice, space);
    }
    out_.finish(context, space);
  }

  std::string note() const override {
    const std::string plan = main_.note();
    return fmt::format("{}: {}{}{}{}", unit_name(product_.unit.unit), product_.unit.why,
                       plan.empty() ? "" : "; ", plan,
                       out_.written() == Written::half ? "; the library writes bf16" : "");
  }

 private:
  void count(int tasks) const {
    Waiting& all = waiting();
    const std::lock_guard lock(all.mutex);
    for (const LibraryPlan* plan : {&main_, &tail_}) {
      if (plan->conv && (all.plans[plan->conv] += tasks) == 0) all.plans.erase(plan->conv);
    }
  }

  // Lays out the workspace for slices of `slice` items and a library that needs `library` bytes.
  size_t place(int64_t slice, size_t library) {
    Workspace space;
    convert_ = space.book(1, convert_bytes_);
    a_.book(space, product_.items, slice);
    b_.book(space, product_.items, slice);
    if (product_.bias) bias_.book(space, 1, 1);
    out_.book(space, product_.items, slice);
    library_ = space.book(library > 0 ? library + kAlignment : 0, 1);
    return space.bytes();
  }

  bool find(int64_t slice, size_t limit) {
    const int64_t rest = product_.items % slice;
    main_ = product_.find(slice, out_.written(), limit, &why_not_);
    tail_ = main_ && rest != 0 ? product_.find(rest, out_.written(), limit, &why_not_) : LibraryPlan{};
    return main_ && (rest == 0 || tail_);
  }

  // The libraries count elements in 32 bits.
  bool too_large(int64_t slice) const {
    const auto elements = [&](const Matrix& matrix) {
      return matrix.whole ? 0 : static_cast<uint64_t>(slice) * matrix.rows * matrix.padded;
    };
    return std::max({elements(product_.a), elements(product_.b), elements(product_.out)}) >> 31 != 0;
  }

  // What other storages would need in addition. It counts when slices are chosen, so that the storage
  // of a gradient does not change its order of summation.
  size_t reserve() const { return out_.reserve() + kConvertSpace - convert_bytes_; }

  // The minimum number of slices, for a library that needs `library` bytes.
  int64_t slices_for(const BatchSlices& batch, size_t limit, size_t library) {
    if (place(product_.items, library) + reserve() <= limit) return 1;
    const size_t all = place(kLeast, library) + reserve(), slice = kLeast * batch.item_bytes;
    const size_t beside = all - std::min(all, slice);
    return std::min(batch.slices_within(limit > beside ? limit - beside : 0),
                    std::max<int64_t>(product_.items / kLeast, 1));
  }

  // Cuts the batch into as few slices as fit; if none fit, into the smallest. Equal slices need one
  // plan instead of two; that is worth smaller slices, but not smaller than half.
  void cut(size_t limit) {
    why_not_.clear();
    const BatchSlices batch{product_.items, kLeast, a_.item_bytes() + b_.item_bytes() + out_.item_bytes()};
    // Without tensor cores, engines that need no workspace are very slow.
    const size_t library_limit = std::max(kEnough, product_.unit.unit == Unit::fp32 ? limit : limit / 4);
    size_t library = 0;
    for (int64_t slices = 1;;) {
      slices = std::max(slices, slices_for(batch, limit, library));
      slice_ = batch.even_slice(slices);
      if (too_large(slice_)) {
        why_not_ = "more elements than the library counts";
      } else if (find(slice_, library_limit)) {
        why_not_.clear();
        library = std::max(main_.workspace(), tail_ ? tail_.workspace() : 0);
        workspace_ = place(slice_, library);
        if (workspace_ + reserve() <= limit || slice_ <= kLeast || batch.item_bytes == 0) return;
      } else {
        return;
      }
      if (slice_ <= kLeast) return;
      slices = batch.more_slices(slices);
    }
  }

  LibraryProduct product_;
  Input a_, b_, bias_;
  Output out_;
  int64_t slice_ = 1;
  LibraryPlan main_, tail_;
  std::string why_not_;
  size_t convert_bytes_, convert_ = 0, library_ = 0;
  bool announced_ = false;
};

// The first unit that the library has a plan for: native fp8 if requested, then the exact one.
std::unique_ptr<LibraryTask> choose(const Problem& problem, Describe describe, std::string* why_not) {
  const Node& node = problem.root();
  const Operand a(problem, node.in[0]), b(problem, node.in[1]);
  KernelOptions wanted = problem.plan.options;
  // Gradients stay exact: most library kernels for them are slower in fp8 than in bf16, or do not
  // exist.
  const FloatFormat fp8 = operand_format(Unit::e4m3);
  const bool natively =
      wanted.fp8_native && node.phase == Phase::forward && a.format() == fp8 && b.format() == fp8;
  for (const bool native : {true, false}) {
    if (native && !natively) continue;
    wanted.fp8_native = native;
    const UnitChoice unit = choose_unit(a.format(), b.format(), wanted);
    LibraryProduct product = describe(problem, unit);
    *why_not = product.why_not;
    if (!why_not->empty()) continue;
    auto task = std::make_unique<LibraryTask>(problem, std::move(product));
    *why_not = task->why_not();
    if (why_not->empty()) return task;
  }
  return nullptr;
}

}  // namespace

void LibraryPlan::run(Stream stream, const void* a, const void* b, void* out, void* workspace) const {
  if (conv) {
    conv->run(stream, a, b, out, workspace);
  } else {
    matmul->run(stream, a, b, out, workspace);
  }
}

std::string why_not_library(const Problem& problem, Describe describe) {
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "sums in a narrow accumulator";
  std::string why_not;
  choose(problem, describe, &why_not);
  return why_not;
}

std::unique_ptr<Task> make_library_task(const Problem& problem, Describe describe) {
  std::string why_not;
  std::unique_ptr<LibraryTask> task = choose(problem, describe, &why_not);
  if (!task) fail("cuda", "{}: {}", problem.root().name, why_not);
  task->announce();
  return task;
}

void prepare_products() {
  std::vector<std::shared_ptr<ConvPlan>> plans;
  {
    Waiting& all = waiting();
    const std::lock_guard lock(all.mutex);
    for (const auto& [plan, tasks] : all.plans) plans.push_back(plan);
  }
  prepare_all(plans);  // plans already compiled take no time
}

}  // namespace ulp::cuda
