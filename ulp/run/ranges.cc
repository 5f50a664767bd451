#include "ulp/run/ranges.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/json.h"
#include "ulp/numeric/storage.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "records are copied as they stand in memory");

// How every file of ranges starts; another layout of records gets another number.
constexpr std::string_view kOpening = R"({"ulp_ranges":1,)";
constexpr size_t kRecordHead = 32;  // step, loss, scale, flags, checksum
constexpr size_t kChecksumAt = 28;
constexpr uint32_t kSkipped = 1;
constexpr uint8_t kOverflowed = 1, kFlushedToZero = 2, kHadNan = 4;

size_t record_size(size_t tensors) { return kRecordHead + tensors * sizeof(TensorRange); }
static_assert(sizeof(TensorRange) == 12);

uint8_t happened(const TensorRange& range) {
  uint8_t what = range.overflow > 0 ? kOverflowed : 0;
  if (range.underflow > RangeFile::kFlushed) what |= kFlushedToZero;
  if (std::isnan(range.amax)) what |= kHadNan;
  return what;
}

std::string header_line(const RangedModel& model, std::span<const RangedTensor> tensors) {
  Json json = {
      {"ulp_ranges", 1},
      {"model", {{"input", model.input}, {"classes", model.classes}}},
      {"tensors", Json::array()},
  };
  for (const RangedTensor& tensor : tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"kind", kind_name(tensor.kind)},
                               {"elements", tensor.elements},
                               {"format", tensor.format},
                               {"high", tensor.high}});
  }
  return json.dump() + "\n";
}

std::optional<Kind> counted_kind(std::string_view name) {
  for (const Kind kind : {Kind::activation, Kind::activation_grad, Kind::weight, Kind::weight_grad}) {
    if (kind_name(kind) == name) return kind;
  }
  return std::nullopt;
}

// Throws one of several exceptions unless it is such a line.
RangeHistory parsed_header(std::string_view line) {
  const Json json = parse_json(line);
  RangeHistory history;
  const Json& model = json.at("model");
  history.model.input = model.at("input").get<std::string>();
  history.model.classes = static_cast<int64_t>(count_of(model, "classes"));
  for (const Json& entry : json.at("tensors")) {
    RangedTensor tensor;
    tensor.name = entry.at("name").get<std::string>();
    const std::optional<Kind> kind = counted_kind(entry.at("kind").get<std::string>());
    if (tensor.name.empty() || !kind) fail("ranges", "a tensor lacks its name or kind");
    tensor.kind = *kind;
    tensor.elements = count_of(entry, "elements");
    tensor.format = entry.at("format").get<std::string>();
    tensor.high = entry.at("high").get<std::string>();
    parse_storage(tensor.format);
    parse_storage(tensor.high);
    history.tensors.push_back(std::move(tensor));
  }
  return history;
}

uint32_t checksum(const char* record, size_t size) {
  const auto* bytes = reinterpret_cast<const Bytef*>(record);
  const uLong head = ::crc32_z(0, bytes, kChecksumAt);
  return static_cast<uint32_t>(::crc32_z(head, bytes + kRecordHead, size - kRecordHead));
}

std::string encoded(const RangeRecord& record) {
  std::string bytes(record_size(record.tensors.size()), '\0');
  const uint32_t flags = record.skipped ? kSkipped : 0;
  std::memcpy(bytes.data(), &record.step, 8);
  std::memcpy(bytes.data() + 8, &record.loss, 8);
  std::memcpy(bytes.data() + 16, &record.scale, 8);
  std::memcpy(bytes.data() + 24, &flags, 4);
  if (!record.tensors.empty()) {
    std::memcpy(bytes.data() + kRecordHead, record.tensors.data(),
                record.tensors.size() * sizeof(TensorRange));
  }
  const uint32_t sum = checksum(bytes.data(), bytes.size());
  std::memcpy(bytes.data() + kChecksumAt, &sum, 4);
  return bytes;
}

// Nothing where the bytes do not match their checksum.
std::optional<RangeRecord> decoded(const char* bytes, size_t tensors) {
  uint32_t flags = 0, sum = 0;
  std::memcpy(&sum, bytes + kChecksumAt, 4);
  if (sum != checksum(bytes, record_size(tensors))) return std::nullopt;
  RangeRecord record;
  std::memcpy(&record.step, bytes, 8);
  std::memcpy(&record.loss, bytes + 8, 8);
  std::memcpy(&record.scale, bytes + 16, 8);
  std::memcpy(&flags, bytes + 24, 4);
  record.skipped = (flags & kSkipped) != 0;
  record.tensors.resize(tensors);
  if (tensors > 0) std::memcpy(record.tensors.data(), bytes + kRecordHead, tensors * sizeof(TensorRange));
  return record;
}

std::string read_whole(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    fail("ranges", "cannot read {}: {}", path, error ? error.message() : "it is not a file");
  }
  const uintmax_t size = fs::file_size(path, error);
  if (error) fail("ranges", "cannot read {}: {}", path, error.message());
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) fail("ranges", "cannot read {}: {}", path, std::strerror(errno));
  return text;
}

// The line that a file begins with, its newline included.
std::string_view header_of(std::string_view text, const std::string& path) {
  const size_t end = text.find('\n');
  if (!text.starts_with(kOpening) || end == text.npos) {
    fail("ranges", "{} holds no ranges of a run: remove it", path);
  }
  return text.substr(0, end + 1);
}

// The records up to a step.
RangeHistory parse_history(std::string_view text, const std::string& path, uint64_t until) {
  const std::string_view header = header_of(text, path);
  RangeHistory history;
  try {
    history = parsed_header(header);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    fail("ranges", "the first line of {} is damaged: remove the file", path);
  }
  const size_t size = record_size(history.tensors.size());
  uint64_t last = 0;
  for (text.remove_prefix(header.size()); text.size() >= size; text.remove_prefix(size)) {
    std::optional<RangeRecord> record = decoded(text.data(), history.tensors.size());
    if (!record && text.size() < 2 * size) break;  // the last: torn
    if (!record || record->step <= last) {
      fail("ranges", "{} is damaged after step {}: remove it", path, last);
    }
    last = record->step;
    if (last > until) break;
    history.records.push_back(std::move(*record));
  }
  return history;
}

bool there(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) fail("ranges", "cannot read {}: {}", path, error.message());
  return true;
}

}  // namespace

TensorRange tensor_range(const EncodeStats& stats, uint64_t elements) {
  const auto share = [&](uint64_t count) {
    return elements == 0 ? 0.0f
                         : static_cast<float>(static_cast<double>(count) / static_cast<double>(elements));
  };
  const float amax = stats.nan > 0 ? std::numeric_limits<float>::quiet_NaN() : stats.amax;
  return {amax, share(stats.overflow), share(stats.underflow)};
}

RangeFile::RangeFile(const std::string& path, const RangedModel& model, std::span<const RangedTensor> tensors,
                     uint64_t step)
    : path_(path), seen_(tensors.size()) {
  const std::string header = header_line(model, tensors);
  size_t keep = header.size();
  const bool old = there(path);
  const std::string text = old ? read_whole(path) : "";
  if (old) header_of(text, path);
  if (old && step > 0) {
    if (header_of(text, path) != header) {
      parse_history(text, path, 0);  // says so where the line is damaged
      fail("ranges", "{} is of other tensors than this run's: remove it", path);
    }
    const RangeHistory history = parse_history(text, path, step);
    keep += history.records.size() * record_size(tensors.size());
    for (const RangeRecord& record : history.records) {
      last_ = record.step;
      for (size_t i = 0; i < seen_.size(); ++i) seen_[i] |= happened(record.tensors[i]);
    }
    records_ = history.records.size();
  } else {
    write_file_atomically(path, header);
  }
  fd_ = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY);
  if (fd_ < 0) fail("ranges", "cannot write {}: {}", path, std::strerror(errno));
  if (::ftruncate(fd_, static_cast<off_t>(keep)) == 0) return;
  const int error = errno;
  ::close(fd_);
  fail("ranges", "cannot write {}: {}", path, std::strerror(error));
}

RangeFile::~RangeFile() { ::close(fd_); }

void RangeFile::write(const RangeRecord& record, uint64_t total_steps, bool must) {
  if (record.tensors.size() != seen_.size() || record.step <= last_) {
    throw std::logic_error("a record of ranges must have all tensors and come after the last one");
  }
  const uint64_t stride = std::max<uint64_t>(1, (total_steps + kMost - 1) / kMost);
  // A run that has gone wrong for good would be recorded step by step.
  must = (must || record.skipped) && records_ < kAll;
  must = must || record.step <= kAlways || record.step % stride == 0 || record.step == total_steps;
  for (size_t i = 0; i < seen_.size() && !must; ++i) must = (happened(record.tensors[i]) & ~seen_[i]) != 0;
  if (!must) return;

  const std::string bytes = encoded(record);
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  // A second call is made only where the first stopped short: on a disk that is full, that one says why.
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<size_t>(written));
    } else if (const int error = errno; error != EINTR) {
      // If a part of the record cannot be taken off, the Error is all there is to say.
      if (size >= 0 && left.size() < bytes.size()) static_cast<void>(!::ftruncate(fd_, size));
      fail("ranges", "cannot write {}: {}", path_, std::strerror(error));
    }
  }
  last_ = record.step;
  ++records_;
  for (size_t i = 0; i < seen_.size(); ++i) seen_[i] |= happened(record.tensors[i]);
}

RangeHistory load_ranges(const std::string& path) {
  if (!there(path)) fail("ranges", "there is no {}", path);
  return parse_history(read_whole(path), path, std::numeric_limits<uint64_t>::max());
}

}  // namespace ulp
