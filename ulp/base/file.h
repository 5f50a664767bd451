// Files written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ulp {

// Writes the parts one after the other to a temporary file beside `path`, flushes it to the disk and renames
// it to `path`. On any failure (no such folder, no permission, disk full, interrupted by an exception) the
// temporary file is removed, what stood at `path` is untouched, and an Error says what was wrong.
// A process killed by a signal may leave the temporary file, named .ulp-XXXXXX, but never a part of `path`.
// An existing symbolic link at `path` is followed, so that what it points to is replaced.
// A path that exists and is not a regular file (a device or a pipe, say /dev/null) is written to directly.
void write_file_atomically(const std::string& path, std::span<const std::span<const uint8_t>> parts);

}  // namespace ulp
