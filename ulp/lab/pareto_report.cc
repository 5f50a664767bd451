#include "ulp/lab/pareto_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ulp/lab/chart.h"

namespace ulp {
namespace {

constexpr double kMebi = 0x1p20;
constexpr MemoryKind kKinds[] = {MemoryKind::aggregate, MemoryKind::peak};

const char* kind_text(MemoryKind kind) { return kind == MemoryKind::peak ? "planned peak" : "aggregate"; }

// The measure that a reader looks at: accuracy, not what it lacks.
double shown_measure(double cost, const Score& score) { return score.value(cost); }

std::string cost_text(double cost, const Score& score) { return score.text(shown_measure(cost, score)); }

// The name of the measure.
std::string measure_word(const ParetoResult& result) {
  return result.measure == Measure::gradient ? "error in the gradient" : result.score.word();
}

// The unit of differences of costs, if it has to be named.
std::string unit_text(const ParetoResult& result) {
  if (result.measure == Measure::gradient) return "";
  return fmt::format(", in {}{}", result.score.percent() ? "points of " : "", result.score.word());
}

// The condition that a level of the measure is.
std::string level_text(const ParetoResult& result) {
  return fmt::format("with at {} this {}", result.score.higher_is_better ? "least" : "most",
                     result.measure == Measure::gradient ? "error" : result.score.word());
}

std::string axis_text(const ParetoResult& result) {
  if (result.measure == Measure::gradient) return measure_word(result);
  return fmt::format("test {}{}", result.score.word(), result.score.percent() ? ", %" : "");
}

std::string low_text(uint32_t low, size_t groups) {
  std::string text;
  for (size_t i = 0; i < groups; ++i) text += low >> i & 1 ? '1' : '0';
  return text;
}

std::string group_list(uint32_t low, size_t groups) {
  std::vector<size_t> names;
  for (size_t i = 0; i < groups; ++i) {
    if (low >> i & 1) names.push_back(i);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, " "));
}

bool contains(const Path& path, uint32_t low) {
  return std::find(path.low.begin(), path.low.end(), low) != path.low.end();
}

struct Excess {
  double sum = 0, worst = 0, held_out = 0;
  size_t count = 0;
};

Excess excess_of(const ParetoResult& result, const Path& path, MemoryKind kind) {
  Excess excess;
  for (const uint32_t low : path.low) {
    const double here = excess_cost(result.choices, low, kind);
    excess.sum += here;
    excess.worst = std::max(excess.worst, here);
    excess.held_out += excess_cost_held_out(result.choices, low, kind);
    ++excess.count;
  }
  return excess;
}

std::string front_text(const ParetoResult& result, MemoryKind kind) {
  constexpr size_t kShown = 24;
  const std::vector<size_t> front = pareto_front(result.choices, kind);
  std::string text =
      fmt::format("\nthe front of {} and {}: {} of {} choices\n{:>12}  {:>10}  {}\n", kind_text(kind),
                  measure_word(result), front.size(), result.choices.size(), "MiB", "measure", "low groups");
  // Evenly picked where there are many, both ends among them.
  const size_t lines = std::min(kShown, front.size());
  for (size_t i = 0; i < lines; ++i) {
    const size_t at = lines < 2 ? 0 : i * (front.size() - 1) / (lines - 1);
    const Choice& choice = result.choices[front[at]];
    text +=
        fmt::format("{:>12.3f}  {:>10}  {}\n", memory_of(choice, kind) / kMebi,
                    cost_text(choice.cost(), result.score), group_list(choice.low, result.elements.size()));
  }
  return text;
}

std::string excess_table(const ParetoResult& result, std::span<const Path> paths, MemoryKind kind) {
  std::string text =
      fmt::format("\nbehind the best choice of no more {}{}\n{:<14}{:>9}{:>10}{:>10}{:>12}\n",
                  kind_text(kind), unit_text(result), "order", "choices", "mean", "worst", "held out");
  for (const Path& path : paths) {
    const Excess excess = excess_of(result, path, kind);
    const auto count = static_cast<double>(std::max(excess.count, size_t{1}));
    text += fmt::format("{:<14}{:>9}{:>10}{:>10}{:>12}\n", path.name, excess.count,
                        result.score.number(excess.sum / count), result.score.number(excess.worst),
                        result.score.number(excess.held_out / count));
  }
  return text;
}

// Costs between the best and the worst of the front, evenly spread by choice.
std::vector<double> levels(const ParetoResult& result, MemoryKind kind) {
  constexpr size_t kLevels = 5;
  const std::vector<size_t> front = pareto_front(result.choices, kind);
  std::vector<double> costs;
  if (front.empty()) return costs;
  for (size_t i = 1; i <= kLevels; ++i) {
    const double cost = result.choices[front[(front.size() - 1) * i / (kLevels + 1)]].cost();
    if (costs.empty() || cost < costs.back()) costs.push_back(cost);
  }
  return costs;
}

std::string memory_table(const ParetoResult& result, std::span<const Path> paths, MemoryKind kind) {
  const std::vector<double> costs = levels(result, kind);
  std::string text =
      fmt::format("\nleast {} in MiB {}\n{:<14}", kind_text(kind), level_text(result), "order");
  for (const double cost : costs) text += fmt::format("{:>12}", cost_text(cost, result.score));
  const auto line = [&](const std::string& name, const Path& path) {
    text += fmt::format("\n{:<14}", name);
    for (const double cost : costs) {
      text += fmt::format("{:>12.3f}", least_memory(result.choices, path, kind, cost) / kMebi);
    }
  };
  Path all{"", {}};
  for (const Choice& choice : result.choices) all.low.push_back(choice.low);
  line("best possible", all);
  for (const Path& path : paths) line(path.name, path);
  return text + "\n";
}

// To fit in a number of bytes each way of choosing demotes what it has to: its measure there, and
// how many groups are low.
std::string budget_table(const ParetoResult& result, std::span<const Path> paths) {
  const auto peak =
      std::find_if(paths.begin(), paths.end(), [](const Path& path) { return path.name == "peak"; });
  if (peak == paths.end() || peak->low.empty()) return "";
  std::string text = fmt::format(
      "\nmeasure where a step first fits in so many MiB of planned peak, and how many groups are low\n{:<14}",
      "order");
  for (const uint32_t low : peak->low) {
    text += fmt::format("{:>14.3f}", memory_of(result.choices[low], MemoryKind::peak) / kMebi);
  }
  const auto cell = [&](const Choice* choice) {
    text += fmt::format("{:>14}", choice == nullptr
                                      ? "-"
                                      : fmt::format("{} ({})", cost_text(choice->cost(), result.score),
                                                    std::popcount(choice->low)));
  };
  text += fmt::format("\n{:<14}", "best possible");
  for (const uint32_t budget : peak->low) {
    const Choice* best = nullptr;
    for (const Choice& choice : result.choices) {
      if (choice.peak_bytes > result.choices[budget].peak_bytes) continue;
      if (best == nullptr || choice.cost() < best->cost()) best = &choice;
    }
    cell(best);
  }
  for (const Path& path : paths) {
    text += fmt::format("\n{:<14}", path.name);
    for (const uint32_t budget : peak->low) {
      const auto fits = [&](uint32_t low) {
        return result.choices[low].peak_bytes <= result.choices[budget].peak_bytes;
      };
      const auto first = std::find_if(path.low.begin(), path.low.end(), fits);
      const Choice& all = result.choices.back();
      cell(first != path.low.end() ? &result.choices[*first] : fits(all.low) ? &all : nullptr);
    }
  }
  return text + "\n";
}

}  // namespace

std::string choices_csv(const ParetoResult& result, std::span<const Path> paths) {
  const std::string name = result.score.word();
  std::string text = "low,aggregate_bits,low_ratio,peak_bytes";
  for (size_t i = 0; i < result.choices[0].costs.size(); ++i) text += fmt::format(",{}_{}", name, i);
  text += fmt::format(",{}_mean,front_aggregate,front_peak,paths\n", name);
  std::vector<std::vector<size_t>> fronts;
  for (const MemoryKind kind : kKinds) fronts.push_back(pareto_front(result.choices, kind));
  for (size_t i = 0; i < result.choices.size(); ++i) {
    const Choice& choice = result.choices[i];
    text += fmt::format("{},{},{:.6f},{}", low_text(choice.low, result.elements.size()),
                        choice.aggregate_bits, choice.low_ratio, choice.peak_bytes);
    for (const double cost : choice.costs) text += fmt::format(",{:.6g}", shown_measure(cost, result.score));
    text += fmt::format(",{:.6g}", shown_measure(choice.cost(), result.score));
    for (const auto& front : fronts) {
      text += std::find(front.begin(), front.end(), i) == front.end() ? ",0" : ",1";
    }
    std::vector<std::string_view> through;
    for (const Path& path : paths) {
      if (contains(path, choice.low)) through.push_back(path.name);
    }
    text += fmt::format(",{}\n", fmt::join(through, " + "));
  }
  return text;
}

std::string choices_svg(const ParetoResult& result, std::span<const Path> paths) {
  const auto color = [](const std::string& name) -> std::string {
    if (name == "size") return "#d55e00";
    if (name == "size-inc") return "#0072b2";
    if (name == "sensitivity") return "#009e73";
    if (name == "peak") return "#cc79a7";
    return "#e0b040";
  };
  std::vector<Panel> panels;
  for (const MemoryKind kind : kKinds) {
    const auto point = [&](const Choice& choice) {
      const double shown = shown_measure(choice.cost(), result.score);
      return std::pair(memory_of(choice, kind) / kMebi, result.score.percent() ? 100 * shown : shown);
    };
    Panel panel;
    panel.title = kind == MemoryKind::peak ? "planned peak of a step" : "aggregate of all tensors";
    panel.x_label = "MiB";
    panel.y_label = axis_text(result);
    panel.log_y = result.measure == Measure::gradient;
    Series all{"all choices", "#c8c8c8", {}, false, result.choices.size() > 200 ? 3.0 : 6.0};
    for (const Choice& choice : result.choices) all.points.push_back(point(choice));
    panel.series.push_back(std::move(all));
    // Chance lies under what is looked at. Where ways agree, the later one's dots are the smaller.
    for (const std::string_view shown : {"random", "peak", "size-inc", "sensitivity", "size"}) {
      for (const Path& path : paths) {
        const bool random = path.name.starts_with("random");
        if (random ? shown != "random" : shown != path.name) continue;
        const double dot = shown == "peak" ? 10 : shown == "size" || random ? 5 : 7;
        Series series{std::string(shown), color(path.name), {}, !random, dot};
        for (const uint32_t low : path.low) series.points.push_back(point(result.choices[low]));
        panel.series.push_back(std::move(series));
      }
    }
    // Stairs: with a little more memory than one has, the next is not there yet.
    Series stairs{"front", "#000000", {}, true, 0}, steps{"", "#000000", {}, false, 3.5};
    for (const size_t i : pareto_front(result.choices, kind)) {
      const auto here = point(result.choices[i]);
      if (!steps.points.empty()) stairs.points.emplace_back(here.first, steps.points.back().second);
      stairs.points.push_back(here);
      steps.points.push_back(here);
    }
    panel.series.push_back(std::move(stairs));
    panel.series.push_back(std::move(steps));
    panels.push_back(std::move(panel));
  }
  return svg_chart(panels);
}

std::string summary_text(const ParetoResult& result, std::span<const Path> paths) {
  const size_t seeds = result.choices[0].costs.size();
  std::string text = fmt::format("{} choices of {} groups, {} seed{} each", result.choices.size(),
                                 result.elements.size(), seeds, seeds == 1 ? "" : "s");
  if (seeds > 1) {
    const double spread = spread_of_seeds(result.choices);
    text += fmt::format("; standard deviation between seeds {}, of a mean {}", result.score.number(spread),
                        result.score.number(spread / std::sqrt(static_cast<double>(seeds))));
  }
  text += fmt::format("\nno group low {}, all groups low {}\n",
                      cost_text(result.choices.front().cost(), result.score),
                      cost_text(result.choices.back().cost(), result.score));
  for (const Path& path : paths) {
    std::vector<std::string> steps;
    uint32_t before = 0;
    for (const uint32_t low : path.low) {
      // Groups that this step made low, and groups that it made high again.
      const uint32_t more = low & ~before, less = before & ~low;
      steps.push_back(
          fmt::format("{}{}", group_list(more, result.elements.size()),
                      less == 0 ? "" : fmt::format(" (not {})", group_list(less, result.elements.size()))));
      before = low;
    }
    text += fmt::format("  {:<12} {}\n", path.name, fmt::join(steps, ", "));
  }
  for (const MemoryKind kind : kKinds) {
    text += front_text(result, kind);
    text += excess_table(result, paths, kind);
    text += memory_table(result, paths, kind);
  }
  return text + budget_table(result, paths);
}

}  // namespace ulp
