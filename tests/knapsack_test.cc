// The proof that choosing a precision assignment is NP-hard (appendix A of the precision-assignment
// paper), run on the engine: a knapsack becomes a network, formats, one example and a bound on the
// low ratio, and the assignment of the best accuracy after one step of training tells which items
// to pack.
//
// Accuracy is -L(f(x), y) of the trained parameters, and the proof evaluates it without rounding.
// It has to: its assignments have low parameters, and there a trained one, 2^-(k+l) x_i, would
// underflow as 2^-k x_i does, and all selections would be equally good. So a step is trained in the
// assignment, with master copies in fp_hi, and evaluated by an inference graph in fp32, in which
// all numbers of these instances are exact.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ulp/backend/access.h"
#include "ulp/backend/update.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/numeric/scalar.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/candidates.h"
#include "ulp/runtime/executor.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

// Operators of the proof that no model has: the sum of all elements of all inputs, and the scaled
// l1 loss.
using Values = std::vector<float>;
using Function = void (*)(const Node& node, const std::vector<Values>& in, Values& out);

template <Function function>
class PlainTask : public Task {
 public:
  explicit PlainTask(const Problem& problem) : node_(problem.root()), writer_(problem, node_, node_.out[0]) {
    for (const TensorId id : node_.in) in_.emplace_back(readers_.emplace_back(problem, id).elements());
    out_.resize(writer_.elements());
  }
  void run(const RunContext& context) override {
    for (size_t i = 0; i < in_.size(); ++i) readers_[i].read(context, 0, in_[i]);
    function(node_, in_, out_);
    writer_.all(context, out_.data());
  }

 private:
  const Node& node_;
  std::vector<Reader> readers_;
  Writer writer_;
  std::vector<Values> in_;
  Values out_;
};

template <Function function>
KernelDef plain(std::string_view op) {
  return {op, "reference", takes_one_node, make_one<PlainTask<function>>};
}

void total(const Node&, const std::vector<Values>& in, Values& out) {
  double sum = 0;
  for (const Values& values : in) sum = std::accumulate(values.begin(), values.end(), sum);
  out[0] = static_cast<float>(sum);
}

void total_grad(const Node&, const std::vector<Values>& in, Values& out) { out.assign(out.size(), in[0][0]); }

void scaled_l1(const Node& node, const std::vector<Values>& in, Values& out) {
  out[0] = static_cast<float>(node.attrs.real("scale") * std::abs(double{in[0][0]} - double{in[1][0]}));
}

void scaled_l1_grad(const Node& node, const std::vector<Values>& in, Values& out) {
  const float dloss = in[0][0], x = in[1][0], y = in[2][0];
  const double sign = x > y ? 1 : x < y ? -1 : 0;
  out[0] = static_cast<float>(dloss * node.attrs.real("scale") * sign);
}

std::vector<Output> one_number(const Attrs&, std::span<const Shape>) { return {{"out", {1, 1}}}; }

const OpDef kTotalGrad{"total_grad"}, kScaledL1Grad{"scaled_l1_grad"};

void total_backward(Gradients& gradients, const Node& node) {
  for (const TensorId in : node.in) {
    gradients.emit(kTotalGrad, node, {gradients.of(node.out[0])}, {gradients.part(in)});
  }
}

void scaled_l1_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kScaledL1Grad, node, {gradients.of(node.out[0]), node.in[0], node.in[1]},
                 {gradients.part(node.in[0])}, node.attrs);
}

const OpDef kTotal{"total", Form::general, one_number, total_backward};
constexpr OperandKind kAgainstTarget[] = {OperandKind::computed, OperandKind::target};
const OpDef kScaledL1{
    .name = "scaled_l1", .infer = one_number, .backward = scaled_l1_backward, .operands = kAgainstTarget};

Backend with_own_kernels(Backend backend) {
  backend.kernels.insert(backend.kernels.end(),
                         {plain<total>("total"), plain<total_grad>("total_grad"),
                          plain<scaled_l1>("scaled_l1"), plain<scaled_l1_grad>("scaled_l1_grad")});
  return backend;
}

struct Knapsack {
  std::vector<int> weights, profits;
  size_t size() const { return weights.size(); }
};

using Selection = uint32_t;  // a bit for each item
constexpr bool has(Selection selection, size_t item) { return (selection >> item & 1) != 0; }

int sum_of(const std::vector<int>& numbers, Selection selection) {
  int sum = 0;
  for (size_t i = 0; i < numbers.size(); ++i) sum += has(selection, i) ? numbers[i] : 0;
  return sum;
}

// By dynamic programming over capacities.
int best_profit(const Knapsack& items, size_t capacity) {
  std::vector<int> best(capacity + 1);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto weight = static_cast<size_t>(items.weights[i]);
    for (size_t room = capacity + 1; room-- > weight;) {
      best[room] = std::max(best[room], best[room - weight] + items.profits[i]);
    }
  }
  return best.back();
}

// The bounds keep every number of the evaluation within fp32's 24 bits: profits sum to 60 at most,
// x_i is at least 1/2, and 8 bits of mantissa are enough for Eq. (4), so w_i x_i^2 is a multiple of
// 2^-18.
Knapsack random_knapsack(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int most) { return 1 + static_cast<int>(random() % static_cast<uint32_t>(most)); };
  Knapsack items;
  for (size_t i = 0; i < n; ++i) {
    items.profits.push_back(draw(60 / static_cast<int>(n)));
    items.weights.push_back(draw(std::min(8, 4 * items.profits.back())));
  }
  return items;
}

float rounded(const FloatFormat& format, double s) {
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  const uint32_t pattern = float_bits(static_cast<float>(s));
  return bits_float(decode_scalar(spec, encode_scalar(spec, Round::nearest_even, pattern, 0).code));
}

// The proof's instance of the tradeoff problem, made as it says one can be: mantissa bits for fp_lo
// until Eq. (4) holds, then k until Eq. (5) does, then an fp_hi that is large enough.
struct Tradeoff {
  static constexpr int l = 3;
  Knapsack items;
  FloatFormat lo = {}, hi = {};
  std::vector<float> x;
  int k = 0;
  float y = 0;

  explicit Tradeoff(Knapsack knapsack) : items(std::move(knapsack)), x(items.size()) {
    while (lo.man == 0 || !represents_roots()) lo = make_format(5, lo.man + 1, 0, Specials::none);
    for (size_t i = 0; i < x.size(); ++i) x[i] = rounded(lo, root(i));
    while (!underflows()) ++k;
    hi = make_format(7, lo.man, 0, Specials::none);
    y = static_cast<float>(-std::ldexp(sum_of(items.profits, everything()) + 1, -(k + l)));
  }

  Selection everything() const { return (Selection{1} << items.size()) - 1; }
  double root(size_t i) const { return std::sqrt(double(items.profits[i]) / items.weights[i]); }
  // Eq. (4).
  bool represents_roots() const {
    const int most = *std::max_element(items.profits.begin(), items.profits.end());
    const double err = 1 / (6.0 * static_cast<double>(items.size()) * most);
    for (size_t i = 0; i < items.size(); ++i) {
      if (!(std::abs(rounded(lo, root(i)) - root(i)) < root(i) * err)) return false;
    }
    return true;
  }
  // S2: 2^-k and 2^-k x_i.
  std::vector<double> back_propagated() const {
    std::vector<double> numbers{std::ldexp(1, -k)};
    for (const float xi : x) numbers.push_back(std::ldexp(xi, -k));
    return numbers;
  }
  // Eq. (5).
  bool underflows() const {
    const std::vector<double> numbers = back_propagated();
    return std::all_of(numbers.begin(), numbers.end(), [&](double s) { return rounded(lo, s) == 0; });
  }
  // The sum of w_i x_i^2 over the selection; a multiple of 2^-18, so exact.
  double squares(Selection selection) const {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += has(selection, i) * double{x[i]} * x[i] * items.weights[i];
    return sum;
  }
  // Lemma A.1.
  double accuracy(Selection s) const { return std::ldexp(y, -k) + std::ldexp(squares(s), -(2 * k + l)); }
  // Lemma A.2 turned round: the profit that an accuracy tells of.
  double profit(double best) const { return std::round(std::ldexp(best, 2 * k + l) - std::ldexp(y, k + l)); }
};

std::string item_name(size_t i) { return fmt::format("item{}", i); }

// Figure 8: x is split into scalars v_i, v_(n+i) = theta_i v_i, v_(2n+1) is the sum of all their
// elements.
struct Network {
  Graph graph;
  TensorId x, y, loss;

  Network(const Tradeoff& tradeoff, Mode mode) {
    const auto n = static_cast<int64_t>(tradeoff.items.size());
    Builder b(graph, mode);
    x = input(b, "x", {1, n});
    std::vector<TensorId> products;
    for (const TensorId scalar : scalars(b, n)) {
      const size_t i = products.size();
      const LinearOptions theta{tradeoff.items.weights[i], /*bias=*/false, Init::constant(0), {}};
      products.push_back(linear(b, item_name(i), scalar, theta));
    }
    y = target(b, "y", {1, 1});
    const TensorId predicted = nodes(b).add_one(kTotal, "total", products);
    loss = nodes(b).add_one(kScaledL1, "loss", {predicted, y}, {{"scale", std::ldexp(1, -tradeoff.k)}});
  }
  // More than 8 scalars come of two halves. That adds 2n elements to TS, none on the way of a
  // gradient to a parameter; the bound r takes them into account as it does all others.
  std::vector<TensorId> scalars(Builder& b, int64_t n) const {
    if (n <= 8) return split(b, "split", x, n);
    const std::vector<TensorId> halves = split(b, "halves", x, 2);
    std::vector<TensorId> parts = split(b, "first", halves[0], n / 2);
    for (const TensorId part : split(b, "second", halves[1], n / 2)) parts.push_back(part);
    return parts;
  }
};

// What comes of an assignment.
struct Outcome {
  double low_ratio, accuracy;
  Selection selection;
};

// An assignment: for each counted tensor whether it is high.
using High = std::vector<bool>;

class Training {
 public:
  Training(const Tradeoff& tradeoff, const std::string& device)
      : tradeoff_(tradeoff), backend_(with_own_kernels(find_backend(device))) {
    const std::string hi = format_name(tradeoff.hi), lo = format_name(tradeoff.lo);
    candidates_ = make_candidates("hfp8", hi, lo, lo, hi + "/" + lo);
    OptimizerConfig sgd;
    sgd.lr = std::ldexp(1, -Tradeoff::l);
    step_.update = update_scalars(sgd, 0, sgd.lr);
    differentiate(training_.graph, training_.loss);
    add_updates(training_.graph, update_spec(sgd));
    counted_ = counted_tensors(training_.graph);
    for (const CountedTensor& tensor : counted_) size_ += tensor.elements;
    total_grad_ = index("total.out.grad");
    for (size_t i = 0; i < tradeoff.items.size(); ++i) {
      product_grads_.push_back(index(item_name(i) + ".out.grad"));
      weight_grads_.push_back(index(item_name(i) + ".weight.grad"));
    }
    PlanOptions options{&backend_};
    options.results = {evaluation_.loss};
    plan_ = std::make_unique<Plan>(evaluation_.graph, formats(evaluation_.graph, {}), options);
    evaluator_ = std::make_unique<Executor>(*plan_);
    feed(evaluation_, *evaluator_);
  }

  size_t size() const { return size_; }  // of TS, in elements
  size_t steps() const { return accuracies_.size(); }

  // The proof's pi' for a selection of items.
  High assign(Selection selection) const {
    High high(counted_.size());
    high[total_grad_] = true;
    for (size_t i = 0; i < product_grads_.size(); ++i) {
      high[product_grads_[i]] = high[weight_grads_[i]] = has(selection, i);
    }
    return high;
  }
  Outcome outcome(const High& high) {
    Assignment assignment;
    High computed = high;
    for (size_t i = 0; i < counted_.size(); ++i) {
      if (!high[i]) assignment.high.emplace(counted_[i].name, candidates_[counted_[i].kind].high);
      if (!counted_[i].id) computed[i] = false;
    }
    const auto [accuracy, fresh] = accuracies_.try_emplace(computed);
    if (fresh) accuracy->second = run(assignment);
    return {low_ratio(counted_, assignment), accuracy->second, selected(high)};
  }

 private:
  // The proof's alpha for an assignment.
  Selection selected(const High& high) const {
    Selection selection = 0;
    for (size_t i = 0; i < product_grads_.size() && high[total_grad_]; ++i) {
      if (high[product_grads_[i]] && high[weight_grads_[i]]) selection |= Selection{1} << i;
    }
    return selection;
  }
  size_t index(const std::string& name) const {
    size_t i = 0;
    while (counted_.at(i).name != name) ++i;
    return i;
  }
  // Master copies are in the high format, not in fp32.
  std::vector<TensorFormat> formats(const Graph& graph, const Assignment& assignment) const {
    std::vector<TensorFormat> made = resolve_formats(graph, assignment);
    for (size_t i = 0; i < made.size(); ++i) {
      if (graph.tensors()[i].kind == Kind::weight) made[i].storage = candidates_.weight.high;
    }
    return made;
  }
  void feed(const Network& network, Executor& executor) const {
    executor.feed(network.x, tradeoff_.x.data());
    executor.feed(network.y, &tradeoff_.y);
  }
  // One step from parameters of 0, then the negative loss.
  double run(Assignment assignment) {
    for (const CountedTensor& tensor : counted_) {
      const Candidates::Pair& pair = candidates_[tensor.kind];
      assignment.storage.emplace(tensor.name, assignment.is_low(tensor.name) ? pair.low : pair.high);
    }
    const Plan plan(training_.graph, formats(training_.graph, assignment), {&backend_});
    Memory memory;
    const Block arena = memory.allocate(std::max(plan.step_bytes(), plan_->step_bytes()));
    State state(memory);
    state.add(plan, 0);
    Executor trainer(plan);
    feed(training_, trainer);
    trainer.bind(state, arena.data());
    trainer.run(step_, true);
    evaluator_->bind(state, arena.data());
    evaluator_->run(step_, false);
    return -double{evaluator_->result(evaluation_.loss)[0]};
  }

  const Tradeoff& tradeoff_;
  const Backend backend_;
  Candidates candidates_;
  Network training_{tradeoff_, Mode::training}, evaluation_{tradeoff_, Mode::inference};
  std::vector<CountedTensor> counted_;
  size_t size_ = 0;
  // Places among them: of dv_(2n+1), and by item of dv_(n+i) and dtheta_i.
  size_t total_grad_ = 0;
  std::vector<size_t> product_grads_, weight_grads_;
  StepState step_;
  std::unique_ptr<Plan> plan_;  // of the evaluation
  std::unique_ptr<Executor> evaluator_;
  // By assignment of what is computed: gradients that no parameter needs (of the input and the
  // scalars) have a format and no numbers, so a step is run once for all formats of theirs.
  std::map<High, double> accuracies_;
};

// Accuracies are those of the lemma. For every capacity, also those at which r is 0, each
// assignment that is best among those within r packs an optimal knapsack.
void expect_best_are_optimal(const Tradeoff& tradeoff, size_t size, const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) ASSERT_EQ(outcome.accuracy, tradeoff.accuracy(outcome.selection));
  for (size_t capacity = 0; 2 * capacity <= size + 2; ++capacity) {
    // One division, as in low_ratio: equal numbers of elements give equal ratios.
    const double r = double(size - std::min(size, 2 * capacity + 1)) / double(size);
    double best = -INFINITY;
    for (const Outcome& outcome : outcomes) {
      if (outcome.low_ratio >= r) best = std::max(best, outcome.accuracy);
    }
    const int profit = best_profit(tradeoff.items, capacity);
    ASSERT_EQ(tradeoff.profit(best), profit) << "capacity " << capacity;
    for (const Outcome& outcome : outcomes) {
      if (outcome.low_ratio < r || outcome.accuracy != best) continue;
      ASSERT_LE(sum_of(tradeoff.items.weights, outcome.selection), static_cast<int>(capacity));
      ASSERT_EQ(sum_of(tradeoff.items.profits, outcome.selection), profit) << "capacity " << capacity;
    }
  }
}

constexpr size_t kItemCounts[] = {1, 3, 6, 8, 10, 12};

TEST(Knapsack, FormatsSatisfyTheProofsEquations) {
  for (const size_t n : kItemCounts) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const Tradeoff t(random_knapsack(n, seed));
      EXPECT_TRUE(t.hi.exp >= t.lo.exp && t.hi.man >= t.lo.man);  // (3)
      EXPECT_TRUE(t.represents_roots());                          // (4)
      EXPECT_TRUE(t.underflows());                                // (5)
      // (6): S2, and S3 with 2^-(k+l) beside it.
      for (const double s : t.back_propagated()) {
        EXPECT_EQ(rounded(t.hi, s), s);
        EXPECT_EQ(rounded(t.hi, std::ldexp(s, -t.l)), std::ldexp(s, -t.l));
      }
      EXPECT_LT(t.y, -std::ldexp(t.squares(t.everything()), -(t.k + t.l)));
      // What the proof leaves unsaid: the gradient of the loss itself, 1, has a format too.
      EXPECT_EQ(rounded(t.lo, 1), 1);
      EXPECT_LE(t.lo.man, 8) << "the evaluation would not be exact";
      for (Selection selection = 0; selection <= t.everything(); ++selection) {  // Lemma A.2
        ASSERT_LT(std::abs(t.squares(selection) - sum_of(t.items.profits, selection)), 0.5);
      }
    }
  }
}

// A device, and the most items of which all selections are run on it: plans with oneDNN's products
// take long.
using Device = std::pair<std::string, size_t>;
class KnapsackTest : public testing::TestWithParam<Device> {};

TEST_P(KnapsackTest, BestSelectionOfItemsIsOptimal) {
  for (const size_t n : kItemCounts) {
    if (n > GetParam().second) break;
    SCOPED_TRACE(fmt::format("{} items", n));
    const Tradeoff tradeoff(random_knapsack(n, static_cast<uint32_t>(n)));
    Training training(tradeoff, GetParam().first);
    const auto weight = static_cast<size_t>(sum_of(tradeoff.items.weights, tradeoff.everything()));
    ASSERT_EQ(training.size(), 4 * (n + weight + 1) + (n > 8 ? 2 * n : 0));
    std::vector<Outcome> outcomes;
    for (Selection selection = 0; selection <= tradeoff.everything(); ++selection) {
      outcomes.push_back(training.outcome(training.assign(selection)));
      ASSERT_EQ(outcomes.back().selection, selection);
    }
    // And some of the assignments that are no selection's.
    std::mt19937 random(static_cast<uint32_t>(n));
    High high = training.assign(0);
    for (int i = 0; i < 64; ++i) {
      std::generate(high.begin(), high.end(), [&] { return random() % 4 != 0; });
      outcomes.push_back(training.outcome(high));
    }
    expect_best_are_optimal(tradeoff, training.size(), outcomes);
  }
}

TEST_P(KnapsackTest, BestOfAllAssignmentsOfTwoItemsIsOptimal) {
  const Tradeoff tradeoff(random_knapsack(2, 1));
  Training training(tradeoff, GetParam().first);
  High high = training.assign(0);
  ASSERT_EQ(high.size(), 18u);
  std::vector<Outcome> outcomes;
  for (uint32_t bits = 0; bits < uint32_t{1} << high.size(); ++bits) {
    for (size_t i = 0; i < high.size(); ++i) high[i] = (bits >> i & 1) != 0;
    outcomes.push_back(training.outcome(high));
  }
  EXPECT_EQ(training.steps(), size_t{1} << 15);
  expect_best_are_optimal(tradeoff, training.size(), outcomes);
}

INSTANTIATE_TEST_SUITE_P(Devices, KnapsackTest, testing::Values(Device{"cpu", 10}, Device{"reference", 12}),
                         [](const auto& device) { return device.param.first; });

}  // namespace
}  // namespace ulp
