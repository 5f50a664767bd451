#include "tests/support/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ulp/graph/builder.h"
#include "ulp/graph/ops.h"

namespace ulp::harness {
namespace {

constexpr int64_t kWideChannels[] = {513, 520, 777, 1001, 1026, 2050, 4095, 4096};
// So that no graph is slow: of a concatenation, and of what a product reads.
constexpr int64_t kMostChannels = 4200, kMostProductChannels = 300;

// Adds operators to a graph, each of which reads tensors that are already there.
class Grower {
 public:
  Grower(Graph& graph, Random& random) : b_(graph, Mode::training), random_(random) {}

  Builder& builder() { return b_; }
  // The input, and an operator with a weight, so that gradients flow through what follows.
  TensorId start(bool wide);
  void grow();
  // Up to three tensors brought together to scores (n, classes).
  TensorId finish();

 private:
  // Adds an operator that reads x; false where x's shape does not allow it.
  using Move = bool (Grower::*)(TensorId x);
  bool activation(TensorId x);
  bool dropped(TensorId x);
  bool combined(TensorId x);
  bool joined(TensorId x);
  bool halved(TensorId x);
  bool shuffled(TensorId x);
  bool convolved(TensorId x);
  bool batch_normed(TensorId x);
  bool layer_normed(TensorId x);
  bool pooled(TensorId x);
  bool multiplied(TensorId x);
  bool viewed(TensorId x);
  bool repeated(TensorId x);
  bool interacted(TensorId x);

  // How often a move stands here is how often it is drawn. Elementwise ones are what plans fuse.
  static constexpr Move kMoves[] = {
      &Grower::activation,   &Grower::activation,   &Grower::activation, &Grower::activation,
      &Grower::activation,   &Grower::dropped,      &Grower::dropped,    &Grower::combined,
      &Grower::combined,     &Grower::combined,     &Grower::joined,     &Grower::halved,
      &Grower::shuffled,     &Grower::convolved,    &Grower::convolved,  &Grower::batch_normed,
      &Grower::batch_normed, &Grower::layer_normed, &Grower::pooled,     &Grower::multiplied,
      &Grower::viewed,       &Grower::repeated,     &Grower::interacted,
  };

  bool add(TensorId made) {
    pool_.push_back(made);
    return true;
  }
  std::string fresh() { return fmt::format("n{}", names_++); }
  // Mostly one of the last tensors: chains are what plans fuse, and old tensors what they keep
  // alive.
  TensorId pick();
  template <typename Fits>
  TensorId pick_where(const Fits& fits);

  Builder b_;
  Random& random_;
  std::vector<TensorId> pool_;  // what may be read
  int names_ = 0;
};

TensorId Grower::start(bool wide) {
  const int64_t n = random_.between(1, 5);
  int64_t c = 0;
  if (wide) {
    c = random_.among(kWideChannels);
  } else {
    c = random_.one_in(4) ? random_.between(1, 3) : 4 * random_.between(1, 6);
  }
  const int64_t most = wide ? 2 : 7, h = random_.between(1, most), w = random_.between(1, most);
  const TensorId x = input(b_, "input", Shape::image(n, c, h, w));
  add(x);
  if (wide) {
    add(batch_norm(b_, "first", x));
  } else {
    add(conv2d(b_, "first", x, {.out = 4 * random_.between(1, 5)}));
  }
  return x;
}

void Grower::grow() {
  for (bool grown = false; !grown;) {
    const Move move = random_.among(kMoves);
    grown = (this->*move)(pick());
  }
}

TensorId Grower::pick() {
  constexpr int64_t kRecent = 4;
  const auto last = static_cast<int64_t>(pool_.size()) - 1;
  const int64_t first = random_.one_in(3) ? 0 : std::max<int64_t>(0, last + 1 - kRecent);
  return pool_[static_cast<size_t>(random_.between(first, last))];
}

template <typename Fits>
TensorId Grower::pick_where(const Fits& fits) {
  std::vector<TensorId> all;
  std::copy_if(pool_.begin(), pool_.end(), std::back_inserter(all),
               [&](TensorId id) { return fits(b_.shape(id)); });
  return random_.among(all);
}

bool Grower::activation(TensorId x) {
  switch (random_.between(0, 4)) {
    case 0:
      return add(leaky_relu(b_, fresh(), x, 0.1));
    case 1:
      return add(tanh(b_, fresh(), x));
    case 2:
      return add(sigmoid(b_, fresh(), x));
    default:
      return add(relu(b_, fresh(), x));
  }
}

bool Grower::dropped(TensorId x) { return add(dropout(b_, fresh(), x, 0.3)); }

// Maybe with itself.
bool Grower::combined(TensorId x) {
  const TensorId y = pick_where([&](const Shape& shape) { return shape == b_.shape(x); });
  return add(random_.one_in(3) ? multiply(b_, fresh(), x, y) : ulp::add(b_, fresh(), x, y));
}

// Mostly along the last axis.
bool Grower::joined(TensorId x) {
  const Shape s = b_.shape(x);
  const int axis = random_.one_in(3) ? static_cast<int>(random_.between(1, s.rank() - 1)) : s.rank() - 1;
  const TensorId y = pick_where([&](const Shape& shape) {
    if (shape.rank() != s.rank()) return false;
    for (int i = 0; i < s.rank(); ++i) {
      if (i != axis && shape[i] != s[i]) return false;
    }
    return true;
  });
  if (s[axis] + b_.shape(y)[axis] > kMostChannels) return false;
  return add(concat(b_, fresh(), {x, y}, axis));
}

// The second half is sometimes read by nothing.
bool Grower::halved(TensorId x) {
  const Shape s = b_.shape(x);
  const int axis = random_.one_in(3) ? static_cast<int>(random_.between(1, s.rank() - 1)) : s.rank() - 1;
  if (s[axis] % 2 != 0) return false;
  const std::vector<TensorId> halves = split(b_, fresh(), x, 2, axis);
  add(halves[0]);
  return random_.one_in(4) || add(halves[1]);
}

// A tensor whose axes have the other's extents or 1, from the last one on.
bool Grower::repeated(TensorId x) {
  const Shape s = b_.shape(x);
  const TensorId y = pick_where([&](const Shape& shape) {
    if (shape.rank() > s.rank()) return false;
    for (int i = 1; i <= shape.rank(); ++i) {
      if (shape[shape.rank() - i] != s[s.rank() - i] && shape[shape.rank() - i] != 1) return false;
    }
    return true;
  });
  return add(ulp::add(b_, fresh(), x, y));
}

// Channels of the pixels of an image meet each other.
bool Grower::interacted(TensorId x) {
  const Shape s = b_.shape(x);
  if (s.rank() != 4 || s.h() * s.w() < 2) return false;
  return add(dot_interaction(b_, fresh(), reshape(b_, fresh(), x, {s.n(), s.h() * s.w(), s.c()})));
}

bool Grower::shuffled(TensorId x) {
  return b_.shape(x).back() % 2 == 0 && add(channel_shuffle(b_, fresh(), x, 2));
}

bool Grower::convolved(TensorId x) {
  const Shape& s = b_.shape(x);
  if (s.rank() != 4 || s.c() > kMostProductChannels) return false;
  ConvOptions options;
  options.out = 4 * random_.between(1, 6);
  options.kernel = random_.one_in(2) ? 1 : 3;
  options.padding = options.kernel / 2;
  options.stride = random_.between(1, 2);
  options.bias = random_.one_in(2);
  if (random_.one_in(4)) options.groups = options.out = s.c();
  return add(conv2d(b_, fresh(), x, options));
}

bool Grower::batch_normed(TensorId x) { return add(batch_norm(b_, fresh(), x)); }

bool Grower::layer_normed(TensorId x) { return add(layer_norm(b_, fresh(), x)); }

bool Grower::pooled(TensorId x) {
  const Shape& s = b_.shape(x);
  if (s.rank() != 4 || s.h() < 2 || s.w() < 2) return false;
  PoolOptions options;
  options.stride = random_.between(1, 2);
  if (random_.one_in(2)) return add(max_pool(b_, fresh(), x, options));
  options.padding = random_.between(0, 1);
  return add(avg_pool(b_, fresh(), x, options));
}

bool Grower::multiplied(TensorId x) {
  if (b_.shape(x).back() > kMostProductChannels) return false;
  LinearOptions options;
  options.out = 3 * random_.between(1, 5);
  options.bias = random_.one_in(2);
  return add(linear(b_, fresh(), x, options));
}

bool Grower::viewed(TensorId x) {
  if (b_.shape(x).rank() != 4) return false;
  return add(random_.one_in(2) ? flatten(b_, fresh(), x) : transpose(b_, fresh(), x, {0, 2, 1, 3}));
}

TensorId Grower::finish() {
  std::vector<TensorId> ends;
  const int64_t many = random_.between(1, 3);
  for (int64_t i = 0; i < many; ++i) {
    const TensorId x = i == 0 ? pool_.back() : pick();
    if (b_.shape(x).rank() != 4) {
      ends.push_back(x);
    } else {
      ends.push_back(random_.one_in(2) ? global_average(b_, fresh(), x) : flatten(b_, fresh(), x));
    }
  }
  const TensorId all = ends.size() == 1 ? ends[0] : concat(b_, "ends", ends);
  return linear(b_, "scores", all, {.out = random_.between(2, 7)});
}

}  // namespace

TrainingGraph random_graph(Random& random, const GraphOptions& options) {
  TrainingGraph made;
  ClassifierGraph& net = made.net;
  Grower grower(net.graph, random);
  Builder& b = grower.builder();
  net.input = grower.start(options.wide);
  net.labels = indices(b, "labels", {b.shape(net.input)[0]});
  for (int64_t left = random.between(3, 16); left > 0; --left) grower.grow();
  net.scores = grower.finish();
  net.loss = cross_entropy(b, "loss", net.scores, net.labels, 0.1);
  net.sums = classify(b, "accuracy", net.scores, net.labels, net.loss);
  make_step(made, random.word(), options.micro_batches, options.clip_norm);
  return made;
}

std::string forward_nodes(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::forward) continue;
    text += fmt::format("  {}", node.op->name);
    for (const TensorId in : node.in) text += fmt::format(" {}", graph[in].name);
    text += " ->";
    for (const TensorId out : node.out) {
      text += fmt::format(" {} {}", graph[out].name, shape_text(graph[out].shape));
    }
    text += "\n";
  }
  return text;
}

}  // namespace ulp::harness
