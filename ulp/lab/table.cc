#include "ulp/lab/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulp {
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  return fmt::format("\"{}\"", replaced(text, "\"", "\"\""));
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += csv_cell(cell) + ",";
  line.back() = '\n';
  return line;
}

}  // namespace

std::string TextTable::markdown() const {
  std::vector<size_t> widths;
  const auto cell_text = [](const std::string& cell) { return replaced(cell, "|", "\\|"); };
  for (const Column& column : columns) widths.push_back(std::max<size_t>(column.name.size(), 3));
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], cell_text(row[i]).size());
  }
  std::string head, rule, body;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool left = columns[i].left;
    head += left ? fmt::format("| {:<{}} ", columns[i].name, widths[i])
                 : fmt::format("| {:>{}} ", columns[i].name, widths[i]);
    rule += fmt::format("| {}{} ", std::string(widths[i] - 1, '-'), left ? '-' : ':');
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      body += columns[i].left ? fmt::format("| {:<{}} ", cell_text(row[i]), widths[i])
                              : fmt::format("| {:>{}} ", cell_text(row[i]), widths[i]);
    }
    body += "|\n";
  }
  return head + "|\n" + rule + "|\n" + body;
}

std::string TextTable::csv() const {
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  std::string text = csv_line(names);
  for (const auto& row : rows) text += csv_line(row);
  return text;
}

}  // namespace ulp
