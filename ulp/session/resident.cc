#include "ulp/session/resident.h"

namespace ulp {

bool ResidentSet::possible(const Backend& backend, const ImageSet& set) {
  return backend.fill_batch != nullptr && set.channels <= ResidentImages::kMaxChannels;
}

size_t ResidentSet::bytes(const ImageSet& set) {
  size_t bytes = 0;
  for (const Examples* part : {&set.train, &set.test}) {
    bytes += aligned_bytes(part->images.size()) + aligned_bytes(part->labels.size() * sizeof(int32_t));
  }
  return bytes;
}

ResidentSet::ResidentSet(Memory& memory, const Backend& backend, const ImageSet& set,
                         const LoaderOptions& train, const LoaderOptions& test)
    : backend_(backend),
      train_(store(memory, set, set.train, train)),
      test_(store(memory, set, set.test, test)) {}

ResidentSet::Stored ResidentSet::store(Memory& memory, const ImageSet& set, const Examples& part,
                                       const LoaderOptions& options) const {
  const size_t label_bytes = part.labels.size() * sizeof(int32_t);
  Stored stored{memory.allocate(part.images.size()), memory.allocate(label_bytes),
                resident_images(set, options)};
  memory.device().upload(stored.images.data(), part.images.data(), part.images.size());
  memory.device().upload(stored.labels.data(), part.labels.data(), label_bytes);
  stored.view.images = stored.images.data();
  stored.view.labels = reinterpret_cast<const int32_t*>(stored.labels.data());
  return stored;
}

Filler ResidentSet::filler(Part part, int64_t examples) const {
  const ResidentImages& view = (part == Part::train ? train_ : test_).view;
  return [fill = backend_.fill_batch, view, examples](Stream stream, uint8_t* images, uint8_t* labels,
                                                      const uint8_t* numbers) {
    fill(view, reinterpret_cast<const uint32_t*>(numbers), static_cast<uint32_t>(examples),
         reinterpret_cast<float*>(images), reinterpret_cast<int32_t*>(labels), stream);
  };
}

}  // namespace ulp
