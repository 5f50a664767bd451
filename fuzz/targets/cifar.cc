// CIFAR's records, plain and packed. The first byte says how many are asked for, and of which kind.
#include "fuzz/fuzz.h"
#include "ulp/data/readers.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  Cutter cutter(input);
  const uint8_t how = cutter.byte();
  const size_t records = how % 4, labels = how % 8 < 4 ? 1 : 2;
  Examples examples;
  append_cifar(file("a.bin", cutter.rest()), records, labels, labels == 1 ? 10 : 100, examples);
  expect(examples.count() == records && examples.images.size() == records * 32 * 32 * 3,
         "not the records that were asked for");
}

}  // namespace ulp::fuzz
