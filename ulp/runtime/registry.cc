#include "ulp/runtime/registry.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/cuda/cuda.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

using Backends = std::vector<std::pair<std::string, const Backend& (*)()>>;

Backends& known_backends() {
  static Backends backends = {{"cpu", cpu_backend}, {"cuda", cuda_backend}, {"reference", reference_backend}};
  return backends;
}

}  // namespace

const Backend& find_backend(std::string_view device) {
  std::string known;
  for (const auto& [name, get] : known_backends()) {
    if (name == device) return get();
    known += (known.empty() ? "" : ", ") + name;
  }
  fail("device", "unknown device '{}'; known: {}", device, known);
}

void add_backend(std::string name, const Backend& (*get)()) {
  for (const auto& entry : known_backends()) {
    if (entry.first == name) throw std::logic_error("there is a backend '" + name + "' already");
  }
  known_backends().emplace_back(std::move(name), get);
}

}  // namespace ulp
