#include "ulp/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/file.h"

namespace ulp {
namespace {

constexpr size_t kMostPending = 64 << 10;

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, lowest power in the highest bit
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

// TFRecord's: it keeps a CRC of bytes that hold a CRC from being a constant.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

template <typename Unsigned>
std::string fixed(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// Protocol buffers: a field is its number and wire type in one byte (numbers below 16 are all there
// are here), then its value.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

char key(int field, Wire wire) { return static_cast<char>(field << 3 | static_cast<int>(wire)); }

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes += static_cast<char>(value);
}

std::string bytes_field(int field, std::string_view content) {
  return key(field, Wire::bytes) + varint(content.size()).append(content);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_start(double wall_time) {
  return key(1, Wire::fixed64) + fixed(std::bit_cast<uint64_t>(wall_time));
}

// Summary: value = 1, repeated. Value: tag = 1, simple_value = 2.
std::string scalar_summary(std::string_view tag, float value) {
  const std::string entry =
      bytes_field(1, tag) + key(2, Wire::fixed32) + fixed(std::bit_cast<uint32_t>(value));
  return bytes_field(1, entry);
}

// A reader of what is written above. Nothing where the bytes end too early.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  struct Field {
    int number = 0;
    uint64_t value = 0;           // of a varint
    std::string_view bytes = {};  // of bytes
  };
  bool empty() const { return left_.empty(); }
  std::optional<Field> next() {
    const std::optional<uint64_t> head = take_varint();
    if (!head) return std::nullopt;
    Field field{static_cast<int>(*head >> 3)};
    switch (static_cast<Wire>(*head & 7)) {
      case Wire::varint: {
        const std::optional<uint64_t> value = take_varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case Wire::fixed64:
        return take(8, field);
      case Wire::fixed32:
        return take(4, field);
      case Wire::bytes: {
        const std::optional<uint64_t> size = take_varint();
        return size ? take(*size, field) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<Field> take(uint64_t size, Field field) {
    if (size > left_.size()) return std::nullopt;
    field.bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return field;
  }
  std::optional<uint64_t> take_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view left_;
};

// The bytes of a field of this number, or none.
std::optional<std::string_view> bytes_of(std::string_view message, int number) {
  for (Fields fields(message); !fields.empty();) {
    const auto field = fields.next();
    if (!field) return std::nullopt;
    if (field->number == number) return field->bytes;
  }
  return std::nullopt;
}

// Whether an event stays: one that is no scalar does.
bool keeps_event(std::string_view event, const std::function<bool(std::string_view, uint64_t)>& keeps) {
  uint64_t step = 0;
  for (Fields fields(event); !fields.empty();) {
    const auto field = fields.next();
    if (!field) break;
    if (field->number == 2) step = field->value;
  }
  const auto summary = bytes_of(event, 5);
  const auto value = summary ? bytes_of(*summary, 1) : std::nullopt;
  const auto tag = value ? bytes_of(*value, 1) : std::nullopt;
  return !tag || keeps(*tag, step);
}

uint64_t fixed_at(std::string_view bytes, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// The records of a file that stay, each as it is written.
std::string kept_records(std::string_view text, const std::string& path,
                         const std::function<bool(std::string_view, uint64_t)>& keeps) {
  constexpr size_t kHead = 12, kTail = 4;
  std::string kept;
  while (text.size() >= kHead) {
    const uint64_t size = fixed_at(text, 8);
    if (fixed_at(text.substr(8), 4) != masked_crc(text.substr(0, 8)))
      fail("tensorboard", "{} is damaged: remove it, then resume the run", path);
    if (size > text.size() - kHead || text.size() - kHead - size < kTail) break;  // torn
    const std::string_view event = text.substr(kHead, size);
    if (fixed_at(text.substr(kHead + size), 4) != masked_crc(event))
      fail("tensorboard", "{} is damaged: remove it, then resume the run", path);
    const std::string_view record = text.substr(0, kHead + size + kTail);
    if (keeps_event(event, keeps)) kept.append(record);
    text.remove_prefix(record.size());
  }
  return kept;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~uint32_t{0};
  for (const uint8_t byte : bytes) crc = kTable[(crc ^ byte) & 0xff] ^ crc >> 8;
  return ~crc;
}

EventWriter::EventWriter(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) fail("tensorboard", "cannot make the folder {}: {}", dir, error.message());

  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string host = host_name();
  for (auto seconds = static_cast<uint64_t>(now); fd_ < 0; ++seconds) {
    path_ = std::filesystem::path(dir) /
            fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, host, ::getpid());
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST && errno != EINTR)
      fail("tensorboard", "cannot write {}: {}", path_, std::strerror(errno));
  }
  append_record(event_start(now) + bytes_field(3, "brain.Event:2"));
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): see the header
  }
  ::close(fd_);
}

void EventWriter::scalar(std::string_view tag, uint64_t step, float value, double wall_time) {
  append_record(event_start(wall_time) + key(2, Wire::varint) + varint(step) +
                bytes_field(5, scalar_summary(tag, value)));
  if (pending_.size() >= kMostPending) flush();
}

void EventWriter::append_record(std::string_view event) {
  const std::string length = fixed(uint64_t{event.size()});
  pending_.append(length).append(fixed(masked_crc(length)));
  pending_.append(event).append(fixed(masked_crc(event)));
}

void EventWriter::flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (const int error = errno; error != EINTR) {
      pending_.erase(0, done);
      fail("tensorboard", "cannot write {}: {}", path_, std::strerror(error));
    }
  }
  pending_.clear();
}

void cut_events(const std::string& dir,
                const std::function<bool(std::string_view tag, uint64_t step)>& keeps) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with("events.out.tfevents.")) continue;
    const std::string path = at->path().string();
    std::ifstream in(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (!in && !in.eof()) fail("tensorboard", "cannot read {}: {}", path, std::strerror(errno));
    if (const std::string kept = kept_records(text, path, keeps); kept != text)
      write_file_atomically(path, kept);
  }
  if (error) fail("tensorboard", "cannot read the folder {}: {}", dir, error.message());
}

}  // namespace ulp
