#include "ulp/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "ulp/base/error.h"

namespace ulp {
namespace {

using Parts = std::span<const std::span<const uint8_t>>;

// A signal handler without SA_RESTART makes calls fail for no fault of theirs: ask again.
template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  fail("file", "cannot write {}: {}", path, std::strerror(error));
}

void write_all(int fd, Parts parts, const std::string& path) {
  for (std::span<const uint8_t> left : parts) {
    while (!left.empty()) {
      const ssize_t written = retry([&] { return ::write(fd, left.data(), left.size()); });
      if (written < 0) fail_to_write(path, errno);
      left = left.subspan(static_cast<size_t>(written));
    }
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }

  // Some file systems report a failed write only here. Linux frees the number even when it says
  // EINTR, so the call must not be made again.
  void close(const std::string& path) {
    if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_to_write(path, errno);
  }

 private:
  int fd_;
};

// Removes the file unless it was renamed away.
class Temporary {
 public:
  explicit Temporary(std::string name) : name_(std::move(name)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  void rename_to(const std::string& target, const std::string& path) {
    if (::rename(name_.c_str(), target.c_str()) != 0) fail_to_write(path, errno);
    name_.clear();
  }

 private:
  std::string name_;
};

// Follows links in the last component by hand, since realpath() refuses one that points to nothing
// yet.
std::filesystem::path follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::filesystem::path target = path;
  std::error_code error;
  for (int links = 0; links <= kMostLinks; ++links) {
    const std::filesystem::path link = std::filesystem::read_symlink(target, error);
    if (error) return target;  // not a link, or not there
    target = target.parent_path() / link;
  }
  fail_to_write(path, ELOOP);
}

mode_t mode_of_new_files() {
  // The mask can only be read by setting it; a thread that makes a file meanwhile makes a private
  // one.
  const mode_t mask = ::umask(077);
  ::umask(mask);
  return 0666 & ~mask;
}

void replace(const std::string& path, std::optional<mode_t> old_mode, Parts parts) {
  const std::filesystem::path target = follow_links(path);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  // rename() asks for permission to change the folder only, and would replace a read-only file.
  if (old_mode && ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) fail_to_write(path, errno);

  std::string name = folder + "/.ulp-XXXXXX";
  Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT && !std::filesystem::exists(folder))
      fail("file", "cannot write {}: there is no folder {}", path, folder);
    fail_to_write(path, errno);
  }
  Temporary temporary(std::move(name));
  write_all(file.get(), parts, path);
  if (::fchmod(file.get(), old_mode ? *old_mode : mode_of_new_files()) != 0) fail_to_write(path, errno);
  // The bytes before the name: a crash in between must not leave an empty file at `path`.
  if (retry([&] { return ::fsync(file.get()); }) != 0) fail_to_write(path, errno);
  file.close(path);
  temporary.rename_to(target.string(), path);

  // Makes the new name last through a crash. No error if it fails: the new file is in place and
  // whole, and after a crash either it or the old one would be.
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) retry([&] { return ::fsync(parent.get()); });
}

void write_directly(const std::string& path, Parts parts) {
  Descriptor file(retry([&] { return ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); }));
  if (file.get() < 0) fail_to_write(path, errno);
  write_all(file.get(), parts, path);
  file.close(path);
}

}  // namespace

void write_file_atomically(const std::string& path, std::span<const std::span<const uint8_t>> parts) {
  if (path.empty()) fail("file", "cannot write to an empty path: name a file");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) fail_to_write(path, errno);
    return replace(path, std::nullopt, parts);
  }
  if (S_ISDIR(info.st_mode)) fail("file", "cannot write {}: it is a folder, name a file", path);
  if (!S_ISREG(info.st_mode)) return write_directly(path, parts);
  replace(path, info.st_mode & 0777, parts);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  write_file_atomically(path, {&bytes, 1});
}

FileLock::FileLock(const std::string& path) {
  fd_ = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666); });
  if (fd_ < 0) fail("file", "cannot open {}: {}", path, std::strerror(errno));
  held_ = retry([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0;
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace ulp
