#include "ulp/library/session_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ulp/precision/groups.h"

namespace ulp {
namespace {

std::string bytes_text(size_t bytes) {
  constexpr double kKib = 1024, kMib = kKib * kKib;
  const auto count = static_cast<double>(bytes);
  if (count >= kMib) return fmt::format("{:.1f} MiB", count / kMib);
  return count >= kKib ? fmt::format("{:.1f} KiB", count / kKib) : fmt::format("{} bytes", bytes);
}

std::string batch_text(const BatchShape& shape) {
  std::string text = fmt::format("batches of {} examples", shape.examples);
  if (!shape.extents.empty()) text += fmt::format(", extents ({})", fmt::join(shape.extents, ", "));
  return text;
}

}  // namespace

std::string plan_text(const RunConfig& config, const Engine& engine, const SessionMemory& memory,
                      std::span<const TensorReport> tensors) {
  std::string text = fmt::format("{} parameters, {}, policy {}, on {}\n", engine.graph().parameters(),
                                 batch_text(engine.batch()), config.policy, config.device);
  for (const TensorInfo& tensor : engine.graph().tensors()) {
    if (tensor.kind == Kind::weight && !tensor.grad)
      text += fmt::format("{} is not trained: the loss does not depend on it\n", tensor.name);
  }
  text += fmt::format("memory {}:", bytes_text(memory.planned_peak));
  const std::array<std::pair<std::string_view, size_t>, 7> uses = {{{"weights", memory.weights},
                                                                    {"optimizer", memory.optimizer},
                                                                    {"activations", memory.activations},
                                                                    {"gradients", memory.gradients},
                                                                    {"workspace", memory.workspace},
                                                                    {"snapshot", memory.snapshot},
                                                                    {"resident data", memory.resident}}};
  for (size_t i = 0, shown = 0; i < uses.size(); ++i) {
    if (uses[i].second == 0) continue;
    text += fmt::format("{} {} {}", shown++ == 0 ? "" : ",", uses[i].first, bytes_text(uses[i].second));
  }
  text += fmt::format("\n{:.1f} bytes a parameter for weights and their state\n", memory.bytes_per_parameter);
  size_t elements = 0, width = std::string_view("tensor").size();
  for (const TensorReport& tensor : tensors) width = std::max(width, tensor.name.size());
  // Of the whole batch, as its bits are: tensors may be those of a micro-batch.
  for (const CountedTensor& tensor : engine.counted()) elements += tensor.elements;
  text += fmt::format("all tensors together {} of {} in fp32, {:.0f}% of the elements low\n",
                      bytes_text(aggregate_bits(engine.counted(), engine.assignment()) / 8),
                      bytes_text(4 * elements), 100 * memory.low_ratio);
  text += fmt::format("{:<{}}  {:<16} {:>10}  format\n", "tensor", width, "kind", "elements");
  for (const TensorReport& tensor : tensors)
    text += fmt::format("{:<{}}  {:<16} {:>10}  {}\n", tensor.name, width, tensor.kind, tensor.elements,
                        tensor.format);
  return text;
}

}  // namespace ulp
