// JSON, written piece by piece into one text: a document has millions of numbers, and a tree of them
// would take a hundred times their text.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "ulp/report/curve.h"

namespace ulp {

class JsonWriter {
 public:
  // The value that follows belongs to this name.
  JsonWriter& key(std::string_view name) {
    value(name);
    text_ += ':';
    first_ = true;
    return *this;
  }

  // Calls fill for what is inside.
  template <typename Fill>
  void object(const Fill& fill) {
    enclose('{', '}', fill);
  }
  template <typename Fill>
  void array(const Fill& fill) {
    enclose('[', ']', fill);
  }
  // write(one) for each.
  template <typename All, typename Write>
  void each(const All& all, const Write& write) {
    array([&] {
      for (const auto& one : all) write(one);
    });
  }
  template <typename All>
  void values(const All& all) {
    each(all, [&](const auto& one) { value(one); });
  }

  // Bytes that are no UTF-8 become U+FFFD.
  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool yes) { raw(yes ? "true" : "false"); }
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) void value(Integer number) {
    separate();
    fmt::format_to(std::back_inserter(text_), "{}", number);
  }
  // The shortest digits that read back to the same number; "nan", "inf" and "-inf".
  void value(double number) { floating(number); }
  void value(float number) { floating(number); }
  void value(const Number& number) { number ? value(*number) : null(); }
  void null() { raw("null"); }

  template <typename Value>
  void field(std::string_view name, const Value& of) {
    key(name).value(of);
  }
  template <typename All>
  void column(std::string_view name, const All& all) {
    key(name).values(all);
  }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  void raw(std::string_view text) {
    separate();
    text_ += text;
  }
  template <typename Fill>
  void enclose(char open, char close, const Fill& fill) {
    separate();
    text_ += open;
    first_ = true;
    fill();
    text_ += close;
    first_ = false;
  }
  template <typename Float>
  void floating(Float number);

  std::string text_;
  bool first_ = true;  // nothing stands before in the same object or array
};

}  // namespace ulp
