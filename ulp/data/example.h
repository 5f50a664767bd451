// A picture from a file as an example of a set: what `folder` does with its pictures, for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ulp {

// What examples of a set look like.
struct ExampleForm {
  size_t height = 0, width = 0, channels = 0;
  size_t border = 0;  // zeros on each side, part of height and width
};

// (height, width, channels) bytes of a PNG or JPEG file. Its middle is scaled to what is inside the
// border; grey becomes colour where the set has it, and colour that is grey everywhere becomes grey.
// Throws an Error for a file that cannot be read, and for colour where the set is grey.
std::vector<uint8_t> read_example(const std::string& path, const ExampleForm& form);

}  // namespace ulp
