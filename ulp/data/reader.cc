#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kChunk = 16 << 20;
constexpr unsigned kBuffer = 256 << 10;

[[noreturn]] void fail_to_read(std::string_view part, const std::string& path, int error) {
  fail(part, "cannot read {}: {}", path, std::strerror(error));
}

}  // namespace

// Without O_NONBLOCK, to open a pipe is to wait for its writer.
RegularFile::RegularFile(std::string_view part, const std::string& path)
    : part_(part), path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_to_read(part, path, errno);
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<size_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (error != 0) fail_to_read(part, path, error);
  fail(part, "cannot read {}: it is a pipe or a device, not a file", path);
}

RegularFile::~RegularFile() { ::close(descriptor_); }

size_t RegularFile::read(std::span<uint8_t> buffer) const {
  for (;;) {
    const ssize_t got = ::read(descriptor_, buffer.data(), buffer.size());
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail_to_read(part_, path_, errno);
  }
}

std::vector<uint8_t> read_plain(std::string_view part, const std::string& path, size_t most) {
  const RegularFile file(part, path);
  if (file.size() > most) fail(part, "{} has {} bytes: at most {} are read", path, file.size(), most);
  std::vector<uint8_t> bytes(file.size());
  for (size_t filled = 0; filled < bytes.size();) {
    const size_t got = file.read(std::span(bytes).subspan(filled));
    if (got == 0) fail(part, "{} is cut short: it had {} bytes, {} there", path, bytes.size(), filled);
    filled += got;
  }
  return bytes;
}

bool is_there(std::string_view part, const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error == std::errc::permission_denied) fail_to_read(part, path, EACCES);
  return there;
}

FileReader::FileReader(std::string_view part, const std::string& path)
    : part_(part), path_(path), file_(part, path), raw_(kBuffer), ready_(raw_.data(), file_.read(raw_)) {
  if (ready_.size() < 2 || ready_[0] != 0x1f || ready_[1] != 0x8b) return;
  std::swap(left_, ready_);
  unpacked_.resize(kBuffer);
  constexpr int kGzip = 16;
  if (::inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) fail_to_read(part_, path_, ENOMEM);
  packed_ = true;
}

FileReader::~FileReader() {
  if (packed_) ::inflateEnd(&stream_);
}

size_t FileReader::read(std::span<uint8_t> buffer) {
  size_t filled = 0;
  while (filled < buffer.size()) {
    if (ready_.empty()) refill();
    if (ready_.empty()) break;
    const size_t count = std::min(ready_.size(), buffer.size() - filled);
    std::memcpy(&buffer[filled], ready_.data(), count);
    ready_ = ready_.subspan(count);
    filled += count;
  }
  return filled;
}

// Unpacks as much as there is room for, not what is asked for: damage is mostly found before its
// bytes are used.
void FileReader::refill() {
  if (!packed_) {
    ready_ = {raw_.data(), file_.read(raw_)};
    return;
  }
  size_t filled = 0;
  while (filled < unpacked_.size()) {
    if (ended_ && !left_.empty()) {
      if (left_[0] != 0x1f) fail(part_, "{} has bytes left over after its gzip stream", path_);
      ::inflateReset(&stream_);
      ended_ = false;
    }
    if (left_.empty()) {
      if (!ended_) fail(part_, "{} is cut short: its gzip stream does not end", path_);
      break;
    }
    filled += unpack(std::span(unpacked_).subspan(filled));
    if (left_.empty()) left_ = {raw_.data(), file_.read(raw_)};
  }
  ready_ = {unpacked_.data(), filled};
}

// What the bytes at hand give, as far as there is room.
size_t FileReader::unpack(std::span<uint8_t> buffer) {
  stream_.next_in = left_.data();
  stream_.avail_in = static_cast<unsigned>(left_.size());
  stream_.next_out = buffer.data();
  stream_.avail_out = static_cast<unsigned>(buffer.size());
  const int code = ::inflate(&stream_, Z_NO_FLUSH);
  ended_ = code == Z_STREAM_END;
  if (code != Z_OK && !ended_) {
    fail(part_, "{} is damaged: its gzip stream does not unpack ({})", path_,
         stream_.msg ? stream_.msg : ::zError(code));
  }
  left_ = left_.last(stream_.avail_in);
  return buffer.size() - stream_.avail_out;
}

void FileReader::append(std::vector<uint8_t>& to, size_t bytes, std::string_view what) {
  for (size_t left = bytes; left > 0;) {
    const size_t before = to.size(), part = std::min(left, kChunk);
    to.resize(before + part);
    const size_t got = read(std::span(to).subspan(before));
    left -= got;
    if (got < part) {
      fail(part_, "{} is cut short: {} takes {} bytes, {} there", path_, what, bytes, bytes - left);
    }
  }
}

void FileReader::expect_end(std::string_view what) {
  std::array<uint8_t, 1> byte{};
  if (read(byte) > 0) fail(part_, "{} has bytes left over after {}", path_, what);
}

}  // namespace ulp
