// Files written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ulp {

// Writes the parts one after the other to a temporary file beside `path`, flushes it to the disk
// and renames it to `path`. On any failure (no such folder, no permission, disk full, interrupted
// by an exception) the temporary file is removed, what stood at `path` is untouched, and an Error
// says what was wrong. A process killed by a signal may leave the temporary file, named
// .ulp-XXXXXX, but never a part of `path`. An existing symbolic link at `path` is followed, so that
// what it points to is replaced. A path that exists and is not a regular file (a device or a pipe,
// say /dev/null) is written to directly.
void write_file_atomically(const std::string& path, std::span<const std::span<const uint8_t>> parts);

// The same for one text.
void write_file_atomically(const std::string& path, std::string_view text);

// Keeps other processes from doing the same: while it lives, nobody else holds the lock of this
// file, which is made if there is none. The file must never be replaced, or two would hold the lock
// of two files. The kernel takes the lock away when the process ends, however it ends.
class FileLock {
 public:
  // Throws an Error if the file cannot be opened.
  explicit FileLock(const std::string& path);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

  // False where another holds it.
  bool held() const { return held_; }

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace ulp
