#include "ulp/precision/assignment.h"

#include "ulp/base/error.h"

namespace ulp {
namespace {

bool assignable(const TensorInfo& tensor) {
  if (tensor.element != Element::real) return false;
  switch (tensor.kind) {
    case Kind::activation:
    case Kind::activation_grad:
    case Kind::weight:
    case Kind::weight_grad:
      return true;
    case Kind::grad_sum:
    case Kind::statistic:
    case Kind::optimizer:
    case Kind::saved:
    case Kind::fed:
      return false;
  }
  return false;
}

void check(const Graph& graph, const Assignment& assignment) {
  for (const auto& [name, storage] : assignment.storage) {
    const TensorId id = graph.find(name);
    if (!id || is_fp32(storage)) continue;
    if (const TensorInfo& tensor = graph[id]; tensor.format_from) {
      fail("precision", "'{}' has the format of '{}': assign {} to that one", name,
           graph[graph.format_of(id)].name, storage_name(storage));
    } else if (!assignable(tensor)) {
      fail("precision", "'{}' is fp32, as every {}: it cannot be {}", name, kind_name(tensor.kind),
           storage_name(storage));
    }
  }
}

const Storage* find(const std::map<std::string, Storage>& map, const std::string& name) {
  const auto entry = map.find(name);
  return entry == map.end() ? nullptr : &entry->second;
}

}  // namespace

Storage Assignment::storage_of(const std::string& name) const {
  const Storage* found = find(storage, name);
  return found ? *found : parse_storage("fp32");
}

Storage Assignment::high_of(const std::string& name) const {
  const Storage* found = find(high, name);
  return found ? *found : storage_of(name);
}

bool Assignment::promote(const std::string& name) {
  auto entry = high.extract(name);
  if (entry.empty()) return false;
  storage.insert_or_assign(name, std::move(entry.mapped()));
  return true;
}

std::string assignment_digest(const Assignment& assignment) {
  std::string text;
  for (const auto* map : {&assignment.storage, &assignment.high}) {
    for (const auto& [name, format] : *map) text += fmt::format("{}={};", name, storage_name(format));
    text += '/';
  }
  return fmt::format("{:08x}", tensor_number(text));
}

double low_ratio(std::span<const CountedTensor> tensors, const Assignment& assignment) {
  size_t low = 0, all = 0;
  for (const CountedTensor& tensor : tensors) {
    all += tensor.elements;
    if (assignment.is_low(tensor.name)) low += tensor.elements;
  }
  return all == 0 ? 0 : static_cast<double>(low) / static_cast<double>(all);
}

uint64_t aggregate_bits(std::span<const CountedTensor> tensors, const Assignment& assignment) {
  uint64_t bits = 0;
  for (const CountedTensor& tensor : tensors) {
    const Storage storage = assignment.storage_of(tensor.name);
    const auto* plain = std::get_if<Plain>(&storage);
    bits += plain ? uint64_t{tensor.elements} * static_cast<uint64_t>(plain->format.bits())
                  : 8 * uint64_t{storage_size(storage, tensor.elements).bytes()};
  }
  return bits;
}

std::vector<TensorFormat> resolve_formats(const Graph& graph, const Assignment& assignment,
                                          const std::map<std::string, Storage>& stored) {
  check(graph, assignment);
  const Storage fp32 = parse_storage("fp32");
  std::vector<TensorFormat> formats(graph.tensor_count(), {fp32, {}});
  for (size_t i = 0; i < formats.size(); ++i) {
    const TensorInfo& own = graph[graph.format_of({static_cast<int32_t>(i)})];
    const Storage* assigned = find(assignment.storage, own.name);
    const Storage& used = assigned ? *assigned : fp32;
    if (!is_state(own.kind)) {
      formats[i].storage = used;
      continue;
    }
    if (const Storage* kept = find(stored, own.name)) formats[i].storage = *kept;
    // What is read as it is stored, or wider, loses nothing on its way.
    if (own.kind == Kind::weight && !is_fp32(used) && used != formats[i].storage) formats[i].operand = used;
  }
  return formats;
}

}  // namespace ulp
