// A file of measured sensitivities, sensitivity:R:FILE, and what it says of a network.
#include "fuzz/fuzz.h"
#include "ulp/models/model.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/sensitivities.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  static const ClassifierGraph net =
      build_classifier({.name = "lenet", .batch = 2, .image = {1, 28, 28}}, Mode::training);
  const std::string path = file("sensitivity.json", input);
  tried([&] {
    const Sensitivities read = load_sensitivities(path);
    expect(read.elements.size() == read.errors.size(), "not an error for each group");
  });
  parse_policy("sensitivity:0.5:" + path)->assign(net.graph);
}

}  // namespace ulp::fuzz
