#include "ulp/backend/kernel.h"

#include <algorithm>
#include <mutex>

#include "ulp/base/error.h"
#include "ulp/numeric/format.h"
#include "ulp/tensor/memory.h"

namespace ulp {

size_t tensor_bytes(const TensorInfo& tensor, const Storage& storage) {
  const size_t n = tensor.elements();
  switch (tensor.element) {
    case Element::int32:
      return aligned_bytes(4 * n);
    case Element::byte:
      return aligned_bytes(n);
    case Element::real:
      break;
  }
  const StorageSize size = storage_size(storage, n);
  return aligned_bytes(size.code_bytes) + aligned_bytes(4 * size.side_words);
}

void RunContext::report(TensorId id, const EncodeStats& added) const {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  stats[static_cast<size_t>(id.index)].merge(added);
}

void RunContext::report(TensorId id, const UpdateCounts& counts) const {
  static std::mutex mutex;
  if (updates == nullptr) return;
  const std::lock_guard lock(mutex);
  updates[static_cast<size_t>(id.index)].merge(counts);
}

namespace {

std::string& default_kernels() {
  static std::string text;
  return text;
}

}  // namespace

std::string takes_no_inlined(const Problem& problem) {
  return problem.inlined.empty() ? "" : "it computes no other operators inside";
}

std::string takes_one_node(const Problem& problem) {
  return problem.inlined.empty() && problem.roots.size() == 1 ? "" : "it runs one operator at a time";
}

void set_default_kernels(std::string text) { default_kernels() = std::move(text); }

KernelChoice::KernelChoice(std::string_view text, const Backend& backend) {
  if (text.empty()) text = default_kernels();
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equal = item.find('=');
    if (equal == std::string_view::npos) {
      fail("kernels", "'{}' is no choice: write OPERATOR=KERNEL, such as conv2d=reference or *=reference",
           item);
    }
    const std::string op(item.substr(0, equal)), kernel(item.substr(equal + 1));
    std::string known;
    bool found = false;
    for (const KernelDef& def : backend.kernels) {
      if (op != "*" && def.op != op) continue;
      found = found || def.name == kernel;
      if (known.find(def.name) == std::string::npos)
        known += (known.empty() ? "" : ", ") + std::string(def.name);
    }
    if (known.empty()) fail("kernels", "'{}' is no operator of the backend {}", op, backend.name);
    if (!found) fail("kernels", "{} has no kernel '{}' on {}; known: {}", op, kernel, backend.name, known);
    wanted_.emplace_back(op, kernel);
  }
}

const KernelDef* KernelChoice::pick(const Backend& backend, const Problem& problem,
                                    std::string* reasons) const {
  const std::string_view op = problem.root().op->name;
  std::string_view wanted;
  for (const auto& [name, kernel] : wanted_) {
    // "*" asks for a kernel where it exists; an operator's own name asks for it alone.
    const bool exists =
        std::any_of(backend.kernels.begin(), backend.kernels.end(),
                    [&, &k = kernel](const KernelDef& def) { return def.op == op && def.name == k; });
    if (name == op || (name == "*" && exists)) wanted = kernel;
  }
  for (const KernelDef& def : backend.kernels) {
    if (def.op != op || (!wanted.empty() && def.name != wanted)) continue;
    const std::string reason = def.why_not(problem);
    if (reason.empty()) return &def;
    if (reasons != nullptr)
      *reasons += fmt::format("{}{}: {}", reasons->empty() ? "" : "; ", def.name, reason);
  }
  return nullptr;
}

}  // namespace ulp
