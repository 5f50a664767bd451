#include "ulp/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "ulp/base/error.h"

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

}  // namespace ulp
