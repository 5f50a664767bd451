#include "ulp/io/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they stand in memory");

// An .npy file: magic, version (two bytes), length of the header (two bytes in version 1, four in 2
// and 3, little-endian), the header, the data.
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // of the data within the file
// Real ones take about 118 bytes; 2^20 is room for 300,000 axes.
constexpr size_t kMostHeader = 1 << 20;
// What is read at once: memory follows the bytes that arrive.
constexpr size_t kChunk = 16 << 20;

std::string shape_text(std::span<const size_t> shape) {
  std::string text;
  for (const size_t axis : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", axis);
  return fmt::format("({}{})", text, shape.size() == 1 ? "," : "");
}

// The number of elements; nothing if their bytes would not fit an address. As in NumPy, a zero axis
// does not excuse the others.
std::optional<size_t> count_of(std::span<const size_t> shape, size_t element_bytes) {
  size_t count = 1, bytes = 0;
  bool empty = false;
  for (const size_t axis : shape) {
    if (axis == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, axis, &count)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) return std::nullopt;
  if (bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max())) return std::nullopt;
  return empty ? 0 : count;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    do {
      fd_ = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) fail("npy", "cannot read {}: {}", path, std::strerror(errno));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { ::close(fd_); }

  // The size of a regular file; 0 where it is not known beforehand.
  size_t size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return 0;
    return static_cast<size_t>(info.st_size);
  }

  // Fills the buffer as far as the file goes and returns how far that was.
  size_t read(std::span<std::byte> buffer) {
    size_t filled = 0;
    while (filled < buffer.size()) {
      const ssize_t got = ::read(fd_, buffer.data() + filled, buffer.size() - filled);
      if (got == 0) break;
      if (got > 0) {
        filled += static_cast<size_t>(got);
      } else if (errno == EISDIR) {
        fail("npy", "cannot read {}: it is a folder, name an .npy file", path_);
      } else if (errno != EINTR) {
        fail("npy", "cannot read {}: {}", path_, std::strerror(errno));
      }
    }
    return filled;
  }

 private:
  const std::string& path_;
  int fd_ = -1;
};

struct Header {
  std::string_view descr;
  bool fortran_order = false;
  std::vector<size_t> shape;
};

// The header is a Python dict of exactly three keys, written by repr():
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header parse() {
    std::optional<std::string_view> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<size_t>> shape;
    expect('{');
    while (!accept('}')) {
      const size_t begin = at_;
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = dtype();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        at_ = begin;
        malformed("'descr', 'fortran_order' and 'shape' once each");
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    if (!descr || !fortran_order || !shape) malformed("'descr', 'fortran_order' and 'shape' before the end");
    skip_space();
    if (at_ != text_.size()) malformed("nothing more");
    return {*descr, *fortran_order, *std::move(shape)};
  }

 private:
  [[noreturn]] void malformed(std::string_view expected) const {
    fail("npy", "{} has a malformed header: expected {} at its byte {}, found '{}'", path_, expected, at_,
         shown_text(text_.substr(at_), 40));
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n\f", at_), text_.size()); }

  bool accept(char c) {
    skip_space();
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }

  void expect(char c) {
    if (!accept(c)) malformed(fmt::format("'{}'", c));
  }

  // No escapes: none of the strings that are right has one.
  std::string_view string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"' && !accept('"')) malformed("a string");
    const size_t begin = at_, end = text_.find_first_of(std::string{quote, '\\', '\n'}, begin);
    if (end == text_.npos || text_[end] != quote) malformed("a string without escapes");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  std::string_view dtype() {
    if (accept('[') || accept('(')) {
      fail("npy",
           "{} holds a structured dtype, not '<f4': save a field, np.save(path, x['name'].astype('<f4'))",
           path_);
    }
    return string();
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    malformed("True or False");
  }

  std::vector<size_t> tuple() {
    std::vector<size_t> axes;
    expect('(');
    while (!accept(')')) {
      axes.push_back(axis());
      if (accept(',')) continue;
      if (axes.size() == 1) malformed("a comma, as in (3,)");
      expect(')');
      break;
    }
    return axes;
  }

  size_t axis() {
    skip_space();
    const char* const begin = text_.data() + at_;
    size_t value = 0;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) malformed("an axis below 2^64");
    if (error != std::errc{} || (*begin == '0' && end > begin + 1)) malformed("a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long integers
    return value;
  }

  const std::string& path_;
  const std::string_view text_;
  size_t at_ = 0;
};

// Reads magic, version, length and header; what is left to read is the data.
std::string read_header_text(Reader& reader, const std::string& path) {
  const auto read_exactly = [&](std::span<char> buffer, std::string_view what, size_t needed) {
    const size_t got = reader.read(std::as_writable_bytes(buffer));
    if (got == buffer.size()) return;
    fail("npy", "{} is cut short: its {} needs {} bytes, {} there", path, what, needed, got);
  };

  std::array<char, kMagic.size()> magic{};
  const size_t got = reader.read(std::as_writable_bytes(std::span(magic)));
  const std::string_view start(magic.data(), got);
  if (start.starts_with("PK"))
    fail("npy", "{} is an .npz or zip archive: save one array with np.save(path, x)", path);
  if (start != kMagic) {
    fail("npy", "{} is not an .npy file: it starts with '{}', not '{}'", path, shown_text(start, 40),
         shown_text(kMagic));
  }

  std::array<char, 2> version{};
  read_exactly(version, "version", version.size());
  if (version[0] < 1 || version[0] > 3 || version[1] != 0) {
    fail("npy", "{} has .npy version {}.{}: it must be 1.0, 2.0 or 3.0", path,
         static_cast<uint8_t>(version[0]), static_cast<uint8_t>(version[1]));
  }
  uint32_t length = 0;
  std::array<char, sizeof length> length_bytes{};
  const size_t width = version[0] == 1 ? 2 : 4;
  read_exactly(std::span(length_bytes).first(width), "header's length", width);
  std::memcpy(&length, length_bytes.data(), width);

  std::string text(std::min<size_t>(length, kMostHeader), '\0');
  read_exactly(text, "header", length);
  if (length > text.size()) {
    fail("npy", "{} has a header of {} bytes: it must have at most {}", path, length, kMostHeader);
  }
  return text;
}

void write_npy_bytes(const std::string& path, std::string_view descr, std::span<const size_t> shape,
                     size_t element_bytes, std::span<const uint8_t> bytes) {
  const std::string shown = shape_text(shape);
  const std::optional<size_t> count = count_of(shape, element_bytes);
  if (!count) fail("npy", "cannot write {}: the size of shape {} overflows", path, shown_text(shown));
  if (*count != bytes.size() / element_bytes) {
    fail("npy", "cannot write {}: shape {} takes {} values, got {}", path, shown_text(shown), *count,
         bytes.size() / element_bytes);
  }

  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shown);
  const auto length_for = [&](size_t width) {
    const size_t before = kMagic.size() + 2 + width;
    const size_t end = before + text.size() + 1;  // and the newline
    return (end + kAlignment - 1) / kAlignment * kAlignment - before;
  };
  // A length of two bytes is version 1; only thousands of axes need version 2 and four.
  const size_t width = length_for(2) <= std::numeric_limits<uint16_t>::max() ? 2 : 4;
  const uint32_t length = static_cast<uint32_t>(length_for(width));
  text.resize(length, ' ');
  text.back() = '\n';

  std::string head(kMagic);
  head += width == 2 ? '\1' : '\2';
  head += '\0';
  for (size_t i = 0; i < width; ++i) head += static_cast<char>(length >> (8 * i) & 0xff);
  head += text;
  const std::array parts = {std::span(reinterpret_cast<const uint8_t*>(head.data()), head.size()), bytes};
  write_file_atomically(path, parts);
}

}  // namespace

NpyFloats read_npy_floats(const std::string& path) {
  Reader reader(path);
  const std::string text = read_header_text(reader, path);
  Header header = HeaderParser(path, text).parse();
  if (header.descr != "<f4") {
    fail("npy", "{} holds dtype '{}', not '<f4': save it with np.save(path, x.astype('<f4'))", path,
         shown_text(header.descr));
  }
  if (header.fortran_order) {
    fail("npy", "{} is in Fortran order: save it with np.save(path, np.ascontiguousarray(x))", path);
  }
  const std::string shown = shown_text(shape_text(header.shape));
  const std::optional<size_t> count = count_of(header.shape, sizeof(float));
  if (!count) fail("npy", "{} claims shape {}, whose size overflows", path, shown);

  std::vector<float> values;
  values.reserve(std::min(*count, reader.size() / sizeof(float)));
  while (values.size() < *count) {
    const size_t begin = values.size();
    values.resize(begin + std::min(*count - begin, kChunk / sizeof(float)));
    const std::span<std::byte> chunk = std::as_writable_bytes(std::span(values).subspan(begin));
    if (const size_t got = reader.read(chunk); got < chunk.size()) {
      fail("npy", "{} is cut short: shape {} needs {} bytes of data, {} there", path, shown,
           *count * sizeof(float), begin * sizeof(float) + got);
    }
  }
  std::array<std::byte, 1> extra{};
  if (reader.read(extra) != 0) {
    fail("npy", "{} has bytes left over after the {} of its shape {}", path, *count * sizeof(float), shown);
  }
  return {std::move(header.shape), std::move(values)};
}

void write_npy(const std::string& path, std::span<const size_t> shape, std::span<const float> values) {
  write_npy_bytes(path, "<f4", shape, sizeof(float),
                  {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

void write_npy(const std::string& path, std::span<const size_t> shape, std::span<const uint8_t> values) {
  write_npy_bytes(path, "|u1", shape, 1, values);
}

}  // namespace ulp
