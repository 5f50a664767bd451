// Private to the folder: one reader for each layout of files, and what they share.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/data/dataset.h"

namespace ulp {

// An open regular file, links followed. Anything else is refused before a byte is read: a pipe or a
// device may never end.
class RegularFile {
 public:
  RegularFile(std::string_view part, const std::string& path);
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  size_t size() const { return size_; }

  // Fills the buffer as far as one call goes; 0 at the end.
  size_t read(std::span<uint8_t> buffer) const;

 private:
  const std::string part_, path_;
  const int descriptor_;
  size_t size_ = 0;
};

// All bytes of a file as they are, never unpacked; more than `most` are refused before any is read.
std::vector<uint8_t> read_plain(std::string_view part, const std::string& path, size_t most);

// Whether something has this name. That its folder may not be searched throws an Error.
bool is_there(std::string_view part, const std::string& path);

// A regular file read from its start, unpacked on the way if it is gzip, of one stream or several. What goes
// wrong throws an Error that `part` speaks and that names the file. zlib's own gzread is not used:
// it passes over whatever follows the last stream.
class FileReader {
 public:
  FileReader(std::string_view part, const std::string& path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  // Fills the buffer as far as the file goes and returns how far that was.
  size_t read(std::span<uint8_t> buffer);

  // The next `bytes` bytes, appended: all of them, or an Error that says the file is cut short. Memory grows
  // with the bytes that arrive, whatever the file claimed.
  void append(std::vector<uint8_t>& to, size_t bytes, std::string_view what);

  void expect_end(std::string_view what);

 private:
  void refill();
  size_t unpack(std::span<uint8_t> buffer);

  const std::string part_, path_;
  const RegularFile file_;
  std::vector<uint8_t> raw_, unpacked_;
  std::span<uint8_t> left_;   // of raw_, not yet unpacked; empty only at the end of the file
  std::span<uint8_t> ready_;  // to be handed out
  bool packed_ = false;
  bool ended_ = false;  // a gzip stream, with nothing after it so far
  z_stream stream_{};
};

// MNIST's idx files, plain or .gz: grey 28x28 images, padded with zeros to 32x32.
ImageSet read_idx(const DatasetInfo& info, const std::string& place, const DataRequest& request);

// CIFAR's binary files. They hold no count, so each must have exactly the size it was published with.
ImageSet read_cifar10(const DatasetInfo& info, const std::string& place, const DataRequest& request);
ImageSet read_cifar100(const DatasetInfo& info, const std::string& place, const DataRequest& request);

// One file of CIFAR records, `labels` label bytes (the last one counts) and 32x32x3 planes each, appended.
void append_cifar(const std::string& path, size_t records, size_t labels, size_t classes, Examples& to);

ImageSet read_folder(const DatasetInfo& info, const std::string& place, const DataRequest& request);

ImageSet make_synthetic(const DatasetInfo& info, const std::string& place, const DataRequest& request);
DataOutline outline_synthetic(const DatasetInfo& info, const DataRequest& request);

}  // namespace ulp
