#include "ulp/report/histogram.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/report/line_reader.h"
#include "ulp/report/metrics_reader.h"

namespace ulp {
namespace {

// Exponents of fp32 and a few more: what S2FP8 makes of a tensor goes beyond.
constexpr size_t kMostCounts = 1024;
constexpr int64_t kFarthest = 1 << 20;

Kind kind_of(const std::string& name) {
  for (const Kind kind : {Kind::activation, Kind::activation_grad, Kind::weight, Kind::weight_grad}) {
    if (kind_name(kind) == name) return kind;
  }
  if (name == "activation gradient") return Kind::activation_grad;
  if (name == "weight gradient") return Kind::weight_grad;
  fail("report", "'{}' is no kind of tensor", name);
}

struct ShiftedPoint {
  std::string tensor;
  Kind kind = Kind::activation;
  double mu = 0, m = 0, alpha = 0, beta = 0;
};

// What is kept of some steps: all of it while there is room, then of every second step, of every
// fourth, ... and always of the last.
template <typename Item>
class EveryStep {
 public:
  EveryStep(size_t room, size_t most_steps) : room_(room), most_steps_(most_steps) {}

  // Steps do not go down.
  void add(uint64_t step, Item item, size_t size) {
    if (last_.items.empty() || last_.step != step) {
      keep_last();
      last_ = {step, ordinal_++, 0, {}};
    }
    // One step alone may be too much.
    if (last_.size + size > room_) return;
    last_.size += size;
    last_.items.push_back(std::move(item));
  }

  template <typename Use>
  void each(const Use& use) {
    thin(last_.size, last_.items.empty() ? 0 : 1);
    for (Step& step : steps_) {
      for (Item& item : step.items) use(step.step, item);
    }
    for (Item& item : last_.items) use(last_.step, item);
  }

 private:
  struct Step {
    uint64_t step = 0, ordinal = 0;
    size_t size = 0;
    std::vector<Item> items;
  };

  void keep_last() {
    if (last_.items.empty() || last_.ordinal % stride_ != 0) return;
    size_ += last_.size;
    steps_.push_back(std::move(last_));
    last_.items.clear();
    thin(0, 0);
  }
  void thin(size_t more, size_t steps) {
    while (!steps_.empty() && (size_ + more > room_ || steps_.size() + steps > most_steps_)) {
      stride_ *= 2;
      std::erase_if(steps_, [&](const Step& step) {
        const bool gone = step.ordinal % stride_ != 0 || (steps_.size() == 1 && size_ + more > room_);
        if (gone) size_ -= step.size;
        return gone;
      });
    }
  }

  const size_t room_, most_steps_;
  uint64_t ordinal_ = 0, stride_ = 1;
  size_t size_ = 0;  // of the steps, without the last
  std::vector<Step> steps_;
  Step last_;
};

HistogramRecord histogram_on(const Json& line) {
  HistogramRecord made;
  made.step = count_of(line, "step");
  made.tensor = line.at("tensor").get<std::string>();
  made.kind = kind_of(line.at("kind").get<std::string>());
  made.format = line.at("format").get<std::string>();
  made.of = line.at("of").get<std::string>();
  if (made.of != "x" && made.of != "y") fail("report", "needs \"of\" with \"x\" or \"y\"");
  const Json& lowest = line.at("lowest");
  if (!lowest.is_number_integer()) fail("report", "needs \"lowest\" with a whole number");
  made.lowest = lowest.get<int64_t>();
  // Beyond int64 it wraps around.
  const bool wraps = lowest.is_number_unsigned() && made.lowest < 0;
  if (wraps || made.lowest < -kFarthest || made.lowest > kFarthest)
    fail("report", "has an exponent that no number has");
  const Json& counts = line.at("counts");
  if (!counts.is_array() || counts.size() > kMostCounts)
    fail("report", "needs \"counts\" with at most {} numbers", kMostCounts);
  for (const Json& count : counts) {
    if (!count.is_number_unsigned()) fail("report", "has a count that is none");
    made.counts.push_back(count.get<uint64_t>());
  }
  made.zero = count_of(line, "zero");
  made.infinite = count_of(line, "infinite");
  made.nan = count_of(line, "nan");
  return made;
}

ShiftedPoint shifted_on(const Json& line) {
  ShiftedPoint made;
  made.tensor = line.at("tensor").get<std::string>();
  made.kind = kind_of(line.at("kind").get<std::string>());
  made.mu = number_of(line, "mu");
  made.m = number_of(line, "m");
  made.alpha = number_of(line, "alpha");
  made.beta = number_of(line, "beta");
  return made;
}

class HistogramReader {
 public:
  explicit HistogramReader(const HistogramBudget& budget)
      : histograms_(std::max<size_t>(budget.numbers, 1), SIZE_MAX),
        shifted_(std::max<size_t>(budget.points, 1), std::max<size_t>(budget.columns, 1)) {}

  void read(const std::string& path, bool complete, std::vector<std::string>& notes) {
    LineReader lines(path);
    LineNotes damaged("histograms.jsonl");
    for (std::string_view text; lines.next(text);) {
      const std::optional<Json> line = lines.too_long() ? std::nullopt : object_on(text);
      if (!line && lines.torn()) {
        if (complete) damaged.add(lines.number(), "is torn: the run ended while it was written");
        break;
      }
      try {
        if (!line) fail("report", "it is no JSON object");
        add(*line);
      } catch (const Json::exception&) {
        damaged.add(lines.number(), "is no histogram: a value is missing or of another type");
      } catch (const Error& error) {
        damaged.add(lines.number(), fmt::format("is no histogram: {}", error.message()));
      }
    }
    damaged.move_to(notes);
  }

  Histograms take() {
    Histograms made;
    histograms_.each([&](uint64_t, HistogramRecord& one) { made.histograms.push_back(std::move(one)); });
    std::map<std::string, size_t> places;
    shifted_.each([&](uint64_t step, const ShiftedPoint& point) {
      const auto [place, fresh] = places.emplace(point.tensor, made.shifted.size());
      if (fresh) made.shifted.push_back({point.tensor, point.kind, {}, {}, {}, {}, {}});
      ShiftedRecord& record = made.shifted[place->second];
      record.step.push_back(step);
      record.mu.push_back(point.mu);
      record.m.push_back(point.m);
      record.alpha.push_back(point.alpha);
      record.beta.push_back(point.beta);
    });
    return made;
  }

 private:
  void add(const Json& line) {
    const uint64_t step = count_of(line, "step");
    if (step < step_) fail("report", "its step comes before that of the line before it");
    if (line.contains("mu")) {
      shifted_.add(step, shifted_on(line), 1);
    } else {
      HistogramRecord made = histogram_on(line);
      const size_t size = made.counts.size() + 8;
      histograms_.add(step, std::move(made), size);
    }
    step_ = step;
  }

  EveryStep<HistogramRecord> histograms_;
  EveryStep<ShiftedPoint> shifted_;
  uint64_t step_ = 0;
};

}  // namespace

Histograms read_histograms(const std::string& path, const HistogramBudget& budget, bool complete,
                           std::vector<std::string>& notes) {
  HistogramReader reader(budget);
  try {
    reader.read(path, complete, notes);
  } catch (const Error& error) {
    notes.emplace_back(error.message());
  }
  return reader.take();
}

}  // namespace ulp
