#include "tests/support/made_up_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/support/random_graph.h"
#include "ulp/graph/ops/arithmetic.h"
#include "ulp/graph/ops/move.h"
#include "ulp/graph/ops/update.h"

namespace ulp::harness {

const OpDef kMadeUp{"made_up"};
const OpDef kMadeUpMap{"made_up_map", Form::elementwise};
const OpDef kMadeUpColumns{"made_up_columns", Form::reduction};
const OpDef kMadeUpMove{.name = "made_up_move", .moves = true};
const OpDef kMadeUpCopies{.name = "made_up_copies", .copies = true};

TensorId GraphMaker::add(const OpDef& op, const std::string& name, std::vector<TensorId> in, TensorInfo out) {
  out.name = name;
  const TensorId made = graph.add_tensor(std::move(out));
  graph.add_node({&op, name, {}, std::move(in), {made}, phase, false});
  return made;
}

TensorId GraphMaker::any(const std::string& name, std::vector<TensorId> in, const Shape& shape, Kind kind,
                         Element element) {
  TensorInfo info;
  info.shape = shape;
  info.kind = kind;
  info.element = element;
  return add(kMadeUp, name, std::move(in), std::move(info));
}

TensorId GraphMaker::map(const std::string& name, std::vector<TensorId> in) {
  TensorInfo info;
  info.shape = graph[in[0]].shape;
  return add(kMadeUpMap, name, std::move(in), std::move(info));
}

TensorId GraphMaker::columns(const std::string& name, TensorId in) {
  TensorInfo info;
  info.shape = {graph[in].shape.back()};
  info.kind = Kind::saved;
  return add(kMadeUpColumns, name, {in}, std::move(info));
}

TensorId GraphMaker::view(const std::string& name, TensorId in, const Shape& shape) {
  TensorInfo info;
  info.shape = shape;
  info.alias = info.format_from = in;
  return add(kReshape, name, {in}, std::move(info));
}

TensorId GraphMaker::copy(const std::string& name, TensorId in, Kind kind) {
  TensorInfo info;
  info.shape = graph[in].shape;
  info.kind = kind;
  return add(kCopy, name, {in}, std::move(info));
}

TensorId GraphMaker::state(const std::string& name, const Shape& shape, Kind kind) {
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = kind;
  return graph.add_tensor(std::move(info));
}

void GraphMaker::write(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                       std::vector<TensorId> out, bool adds) {
  graph.add_node({&op, name, {}, std::move(in), std::move(out), phase, adds});
}

namespace {

// Around the alignment as fp32 and as bytes.
constexpr int64_t kColumns[] = {1, 3, 8, 15, 16, 17, 32};
constexpr int64_t kRows[] = {1, 1, 2, 5};

class RandomMaker {
 public:
  explicit RandomMaker(Random& random) : random_(random) {}

  Graph make() {
    const int64_t weights = random_.between(0, 3), statistics = random_.between(0, 2);
    for (int64_t i = 0; i < weights; ++i) {
      const Shape shape = draw_shape();
      weights_.push_back(maker_.state(fmt::format("w{}", i), shape));
    }
    for (int64_t i = 0; i < statistics; ++i) {
      const Shape shape = draw_shape();
      statistics_.push_back(maker_.state(fmt::format("s{}", i), shape, Kind::statistic));
    }
    const int64_t sources = random_.between(1, 3);
    for (int64_t i = 0; i < sources; ++i) {
      const Shape shape = draw_shape();
      pool_.push_back(maker_.any(fresh(), {}, shape));
    }
    const int64_t nodes = random_.between(2, 14);
    for (int64_t i = 0; i < nodes; ++i) grow();
    maker_.phase = Phase::backward;
    const int64_t more = random_.between(0, 14);
    for (int64_t i = 0; i < more; ++i) grow();
    for (size_t i = 0; i < weights_.size(); ++i) make_gradient(i);
    maker_.phase = Phase::finish;
    for (const auto& [i, sum] : sums_)
      gradients_[i] = maker_.copy(fmt::format("w{}.grad", i), sum, Kind::weight_grad);
    if (random_.one_in(3)) recompute();
    maker_.phase = Phase::update;
    for (size_t i = 0; i < gradients_.size(); ++i)
      maker_.write(kUpdate, fmt::format("w{}.update", i), {gradients_[i]}, {weights_[i]});
    return std::move(maker_.graph);
  }

 private:
  std::string fresh() { return fmt::format("n{}", names_++); }
  Shape draw_shape() {
    const int64_t rows = random_.among(kRows), columns = random_.among(kColumns);
    return {rows, columns};
  }
  TensorId pick() {
    const auto last = static_cast<int64_t>(pool_.size()) - 1;
    const int64_t first = random_.one_in(3) ? 0 : std::max<int64_t>(0, last - 3);
    return pool_[static_cast<size_t>(random_.between(first, last))];
  }
  bool is_real(TensorId id) const { return maker_.graph[id].element == Element::real; }

  void grow() {
    const TensorId x = pick();
    switch (random_.between(0, 11)) {
      case 0:
        return grow_any(x, random_.one_in(4) ? Element::byte : Element::real);
      case 1:
        if (!statistics_.empty()) return write_statistic(x);
        return grow_any(x, Element::real);
      case 2:
        return grow_any(x, Element::real);
      case 3:
        if (is_real(x)) pool_.push_back(maker_.columns(fresh(), x));
        return;
      case 4: {
        const auto elements = static_cast<int64_t>(maker_.graph[x].elements());
        if (is_real(x)) pool_.push_back(maker_.view(fresh(), x, {elements}));
        return;
      }
      case 5:
        if (is_real(x)) pool_.push_back(maker_.copy(fresh(), x));
        return;
      default:
        return grow_map(x);
    }
  }

  // Some read state, whether that is written later or not.
  void add_state(std::vector<TensorId>& in) {
    if (!weights_.empty() && random_.one_in(3)) in.push_back(random_.among(weights_));
    if (!statistics_.empty() && random_.one_in(4)) in.push_back(random_.among(statistics_));
  }

  void grow_any(TensorId x, Element element) {
    std::vector<TensorId> in{x};
    if (random_.one_in(2)) in.push_back(pick());
    add_state(in);
    const Shape shape = draw_shape();
    const Kind kind = element == Element::real ? Kind::activation : Kind::saved;
    pool_.push_back(maker_.any(fresh(), std::move(in), shape, kind, element));
  }

  void grow_map(TensorId x) {
    if (!is_real(x)) return grow_any(x, Element::real);
    std::vector<TensorId> all{x}, in{x};
    std::copy_if(pool_.begin(), pool_.end(), std::back_inserter(all),
                 [&](TensorId id) { return is_real(id) && maker_.graph[id].shape == maker_.graph[x].shape; });
    if (random_.one_in(2)) in.push_back(random_.among(all));
    for (const auto* states : {&weights_, &statistics_}) {
      for (const TensorId id : *states) {
        if (maker_.graph[id].shape == maker_.graph[x].shape && random_.one_in(2)) in.push_back(id);
      }
    }
    pool_.push_back(maker_.map(fresh(), std::move(in)));
  }

  void write_statistic(TensorId x) {
    const TensorId to = random_.among(statistics_);
    maker_.write(kMadeUp, fresh(), {x}, {to});
  }

  // At once, as a copy (many of which may be one task), or in several parts that add up.
  void make_gradient(size_t i) {
    const Shape shape = maker_.graph[weights_[i]].shape;
    const std::string name = fmt::format("w{}.grad", i);
    const TensorId x = pick();
    if (random_.one_in(3)) {
      gradients_.push_back(maker_.any(name, {x}, shape, Kind::weight_grad));
      return;
    }
    if (random_.one_in(2)) {
      const TensorId whole = maker_.any(fresh(), {x}, shape);
      gradients_.push_back(maker_.copy(name, maker_.map(fresh(), {whole}), Kind::weight_grad));
      return;
    }
    sums_.emplace_back(gradients_.size(), maker_.any(name + ".sum", {x}, shape, Kind::grad_sum));
    gradients_.push_back({});
    const int64_t parts = random_.between(0, 2);
    for (int64_t k = 0; k < parts; ++k) {
      grow();
      const TensorId part = pick();
      maker_.write(kMadeUp, fresh(), {part}, {sums_.back().second}, true);
    }
  }

  // Gradients that are made a second time for their updates.
  void recompute() {
    maker_.phase = Phase::recompute;
    const int64_t nodes = random_.between(1, 6);
    for (int64_t i = 0; i < nodes; ++i) grow();
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const TensorId x = pick();
      const Shape shape = maker_.graph[weights_[i]].shape;
      gradients_[i] = maker_.any(fmt::format("w{}.grad.again", i), {x}, shape, Kind::weight_grad);
    }
  }

  Random& random_;
  GraphMaker maker_;
  std::vector<TensorId> pool_, weights_, statistics_, gradients_;
  std::vector<std::pair<size_t, TensorId>> sums_;  // of which gradient
  int names_ = 0;
};

}  // namespace

Graph random_made_up_graph(Random& random) { return RandomMaker(random).make(); }

Graph random_made_up_graph(uint64_t seed) {
  Random random(seed);
  return random_made_up_graph(random);
}

}  // namespace ulp::harness
