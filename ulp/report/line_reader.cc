#include "ulp/report/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp {

LineReader::LineReader(const std::string& path) : path_(path) {
  // Without O_NONBLOCK the call would wait for the writer of a pipe.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd_ < 0) {
    if (errno == ENOENT) return;
    fail("report", "cannot read {}: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) {
    buffer_ = std::make_unique<char[]>(kMostBytes);
    return;
  }
  ::close(fd_);
  fail("report", "cannot read {}: it is not a file", path);
}

LineReader::~LineReader() {
  if (fd_ >= 0) ::close(fd_);
}

// Reads more behind what is there; false at the end of the file.
bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  ssize_t count = 0;
  do count = ::read(fd_, buffer_.get() + end_, kMostBytes - end_);
  while (count < 0 && errno == EINTR);
  if (count < 0) fail("report", "cannot read {}: {}", path_, std::strerror(errno));
  end_ += static_cast<size_t>(count);
  return count > 0;
}

bool LineReader::next(std::string_view& line) {
  if (fd_ < 0) return false;
  torn_ = too_long_ = false;
  size_t looked = 0;
  while (true) {
    const char* from = buffer_.get() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(from + looked, '\n', end_ - begin_ - looked));
    if (newline != nullptr) {
      line = {from, static_cast<size_t>(newline - from)};
      begin_ += line.size() + 1;
      break;
    }
    looked = end_ - begin_;
    if (looked == kMostBytes) {
      too_long_ = true;
      begin_ = end_ = looked = 0;
    }
    if (fill()) continue;
    if (looked == 0 && !too_long_) return false;
    torn_ = true;
    line = {buffer_.get() + begin_, looked};
    begin_ = end_;
    break;
  }
  if (too_long_) line = {};
  ++number_;
  return true;
}

void LineNotes::add(uint64_t line, std::string_view what) {
  if (++count_ <= kMost) notes_.push_back(fmt::format("line {} of {} {}", line, file_, what));
}

void LineNotes::move_to(std::vector<std::string>& notes) {
  for (std::string& note : notes_) notes.push_back(std::move(note));
  if (count_ > kMost) notes.push_back(fmt::format("{} more lines of {} are damaged", count_ - kMost, file_));
  notes_.clear();
  count_ = 0;
}

}  // namespace ulp
