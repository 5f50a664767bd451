#include "ulp/io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

static_assert(std::endian::native == std::endian::little, "the length is copied as it stands in memory");

// A safetensors file: the header's length (eight bytes, little-endian), the header, the data. The
// header is a JSON object {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets":
// [begin, end]}}, padded with spaces; the offsets count from the start of the data, which they
// cover without gap.
constexpr size_t kLengthBytes = sizeof(uint64_t);
constexpr size_t kAlignment = 8;             // of the data within the file
constexpr size_t kMostHeader = 100'000'000;  // as in the format's own library
constexpr std::string_view kMetadata = "__metadata__";

// How our headers start. CRC-32s in eight hexadecimal digits follow: one of the header, taken while
// its own digits are zeros, then one of each tensor in the order of their bytes. Their place is
// fixed, so that the header is checked as bytes, before anything parses it.
constexpr std::string_view kChecksum = "checksum";
constexpr std::string_view kOpening = R"({"__metadata__":{"checksum":"crc32 )";
constexpr std::string_view kScheme = "crc32 ";
constexpr size_t kDigits = 8;

struct Dtype {
  std::string_view name;
  size_t bytes;
};
constexpr Dtype kDtypes[] = {{"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1},
                             {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4}, {"I16", 2},  {"I8", 1},
                             {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}};

std::optional<size_t> element_bytes(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return std::nullopt;
}

std::string dtype_names() {
  std::string names;
  for (const Dtype& known : kDtypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  return names;
}

// What a tensor takes; nothing if that overflows. A zero axis does not excuse the others.
std::optional<uint64_t> bytes_of(std::span<const uint64_t> shape, uint64_t element) {
  uint64_t bytes = element;
  bool empty = false;
  for (const uint64_t axis : shape) {
    if (axis == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, axis, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

std::string shown(std::span<const uint64_t> shape) {
  constexpr size_t kMost = 8;
  const size_t some = std::min(shape.size(), kMost);
  return fmt::format("[{}{}]", fmt::join(shape.first(some), ", "), shape.size() > some ? ", ..." : "");
}

// What is wrong with a tensor that has so many bytes; "" if nothing is.
std::string fault_of(const StoredTensor& tensor, uint64_t bytes) {
  const std::optional<size_t> element = element_bytes(tensor.dtype);
  if (!element) return fmt::format("of dtype '{}': known are {}", shown_text(tensor.dtype), dtype_names());
  const std::optional<uint64_t> needed = bytes_of(tensor.shape, *element);
  if (needed == bytes) return "";
  return fmt::format("of {} bytes: shape {} of {} takes {}", bytes, shown(tensor.shape), tensor.dtype,
                     needed ? fmt::format("{}", *needed) : "more than can be");
}

std::string crc_digits(std::span<const uint8_t> bytes) {
  // For no bytes the pointer may be null, which zlib takes for a question about its initial value:
  // also 0.
  return fmt::format("{:08x}", static_cast<uint32_t>(::crc32_z(0, bytes.data(), bytes.size())));
}

std::span<const uint8_t> bytes_in(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A file that can be read to its end: to open a pipe without O_NONBLOCK is to wait for its writer,
// and a device may go on for ever.
class Source {
 public:
  explicit Source(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail("safetensors", "cannot read {}: {}", path, std::strerror(errno));
    struct stat info {};
    const bool known = ::fstat(fd_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
      size_ = static_cast<uint64_t>(info.st_size);
      return;
    }
    ::close(fd_);
    fail("safetensors", "cannot read {}: it is {}, name a file", path,
         known && S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device");
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source() { ::close(fd_); }

  uint64_t size() const { return size_; }

  // All of the buffer, which was measured by size().
  void fill(std::span<uint8_t> buffer) const {
    const size_t got = read(buffer);
    if (got < buffer.size()) {
      fail("safetensors", "{} was cut short while it was read: {} bytes are missing", path_,
           buffer.size() - got);
    }
  }

  void expect_end() const {
    std::array<uint8_t, 1> extra{};
    if (read(extra) != 0) fail("safetensors", "{} grew while it was read: try again", path_);
  }

 private:
  size_t read(std::span<uint8_t> buffer) const {
    size_t filled = 0;
    while (filled < buffer.size()) {
      const ssize_t got = ::read(fd_, buffer.data() + filled, buffer.size() - filled);
      if (got == 0) break;
      if (got > 0) {
        filled += static_cast<size_t>(got);
      } else if (errno != EINTR) {
        fail("safetensors", "cannot read {}: {}", path_, std::strerror(errno));
      }
    }
    return filled;
  }

  const std::string path_;
  const int fd_;
  uint64_t size_ = 0;
};

struct Entry {
  StoredTensor tensor;
  uint64_t begin, end;
};

struct Header {
  TensorMetadata metadata;
  std::vector<Entry> entries;
};

// Takes the parser's events one by one: what has no place in a header is refused where it stands,
// so that a header nested a million deep costs nothing, and a key that comes twice is seen.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header parse() {
    // The library takes a zero byte for the end of its input, and passes over a byte-order mark.
    if (!text_.starts_with('{')) wrong(0, "it must start with '{'");
    if (const size_t zero = text_.find('\0'); zero != text_.npos) wrong(zero + 1, "a zero byte");
    nlohmann::json::sax_parse(text_.begin(), text_.end(), this);
    return std::move(header_);
  }

  bool null() override { misplaced("null"); }
  bool boolean(bool) override { misplaced("a truth value"); }
  bool number_integer(number_integer_t) override { misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { misplaced("a fraction"); }
  bool binary(binary_t&) override { misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::numbers) misplaced("a number");
    if (field_ == Field::shape) {
      entry().tensor.shape.push_back(value);
    } else {
      (offsets_++ == 0 ? entry().begin : entry().end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (at_ == At::tensor && field_ == Field::dtype) {
      entry().tensor.dtype = std::move(value);
    } else {
      misplaced("a text");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (at_ == At::start) {
      at_ = At::top;
    } else if (at_ == At::top && key_ == kMetadata) {
      at_ = At::metadata;
    } else if (at_ == At::top) {
      at_ = At::tensor;
      header_.entries.push_back({{key_, "", {}, {}}, 0, 0});
    } else {
      misplaced("an object");
    }
    keys_here().clear();
    return true;
  }

  bool key(string_t& name) override {
    if (!keys_here().insert(name).second)
      fail("safetensors", "{} has '{}' twice in its header", path_, shown_text(name));
    key_ = name;
    if (at_ == At::tensor) {
      const auto* const field = std::find(kFields.begin(), kFields.end(), name);
      if (field == kFields.end()) {
        fail("safetensors", "{} has tensor '{}' with '{}': dtype, shape and data_offsets are known", path_,
             shown_text(entry().tensor.name), shown_text(name));
      }
      field_ = static_cast<Field>(field - kFields.begin());
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::tensor && inner_keys_.size() != kFields.size()) {
      fail("safetensors", "{} has tensor '{}' without all of dtype, shape and data_offsets", path_,
           shown_text(entry().tensor.name));
    }
    at_ = At::top;  // at the end of the header too: the parser lets nothing but space follow it
    return true;
  }

  bool start_array(size_t) override {
    if (at_ != At::tensor || field_ == Field::dtype) misplaced("an array");
    at_ = At::numbers;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    at_ = At::tensor;
    if (field_ == Field::data_offsets && offsets_ != 2) misplaced("other than two numbers in data_offsets");
    return true;
  }

  // What the library says may have the file's bytes in it, as they are.
  bool parse_error(size_t place, const std::string&, const nlohmann::json::exception&) override {
    wrong(place, "no JSON in UTF-8");
  }

 private:
  enum class At : uint8_t { start, top, metadata, tensor, numbers };
  enum class Field : uint8_t { dtype, shape, data_offsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  Entry& entry() { return header_.entries.back(); }
  std::set<std::string>& keys_here() { return at_ == At::top ? names_ : inner_keys_; }

  [[noreturn]] void wrong(size_t place, std::string_view why) const {
    fail("safetensors", "{} is no safetensors file, or damaged: byte {} of its header is wrong ({})", path_,
         place, why);
  }

  [[noreturn]] void misplaced(std::string_view what) const {
    fail("safetensors", "{} has {} where its header has no place for it, at '{}'", path_, what,
         shown_text(key_));
  }

  const std::string& path_;
  const std::string_view text_;
  Header header_;
  At at_ = At::start;
  Field field_ = Field::dtype;
  int offsets_ = 0;
  std::string key_;
  std::set<std::string> names_, inner_keys_;
};

// The header's bytes; nothing but its length has been looked at.
std::string read_header(const Source& source, const std::string& path) {
  if (source.size() < kLengthBytes) {
    fail("safetensors", "{} is no safetensors file, or cut short: it has {} bytes, the least is {}", path,
         source.size(), kLengthBytes + 2);
  }
  std::array<uint8_t, kLengthBytes> bytes{};
  source.fill(bytes);
  const uint64_t length = std::bit_cast<uint64_t>(bytes);
  const uint64_t left = source.size() - kLengthBytes;
  if (length > left) {
    fail("safetensors",
         "{} is no safetensors file, or cut short: it claims a header of {} bytes, {} are left", path, length,
         left);
  }
  if (length > kMostHeader) {
    fail("safetensors", "{} has a header of {} bytes: it must have at most {}", path, length, kMostHeader);
  }
  std::string text(length, '\0');
  source.fill({reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

void check_header_sum(const std::string& path, std::string text) {
  const std::string stored = text.substr(kOpening.size(), kDigits);
  text.replace(kOpening.size(), stored.size(), kDigits, '0');
  if (stored != crc_digits(bytes_in(text)))
    fail("safetensors", "{} is damaged: its header does not match its checksum", path);
}

// Each tensor by itself, then that together they cover the data.
void check_entries(const std::string& path, std::span<const Entry> entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    const std::string name = shown_text(entry.tensor.name);
    if (entry.begin > entry.end) {
      fail("safetensors", "{} has tensor '{}' from byte {} to {}: it ends before it begins", path, name,
           entry.begin, entry.end);
    }
    if (entry.end > data_bytes) {
      fail("safetensors", "{} is cut short: tensor '{}' ends at byte {} of the data, {} are there", path,
           name, entry.end, data_bytes);
    }
    if (const std::string fault = fault_of(entry.tensor, entry.end - entry.begin); !fault.empty())
      fail("safetensors", "{} has tensor '{}' {}", path, name, fault);
    if (entry.begin != at) {
      fail("safetensors", "{} has tensor '{}' at byte {} of the data, which {}: it must be at {}", path, name,
           entry.begin, entry.begin < at ? "overlaps the one before" : "leaves a gap", at);
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    fail("safetensors", "{} has {} bytes left over after its last tensor", path, data_bytes - at);
  }
}

void check_tensor_sums(const std::string& path, std::string_view sums,
                       std::span<const StoredTensor> tensors) {
  sums.remove_prefix(std::min(sums.size(), kScheme.size() + kDigits));
  if (sums.size() != tensors.size() * (1 + kDigits)) {
    fail("safetensors", "{} has checksums that are not one for each of its {} tensors", path, tensors.size());
  }
  for (const StoredTensor& tensor : tensors) {
    if (sums.substr(1, kDigits) != crc_digits(tensor.bytes)) {
      fail("safetensors", "{} is damaged: tensor '{}' does not match its checksum", path,
           shown_text(tensor.name));
    }
    sums.remove_prefix(1 + kDigits);
  }
}

std::string json_text(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("safetensors", "cannot write {}: '{}' is not UTF-8", path, shown_text(text));
  }
}

void check_to_save(const std::string& path, std::span<const StoredTensor> tensors,
                   const TensorMetadata& metadata) {
  if (metadata.contains(std::string(kChecksum)))
    fail("safetensors", "cannot write {}: the metadata key '{}' is taken", path, kChecksum);
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    const std::string name = shown_text(tensor.name);
    if (tensor.name == kMetadata) {
      fail("safetensors", "cannot write {}: the name '{}' is taken, no tensor can have it", path, name);
    }
    if (!names.insert(tensor.name).second) {
      fail("safetensors", "cannot write {}: two tensors are called '{}'", path, name);
    }
    if (const std::string fault = fault_of(tensor, tensor.bytes.size()); !fault.empty())
      fail("safetensors", "cannot write {} with tensor '{}' {}", path, name, fault);
  }
}

}  // namespace

void save_tensors(const std::string& path, std::span<const StoredTensor> tensors,
                  const TensorMetadata& metadata) {
  check_to_save(path, tensors, metadata);
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    const size_t a_bytes = *element_bytes(a->dtype), b_bytes = *element_bytes(b->dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });

  std::string text = std::string(kOpening).append(kDigits, '0');
  for (const StoredTensor* tensor : order) text.append(" ").append(crc_digits(tensor->bytes));
  text += '"';
  for (const auto& [key, value] : metadata) {
    text.append(",").append(json_text(path, key)).append(":").append(json_text(path, value));
  }
  text += '}';
  uint64_t begin = 0;
  for (const StoredTensor* tensor : order) {
    const uint64_t end = begin + tensor->bytes.size();
    text +=
        fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    json_text(path, tensor->name), tensor->dtype, fmt::join(tensor->shape, ","), begin, end);
    begin = end;
  }
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (text.size() > kMostHeader) {
    fail("safetensors", "cannot write {}: its header takes {} bytes, {} is the most", path, text.size(),
         kMostHeader);
  }
  text.replace(kOpening.size(), kDigits, crc_digits(bytes_in(text)));

  const auto length = std::bit_cast<std::array<uint8_t, kLengthBytes>>(uint64_t{text.size()});
  std::vector<std::span<const uint8_t>> parts = {length, bytes_in(text)};
  for (const StoredTensor* tensor : order) parts.push_back(tensor->bytes);
  write_file_atomically(path, parts);
}

TensorFile::TensorFile(const std::string& path, TensorSource source) : path_(path) {
  const Source file(path);
  const std::string text = read_header(file, path);
  const bool ours = text.starts_with(kOpening);
  if (ours) {
    check_header_sum(path, text);
  } else if (source == TensorSource::ulp && text.starts_with('{')) {
    fail("safetensors", "{} was not written by ulp, or is damaged: its header does not start with a checksum",
         path);
  }
  Header header = HeaderParser(path, text).parse();
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const uint64_t data_bytes = file.size() - kLengthBytes - text.size();
  check_entries(path, header.entries, data_bytes);

  data_.reset(new (std::nothrow) uint8_t[data_bytes]);
  if (!data_) fail("safetensors", "cannot read {}: there is no memory for its {} bytes", path, data_bytes);
  file.fill({data_.get(), data_bytes});
  file.expect_end();
  for (Entry& entry : header.entries) {
    entry.tensor.bytes = {data_.get() + entry.begin, entry.end - entry.begin};
    places_[entry.tensor.name] = tensors_.size();
    tensors_.push_back(std::move(entry.tensor));
  }
  metadata_ = std::move(header.metadata);
  if (ours) {
    check_tensor_sums(path, metadata_[std::string(kChecksum)], tensors_);
    metadata_.erase(std::string(kChecksum));
  }
}

const StoredTensor& TensorFile::find(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    fail("safetensors", "{} has no tensor '{}': it has {} others", path_, shown_text(name), tensors_.size());
  }
  return tensors_[place->second];
}

std::string_view safetensors_dtype(const FloatFormat& format) {
  constexpr std::pair<std::string_view, std::string_view> kShared[] = {
      {"fp32", "F32"}, {"fp16", "F16"}, {"bf16", "BF16"}, {"e4m3", "F8_E4M3"}, {"e5m2", "F8_E5M2"}};
  for (const auto& [name, dtype] : kShared) {
    if (format == parse_format(name)) return dtype;
  }
  return "";
}

}  // namespace ulp
