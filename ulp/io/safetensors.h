// Safetensors files: named tensors and a map of text, as other tools read and write them.
// Checkpoints are such files.
//
// What save_tensors writes carries checksums of its header and of every tensor, in the metadata
// under "checksum". A TensorFile is checked as a whole before anything of it can be seen: a flipped
// bit, missing or extra bytes, tensors that overlap or leave gaps, a shape that does not fit its
// bytes, a header that is no JSON, names that come twice, something that is no regular file are
// each an Error of one line that names the file. No memory is asked for that the file does not have
// the bytes to fill, whatever its header claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/numeric/format.h"

namespace ulp {

struct StoredTensor {
  std::string name;
  // F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL.
  std::string dtype;
  std::vector<uint64_t> shape;     // empty for a single number
  std::span<const uint8_t> bytes;  // little-endian, C order; belong to somebody else
};

using TensorMetadata = std::map<std::string, std::string>;

// Writes the file atomically (ulp/base/file.h). The same tensors and metadata give the same bytes,
// in whatever order they come: wide elements stand first, so that every tensor is aligned to its
// elements, then names decide. The key "checksum" and the tensor name "__metadata__" are taken.
void save_tensors(const std::string& path, std::span<const StoredTensor> tensors,
                  const TensorMetadata& metadata);

enum class TensorSource : uint8_t {
  ulp,       // our checksums must be there and be right
  anywhere,  // a file without them is read too, on its word; where they are, they must be right
};

// A file in memory. The tensors' bytes live as long as it does, also when it is moved.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path, TensorSource source = TensorSource::ulp);

  // Without the "checksum" that save_tensors adds.
  const TensorMetadata& metadata() const { return metadata_; }
  // In the order of their bytes in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Throws Error if there is none of this name.
  const StoredTensor& find(std::string_view name) const;

 private:
  std::string path_;
  TensorMetadata metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> places_;  // in tensors_
  std::unique_ptr<uint8_t[]> data_;
};

// The dtype whose elements are the codes of this format, "" where safetensors has none.
std::string_view safetensors_dtype(const FloatFormat& format);

}  // namespace ulp
