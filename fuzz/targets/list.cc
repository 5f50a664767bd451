// A file that lists formats, list:FILE, and what it says of a network.
#include "fuzz/fuzz.h"
#include "ulp/models/model.h"
#include "ulp/precision/policy.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  static const ClassifierGraph net =
      build_classifier({.name = "lenet", .batch = 2, .image = {1, 28, 28}}, Mode::training);
  parse_policy("list:" + file("list.json", input))->assign(net.graph);
}

}  // namespace ulp::fuzz
