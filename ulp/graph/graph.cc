#include "ulp/graph/graph.h"

#include <algorithm>
#include <stdexcept>

#include "ulp/base/error.h"

namespace ulp {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::activation:
      return "activation";
    case Kind::activation_grad:
      return "activation_grad";
    case Kind::weight:
      return "weight";
    case Kind::weight_grad:
      return "weight_grad";
    case Kind::grad_sum:
      return "grad_sum";
    case Kind::statistic:
      return "statistic";
    case Kind::optimizer:
      return "optimizer";
    case Kind::saved:
      return "kept";
    case Kind::fed:
      return "fed tensor";
  }
  return "?";
}

std::string_view element_name(Element element) {
  switch (element) {
    case Element::real:
      return "fp32";
    case Element::int32:
      return "int32";
    case Element::byte:
      return "byte";
  }
  return "?";
}

double Attrs::real(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return value;
  }
  throw std::logic_error("no attribute " + std::string(name));
}

bool Attrs::has(std::string_view name) const {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& entry) { return entry.first == name; });
}

void Attrs::set(std::string_view name, double value) {
  for (auto& [key, old] : values_) {
    if (key == name) {
      old = value;
      return;
    }
  }
  values_.emplace_back(name, value);
}

uint32_t tensor_number(std::string_view name) {
  uint32_t hash = 0x811C9DC5u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193u;
  return hash;
}

TensorId Graph::add_tensor(TensorInfo info) {
  const TensorId id{static_cast<int32_t>(tensors_.size())};
  info.number = info.twin ? (*this)[info.twin].number : tensor_number(info.name);
  if (by_name_.contains(info.name)) fail("graph", "two tensors are called '{}'", info.name);
  if (const auto [entry, fresh] = by_number_.emplace(info.number, id); !fresh && !info.twin) {
    fail("graph", "'{}' and '{}' have the same number and would share random words: rename one", info.name,
         (*this)[entry->second].name);
  }
  by_name_.emplace(info.name, id);
  tensors_.push_back(std::move(info));
  return id;
}

NodeId Graph::add_node(Node node) {
  const NodeId id{static_cast<int32_t>(nodes_.size())};
  for (const TensorId out : node.out) {
    if (!(*this)[out].producer && !is_state((*this)[out].kind)) edit(out).producer = id;
  }
  nodes_.push_back(std::move(node));
  return id;
}

TensorId Graph::find(std::string_view name) const {
  const auto entry = by_name_.find(std::string(name));
  return entry == by_name_.end() ? TensorId{} : entry->second;
}

TensorId Graph::bytes_of(TensorId id) const {
  while ((*this)[id].alias) id = (*this)[id].alias;
  return id;
}

TensorId Graph::format_of(TensorId id) const {
  while ((*this)[id].format_from) id = (*this)[id].format_from;
  return id;
}

size_t Graph::parameters() const {
  size_t sum = 0;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.kind == Kind::weight) sum += tensor.elements();
  }
  return sum;
}

}  // namespace ulp
