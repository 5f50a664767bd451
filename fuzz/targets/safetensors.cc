// Safetensors files of any program. What is read is saved and read back the same.
#include "ulp/io/safetensors.h"

#include <algorithm>

#include "fuzz/fuzz.h"

namespace ulp::fuzz {
namespace {

// Of the same name in the other.
void expect_same(const TensorFile& one, const TensorFile& other) {
  expect(one.metadata() == other.metadata(), "other metadata");
  expect(one.tensors().size() == other.tensors().size(), "other tensors");
  for (const StoredTensor& a : one.tensors()) {
    const StoredTensor& b = other.find(a.name);
    expect(a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes),
           "another tensor of the same name");
  }
}

}  // namespace

void try_input(std::string_view input) {
  const std::string path = file("a.safetensors", input);
  tried([&] { TensorFile ours(path); });
  const TensorFile read(path, TensorSource::anywhere);
  const std::string again = folder() + "/b.safetensors";
  save_tensors(again, read.tensors(), read.metadata());
  expect_same(read, TensorFile(again));
}

}  // namespace ulp::fuzz
