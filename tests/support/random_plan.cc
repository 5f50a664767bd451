#include "tests/support/random_plan.h"

#include <algorithm>
#include <string>

namespace ulp::harness {
namespace {

constexpr size_t kSizes[] = {0, 0, 0, 1, 63, 64, 65, 200, 1000};

}  // namespace

BackendTraits draw_backend(Random& random) {
  BackendTraits made;
  made.fuses = random.one_in(2);
  made.merges = random.one_in(2);
  made.prepares = !random.one_in(3);
  made.pairs = !random.one_in(3);
  const uint64_t salt = random.word();
  const int64_t side = random.between(1, 4), merged = random.between(1, 3), prepared = random.between(1, 4),
                ranges = random.between(1, 6);
  const bool large = random.one_in(4);  // workspaces that are most of the arena
  made.of = [=](const Problem& problem) {
    Random own(salt ^ (uint64_t{0x9E3779B97F4A7C15} * tensor_number(problem.root().name)));
    Traits traits;
    traits.in_place = !own.one_in(4);
    traits.side_stream = own.one_in(side);
    traits.takes_inlined = !own.one_in(6);
    traits.workspace = own.among(kSizes) * (large ? 10 : 1);
    traits.prepared = own.one_in(prepared) ? own.among(kSizes) : 0;
    traits.begins_pair = own.one_in(merged);
    traits.ends_pair = own.one_in(merged);
    traits.pair_workspace = own.among(kSizes);
    const std::vector<TensorId>& in = problem.root().in;
    if (!in.empty() && own.one_in(ranges)) {
      const TensorId base = problem.plan.base_of(own.among(in));
      const NodeId producer = problem.tensor(base).producer;
      const bool inside =
          std::find(problem.inlined.begin(), problem.inlined.end(), producer) != problem.inlined.end();
      const bool reports = producer && problem.graph()[producer].op->reports_range();
      if (reports && !inside && problem.root().phase < Phase::update) traits.reads_range = {base};
    }
    return traits;
  };
  return made;
}

PlanOptions draw_options(Random& random, const Graph& graph) {
  PlanOptions options;
  options.fuse = !random.one_in(4);
  options.overlap = !random.one_in(5);
  options.merge = !random.one_in(5);
  options.tight = random.one_in(3);
  options.fused_backward = random.one_in(3);
  options.micro_batches = random.one_in(3) ? 2 : 1;
  const int64_t results = random.between(0, 3);
  for (int64_t i = 0; i < results; ++i) {
    const TensorId id{
        static_cast<int32_t>(random.between(0, static_cast<int64_t>(graph.tensor_count()) - 1))};
    if (graph[id].producer && graph[id].kind != Kind::grad_sum && !is_state(graph[id].kind))
      options.results.push_back(id);
  }
  return options;
}

std::vector<TensorFormat> draw_formats(Random& random, const Graph& graph) {
  static const std::vector<std::vector<std::string>> lists = {
      {"fp32"}, {"bf16"}, {"fp32", "bf16"}, {"fp(4,3,4)", "fp32"}, {"e8m5", "s2fp8", "fp32"}, {"fp(2,1,0)"}};
  const std::vector<std::string>& list = random.among(lists);
  return choose_formats(graph, [&](const TensorInfo&) { return random.among(list); });
}

}  // namespace ulp::harness
