// The lines of a file, one at a time, in a bounded amount of memory however long the file or a line
// of it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ulp {

class LineReader {
 public:
  // Of lines that are longer nothing is shown.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // A file that is not there has no lines. Throws an Error for one that cannot be read, and for what
  // is no regular file: a pipe could hang.
  explicit LineReader(const std::string& path);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  // False at the end. The line, without its newline, is there until the next call.
  bool next(std::string_view& line);
  uint64_t number() const { return number_; }  // of that line, from 1
  bool torn() const { return torn_; }          // it had no newline: it is the file's last
  bool too_long() const { return too_long_; }

 private:
  bool fill();

  std::string path_;
  int fd_ = -1;
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t number_ = 0;
  bool torn_ = false, too_long_ = false;
};

// Notes on the lines of one file: the first few, and how many more there were.
class LineNotes {
 public:
  explicit LineNotes(std::string file) : file_(std::move(file)) {}
  // "line 12 of metrics.jsonl ..."
  void add(uint64_t line, std::string_view what);
  void move_to(std::vector<std::string>& notes);

 private:
  static constexpr size_t kMost = 5;
  std::string file_;
  std::vector<std::string> notes_;
  size_t count_ = 0;
};

}  // namespace ulp
