// Tasks for norm.h: running statistics of batch norm, and layer norm.
#include "ulp/backend/cuda/batchnorm/norm.h"

#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/elementwise.h"

namespace ulp::cuda {
namespace {

// Running statistics of any number of batch norms.
Track factors_of(const Problem& problem, const Node& node) {
  const double momentum = node.attrs.real("momentum");
  Track track{};
  track.channels = static_cast<uint32_t>(problem.shape(node.in[0]).back());
  track.keep = static_cast<float>(1 - momentum);
  track.momentum = static_cast<float>(momentum);
  track.unbias = elementwise::batch_unbias(node.attrs.real("rows"));
  return track;
}

class BatchTrackTask : public Task {
 public:
  explicit BatchTrackTask(const Problem& problem) {
    for (const NodeId root : problem.roots) {
      const Node& node = problem.graph()[root];
      nodes_.push_back(&node);
      tracks_.push_back(factors_of(problem, node));
    }
  }

  void run(const RunContext& context) override {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      tracks_[i].mean = context.as<const float>(nodes_[i]->in[0]);
      tracks_[i].variance = context.as<const float>(nodes_[i]->in[1]);
      tracks_[i].running_mean = context.as<float>(nodes_[i]->out[0]);
      tracks_[i].running_variance = context.as<float>(nodes_[i]->out[1]);
    }
    batch_track(tracks_.data(), tracks_.size(), context.stream);
  }

 private:
  std::vector<const Node*> nodes_;
  std::vector<Track> tracks_;
};

// Statistics with storage formats of their own, one by one.
class StoredTrackTask : public Task {
 public:
  explicit StoredTrackTask(const Problem& problem) {
    for (const NodeId root : problem.roots) {
      const Node& node = problem.graph()[root];
      for (size_t i = 0; i < 2; ++i) {
        parts_.push_back({node.in[i], Operand::stored(problem, node.out[i]),
                          Result(problem, node, node.out[i]), factors_of(problem, node), i == 1});
      }
    }
  }

  void run(const RunContext& context) override {
    for (const Part& part : parts_) {
      track_stored(part.running.view(context).stored, part.out.view(context),
                   context.as<const float>(part.now), part.factors, part.unbiased, context.state,
                   context.stream);
    }
  }

 private:
  struct Part {
    TensorId now;
    Operand running;
    Result out;
    Track factors;
    bool unbiased;
  };
  std::vector<Part> parts_;
};

std::string takes_stored_tracks(const Problem& problem) {
  for (const NodeId root : problem.roots) {
    const Node& node = problem.graph()[root];
    for (const TensorId id : node.out) {
      if (!Result(problem, node, id).in_groups()) return "statistics that are written as a whole";
    }
  }
  return takes_no_inlined(problem);
}

// Values saved for backward are fp32 in every plan; running statistics are in most.
std::string why_not_fp32(const Problem& problem) {
  for (const NodeId root : problem.roots) {
    const Node& node = problem.graph()[root];
    for (const auto& ids : {node.in, node.out}) {
      for (const TensorId id : ids) {
        const Kind kind = problem.tensor(id).kind;
        if ((kind == Kind::saved || kind == Kind::statistic) && !is_fp32(problem.format(id).storage))
          return "statistics that are not fp32";
      }
    }
  }
  return "";
}

std::string takes_tracks(const Problem& problem) {
  std::string why = takes_no_inlined(problem);
  return why.empty() ? why_not_fp32(problem) : why;
}

std::string takes_rows(const Problem& problem) {
  std::string why = takes_one_node(problem);
  return why.empty() ? why_not_fp32(problem) : why;
}

class LayerTask : public DecodeAroundTask {
 public:
  explicit LayerTask(const Problem& problem) : DecodeAroundTask(problem) {
    const Shape& shape = problem.shape(problem.root().in[0]);
    shape_ = {shape.rows(), static_cast<uint32_t>(shape.back()), problem.root().attrs.real("epsilon")};
  }

 protected:
  LayerShape shape_;
};

class LayerNormTask : public LayerTask {
 public:
  using LayerTask::LayerTask;

 private:
  void launch_on(const RunContext& context, const Views& v) override {
    layer_norm(shape_, v.in[0], v.numbers(1), v.numbers(2), v.out[0], v.out[1], v.out[2], context.state,
               context.stream);
  }
};

class LayerNormGradTask : public LayerTask {
 public:
  using LayerTask::LayerTask;

 private:
  void launch_on(const RunContext& context, const Views& v) override {
    layer_norm_grad(shape_, v.in[0], v.in[1], v.numbers(2), v.numbers(3), v.numbers(4), v.out[0],
                    context.state, context.stream);
  }
};

class LayerNormGradWeightTask : public LayerTask {
 public:
  using LayerTask::LayerTask;

 private:
  void launch_on(const RunContext& context, const Views& v) override {
    layer_norm_grad_weight(shape_, v.in[0], v.in[1], v.numbers(2), v.numbers(3), v.out[0], v.out[1],
                           context.state, context.stream);
  }
};

template <typename Made>
constexpr KernelDef rows(std::string_view op) {
  return {op, "rows", takes_rows, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> norm_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"batch_track", "track", takes_tracks, make_one<BatchTrackTask>, false, true},
      {"batch_track", "stored", takes_stored_tracks, make_one<StoredTrackTask>},
      rows<LayerNormTask>("layer_norm"),
      rows<LayerNormGradTask>("layer_norm_grad"),
      rows<LayerNormGradWeightTask>("layer_norm_grad_weight"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
