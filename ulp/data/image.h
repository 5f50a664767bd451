// Private to the folder: one picture from a PNG or JPEG file, and bringing pictures to one size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ulp {

struct Picture {
  size_t height = 0, width = 0, channels = 0;  // 1 (grey) or 3 (RGB) channels
  std::vector<uint8_t> bytes;                  // (height, width, channels)
};

// The bytes as the file has them: no gamma, no colour profile, no rotation by EXIF. PNG: grey of fewer than 8
// bits is spread to 8, 16 bits are scaled to 8, palettes become RGB; an alpha channel is dropped if it is
// fully opaque everywhere. JPEG: grey or colour. Transparent pixels, CMYK, damage, a file cut short or packed
// by gzip, a file of more than 2^28 bytes and pixels that take more than 2^28 to decode throw an Error that
// names the file. What is no part of the pixels (text, a colour profile) is passed over and never
// unpacked, and no memory is taken for more pixels than the bytes of a PNG file can hold. Threads
// that would decode more than 2^29 bytes between them wait for each other; `prepare`, which may
// make a picture smaller, belongs to that.
Picture read_picture(
    const std::string& path, const std::function<void(Picture&)>& prepare = [](Picture&) {});

// The largest window of the new shape in the middle of the picture, scaled: each new pixel is the mean, by
// area, of what it covers, rounded to nearest. Integers only, so the same everywhere.
Picture scaled(const Picture& from, size_t height, size_t width);

// Grey repeated in three channels.
std::vector<uint8_t> grey_to_rgb(std::span<const uint8_t> grey);

}  // namespace ulp
