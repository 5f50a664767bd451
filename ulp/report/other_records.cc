#include "ulp/report/other_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/report/line_reader.h"
#include "ulp/report/metrics_reader.h"

namespace ulp {
namespace {

// More of either would be no file that `ulp` has written.
constexpr size_t kMostBenches = 10'000, kMostKernels = 1000, kMostRows = 2'000'000;

BenchRecord bench_on(const Json& line, const std::string& id) {
  BenchRecord made;
  made.id = id;
  made.model = line.at("model").get<std::string>();
  made.policy = line.at("policy").get<std::string>();
  made.device = line.at("device").get<std::string>();
  made.batch = number_of(line, "batch");
  made.seconds = number_of(line, "ms") / 1e3;
  made.planned_bytes = number_of(line, "planned_peak_bytes");
  made.label = fmt::format("{}, {}", made.model, made.policy);
  // What else changes a step's time and memory, where it is not as usual.
  const auto add_unless = [&](const char* name, const char* usual) {
    const auto found = line.find(name);
    if (found != line.end() && found->is_string() && *found != usual)
      made.label += fmt::format(", {} {}", name, found->get<std::string>());
  };
  add_unless("update", "default");
  add_unless("weight", "default");
  add_unless("state", "default");
  if (line.value("fused_backward", false)) made.label += ", fused_backward";
  made.aggregate_bits = number_if_any(line, "aggregate_bits");
  made.input = line.value("input", "");
  made.classes = line.contains("classes") ? count_of(line, "classes") : 0;
  for (const char* name : {"model", "width", "batch", "grad_accum", "policy", "optimizer", "update", "weight",
                           "state", "fused_backward", "device", "threads"}) {
    const auto found = line.find(name);
    if (found == line.end()) continue;
    find_config_field(name).set(made.config, found->is_string() ? found->get<std::string>() : found->dump());
  }
  for (const Json& entry : line.at("kernels")) {
    if (made.kernels.size() == kMostKernels) break;
    made.kernels.push_back({entry.at("op").get<std::string>(), entry.at("kernel").get<std::string>(),
                            entry.at("operands").get<std::string>(), number_of(entry, "ms") / 1e3,
                            number_of(entry, "calls")});
  }
  return made;
}

// Cuts a line at its commas; least-squares.csv has no quotes.
std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> made;
  while (true) {
    const size_t comma = line.find(',');
    made.push_back(line.substr(0, comma));
    if (comma == line.npos) return made;
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || rest != text.data() + text.size()) return {};
  return value;
}

// Of an even number of values the mean of the two in the middle.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

bool looks_like_bench(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(2048, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(in.gcount()));
  const size_t first = head.find_first_not_of(" \t\r\n");
  return first != head.npos && head[first] == '{' && head.find("\"planned_peak_bytes\"") != head.npos &&
         head.find("\"ms_min\"") != head.npos;
}

std::vector<BenchRecord> read_benches(const FoundFile& file, std::vector<std::string>& notes) {
  std::vector<BenchRecord> benches;
  LineNotes damaged(file.id);
  try {
    LineReader lines(file.path);
    for (std::string_view text; benches.size() < kMostBenches && lines.next(text);) {
      if (text.find_first_not_of(" \t\r") == text.npos && !lines.too_long()) continue;
      try {
        const std::optional<Json> line = lines.too_long() ? std::nullopt : object_on(text);
        if (!line) fail("report", "it is no JSON object");
        benches.push_back(bench_on(*line, file.id));
      } catch (const Json::exception&) {
        damaged.add(lines.number(), "is none of ulp bench step: a value is missing or of another type");
      } catch (const Error& error) {
        damaged.add(lines.number(), fmt::format("is none of ulp bench step: {}", error.message()));
      }
    }
  } catch (const Error& error) {
    notes.emplace_back(error.message());
  }
  damaged.move_to(notes);
  if (benches.size() > 1) {
    size_t number = 0;
    for (BenchRecord& bench : benches) bench.id += fmt::format(":{}", ++number);
  }
  return benches;
}

LeastSquaresRecord read_least_squares(const FoundFile& file, std::vector<std::string>& notes) {
  struct Row {
    std::vector<double> loss, excess, cancelled;
  };
  LeastSquaresRecord made{file.id, file.id, {}};
  std::vector<std::pair<std::string, std::map<uint64_t, Row>>> variants;  // in the order of the file
  LineNotes damaged(file.id + "/least-squares.csv");
  constexpr std::array<std::string_view, 7> columns = {"variant", "seed",    "step",     "loss",
                                                       "excess",  "updates", "cancelled"};
  try {
    LineReader lines(file.path);
    for (std::string_view text; lines.number() < kMostRows && lines.next(text);) {
      const std::vector<std::string_view> row = cells(text);
      if (lines.number() == 1) {
        if (!std::equal(row.begin(), row.end(), columns.begin(), columns.end())) {
          damaged.add(1, "must name the columns variant,seed,step,loss,excess,updates,cancelled");
          break;
        }
        continue;
      }
      if (row.size() == 1 && row[0].empty()) continue;
      std::array<double, 5> numbers{};  // from the step on
      bool fine = row.size() == columns.size();
      for (size_t i = 0; fine && i < numbers.size(); ++i) {
        const std::optional<double> number = number_in(row[i + 2]);
        fine = number.has_value();
        numbers[i] = number.value_or(0);
      }
      if (!fine || !(numbers[0] >= 0 && numbers[0] < 0x1p53)) {
        damaged.add(lines.number(), "must have a name and six numbers");
        continue;
      }
      if (variants.empty() || variants.back().first != row[0]) {
        const auto same = [&](const auto& variant) { return variant.first == row[0]; };
        const auto found = std::find_if(variants.begin(), variants.end(), same);
        // What is filled is the last one.
        if (found != variants.end()) {
          std::rotate(found, found + 1, variants.end());
        } else {
          variants.emplace_back(std::string(row[0]), std::map<uint64_t, Row>());
        }
      }
      Row& window = variants.back().second[static_cast<uint64_t>(numbers[0])];
      window.loss.push_back(numbers[1]);
      window.excess.push_back(numbers[2]);
      window.cancelled.push_back(numbers[3] > 0 ? numbers[4] / numbers[3] : 0);
    }
  } catch (const Error& error) {
    notes.emplace_back(error.message());
  }
  damaged.move_to(notes);
  for (const auto& [name, rows] : variants) {
    LeastSquaresRecord::Variant variant{name, {}, {}, {}, {}};
    for (const auto& [step, row] : rows) {
      variant.step.push_back(step);
      variant.loss.push_back(median(row.loss));
      variant.excess.push_back(median(row.excess));
      variant.cancelled.push_back(median(row.cancelled));
    }
    made.variants.push_back(std::move(variant));
  }
  return made;
}

}  // namespace ulp
