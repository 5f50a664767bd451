// TensorBoard's files, cut back for a run that resumes. Checksums are made right first.
#include <algorithm>
#include <cstring>

#include "fuzz/fuzz.h"
#include "ulp/io/tensorboard.h"

namespace ulp::fuzz {
namespace {

void put_sum(std::string& bytes, size_t from, size_t size) {
  const uint32_t crc = crc32c(as_bytes(std::string_view(bytes).substr(from, size)));
  const uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8;
  std::memcpy(&bytes[from + size], &masked, 4);
}

void mend(std::string& bytes) {
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint64_t size = 0;
    std::memcpy(&size, &bytes[at], 8);
    put_sum(bytes, at, 8);
    if (size > bytes.size() - at - 12 || bytes.size() - at - 12 - size < 4) return;
    put_sum(bytes, at + 12, size);
    at += 16 + size;
  }
}

}  // namespace

void try_input(std::string_view input) {
  std::string bytes(input);
  mend(bytes);
  const std::string path = file("events.out.tfevents.1.fuzz", bytes);
  const auto keeps = [](std::string_view tag, uint64_t step) { return tag != "loss/test" && step <= 3; };
  cut_events(folder(), keeps);
  const std::string cut = content(path);
  expect(cut.size() <= bytes.size(), "cut back, it has grown");
  cut_events(folder(), keeps);
  expect(content(path) == cut, "cut twice is not cut once");
}

}  // namespace ulp::fuzz
