#include "ulp/lab/results.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "ulp/base/error.h"

namespace ulp {
namespace {

void add_epoch(RunResult& result, const Json& line) {
  const Score score = epoch_score(line);
  result.metric = score.name;
  result.higher_is_better = score.higher_is_better;
  result.share = score.share;
  const std::string key = "test_" + result.metric, fp32 = key + "_fp32";
  const double value = metric_number(line, key), loss = metric_number(line, "train_loss");
  ++result.epochs;
  // Chooses the best epoch as the trainer does.
  const bool counts = !result.lost && std::isfinite(metric_number(line, "test_loss"));
  const bool better = result.higher_is_better ? value > result.best : value < result.best;
  if (counts && (better || std::isnan(result.best))) {
    result.best = value;
    result.best_fp32 = line.contains(fp32) ? metric_number(line, fp32) : value;
  }
  result.train_loss = loss;
  result.low_ratio +=
      (metric_number(line, "low_ratio") - result.low_ratio) / static_cast<double>(result.epochs);
  result.peak_bytes = std::max(result.peak_bytes, size_t{count_of(line, "peak_bytes")});
  result.seconds += metric_number(line, "seconds");
  if (!std::isfinite(loss) || !std::isfinite(metric_number(line, "test_loss"))) result.diverged = true;
}

void add_line(RunResult& result, const Json& line) {
  const std::string& event = line.at("event").get_ref<const std::string&>();
  if (event == "step") {
    ++result.steps;
    result.skipped += line.at("skipped").get<bool>() ? 1 : 0;
    result.lost = !std::isfinite(metric_number(line, "loss"));
    result.diverged = result.diverged || result.lost;
  } else if (event == "epoch") {
    add_epoch(result, line);
  } else if (event == "diverged") {
    result.diverged = true;
    result.why = line.at("why").get<std::string>();
  } else if (event == "promote") {
    ++result.promotions;
  } else if (event == "done") {
    result.done = true;
    result.peak_bytes = std::max(result.peak_bytes, size_t{count_of(line, "peak_bytes")});
  }
}

}  // namespace

double metric_number(const Json& line, const std::string& key) {
  const Json& value = line.at(key);
  if (value.is_number()) return value.get<double>();
  const std::string& text = value.get_ref<const std::string&>();
  const double inf = std::numeric_limits<double>::infinity();
  return text == "inf" ? inf : text == "-inf" ? -inf : std::numeric_limits<double>::quiet_NaN();
}

Score epoch_score(const Json& line) {
  const std::string name = line.value("metric", std::string(kUnnamedMetric));
  return {name, line.value("higher_is_better", true), line.value("share", name == kUnnamedMetric)};
}

RunResult parse_result(std::string_view text, const std::string& path) {
  RunResult result;
  size_t count = 1;
  for (std::string_view left = text; !left.empty(); ++count) {
    const size_t end = left.find('\n');
    if (end == left.npos) break;  // torn, or being written
    const auto damaged = [&] {
      fail("metrics", "line {} of {} is none that training writes: remove the run", count, path);
    };
    try {
      add_line(result, parse_json(left.substr(0, end)));
    } catch (const Json::exception&) {
      damaged();
    } catch (const Error&) {
      damaged();
    }
    left.remove_prefix(end + 1);
  }
  return result;
}

RunResult read_result(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  std::ifstream in(path, std::ios::binary);
  return parse_result(std::string(std::istreambuf_iterator<char>(in), {}), path);
}

}  // namespace ulp
