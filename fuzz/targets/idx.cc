// MNIST's files, plain and packed: two bytes say where the images end, then come images and labels.
#include "fuzz/fuzz.h"
#include "ulp/data/readers.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  Cutter cutter(input);
  const size_t low = cutter.byte(), high = cutter.byte();
  const std::string_view images = cutter.take(low + 256 * high), labels = cutter.rest();
  for (const std::string part : {"train", "t10k"}) {
    file(part + "-images-idx3-ubyte", images);
    file(part + "-labels-idx1-ubyte", labels);
  }
  ImageSet set = read_idx(find_dataset("fashion-mnist"), folder(), {});
  set.mean = {0.5f};
  set.deviation = {0.5f};
  check_set(set);
}

}  // namespace ulp::fuzz
