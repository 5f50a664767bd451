#include "ulp/base/json.h"

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

// Builds the value from the parser's events. The library's own builder looks through all names of
// an object before it adds one: the square of their number, for a file that may have a million.
class Maker : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(made_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON in text has none

  bool key(string_t& name) override {
    if (!open_.back().names.insert(name).second) fail("json", "has {} twice", Json(name).dump());
    name_ = std::move(name);
    return true;
  }
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(size_t place, const std::string&, const Json::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) {
      fail("json", "has a number that is too large: the one that ends at byte {}", place);
    }
    fail("json", "is no JSON: it goes wrong at byte {}", place);
  }

 private:
  struct Open {
    Json* value;
    std::unordered_set<std::string> names;
  };

  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kJsonDepth) fail("json", "is nested more than {} deep", kJsonDepth);
    open_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  // Where it came to lie. That stays true while it is open: what it lies in does not grow.
  Json* place(Json value) {
    if (open_.empty()) return &(made_ = std::move(value));
    Json& outer = *open_.back().value;
    if (outer.is_array()) {
      auto& values = outer.get_ref<Json::array_t&>();
      values.push_back(std::move(value));
      return &values.back();
    }
    auto& values = outer.get_ref<Json::object_t&>();
    values.push_back({std::move(name_), std::move(value)});
    return &values.back().second;
  }

  Json made_;
  std::vector<Open> open_;
  std::string name_;
};

}  // namespace

Json parse_json(std::string_view text) {
  if (text.size() > kJsonBytes) {
    fail("json", "has {} bytes of JSON: at most {} are read", text.size(), kJsonBytes);
  }
  // The library takes a zero byte for the end.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    fail("json", "is no JSON: it goes wrong at byte {}", zero + 1);
  }
  Maker maker;
  Json::sax_parse(text.begin(), text.end(), &maker);
  return maker.take();
}

uint64_t count_of(const Json& object, std::string_view name, uint64_t most) {
  const auto found = object.find(std::string(name));
  const bool whole = found != object.end() && found->is_number_unsigned();
  if (!whole || found->get_ref<const uint64_t&>() > most) {
    fail("json", "needs \"{}\" with a whole number from 0 to {}", name, most);
  }
  return found->get_ref<const uint64_t&>();
}

}  // namespace ulp
