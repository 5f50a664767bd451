// The ranges of a run, and the diagnosis of what they say. Checksums of records are made right first.
#include "ulp/run/ranges.h"

#include <zlib.h>

#include <cstring>

#include "fuzz/fuzz.h"
#include "ulp/doctor/doctor.h"

namespace ulp::fuzz {
namespace {

constexpr size_t kRecordHead = 32, kChecksumAt = 28, kOfTensor = 12;

void mend(std::string& bytes) {
  const size_t header = bytes.find('\n');
  if (header == std::string::npos) return;
  size_t tensors = 0;
  for (size_t at = 0; (at = bytes.find("\"kind\"", at)) < header; ++at) ++tensors;
  const size_t size = kRecordHead + tensors * kOfTensor;
  for (size_t at = header + 1; at + size <= bytes.size(); at += size) {
    const auto* record = reinterpret_cast<const Bytef*>(&bytes[at]);
    const uLong head = ::crc32_z(0, record, kChecksumAt);
    const auto sum = static_cast<uint32_t>(::crc32_z(head, record + kRecordHead, size - kRecordHead));
    std::memcpy(&bytes[at + kChecksumAt], &sum, 4);
  }
}

}  // namespace

void try_input(std::string_view input) {
  std::string bytes(input);
  mend(bytes);
  const std::string path = file("ranges.bin", bytes);
  DoctorHistory history{load_ranges(path), {}};
  diagnose(history);
  diagnose(history, 3);
  // A run that resumes after its second step.
  const RangedModel model = history.ranges.model;
  if (!tried([&] { RangeFile(path, model, history.ranges.tensors, 2); })) return;
  for (const RangeRecord& record : load_ranges(path).records)
    expect(record.step <= 2, "a record is too late");
}

}  // namespace ulp::fuzz
