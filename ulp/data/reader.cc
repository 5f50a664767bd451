#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kChunk = 16 << 20;
constexpr unsigned kBuffer = 256 << 10;

}  // namespace

FileReader::FileReader(std::string_view part, const std::string& path)
    : part_(part), path_(path), file_(::gzopen(path.c_str(), "rbe")) {
  if (!file_) fail(part_, "cannot read {}: {}", path_, std::strerror(errno));
  ::gzbuffer(file_, kBuffer);
}

FileReader::~FileReader() { ::gzclose(file_); }

size_t FileReader::read(std::span<uint8_t> buffer) {
  size_t filled = 0;
  while (filled < buffer.size()) {
    const auto wanted = static_cast<unsigned>(std::min(buffer.size() - filled, kChunk));
    const int got = ::gzread(file_, buffer.data() + filled, wanted);
    if (got > 0) filled += static_cast<size_t>(got);
    if (got == static_cast<int>(wanted)) continue;
    int code = Z_OK;
    const char* text = ::gzerror(file_, &code);
    if (code == Z_ERRNO) fail(part_, "cannot read {}: {}", path_, std::strerror(errno));
    if (code == Z_BUF_ERROR) fail(part_, "{} is cut short: its gzip stream does not end", path_);
    if (code != Z_OK) fail(part_, "{} is damaged: its gzip stream does not unpack ({})", path_, text);
    if (got == 0) break;
  }
  return filled;
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
