// Pictures by class, through PNG and JPEG files written here, whole and damaged.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
// jpeglib.h needs FILE
#include <jpeglib.h>

#include <cmath>
#include <random>
#include <tuple>

#include "tests/support/temp.h"
#include "ulp/base/parallel.h"
#include "ulp/data/dataset.h"
#include "ulp/data/image.h"

namespace ulp {
namespace {

using Bytes = std::vector<uint8_t>;

std::string big_endian(uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
          static_cast<char>(x)};
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(static_cast<uint32_t>(crc));
}

enum Colour : char { kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6 };

// A PNG file written by hand: rows are the bytes as they stand in the file, `more` are chunks before them.
std::string png(uint32_t height, uint32_t width, Colour colour, const Bytes& rows, char depth = 8,
                const std::string& more = "") {
  std::string raw;
  const size_t row_bytes = rows.size() / height;
  for (size_t y = 0; y < height; ++y) {
    raw += '\0';  // no filter
    raw.append(rows.begin() + static_cast<ptrdiff_t>(y * row_bytes),
               rows.begin() + static_cast<ptrdiff_t>((y + 1) * row_bytes));
  }
  std::string packed(::compressBound(raw.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(::compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                       reinterpret_cast<const Bytef*>(raw.data()), raw.size()),
            Z_OK);
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big_endian(width) + big_endian(height) + std::string{depth, colour, 0, 0, 0}) + more +
         chunk("IDAT", packed) + chunk("IEND", "");
}

std::string jpeg(uint32_t height, uint32_t width, int channels, const Bytes& bytes) {
  jpeg_compress_struct compress{};
  jpeg_error_mgr errors{};
  compress.err = jpeg_std_error(&errors);
  jpeg_create_compress(&compress);
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&compress, &out, &size);
  compress.image_height = height;
  compress.image_width = width;
  compress.input_components = channels;
  compress.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&compress);
  jpeg_set_quality(&compress, 100, TRUE);
  jpeg_start_compress(&compress, TRUE);
  while (compress.next_scanline < height) {
    auto* row =
        const_cast<JSAMPLE*>(&bytes[size_t{compress.next_scanline} * width * static_cast<size_t>(channels)]);
    jpeg_write_scanlines(&compress, &row, 1);
  }
  jpeg_finish_compress(&compress);
  jpeg_destroy_compress(&compress);
  std::string file(reinterpret_cast<char*>(out), size);
  std::free(out);
  return file;
}

Bytes ramp(size_t count, int step = 7) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * static_cast<size_t>(step));
  return bytes;
}

class Image : public ::testing::Test {
 protected:
  Picture read(const std::string& bytes) const {
    put(path_, bytes);
    return read_picture(path_);
  }
  std::string said(const std::string& bytes) const {
    return complaint_of([&] { read(bytes); }, path_);
  }
  void expect(const std::string& file, size_t channels, const Bytes& bytes) const {
    const Picture got = read(file);
    EXPECT_EQ(got.channels, channels);
    EXPECT_EQ(got.bytes, bytes);
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "picture";
};

TEST_F(Image, ReadsEveryKindOfPng) {
  const Picture grey = read(png(2, 3, kGrey, ramp(6)));
  EXPECT_EQ(std::vector({grey.height, grey.width, grey.channels}), (std::vector<size_t>{2, 3, 1}));
  EXPECT_EQ(grey.bytes, ramp(6));
  expect(png(2, 3, kRgb, ramp(18)), 3, ramp(18));
  expect(png(1, 8, kGrey, {0b10110001}, 1), 1, {255, 0, 255, 255, 0, 0, 0, 255});
  expect(png(1, 4, kGrey, {0b00011011}, 2), 1, {0, 85, 170, 255});
  expect(png(1, 2, kGrey, {0x5f}, 4), 1, {85, 255});
  expect(png(1, 3, kGrey, {0, 0, 0x80, 0x80, 0xff, 0xff}, 16), 1, {0, 128, 255});
  const std::string palette = chunk("PLTE", std::string("\1\2\3\4\5\6\7\x08\x09", 9));
  expect(png(1, 3, kPalette, {2, 0, 1}, 8, palette), 3, {7, 8, 9, 1, 2, 3, 4, 5, 6});
  // A gamma changes nothing: the bytes are the bytes.
  expect(png(1, 2, kGrey, {10, 200}, 8, chunk("gAMA", big_endian(100000))), 1, {10, 200});
}

TEST_F(Image, DropsAlphaOnlyWhereItIsOpaque) {
  expect(png(1, 2, kGreyAlpha, {7, 255, 9, 255}), 1, {7, 9});
  expect(png(1, 2, kRgba, {1, 2, 3, 255, 4, 5, 6, 255}), 3, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(said(png(1, 2, kRgba, {1, 2, 3, 255, 4, 5, 6, 254})),
            "[image] F has transparent pixels, the first at row 0, column 1: flatten it to grey or RGB");
  // A transparent colour, used and not.
  const std::string seven = chunk("tRNS", std::string("\0\7", 2));
  EXPECT_NE(said(png(1, 2, kGrey, {7, 9}, 8, seven)), "");
  expect(png(1, 2, kGrey, {8, 9}, 8, seven), 1, {8, 9});
  // Of 16 bits: what rounds to 255 is not yet opaque.
  expect(png(1, 1, kGreyAlpha, {0x80, 0x80, 0xff, 0xff}, 16), 1, {128});
  EXPECT_EQ(said(png(1, 1, kGreyAlpha, {0x80, 0x80, 0xff, 0xfe}, 16)),
            "[image] F has transparent pixels, the first at row 0, column 0: flatten it to grey or RGB");
  // A colour of the palette, used and not.
  const std::string colours =
      chunk("PLTE", std::string("\1\2\3\4\5\6", 6)) + chunk("tRNS", std::string("\xfe", 1));
  EXPECT_EQ(said(png(1, 2, kPalette, {1, 0}, 8, colours)),
            "[image] F has transparent pixels, the first at row 0, column 1: flatten it to grey or RGB");
  expect(png(1, 2, kPalette, {1, 1}, 8, colours), 3, {4, 5, 6, 4, 5, 6});
}

TEST_F(Image, ScalesSixteenBitsToTheNearest) {
  for (uint32_t value = 0; value < 65536; value += 51) {
    expect(png(1, 1, kGrey, {static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)}, 16), 1,
           {static_cast<uint8_t>(std::lround(value / 257.0))});
  }
}

TEST_F(Image, RefusesPngThatLibpngWouldPatch) {
  const std::string palette = chunk("PLTE", std::string("\1\2\3\4\5\6", 6));
  EXPECT_EQ(said(png(1, 2, kPalette, {1, 2}, 8, palette)),
            "[image] F is a damaged PNG file: it uses colour 2 of a palette of 2");
  expect(png(1, 4, kPalette, {0b01000100}, 2, palette), 3, {4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3});
  EXPECT_EQ(said(png(1, 4, kPalette, {0b01000111}, 2, palette)),
            "[image] F is a damaged PNG file: it uses colour 3 of a palette of 2");
  // Transparency whose checksum is wrong: left out, the picture would be opaque.
  std::string seven = chunk("tRNS", std::string("\0\7", 2));
  seven.back() = static_cast<char>(seven.back() ^ 1);
  EXPECT_EQ(said(png(1, 2, kGrey, {7, 9}, 8, seven)), "[image] F is a damaged PNG file: tRNS: CRC error");
}

TEST_F(Image, ReadsFilesAsTheyAre) {
  const std::string file = png(2, 3, kGrey, ramp(6));
  const gzFile packed = ::gzopen(path_.c_str(), "wb");
  EXPECT_EQ(::gzwrite(packed, file.data(), static_cast<unsigned>(file.size())),
            static_cast<int>(file.size()));
  EXPECT_EQ(::gzclose(packed), Z_OK);
  EXPECT_EQ(complaint_of([&] { read_picture(path_); }, path_), "[image] F is neither a PNG nor a JPEG file");
  put(path_, file);
  std::filesystem::resize_file(path_, (size_t{1} << 28) + 1);  // a hole: refused before it is read
  EXPECT_EQ(complaint_of([&] { read_picture(path_); }, path_),
            "[image] F has 268435457 bytes: at most 268435456 are read");
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(complaint_of([&] { read_picture(path_); }, path_),
            "[image] cannot read F: it is a pipe or a device, not a file");
}

TEST_F(Image, ReadsJpeg) {
  const Picture flat = read(jpeg(16, 24, 1, Bytes(384, 77)));
  EXPECT_EQ(std::vector({flat.height, flat.width, flat.channels}), (std::vector<size_t>{16, 24, 1}));
  EXPECT_EQ(flat.bytes, Bytes(384, 77));
  const Bytes smooth = [] {
    Bytes bytes;
    for (size_t i = 0; i < 1024; ++i) {
      const auto y = static_cast<uint8_t>(i / 32), x = static_cast<uint8_t>(i % 32);
      for (const int value : {4 * y + 20, 6 * x + 10, 200 - 3 * y})
        bytes.push_back(static_cast<uint8_t>(value));
    }
    return bytes;
  }();
  const Picture colour = read(jpeg(32, 32, 3, smooth));
  ASSERT_EQ(colour.bytes.size(), smooth.size());
  EXPECT_EQ(colour.channels, 3u);
  for (size_t i = 0; i < smooth.size(); ++i) ASSERT_NEAR(colour.bytes[i], smooth[i], 8) << i;
  EXPECT_EQ(said(jpeg(8, 8, 4, Bytes(256, 9))),
            "[image] F has 4 colour channels (CMYK?): save it as grey or RGB");
}

TEST_F(Image, RefusesFilesCutAnywhere) {
  const Bytes noise = ramp(1200, 89);
  for (const std::string& whole :
       {png(20, 20, kRgb, noise), jpeg(20, 20, 3, noise), jpeg(20, 20, 1, noise)}) {
    EXPECT_EQ(said(whole), "");
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string text = said(whole.substr(0, size));
      ASSERT_TRUE(text.starts_with("[image] F is ")) << size << ": " << text;
    }
  }
  const std::string whole = png(2, 2, kGrey, ramp(4));
  EXPECT_EQ(said(whole.substr(0, whole.size() - 1)), "[image] F is a damaged PNG file: it is cut short");
}

TEST_F(Image, RefusesWhatIsNoPicture) {
  EXPECT_EQ(said(""), "[image] F is neither a PNG nor a JPEG file");
  EXPECT_EQ(said("GIF89a and so on"), "[image] F is neither a PNG nor a JPEG file");
  EXPECT_EQ(complaint_of([&] { read_picture(folder_ / "none"); }, folder_ / "none"),
            "[image] cannot read F: No such file or directory");
  std::string large = png(1, 1, kGrey, {0});
  large.replace(8, 25,
                chunk("IHDR", big_endian(900000) + big_endian(900000) + std::string("\x08\0\0\0\0", 5)));
  EXPECT_EQ(said(large),
            "[image] F claims 900000x900000 pixels, 810000000000 bytes: at most 268435456 are decoded");
}

// A PNG file of another size than its pixels have.
std::string claims(uint32_t height, uint32_t width, Colour colour, char depth) {
  std::string file = png(1, 1, kGrey, {0});
  return file.replace(
      8, 25, chunk("IHDR", big_endian(width) + big_endian(height) + std::string{depth, colour, 0, 0, 0}));
}

TEST_F(Image, MemoryIsBoundByBytes) {
  // Samples of 16 bits, an alpha channel and colours of a palette count.
  EXPECT_EQ(said(claims(8192, 8192, kRgba, 16)),
            "[image] F claims 8192x8192 pixels, 536870912 bytes: at most 268435456 are decoded");
  const std::string palette = chunk("PLTE", "123");
  EXPECT_EQ(said(claims(1 << 13, (1 << 13) + 1, kPalette, 1).insert(33, palette)),
            "[image] F claims 8192x8193 pixels, 268468224 bytes: at most 268435456 are decoded");
  // Nothing is taken for what so few bytes cannot hold.
  EXPECT_EQ(said(claims(4096, 4096, kRgba, 16)),
            "[image] F is a damaged PNG file: its 67 bytes cannot hold the 4096x4096 pixels that it claims");
  // What packs best is read.
  EXPECT_EQ(read(png(1 << 12, 1 << 12, kGrey, Bytes(1 << 24))).bytes, Bytes(1 << 24));
}

TEST_F(Image, WhatIsNoPixelIsNotUnpacked) {
  const std::string text(7900000, ' ');
  std::string packed(::compressBound(text.size()), '\0');
  uLongf size = packed.size();
  ASSERT_EQ(::compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                       reinterpret_cast<const Bytef*>(text.data()), text.size()),
            Z_OK);
  packed.resize(size);
  std::string chunks;
  for (int i = 0; i < 20; ++i) chunks += chunk("zTXt", std::to_string(i) + std::string(2, '\0') + packed);
  put(path_, png(1, 1, kGrey, {7}, 8, chunks));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto most = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss;  // in KB
    };
    const auto before = most();
    const bool right = read_picture(path_).bytes == Bytes{7};
    ::_exit(!right ? 1 : most() - before > 32 << 10 ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Whatever is done to a file, it is read or refused with an Error; anything else ends the test.
TEST_F(Image, SurvivesDamage) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const Bytes noise = ramp(243, 89);
  const std::string files[] = {png(9, 9, kRgb, noise), jpeg(9, 9, 3, noise), jpeg(9, 9, 1, noise)};
  int seen = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string file = files[below(3)];
    for (size_t times = 1 + below(3); times > 0; --times) {
      const size_t at = below(file.size());
      below(2) ? file[at] = static_cast<char>(below(256)) : file[at] = static_cast<char>(file[at] ^ 1);
    }
    try {
      const Picture got = read(file);
      ASSERT_EQ(got.bytes.size(), got.height * got.width * got.channels);
      ++seen;
    } catch (const Error& error) {
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      ++refused;
    }
  }
  EXPECT_GT(seen, 100);
  EXPECT_GT(refused, 1000);
}

// The obvious way: blow up to a common multiple, cut out the middle, average blocks.
Bytes slowly_scaled(const Picture& from, size_t height, size_t width) {
  size_t crop_height = from.height, crop_width = from.width;
  if (from.height * width < from.width * height) {
    crop_width = std::max<size_t>(1, from.height * width / height);
  } else {
    crop_height = std::max<size_t>(1, from.width * height / width);
  }
  const size_t top = (from.height - crop_height) / 2, left = (from.width - crop_width) / 2;
  Bytes to;
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) {
      for (size_t c = 0; c < from.channels; ++c) {
        double sum = 0;
        for (size_t v = y * crop_height; v < (y + 1) * crop_height; ++v) {
          for (size_t u = x * crop_width; u < (x + 1) * crop_width; ++u) {
            sum += from.bytes[((top + v / height) * from.width + left + u / width) * from.channels + c];
          }
        }
        to.push_back(
            static_cast<uint8_t>(std::floor(0.5 + sum / static_cast<double>(crop_height * crop_width))));
      }
    }
  }
  return to;
}

RC_GTEST_PROP(ScaleProperty, AveragesByArea, ()) {
  const auto side = rc::gen::inRange<size_t>(1, 13);
  Picture from{*side, *side, *rc::gen::element<size_t>(1, 3), {}};
  from.bytes =
      *rc::gen::container<Bytes>(from.height * from.width * from.channels, rc::gen::arbitrary<uint8_t>());
  const size_t height = *side, width = *side;
  const Picture got = scaled(from, height, width);
  RC_ASSERT(got.height == height && got.width == width && got.channels == from.channels);
  RC_ASSERT(got.bytes == slowly_scaled(from, height, width));
}

class Folder : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    put(path, bytes);
  }
  ImageSet load(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const {
    return load_dataset("folder", {.dir = folder_.path(), .height = height, .width = width});
  }
  std::string said(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const {
    return complaint_of([&] { load(height, width); }, folder_.path());
  }

  // Two classes, three and two pictures.
  void add_small() const {
    add("train/cat/2.png", png(1, 2, kGrey, {3, 4}));
    add("train/cat/1.png", png(1, 2, kGrey, {1, 2}));
    add("train/ape/x.png", png(1, 2, kGrey, {5, 6}));
    add("train/ape/.hidden", "not a picture");
    add("test/cat/1.png", png(1, 2, kGrey, {7, 8}));
    add("test/ape/1.jpg", jpeg(1, 2, 1, {9, 9}));
  }

  TempFolder folder_;
};

TEST_F(Folder, NumbersClassesAndFilesByName) {
  add_small();
  const ImageSet set = load();
  EXPECT_EQ(set.class_names, (std::vector<std::string>{"ape", "cat"}));
  EXPECT_EQ(std::vector({set.height, set.width, set.channels, set.classes}),
            (std::vector<size_t>{1, 2, 1, 2}));
  EXPECT_EQ(set.train.images, (Bytes{5, 6, 1, 2, 3, 4}));
  EXPECT_EQ(set.train.labels, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(set.test.images, (Bytes{9, 9, 7, 8}));
  EXPECT_EQ(set.test.labels, (std::vector<int32_t>{0, 1}));
  EXPECT_NEAR(set.mean[0], 3.5 / 255, 1e-7);
  std::filesystem::rename(folder_ / "test", folder_ / "val");
  EXPECT_EQ(load().test.images, set.test.images);
}

TEST_F(Folder, TurnsGreyIntoColourWhereSomeIsInColour) {
  add_small();
  add("test/cat/2.png", png(1, 2, kRgb, {10, 11, 12, 13, 14, 15}));
  const ImageSet set = load();
  EXPECT_EQ(set.channels, 3u);
  EXPECT_EQ(set.train.images, (Bytes{5, 5, 5, 6, 6, 6, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
  EXPECT_EQ(set.test.images, (Bytes{9, 9, 9, 9, 9, 9, 7, 7, 7, 8, 8, 8, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(set.mean.size(), 3u);
}

TEST_F(Folder, ScalesOnlyWhenAsked) {
  add_small();
  add("train/cat/3.png", png(2, 2, kGrey, {10, 20, 30, 40}));
  EXPECT_EQ(said(),
            "[folder] F/train/cat/3.png is 2x2, those before it are 1x2: make all alike, or ask for one "
            "size");
  const ImageSet set = load(1, 1);
  EXPECT_EQ(set.train.images, (Bytes{5, 1, 3, 25}));  // the middle pixel of a row of two is its first
  EXPECT_EQ(said(1), "[folder] pictures can be scaled to height and width of 1 to 4096, got 1x0");
  EXPECT_EQ(said(0, 5), "[folder] pictures can be scaled to height and width of 1 to 4096, got 0x5");
  EXPECT_EQ(said(5, -5), "[folder] pictures can be scaled to height and width of 1 to 4096, got 5x-5");
}

TEST_F(Folder, IsTheSameForAnyNumberOfThreads) {
  for (int i = 0; i < 60; ++i) {
    add(fmt::format("train/{}/{}.png", i % 3, i), png(2, 2, kGrey, ramp(4, i)));
    add(fmt::format("test/{}/{}.jpeg", i % 3, i), jpeg(2, 2, 1, ramp(4, i)));
  }
  const int before = thread_count();
  set_thread_count(1);
  const ImageSet one = load();
  for (const int threads : {2, 7}) {
    set_thread_count(threads);
    const ImageSet other = load();
    EXPECT_EQ(one.train.images, other.train.images);
    EXPECT_EQ(one.train.labels, other.train.labels);
    EXPECT_EQ(one.test.images, other.test.images);
  }
  set_thread_count(before);
}

// Damage is found by all threads at once, another size only afterwards and in order.
TEST_F(Folder, SaysWhatIsWrongWithTheFirstOfAnyNumberOfThreads) {
  for (int i = 10; i < 70; ++i) {
    const bool damaged = i >= 39;  // where the second of two threads begins, and before
    add(fmt::format("train/cat/{}.png", i), damaged ? std::to_string(i) : png(2, 2, kGrey, ramp(4, i)));
  }
  add("test/cat/1.png", png(2, 2, kGrey, ramp(4)));
  const int before = thread_count();
  for (const int threads : {1, 2, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(said(), "[image] F/train/cat/39.png is neither a PNG nor a JPEG file");
  }
  add("train/cat/12.png", png(1, 2, kGrey, ramp(2)));
  for (const int threads : {1, 2, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(said(),
              "[folder] F/train/cat/12.png is 1x2, those before it are 2x2: make all alike, or ask for one "
              "size");
  }
  set_thread_count(before);
}

TEST_F(Folder, SaysWhatIsWrong) {
  std::filesystem::create_directories(folder_ / "train");
  EXPECT_EQ(said(), "[folder] F has neither test/ nor val/ beside train/");
  std::filesystem::create_directories(folder_ / "test");
  EXPECT_EQ(said(), "[folder] F/train holds no pictures: put them into F/train/CLASS/");
  std::filesystem::create_directories(folder_ / "train/cat");
  EXPECT_EQ(said(), "[folder] F/train holds no pictures: put them into F/train/CLASS/");
  add("test/cat/1.png", png(1, 2, kGrey, {7, 8}));
  EXPECT_EQ(said(), "[folder] F/train/cat holds no pictures: a class needs at least one");
  add_small();
  add("test/dog/1.png", png(1, 2, kGrey, {7, 8}));
  EXPECT_EQ(said(), "[folder] F/test/dog is a class that the training pictures do not have");
  std::filesystem::remove_all(folder_ / "test/dog");
  EXPECT_EQ(said(), "");
  // A picture by its name or by its first bytes is not passed over, whatever is wrong with it.
  for (const auto& [name, bytes, wrong] :
       {std::tuple("notes.PNG", "hello", "is neither a PNG nor a JPEG file"),
        {"notes.jpeg", "", "is neither a PNG nor a JPEG file"},
        {"notes", "\xff\xd8\xff", "is a damaged JPEG file"},
        {"notes.txt", "\x89PNG\r\n", "is neither a PNG nor a JPEG file"}}) {
    add(std::string("train/cat/") + name, bytes);
    EXPECT_TRUE(said().starts_with(fmt::format("[image] F/train/cat/{} {}", name, wrong))) << said();
    std::filesystem::remove(folder_ / (std::string("train/cat/") + name));
  }
  std::filesystem::create_directories(folder_ / "train/cat/more.png");
  EXPECT_EQ(said(), "[image] cannot read F/train/cat/more.png: Is a directory");
}

TEST_F(Folder, NamesAndSkipsFoldersThatAreNoClass) {
  add_small();
  const ImageSet clean = load();
  add("train/__MACOSX/cat/1.png", png(1, 2, kGrey, {7, 8}));
  add("train/__MACOSX/._x.png", "no picture");
  add("test/__MACOSX/readme.txt", "notes");
  add("test/labels/list.csv", "1,2");
  std::filesystem::create_directories(folder_ / "train/empty");
  const ImageSet set = load();
  std::vector<std::string> skipped;
  for (const std::string& path : set.skipped) skipped.push_back(path.substr(folder_.path().size() + 1));
  EXPECT_EQ(skipped,
            (std::vector<std::string>{"train/__MACOSX", "train/empty", "test/__MACOSX", "test/labels"}));
  EXPECT_EQ(set.class_names, clean.class_names);
  EXPECT_EQ(set.train.images, clean.train.images);
  EXPECT_EQ(set.test.labels, clean.test.labels);
}

TEST_F(Folder, NamesAndSkipsWhatIsNoPicture) {
  add_small();
  const ImageSet clean = load();
  EXPECT_TRUE(clean.skipped.empty());
  for (const char* name : {"train/readme.txt", "train/cat/Thumbs.db", "train/cat/more/1.png",
                           "test/ape/a.gif", "test/labels.csv"})
    add(name, "GIF89a");
  // A picture with another name is one.
  add("train/ape/y.gif", png(1, 2, kGrey, {1, 1}));
  const ImageSet set = load();
  std::vector<std::string> skipped;
  for (const std::string& path : set.skipped) skipped.push_back(path.substr(folder_.path().size() + 1));
  EXPECT_EQ(skipped, (std::vector<std::string>{"train/readme.txt", "train/cat/Thumbs.db", "train/cat/more",
                                               "test/labels.csv", "test/ape/a.gif"}));
  EXPECT_EQ(set.class_names, clean.class_names);
  EXPECT_EQ(set.train.count(), clean.train.count() + 1);
  EXPECT_EQ(set.test.images, clean.test.images);
  // Where nothing else is left, that is said.
  std::filesystem::remove(folder_ / "test/ape/1.jpg");
  EXPECT_EQ(said(), "[folder] F/test/ape holds no pictures: a class needs at least one");
}

}  // namespace
}  // namespace ulp
