#include "ulp/report/metrics_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/lab/results.h"
#include "ulp/numeric/storage.h"
#include "ulp/report/line_reader.h"

namespace ulp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <typename T>
bool take_digits(std::string_view& text, T& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return true;
}

bool take_number(std::string_view& text, double& value) {
  if (text.starts_with('"')) {
    value = text.starts_with("\"nan\"") ? kNan : text.starts_with("\"inf\"") ? kInf : -kInf;
    return take(text, "\"nan\"") || take(text, "\"inf\"") || take(text, "\"-inf\"");
  }
  const size_t sign = text.starts_with('-') ? 1 : 0;
  return text.size() > sign && text[sign] >= '0' && text[sign] <= '9' && take_digits(text, value);
}

// A step exactly as training writes it. Nearly all lines are such ones, and this is ten times as
// fast as making an object of each. False for any other line, which says nothing about it.
bool quick_step(std::string_view text, StepPoint& point) {
  if (!take(text, "{\"event\":\"step\",\"step\":") || !take_digits(text, point.step)) return false;
  if (!take(text, ",\"loss\":") || !take_number(text, point.loss)) return false;
  if (!take(text, ",\"lr\":") || !take_number(text, point.lr)) return false;
  if (!take(text, ",\"scale\":") || !take_number(text, point.scale)) return false;
  if (!take(text, ",\"skipped\":")) return false;
  point.skipped = text.starts_with("true");
  if (!take(text, "true") && !take(text, "false")) return false;
  return take(text, ",\"cancelled\":") && take_number(text, point.cancelled) && text == "}";
}

class MetricsReader {
 public:
  MetricsReader(RunRecord& record, size_t budget) : record_(record), curve_(std::max<size_t>(budget, 2)) {}

  void read(const std::string& path, bool complete) {
    LineReader lines(path);
    LineNotes notes("metrics.jsonl");
    for (std::string_view line; lines.next(line);) {
      StepPoint point;
      if (quick_step(line, point)) {
        if (!add_step(point)) notes.add(lines.number(), "has a step that does not come after the last one");
        continue;
      }
      const std::optional<Json> object = lines.too_long() ? std::nullopt : object_on(line);
      if (!object && lines.torn()) {
        if (complete) notes.add(lines.number(), "is torn: the run ended while it was written");
        break;
      }
      if (!object) {
        notes.add(lines.number(), lines.too_long() ? "is longer than any that training writes"
                                                   : "is no JSON object, as every line of a run is");
        continue;
      }
      try {
        add_line(*object);
      } catch (const Json::exception&) {
        notes.add(lines.number(), "is none that training writes: a value is missing or of another type");
      } catch (const Error& error) {
        notes.add(lines.number(), fmt::format("is none that training writes: {}", error.message()));
      }
    }
    notes.move_to(record_.notes);
    record_.curve = curve_.take();
  }

  MetricsEnd end() const { return {losses_, done_}; }

 private:
  bool add_step(const StepPoint& point) {
    if (!curve_.add(point)) return false;
    record_.steps = point.step;
    record_.last_loss = point.loss;
    record_.skipped += point.skipped ? 1 : 0;
    ++losses_.steps;
    if (!std::isfinite(point.loss) && losses_.not_finite++ == 0) losses_.first = point.step;
    done_ = false;
    return true;
  }

  void add_line(const Json& line) {
    const std::string& event = line.at("event").get_ref<const std::string&>();
    if (event == "step") {
      StepPoint point;
      point.step = count_of(line, "step");
      point.loss = number_of(line, "loss");
      point.lr = number_of(line, "lr");
      point.scale = number_of(line, "scale");
      point.skipped = line.at("skipped").get<bool>();
      point.cancelled = number_of(line, "cancelled");
      if (!add_step(point)) fail("report", "its step does not come after the last one");
    } else if (event == "epoch") {
      add_epoch(line);
    } else if (event == "promote") {
      add_promotion(line);
    } else if (event == "diverged") {
      losses_.diverged = line.at("why").get<std::string>();
    } else if (event == "done") {
      done_ = true;
      record_.planned_peak_bytes = number_if_any(line, "planned_peak_bytes");
      note_peak(number_if_any(line, "peak_bytes"));
    }
  }

  void add_epoch(const Json& line) {
    const Score score = epoch_score(line);
    const uint64_t number = count_of(line, "epoch");
    const double train_loss = number_of(line, "train_loss"), test_loss = number_of(line, "test_loss");
    const double value = number_of(line, "test_" + score.name);
    const Number fp32 = number_if_any(line, "test_" + score.name + "_fp32");
    const Number train = number_if_any(line, "train_" + score.name), low = number_if_any(line, "low_ratio"),
                 peak = number_if_any(line, "peak_bytes"), seconds = number_if_any(line, "seconds"),
                 rate = number_if_any(line, "examples_per_second");
    std::vector<OtherValues> others = others_on(line, score.name);
    // Everything is read before anything is kept: columns must stay of one length.
    record_.score = score;
    EpochColumns& epochs = record_.epochs;
    epochs.epoch.push_back(number);
    epochs.step.push_back(record_.steps);
    epochs.train_loss.emplace_back(train_loss);
    epochs.test_loss.emplace_back(test_loss);
    epochs.train.push_back(train);
    epochs.test.emplace_back(value);
    epochs.test_fp32.push_back(fp32);
    epochs.low_ratio.push_back(low);
    epochs.peak_bytes.push_back(peak);
    epochs.seconds.push_back(seconds);
    epochs.examples_per_second.push_back(rate);
    for (OtherValues& one : others) keep(std::move(one));
    for (OtherMetric& one : epochs.others) {
      for (std::vector<Number>* column : {&one.train, &one.test, &one.test_fp32})
        column->resize(epochs.count());
    }
    // As the trainer chooses it.
    const bool lost = record_.last_loss && !std::isfinite(*record_.last_loss);
    const bool better =
        !record_.best || (score.higher_is_better ? value > *record_.best : value < *record_.best);
    if (!lost && std::isfinite(test_loss) && better) {
      record_.best = value;
      record_.best_fp32 = fp32 ? fp32 : Number(value);
      epochs.best = epochs.count() - 1;
    }
    if (seconds) record_.seconds = record_.seconds.value_or(0) + *seconds;
    note_peak(peak);
  }

  struct OtherValues {
    std::string name;
    Number train, test, test_fp32;
  };

  // What a line says of metrics other than the one that decides.
  static std::vector<OtherValues> others_on(const Json& line, std::string_view score) {
    constexpr std::string_view kFp32 = "_fp32";
    std::vector<OtherValues> found;
    for (const auto& [key, value] : line.items()) {
      std::string_view name = key;
      const bool test = take(name, "test_");
      if (!test && !take(name, "train_")) continue;
      // "test_x_fp32" is of x, unless there is no x.
      const bool fp32 =
          test && name.ends_with(kFp32) && line.contains(key.substr(0, key.size() - kFp32.size()));
      if (fp32) name.remove_suffix(kFp32.size());
      if (name == score || name == "loss") continue;
      auto of = std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.name == name; });
      if (of == found.end()) of = found.insert(found.end(), {std::string(name), {}, {}, {}});
      (fp32 ? of->test_fp32 : test ? of->test : of->train) = number_if_any(line, key);
    }
    return found;
  }

  // Of the epoch that was read last.
  void keep(OtherValues one) {
    std::vector<OtherMetric>& others = record_.epochs.others;
    auto of =
        std::find_if(others.begin(), others.end(), [&](const auto& known) { return known.name == one.name; });
    if (of == others.end()) {
      if (others.size() >= kMostMetrics) {
        if (!std::exchange(too_many_, true))
          record_.notes.push_back(
              fmt::format("metrics after the first {} are left out: there are too many", kMostMetrics + 1));
        return;
      }
      of = others.insert(others.end(), {std::move(one.name), {}, {}, {}});
    }
    const auto set = [&](std::vector<Number>& column, Number value) {
      column.resize(record_.epochs.count() - 1);
      column.push_back(value);
    };
    set(of->train, one.train);
    set(of->test, one.test);
    set(of->test_fp32, one.test_fp32);
  }

  void add_promotion(const Json& line) {
    PromoteEvent event;
    event.step = count_of(line, "step");
    event.tensor = line.at("tensor").get<std::string>();
    event.from = line.at("from").get<std::string>();
    event.to = line.at("to").get<std::string>();
    parse_storage(event.from);
    parse_storage(event.to);
    event.overflow_ratio = number_of(line, "overflow_ratio");
    if (!record_.promotions.empty() && event.step < record_.promotions.back().step)
      fail("report", "its step does not come after that of the last promotion");
    record_.promotions.push_back(std::move(event));
  }

  void note_peak(Number bytes) {
    if (bytes && (!record_.peak_bytes || *bytes > *record_.peak_bytes)) record_.peak_bytes = bytes;
  }

  RunRecord& record_;
  CurveMaker curve_;
  LossHistory losses_;
  bool done_ = false;
  bool too_many_ = false;  // metrics, which a note says
};

}  // namespace

double number_of(const Json& line, const std::string& key) {
  const auto found = line.find(key);
  if (found != line.end() && found->is_number()) return found->get<double>();
  if (found != line.end() && found->is_string()) {
    const std::string& text = found->get_ref<const std::string&>();
    if (text == "nan") return kNan;
    if (text == "inf") return kInf;
    if (text == "-inf") return -kInf;
  }
  fail("report", "needs \"{}\" with a number", key);
}

Number number_if_any(const Json& line, const std::string& key) {
  if (!line.contains(key) || line.at(key).is_null()) return {};
  return number_of(line, key);
}

MetricsEnd read_metrics(const std::string& path, size_t curve_budget, bool complete, RunRecord& record) {
  MetricsReader reader(record, curve_budget);
  try {
    reader.read(path, complete);
  } catch (const Error& error) {
    record.notes.emplace_back(error.message());
  }
  return reader.end();
}

}  // namespace ulp
