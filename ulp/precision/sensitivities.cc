#include "ulp/precision/sensitivities.h"

#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/text.h"
#include "ulp/precision/json_file.h"

namespace ulp {
namespace {

constexpr std::string_view kWhat = "sensitivity file";

double error_of(const std::string& path, size_t group, const Json& value) {
  if (value.is_string() && value.get_ref<const std::string&>() == "inf") {
    return std::numeric_limits<double>::infinity();
  }
  const double error = value.is_number() ? value.get<double>() : -1;
  if (!(error >= 0)) {
    fail("precision", "{} '{}', group {}: the error must be a number from 0 on, or \"inf\"; got {}", kWhat,
         path, group, shown_text(value.dump()));
  }
  return error;
}

}  // namespace

std::string sensitivity_file(std::string_view policy) {
  if (!policy.starts_with("sensitivity:")) return "";
  const size_t colon = policy.find(':', policy.find(':') + 1);
  return colon == policy.npos ? "" : std::string(policy.substr(colon + 1));
}

void save_sensitivities(const std::string& path, const Sensitivities& sensitivities) {
  Json file = Json::object();
  for (const auto& [name, value] : sensitivities.network) file[name] = parse_json(value);
  file["candidates"] = sensitivities.candidates;
  file["groups"] = Json::array();
  for (size_t i = 0; i < sensitivities.errors.size(); ++i) {
    Json group = {{"id", i}, {"elements", sensitivities.elements[i]}};
    // JSON has no infinity.
    if (std::isfinite(sensitivities.errors[i])) {
      group["error"] = sensitivities.errors[i];
    } else {
      group["error"] = "inf";
    }
    file["groups"].push_back(std::move(group));
  }
  const std::string text = file.dump(1) + "\n";
  write_file_atomically(path, text);
}

Sensitivities load_sensitivities(const std::string& path) {
  const Json file = read_json_file(kWhat, path);
  const bool shaped = file.is_object() && file.contains("groups") && file["groups"].is_array();
  if (!shaped) {
    fail("precision",
         "{} '{}' must be an object with \"groups\": [{{\"id\", \"elements\", \"error\"}}, ...], as ulp "
         "sensitivity writes it",
         kWhat, path);
  }
  Sensitivities made;
  made.network = network_of(file);
  if (file.contains("candidates") && file["candidates"].is_string())
    made.candidates = file["candidates"].get<std::string>();
  for (const Json& group : file["groups"]) {
    const size_t number = made.errors.size();
    if (!group.is_object() || !group.contains("id") || group["id"] != Json(number)) {
      fail("precision",
           "{} '{}': group {} must be an object whose \"id\" is {}: groups stand in the order of their "
           "numbers",
           kWhat, path, number, number);
    }
    if (!group.contains("error"))
      fail("precision", "{} '{}', group {}: there is no \"error\"", kWhat, path, number);
    made.errors.push_back(error_of(path, number, group["error"]));
    const bool counted = group.contains("elements") && group["elements"].is_number_unsigned();
    made.elements.push_back(counted ? group["elements"].get<size_t>() : 0);
  }
  return made;
}

}  // namespace ulp
