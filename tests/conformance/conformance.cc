#include "tests/conformance/conformance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <random>
#include <string>

#include "tests/conformance/conformance_bench.h"
#include "ulp/base/error.h"
#include "ulp/graph/ops.h"

namespace ulp::conformance {
namespace {

StepState step_state(const Sketch& sketch) {
  StepState state;
  state.seed = 11;
  state.step = 3;
  state.loss_scale = 128;
  state.micro_batch = sketch.micro_batch;
  OptimizerConfig config;
  config.kind = OptimizerKind::adam;
  state.update = update_scalars(config, 1, 0.05, 1.0 / 128);
  return state;
}

// The graph of a case is complete before anything is made from it.
struct Built : Sketch {
  explicit Built(const Case& one) { one.build(*this); }
};

// A case in a scheme, with random numbers.
class Trial {
 public:
  Trial(const Case& one, const Scheme& scheme)
      : scheme_(scheme),
        name_(one.name + " in " + std::string(scheme.name)),
        sketch_(one),
        bench_(graph(), choose_formats(), {name_, scheme.compute}, step_state(sketch_)) {
    fill_memory();
    // Nodes one by one; neighbouring updates and sums of squares also as one task, as plans run
    // them.
    units_ = bench_.nodes();
    std::vector<NodeId> updates, squares;
    for (const Bench::Unit& unit : units_) {
      if (graph()[unit[0]].op == &kUpdate) updates.push_back(unit[0]);
      if (graph()[unit[0]].op == &kGradSquares) squares.push_back(unit[0]);
    }
    if (updates.size() > 1) units_.push_back(updates);
    if (squares.size() > 1) units_.push_back(squares);
  }

  std::vector<Checked> reached(const Backend& backend) const {
    std::vector<Checked> all;
    for (const Bench::Unit& roots : units_) {
      for (const KernelDef* kernel : bench_.kernels(backend, roots))
        all.push_back({kernel->op, kernel->name});
    }
    return all;
  }

  void check(const Backend& backend) {
    for (const Bench::Unit& roots : units_) {
      try {
        keep(bench_.check(roots, backend));
      } catch (const std::exception& error) {
        fail("conformance", "{}, {}: {}", name_, graph()[roots[0]].op->name, error.what());
      }
    }
  }

 private:
  const Graph& graph() const { return sketch_.graph; }

  std::vector<TensorFormat> choose_formats() const {
    std::vector<TensorFormat> formats;
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
          formats.push_back({storage, {}});
          break;
        case Kind::weight:
        case Kind::optimizer:
          formats.push_back({sketch_.narrow_state ? storage : fp32, {}});
          if (tensor.kind == Kind::weight && !sketch_.narrow_state && storage != fp32)
            formats.back().operand = storage;
          set_storage(tensor, formats.back());
          break;
        default:
          formats.push_back({fp32, {}});
      }
    }
    for (size_t i = 0; i < formats.size(); ++i) {
      formats[i] = formats[number(graph().format_of({static_cast<int32_t>(i)}))];
    }
    return formats;
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
      const TensorId id{static_cast<int32_t>(i)};
      const TensorInfo& tensor = graph().tensors()[i];
      if (sketch_.below.contains(id.index)) {
        std::uniform_int_distribution<int32_t> any(0, static_cast<int32_t>(sketch_.below.at(id.index) - 1));
        std::vector<int32_t>& feed = index_feeds_[i];
        for (size_t k = 0; k < tensor.elements(); ++k) feed.push_back(any(random_));
        bench_.feed(id, feed.data());
      } else if (tensor.producer && reads_resident(graph()[tensor.producer])) {
        fill_bytes(i, id, resident_bytes(graph(), graph()[tensor.producer]));
      } else if (tensor.element == Element::byte && tensor.kind == Kind::fed) {
        fill_bytes(i, id, tensor.elements());
      } else if (tensor.element == Element::real) {
        feeds_[i] = random_values(tensor);
        bench_.feed(id, feeds_[i].data());
        if (!tensor.producer || is_state(tensor.kind) || tensor.kind == Kind::grad_sum)
          bench_.set(id, feeds_[i]);
      }
    }
  }

  void fill_bytes(size_t i, TensorId id, size_t count) {
    for (size_t k = 0; k < count; ++k) byte_feeds_[i].push_back(static_cast<uint8_t>(random_()));
    bench_.feed(id, byte_feeds_[i].data());
  }

  // The reference's results are what later nodes read, except gradients: those get fresh numbers,
  // as what arrives from a loss is often all small, or all alike.
  void keep(const Result& result) {
    for (size_t k = 0; k < result.ids.size(); ++k) {
      const TensorInfo& tensor = graph()[result.ids[k]];
      if (tensor.kind == Kind::activation_grad || tensor.kind == Kind::weight_grad) {
        bench_.set(graph().bytes_of(result.ids[k]), random_values(tensor));
      } else {
        bench_.keep(result, k);
      }
    }
  }

  const Scheme& scheme_;
  const std::string name_;
  Built sketch_;
  Bench bench_;
  std::mt19937 random_{20261115};
  std::map<size_t, std::vector<float>> feeds_;
  std::map<size_t, std::vector<int32_t>> index_feeds_;
  std::map<size_t, std::vector<uint8_t>> byte_feeds_;
  std::vector<Bench::Unit> units_;
};

}  // namespace

std::vector<Checked> reached(const Case& one, const Scheme& scheme, const Backend& backend) {
  return Trial(one, scheme).reached(backend);
}

void check(const Case& one, const Scheme& scheme, const Backend& backend) {
  Trial(one, scheme).check(backend);
}

}  // namespace ulp::conformance
