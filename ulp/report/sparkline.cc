#include "ulp/report/sparkline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ulp {
namespace {

constexpr size_t kHeights = 8;
constexpr std::string_view kBlocks[kHeights] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kDarker = "_.-:=+*#";
constexpr size_t kMiddle = 3;

// NaN where one of them is not finite. The mean of the halves cannot overflow.
double mean_of(std::span<const double> part) {
  double mean = 0, count = 0;
  for (const double value : part) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    ++count;
    mean += value / count - mean / count;
  }
  return mean;
}

size_t height(double value, double low, double high) {
  if (!(high > low)) return kMiddle;
  const double share = (value / 2 - low / 2) / (high / 2 - low / 2);
  return std::min(static_cast<size_t>(share * kHeights), kHeights - 1);
}

}  // namespace

std::string sparkline(std::span<const double> values, size_t width, bool ascii) {
  const size_t parts = std::min(width, values.size());
  std::vector<double> means(parts);
  for (size_t i = 0; i < parts; ++i) {
    const size_t begin = i * values.size() / parts, end = (i + 1) * values.size() / parts;
    means[i] = mean_of(values.subspan(begin, end - begin));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string text;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      text += 'x';
    } else {
      const size_t level = height(mean, low, high);
      text += ascii ? kDarker.substr(level, 1) : kBlocks[level];
    }
  }
  return text;
}

size_t text_columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not the second byte of a letter or a later one
  }));
}

}  // namespace ulp
