#include "tests/support/plan_image.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulp/tensor/memory.h"

namespace ulp::harness {
namespace {

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

std::string step_name(const PlanImage& image, size_t i) {
  return fmt::format("step {} ({})", i, (*image.graph)[image.steps[i].roots[0]].name);
}

// Bytes of the arena for some steps.
struct Claim {
  size_t begin, bytes;
  int first, last;
  std::string name;
  size_t root;  // of a tensor

  bool meets(const Claim& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes && first <= other.last &&
           other.first <= last;
  }
};

std::vector<Claim> find_claims(const PlanImage& image, std::span<const size_t> roots) {
  const size_t none = roots.size();
  std::vector<Claim> claims;
  for (size_t i = 0; i < none; ++i) {
    const TensorPlace& p = image.places[i];
    if (p.home == Home::step && roots[i] == i)
      claims.push_back({p.offset, p.bytes, p.first, p.last, image.graph->tensors()[i].name, i});
  }
  const auto last_of = [&](size_t i) { return std::max(static_cast<int>(i), image.steps[i].live_until - 1); };
  for (size_t i = 0; i < image.steps.size(); ++i) {
    const PlanImage::Step& step = image.steps[i];
    const int when = static_cast<int>(i);
    claims.push_back({step.workspace, step.workspace_bytes, when, last_of(i),
                      "the workspace of " + step_name(image, i), none});
    for (const int m : step.prepares) {
      const auto member = static_cast<size_t>(m);
      const PlanImage::Step& other = image.steps[member];
      claims.push_back({other.prepared.value_or(0), other.prepared_bytes, when, last_of(member),
                        "what is prepared for " + step_name(image, member), none});
    }
  }
  return claims;
}

}  // namespace

PlanImage::PlanImage(const Plan& plan)
    : graph(&plan.graph()),
      formats(plan.formats().begin(), plan.formats().end()),
      results(plan.results().begin(), plan.results().end()),
      bytes(plan.bytes()),
      step_bytes(plan.step_bytes()),
      step_bytes_bound(plan.step_bytes_bound()),
      state_bytes(plan.state_bytes()),
      peak_bytes(plan.peak_bytes()) {
  for (size_t i = 0; i < graph->tensor_count(); ++i)
    places.push_back(plan.place(TensorId{static_cast<int32_t>(i)}));
  for (const PlanStep& step : plan.steps()) {
    Step one;
    one.roots = step.roots;
    one.inlined = step.inlined;
    one.phase = step.phase;
    one.in_place = step.kernel->in_place;
    one.workspace = step.workspace;
    one.prepared = step.prepared;
    one.prepared_bytes = step.task->prepared();
    one.workspace_bytes =
        step.workspace_bytes() -
        (step.prepared && !step.merged && step.merged_task == nullptr ? one.prepared_bytes : 0);
    if (step.preparation != nullptr) one.prepares = step.prepares;
    one.reads_range = step.task->reads_range_of();
    one.live_until = step.live_until;
    one.merged_task = step.merged_task != nullptr;
    one.merged = step.merged;
    steps.push_back(std::move(one));
  }
}

bool has(const std::vector<PlanFinding>& findings, Fault fault) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const PlanFinding& one) { return one.fault == fault; });
}

std::string text_of(const std::vector<PlanFinding>& findings) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, findings.size()); ++i) text += findings[i].text + "\n";
  return text;
}

std::vector<PlanFinding> check_places(const PlanImage& image, std::span<const size_t> roots) {
  const Graph& graph = *image.graph;
  std::vector<PlanFinding> findings;
  const auto report = [&](Fault fault, std::string text) { findings.push_back({fault, std::move(text)}); };
  std::vector<bool> inside(graph.tensor_count());
  for (const PlanImage::Step& step : image.steps) {
    for (const NodeId id : step.inlined) inside[at(graph[id].out[0])] = true;
  }
  size_t state = 0;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    const TensorPlace& p = image.places[i];
    const size_t bytes = tensor_bytes(tensor, image.formats[i].storage);
    if (p.home == Home::nowhere) continue;
    if (at(p.base) != roots[i])
      report(Fault::order, fmt::format("{} has the bytes of {}", tensor.name, graph[p.base].name));
    if (inside[roots[i]])
      report(Fault::bytes, fmt::format("{} is stored and computed inside others", tensor.name));
    if (p.home == Home::state && roots[i] == i) state += bytes;
    if (p.home == Home::step && p.bytes != bytes)
      report(Fault::bytes, fmt::format("{} has {} bytes, not {}", tensor.name, p.bytes, bytes));
  }
  for (const Claim& claim : find_claims(image, roots)) {
    if (claim.bytes == 0) continue;
    if (claim.begin % kMemoryAlignment != 0)
      report(Fault::misaligned, fmt::format("{} is at {}", claim.name, claim.begin));
    if (claim.begin + claim.bytes > image.step_bytes)
      report(Fault::outside, fmt::format("{} ends at {}", claim.name, claim.begin + claim.bytes));
  }
  if (state != image.state_bytes)
    report(Fault::bytes, fmt::format("state has {} bytes, not {}", state, image.state_bytes));
  if (image.peak_bytes != image.state_bytes + image.step_bytes || image.bytes.total() != image.peak_bytes ||
      image.bytes.workspace > image.peak_bytes)
    report(Fault::bytes, fmt::format("the peak of {} bytes is not the sum of its parts", image.peak_bytes));
  return findings;
}

std::vector<PlanFinding> check_lives(const PlanImage& image, std::span<const size_t> roots,
                                     const HandedOver& handed_over) {
  std::vector<PlanFinding> findings;
  const auto taken_over = [&](const Claim& operand, const Claim& result) {
    const auto found = handed_over.find({operand.root, result.root});
    return found == handed_over.end() ? -1 : found->second;
  };
  const std::vector<Claim> claims = find_claims(image, roots);
  std::vector<size_t> alive(image.steps.size());
  const int end = static_cast<int>(alive.size());
  for (const Claim& a : claims) {
    for (int when = std::max(a.first, 0); when <= a.last && when < end; ++when)
      alive[static_cast<size_t>(when)] += aligned_bytes(a.bytes);
    for (const Claim& b : claims) {
      if (&b <= &a || !a.meets(b)) continue;
      const int last = std::min(a.last, b.last);
      if (std::max(taken_over(a, b), taken_over(b, a)) < last) {
        findings.push_back({Fault::life, fmt::format("{} [{}, {}] and {} [{}, {}] lie on each other", a.name,
                                                     a.first, a.last, b.name, b.first, b.last)});
        continue;
      }
      for (int when = std::max(a.first, b.first); when <= last && when < end; ++when)
        alive[static_cast<size_t>(when)] -= aligned_bytes(a.bytes);
    }
  }
  const size_t most = alive.empty() ? 0 : *std::max_element(alive.begin(), alive.end());
  if (most > image.step_bytes_bound)
    findings.push_back(
        {Fault::bytes, fmt::format("{} bytes live at once, the plan says {}", most, image.step_bytes_bound)});
  if (image.step_bytes_bound > image.step_bytes)
    findings.push_back({Fault::bytes, fmt::format("the arena of {} bytes is below {}", image.step_bytes,
                                                  image.step_bytes_bound)});
  return findings;
}

}  // namespace ulp::harness
