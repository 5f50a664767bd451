// measured.csv of the experiment with every choice of groups. What is whole is read again as the same.
#include "fuzz/fuzz.h"
#include "ulp/lab/measure.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  constexpr std::string_view kFirst = "# accuracy; epochs 2; seed 0";
  constexpr size_t kChoices = 8;
  const std::string text = std::string(kFirst) + "\n" + std::string(input);
  tried([&] { parse_measured(input, kFirst, kChoices, "measured.csv"); });
  const Measured read = parse_measured(text, kFirst, kChoices, "measured.csv");
  expect(read.whole <= text.size(), "more is whole than there is");
  for (const auto& [key, cost] : read.costs) expect(key.second < kChoices, "a choice that there is not");
  const Measured again = parse_measured(text.substr(0, read.whole), kFirst, kChoices, "measured.csv");
  expect(again.whole == read.whole && again.costs.size() == read.costs.size(), "cut back it reads otherwise");
}

}  // namespace ulp::fuzz
