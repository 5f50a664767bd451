// Tasks for skinny_gemm.h. They take every storage: what a kernel cannot read or write goes through
// fp32.
#include "ulp/backend/cuda/ops/skinny_gemm.h"

#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/backend/cuda/kernels.h"

namespace ulp::cuda {
namespace {

enum class Part { forward, grad_input, grad_weight };

template <Part part>
SkinnyShape skinny_shape(const Problem& problem) {
  const Node& node = problem.root();
  const auto number = [](int64_t n) { return static_cast<uint32_t>(n); };
  const Shape &a = problem.shape(node.in[0]), &b = problem.shape(node.in[1]);
  const auto rows = static_cast<uint32_t>(a.rows());
  if constexpr (part == Part::forward) return {rows, number(a.back()), number(b[0])};
  if constexpr (part == Part::grad_input) return {rows, number(b[1]), number(a.back())};
  return {rows, number(a.back()), number(b.back())};
}

template <Part part>
std::string why_not(const Problem& problem) {
  constexpr int64_t kFewOutputs = 32, kFewProducts = int64_t{1} << 24;
  if (std::string why = takes_one_node(problem); !why.empty()) return why;
  if (problem.plan.options.accumulator) return "sums in a narrow accumulator";
  const Node& node = problem.root();
  // Counted from the shapes, whose products may exceed 32 bits.
  const Shape &a = problem.shape(node.in[0]), &b = problem.shape(node.in[1]);
  const int64_t outputs = part == Part::forward ? b[0] : part == Part::grad_input ? a.back() : b.back();
  const int64_t inputs = part == Part::grad_input ? b[1] : a.back();
  if (outputs > kFewOutputs || static_cast<int64_t>(a.rows()) > kFewProducts / (outputs * inputs))
    return "not small";
  // A block computes its part of the weight gradient row by row.
  constexpr int64_t kRows = int64_t{1} << 13, kTogether = 32;
  if (part == Part::grad_weight &&
      static_cast<int64_t>(a.rows()) > kRows * outputs * ((inputs + kTogether - 1) / kTogether))
    return "too many rows for its few blocks";
  return "";
}

template <Part part, auto function>
class SkinnyGemmTask : public Task {
 public:
  explicit SkinnyGemmTask(const Problem& problem) {
    const Node& node = problem.root();
    shape_ = skinny_shape<part>(problem);
    result_ = Result(problem, node, node.out[0]);
    convert_ = book_.book(1, convert_bytes(problem));
    // decode() rounds a weight to its operand format and counts events.
    const size_t factors = part == Part::grad_weight ? 2 : 1;
    halves_ = true;
    for (size_t i = 0; i < factors; ++i)
      halves_ = halves_ && make_leaf(Operand(problem, node.in[i]).form()).same;
    for (size_t i = 0; i < node.in.size(); ++i) {
      Input input{Operand(problem, node.in[i]), halves_ && i < factors, 0};
      if (!input.in_place) input.space = book_.book(input.operand.space());
      in_.push_back(std::move(input));
    }
    direct_ = skinny_writes(result_.form());
    if (!direct_) space_ = book_.book(result_.elements());
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    void* convert = context.workspace + convert_;
    const auto data = [&](size_t i) -> const void* {
      const Input& input = in_[i];
      if (input.in_place) return context.bytes(input.operand.id());
      return input.operand.all(context, floats(context, input.space), convert);
    };
    SkinnyCall call;
    call.shape = shape_;
    call.halves = halves_;
    call.a = data(0);
    call.b = data(1);
    if (in_.size() > 2) call.bias = static_cast<const float*>(data(2));
    call.state = context.state;
    if (direct_) {
      call.result = result_.view(context);
    } else {
      call.result.stored.codes = context.workspace + space_;
      call.result.stored.elements = result_.elements();
    }
    function(call, context.stream);
    if (!direct_) {
      encode(result_.view(context), context.state, Rows::all(result_.elements()), floats(context, space_),
             convert, context.stream);
    }
  }

 private:
  struct Input {
    Operand operand;
    bool in_place;  // read in place as halves
    size_t space;
  };
  Workspace book_;
  SkinnyShape shape_;
  std::vector<Input> in_;
  Result result_;
  bool halves_ = false, direct_ = false;
  size_t convert_ = 0, space_ = 0;
};

template <Part part, auto function>
constexpr KernelDef skinny(std::string_view op) {
  return {op,
          "skinny_gemm",
          why_not<part>,
          make_one<SkinnyGemmTask<part, function>>,
          false,
          part == Part::grad_weight};
}

}  // namespace

std::span<const KernelDef> skinny_gemm_kernels() {
  static constexpr KernelDef kKernels[] = {
      skinny<Part::forward, skinny_linear>("linear"),
      skinny<Part::grad_input, skinny_linear_grad_input>("linear_grad_input"),
      skinny<Part::grad_weight, skinny_linear_grad_weight>("linear_grad_weight"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
