#include "ulp/data/tab_lines.h"

#include <algorithm>

namespace ulp {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
// A file of something else may have no lines at all.
constexpr size_t kLongest = size_t{1} << 24;

}  // namespace

TabLines::TabLines(const std::string& path, std::string_view need, uint32_t& digest)
    : path_(path), reader_("data", path), digest_(digest) {
  if (!refill()) fail("data", "{} is empty: it needs {}", path_, need);
}

// Drops what was passed over and reads on; false at the end of the file.
bool TabLines::refill() {
  text_.erase(0, at_);
  at_ = 0;
  const size_t begin = text_.size();
  if (begin > kLongest) {
    ++number_;
    refuse("it is longer than {} MiB: this is no text with tabs between columns", kLongest >> 20);
  }
  text_.resize(begin + kChunk);
  const size_t got = reader_.read({reinterpret_cast<uint8_t*>(text_.data()) + begin, kChunk});
  text_.resize(begin + got);
  for (size_t i = begin; i < text_.size(); ++i)
    digest_ = (digest_ ^ static_cast<uint8_t>(text_[i])) * 16777619u;
  return got > 0;
}

bool TabLines::next() {
  size_t end = text_.find('\n', at_);
  while (end == text_.npos) {
    const size_t seen = text_.size() - at_;
    if (!refill()) {
      if (text_.empty()) return false;
      end = text_.size();
      break;
    }
    end = text_.find('\n', seen);
  }
  ++number_;
  std::string_view line(text_.data() + at_, end - at_);
  at_ = std::min(end + 1, text_.size());
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  fields_.clear();
  for (;;) {
    const size_t tab = std::min(line.find('\t'), line.size());
    fields_.push_back(line.substr(0, tab));
    if (tab == line.size()) return true;
    line.remove_prefix(tab + 1);
  }
}

}  // namespace ulp
