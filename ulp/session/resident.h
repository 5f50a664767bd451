// A data set resident in the memory of a device other than the host: as bytes, uploaded once.
// Batches are made there from the numbers of their examples.
#pragma once

#include <cstddef>

#include "ulp/data/loader.h"
#include "ulp/data/resident.h"
#include "ulp/runtime/device_session.h"
#include "ulp/tensor/memory.h"

namespace ulp {

class ResidentSet {
 public:
  // Whether the backend makes batches, and from such images.
  static bool possible(const Backend& backend, const ImageSet& set);
  static size_t bytes(const ImageSet& set);

  // `train` and `test` tell how the loaders of the two parts crop, mirror and normalise. The memory
  // must outlive it.
  ResidentSet(Memory& memory, const Backend& backend, const ImageSet& set, const LoaderOptions& train,
              const LoaderOptions& test);

  // What makes batches of this many examples.
  Filler filler(Part part, int64_t examples) const;

 private:
  struct Stored {
    Block images, labels;
    ResidentImages view;
  };
  Stored store(Memory& memory, const ImageSet& set, const Examples& part, const LoaderOptions& options) const;

  const Backend& backend_;
  Stored train_, test_;
};

}  // namespace ulp
