#include "ulp/io/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/base/file.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

// JSON's way of saying what has no number in it: the library would write null.
Json spelled_out(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    return value;
  }
  Json copy = value;
  if (value.is_structured()) {
    for (Json& part : copy) part = spelled_out(part);
  }
  return copy;
}

// The size of an open regular file; nothing for a device, which has no end to look at. A file
// without a name would take lines that nobody can read.
std::optional<off_t> size_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  if (info.st_nlink == 0) {
    fail("metrics", "{} was removed while the run wrote it: put it back, then resume the run", path);
  }
  return info.st_size;
}

bool ends_within_line(int fd, off_t size) {
  char last = '\n';
  return size > 0 && ::pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

class Cut {
 public:
  Cut(const std::string& path, uint64_t step, uint64_t epochs_done)
      : path_(path), step_(step), epochs_done_(epochs_done) {}

  // Whether this line, the number-th, stays.
  bool keeps(const Json& line, size_t number) const {
    const auto event = line.find("event");
    if (event == line.end() || !event->is_string())
      fail("metrics", "line {} of {} names no \"event\": every line of a run does", number, path_);
    if (*event == "done") return false;
    if (*event == "epoch") return count(line, "epoch", number) <= epochs_done_;
    if (*event != "step" && !line.contains("step")) return false;
    return count(line, "step", number) <= step_;
  }

 private:
  uint64_t count(const Json& line, const char* key, size_t number) const {
    try {
      return count_of(line, key);
    } catch (const Error&) {
      fail("metrics", "line {} of {} must have \"{}\" with a count from 1", number, path_, key);
    }
  }

  const std::string& path_;
  const uint64_t step_, epochs_done_;
};

}  // namespace

std::optional<Json> object_on(std::string_view line) {
  try {
    Json object = parse_json(line);
    if (object.is_object()) return object;
  } catch (const Error&) {
    // What a killed process tore in two is no JSON.
  }
  return std::nullopt;
}

MetricsFile::MetricsFile(const std::string& path) : path_(path), fd_(-1) {
  // Not even opened: it would wait for its reader.
  std::error_code error;
  if (fs::is_fifo(path, error)) fail("metrics", "cannot write {}: it is a pipe, name a file", path);
  fd_ = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (fd_ < 0) fail("metrics", "cannot write {}: {}", path, std::strerror(errno));
  const std::optional<off_t> size = size_of(fd_, path_);
  if (!size || !ends_within_line(fd_, *size)) return;
  ::close(fd_);
  fail("metrics", "cannot append to {}: it ends within a line, resume its run or remove that line", path);
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::write(const Json& line) {
  if (!line.is_object()) fail("metrics", "a line of {} must be an object, not {}", path_, line.type_name());
  std::string text;
  try {
    text = spelled_out(line).dump() + '\n';
  } catch (const Json::exception&) {
    fail("metrics", "cannot write a line to {}: a text in it is not UTF-8", path_);
  }
  const std::optional<off_t> size = size_of(fd_, path_);
  // A second call is made only where the first stopped short: on a disk that is full, that one says
  // why.
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<size_t>(written));
    } else if (const int error = errno; error != EINTR) {
      // Half a line must not stay for the next one to be glued to. If it cannot be taken off, the
      // Error below is all there is to say.
      if (size && left.size() < text.size()) static_cast<void>(!::ftruncate(fd_, *size));
      fail("metrics", "cannot write {}: {}", path_, std::strerror(error));
    }
  }
}

void cut_metrics(const std::string& path, uint64_t step, uint64_t epochs_done) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return;
  if (!error && !fs::is_regular_file(status)) fail("metrics", "cannot read {}: it is not a file", path);
  const uintmax_t size = error ? 0 : fs::file_size(path, error);
  if (error) fail("metrics", "cannot read {}: {}", path, error.message());
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) fail("metrics", "cannot read {}: {}", path, std::strerror(errno));

  const Cut cut(path, step, epochs_done);
  std::string kept;
  size_t number = 1;
  for (std::string_view left = text; !left.empty(); ++number) {
    const size_t end = left.find('\n');
    const std::string_view line = left.substr(0, end);
    const std::optional<Json> object = object_on(line);
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    if (!object && end == left.npos) break;  // torn. One that lacks its newline alone is whole
    if (!object) fail("metrics", "line {} of {} is no JSON object: remove it, or the file", number, path);
    if (cut.keeps(*object, number)) kept.append(line).append("\n");
  }
  write_file_atomically(path, kept);
}

}  // namespace ulp
