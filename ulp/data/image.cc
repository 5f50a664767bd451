#include "ulp/data/image.h"

// jpeglib.h needs size_t and FILE before it.
#include <cstdio>
// and png.h before setjmp.h
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <functional>

#include "ulp/base/error.h"
#include "ulp/data/byte_budget.h"
#include "ulp/data/readers.h"

namespace ulp {
namespace {

constexpr size_t kMostBytes = size_t{1} << 28;  // of a file, and of its pixels while they are decoded

// What all threads together decode at a time: two of the largest pictures, however many threads there are.
ByteBudget& decoding() {
  static ByteBudget budget(2 * kMostBytes);
  return budget;
}

// Both libraries report by a call that must not return. Exceptions may not cross C, so the call writes a
// message and jumps back; between the jump's two ends stand no objects with destructors.
struct Report {
  std::array<char, 256> text{};

  void set(const char* message) { std::snprintf(text.data(), text.size(), "%s", message); }
};

struct Header {
  uint32_t height = 0, width = 0, channels = 0;
  uint32_t sample_bytes = 1;  // 2 before 16 bits are scaled to 8
  bool palette = false;       // samples are places in the palette
  uint64_t packed_row = 0;    // bytes of a row as the file packs them
  bool progressive = false;   // a JPEG file whose parts refine each other

  // Places in the palette lie beside their colours.
  uint64_t bytes() const {
    return uint64_t{height} * width * (palette ? 1 + 3 : uint64_t{channels} * sample_bytes);
  }
  // With what decoding takes beside them: of a progressive JPEG file two bytes for each of the
  // samples; where alpha or 16 bits are dropped, the pixels once more while they are copied.
  uint64_t peak_bytes() const {
    const uint64_t samples = uint64_t{height} * width * channels;
    const bool copied = !palette && (channels % 2 == 0 || sample_bytes > 1);
    return bytes() + (progressive ? 2 * samples : 0) + (copied ? samples : 0);
  }
};

void check_size(const std::string& path, const Header& header) {
  if (header.bytes() > kMostBytes) {
    fail("image", "{} claims {}x{} pixels, {} bytes: at most {} are decoded", path, header.height,
         header.width, header.bytes(), kMostBytes);
  }
}

// The samples as the decoder gives them; false with its report.
template <typename Decoder>
bool decode(Decoder& decoder, const Header& header, Picture& picture) {
  picture = {header.height, header.width, header.channels, {}};
  const size_t row_bytes = picture.width * picture.channels * header.sample_bytes;
  picture.bytes.resize(picture.height * row_bytes);
  std::vector<uint8_t*> rows(picture.height);
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = &picture.bytes[y * row_bytes];
  return decoder.pixels(rows.data());
}

// PNG

struct PngSource {
  std::span<const uint8_t> left;
};

void png_read(png_structp png, png_bytep to, size_t bytes) {
  auto* const source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (bytes > source->left.size()) png_error(png, "it is cut short");
  std::memcpy(to, source->left.data(), bytes);
  source->left = source->left.subspan(bytes);
}

[[noreturn]] void png_fail(png_structp png, png_const_charp message) {
  static_cast<Report*>(png_get_error_ptr(png))->set(message);
  png_longjmp(png, 1);
}

void png_ignore(png_structp, png_const_charp) {}

class PngDecoder {
 public:
  explicit PngDecoder(std::span<const uint8_t> bytes) : source_{bytes} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &report_, png_fail, png_ignore);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      fail("image", "libpng cannot start: out of memory, or another version than it was built for");
    }
    png_set_read_fn(png_, &source_, png_read);
    // Of critical chunks and of ancillary ones: transparency is ancillary, and damaged it would be left out.
    png_set_crc_action(png_, PNG_CRC_DEFAULT, PNG_CRC_ERROR_QUIT);
    // Text, profiles and the like, known or not: a few bytes of them may unpack to megabytes. Transparency is
    // not among them.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // False with a report. 1 to 4 channels of 8 or 16 bits. Palettes and 16 bits stay as they are: libpng would
  // make black of a colour that is not there, and opaque of what is almost so.
  bool header(Header& header) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_info(png_, info_);
    const uint64_t packed_row = png_get_rowbytes(png_, info_);
    const bool palette = png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE;
    if (palette) {
      png_set_packing(png_);  // a byte a pixel
    } else {
      png_set_expand(png_);  // few bits of grey to 8, a transparent colour to alpha
    }
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    header = {png_get_image_height(png_, info_),
              png_get_image_width(png_, info_),
              png_get_channels(png_, info_),
              png_get_bit_depth(png_, info_) / 8u,
              palette,
              packed_row};
    return true;
  }

  bool pixels(uint8_t** rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  std::span<const png_color> palette() const {
    png_colorp colours = nullptr;
    int count = 0;
    png_get_PLTE(png_, info_, &colours, &count);
    return {colours, static_cast<size_t>(count)};
  }

  // Of the first colours of the palette; the others are opaque.
  std::span<const uint8_t> palette_alpha() const {
    png_bytep alpha = nullptr;
    int count = 0;
    png_get_tRNS(png_, info_, &alpha, &count, nullptr);
    return {alpha, static_cast<size_t>(count)};
  }

  const char* report() const { return report_.text.data(); }

 private:
  Report report_;
  PngSource source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

[[noreturn]] void fail_transparent(const std::string& path, const Picture& picture, size_t pixel) {
  fail("image", "{} has transparent pixels, the first at row {}, column {}: flatten it to grey or RGB", path,
       pixel / picture.width, pixel % picture.width);
}

// Places in the palette into the colours there.
Picture with_colours(const std::string& path, const Picture& from, const PngDecoder& decoder) {
  const std::span<const png_color> palette = decoder.palette();
  const std::span<const uint8_t> alpha = decoder.palette_alpha();
  Picture to{from.height, from.width, 3, {}};
  to.bytes.reserve(3 * from.bytes.size());
  for (size_t i = 0; i < from.bytes.size(); ++i) {
    const size_t at = from.bytes[i];
    if (at >= palette.size()) {
      fail("image", "{} is a damaged PNG file: it uses colour {} of a palette of {}", path, at,
           palette.size());
    }
    if (at < alpha.size() && alpha[at] != 255) fail_transparent(path, from, i);
    to.bytes.insert(to.bytes.end(), {palette[at].red, palette[at].green, palette[at].blue});
  }
  return to;
}

// Drops an alpha channel, the last of 2 or 4, and scales 16 bits to 8, rounded to nearest. In
// place, since what comes out is never longer.
void make_plain(const std::string& path, Picture& picture, size_t sample_bytes) {
  const bool alpha = picture.channels % 2 == 0;
  const size_t colours = picture.channels - (alpha ? 1 : 0), pixels = picture.height * picture.width;
  const uint32_t most = sample_bytes == 2 ? 0xffff : 0xff;
  const uint8_t* sample = picture.bytes.data();
  uint8_t* to = picture.bytes.data();
  const auto next = [&] {
    uint32_t value = *sample++;
    if (sample_bytes == 2) value = value << 8 | *sample++;
    return value;
  };
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < colours; ++c) {
      const uint32_t value = next();
      *to++ = static_cast<uint8_t>(sample_bytes == 2 ? (value + 128) / 257 : value);
    }
    if (alpha && next() != most) fail_transparent(path, picture, i);
  }
  picture.channels = colours;
  picture.bytes.resize(pixels * colours);
  picture.bytes.shrink_to_fit();
}

using Prepare = std::function<void(Picture&)>;

Picture decode_png(const std::string& path, PngDecoder& decoder, const Header& header) {
  Picture picture;
  if (!decode(decoder, header, picture)) {
    fail("image", "{} is a damaged PNG file: {}", path, decoder.report());
  }
  if (header.palette) return with_colours(path, picture, decoder);
  const bool plain = picture.channels % 2 == 1 && header.sample_bytes == 1;
  if (!plain) make_plain(path, picture, header.sample_bytes);
  return picture;
}

Picture read_png(const std::string& path, std::span<const uint8_t> bytes, const Prepare& prepare) {
  PngDecoder decoder(bytes);
  Header header;
  if (!decoder.header(header)) fail("image", "{} is a damaged PNG file: {}", path, decoder.report());
  check_size(path, header);
  // Deflate packs 258 bytes into two bits at best; each row has a byte for its filter.
  constexpr uint64_t kBestPacking = 1032;
  if (header.height * (1 + header.packed_row) > kBestPacking * bytes.size()) {
    fail("image", "{} is a damaged PNG file: its {} bytes cannot hold the {}x{} pixels that it claims", path,
         bytes.size(), header.height, header.width);
  }
  const ByteBudget::Share share = decoding().take(header.peak_bytes());
  Picture picture = decode_png(path, decoder, header);
  prepare(picture);
  return picture;
}

// JPEG

struct JpegErrors {
  jpeg_error_mgr manager;  // first, so that a pointer to it is a pointer to all
  Report report;
  std::jmp_buf jump;
};

[[noreturn]] void jpeg_fail(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  std::array<char, JMSG_LENGTH_MAX> text{};
  jpeg->err->format_message(jpeg, text.data());
  errors->report.set(text.data());
  std::longjmp(errors->jump, 1);
}

// libjpeg fills what is missing with grey and warns; here that is an error. These change no pixel:
void jpeg_warn(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
  if (level < 0 && !harmless) jpeg_fail(jpeg);
}

class JpegDecoder {
 public:
  JpegDecoder() {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = jpeg_fail;
    errors_.manager.emit_message = jpeg_warn;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg_); }

  // False with a report. 1 or 3 channels; 4 for CMYK, of which no pixels can be had.
  bool header(std::span<const uint8_t> bytes, Header& header) {
    if (setjmp(errors_.jump)) return false;
    jpeg_create_decompress(&jpeg_);
    // Beside the pixels: of a progressive file libjpeg keeps two bytes for each of them.
    jpeg_.mem->max_memory_to_use = 2 * kMostBytes + (16 << 20);
    jpeg_mem_src(&jpeg_, bytes.data(), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    header.height = jpeg_.image_height;
    header.width = jpeg_.image_width;
    header.channels = static_cast<uint32_t>(jpeg_.num_components);
    header.progressive = jpeg_.progressive_mode == TRUE;
    return true;
  }

  bool pixels(uint8_t** rows) {
    if (setjmp(errors_.jump)) return false;
    jpeg_.out_color_space = jpeg_.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;  // the exact one: the same bytes with and without vector units
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      jpeg_read_scanlines(&jpeg_, rows + jpeg_.output_scanline, jpeg_.output_height - jpeg_.output_scanline);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  const char* report() const { return errors_.report.text.data(); }

 private:
  JpegErrors errors_{};
  jpeg_decompress_struct jpeg_{};
};

Picture read_jpeg(const std::string& path, std::span<const uint8_t> bytes, const Prepare& prepare) {
  JpegDecoder decoder;
  Header header;
  const auto damaged = [&] { fail("image", "{} is a damaged JPEG file: {}", path, decoder.report()); };
  if (!decoder.header(bytes, header)) damaged();
  check_size(path, header);
  if (header.channels != 1 && header.channels != 3) {
    fail("image", "{} has {} colour channels (CMYK?): save it as grey or RGB", path, header.channels);
  }
  const ByteBudget::Share share = decoding().take(header.peak_bytes());
  Picture picture;
  if (!decode(decoder, header, picture)) damaged();
  prepare(picture);
  return picture;
}

bool starts_with(std::span<const uint8_t> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// What share of `crop` old pixels, which begin at `first`, new pixel `at` of `count` covers. Lengths are in
// units of 1/count of an old pixel, so that all borders are whole numbers; a new pixel has `crop` of them.
struct Cover {
  size_t begin, end, crop, count;

  Cover(size_t at, size_t crop_, size_t count_)
      : begin(at * crop_), end(begin + crop_), crop(crop_), count(count_) {}
  size_t first() const { return begin / count; }
  size_t last() const { return (end - 1) / count; }
  uint64_t weight(size_t old) const {
    return std::min(end, (old + 1) * count) - std::max(begin, old * count);
  }
};

}  // namespace

Picture read_picture(const std::string& path, const std::function<void(Picture&)>& prepare) {
  const std::vector<uint8_t> bytes = read_plain("image", path, kMostBytes);
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) return read_png(path, bytes, prepare);
  if (starts_with(bytes, "\xff\xd8\xff")) return read_jpeg(path, bytes, prepare);
  fail("image", "{} is neither a PNG nor a JPEG file", path);
}

Picture scaled(const Picture& from, size_t height, size_t width) {
  if (from.height == height && from.width == width) return from;
  const size_t crop_width = std::clamp<size_t>(from.height * width / height, 1, from.width);
  const size_t crop_height = std::clamp<size_t>(from.width * height / width, 1, from.height);
  const size_t top = (from.height - crop_height) / 2, left = (from.width - crop_width) / 2;
  const uint64_t area = uint64_t{crop_height} * crop_width;
  Picture to{height, width, from.channels, {}};
  to.bytes.reserve(height * width * to.channels);
  for (size_t y = 0; y < height; ++y) {
    const Cover rows(y, crop_height, height);
    for (size_t x = 0; x < width; ++x) {
      const Cover columns(x, crop_width, width);
      for (size_t c = 0; c < from.channels; ++c) {
        uint64_t sum = area / 2;
        for (size_t row = rows.first(); row <= rows.last(); ++row) {
          for (size_t column = columns.first(); column <= columns.last(); ++column) {
            const size_t pixel = (top + row) * from.width + left + column;
            sum += rows.weight(row) * columns.weight(column) * from.bytes[pixel * from.channels + c];
          }
        }
        to.bytes.push_back(static_cast<uint8_t>(sum / area));
      }
    }
  }
  return to;
}

std::vector<uint8_t> grey_to_rgb(std::span<const uint8_t> grey) {
  std::vector<uint8_t> rgb;
  rgb.reserve(3 * grey.size());
  for (const uint8_t byte : grey) rgb.insert(rgb.end(), 3, byte);
  return rgb;
}

}  // namespace ulp
