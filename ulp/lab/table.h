// Tables as text, for people and for programs.
#pragma once

#include <string>
#include <vector>

namespace ulp {

struct TextTable {
  struct Column {
    std::string name;
    bool left = false;  // flush left, for words; numbers are flush right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns

  // Markdown whose columns also stand under one another as they are.
  std::string markdown() const;
  // RFC 4180, with \n.
  std::string csv() const;
};

}  // namespace ulp
