#include "ulp/lab/update_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/io/safetensors.h"
#include "ulp/lab/chart.h"
#include "ulp/lab/results.h"
#include "ulp/lab/table.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

// Bytes of a weight. They are counted over many weights, so that bytes that a block or a word shares
// are divided.
double bytes_of(const UpdateOptions& updates, const Storage& weight) {
  constexpr size_t kMany = 1 << 20;
  const auto each = [](const Storage& storage) {
    return static_cast<double>(storage_size(storage, kMany).bytes()) / static_cast<double>(kMany);
  };
  return each(stored_weight(updates.rule, weight)) + (updates.rule.compensated() ? each(weight) : 0);
}

// Rules of one kind share a series.
std::string family(const UpdateCost& cost) {
  const std::string rule = cost.rule.starts_with("extra") ? "extra:N" : cost.rule;
  std::string text = cost.rule == "master" ? "fp32 weights" : fmt::format("{}, {}", cost.weight, rule);
  for (const auto& [name, value] : cost.settings) text += fmt::format(", {} {}", name, value);
  return text;
}

// All options but the seed and those that a cost has columns of. Threads are left out too: no cost
// depends on them, though with others oneDNN may add up a product in another order.
UpdateSettings settings_of(const RunConfig& config) {
  constexpr std::string_view kShown[] = {"policy", "update", "weight", "seed"};
  UpdateSettings settings;
  for (const ConfigField& field : config_fields()) {
    if (!decides_bits(field) ||
        std::find(std::begin(kShown), std::end(kShown), field.name) != std::end(kShown))
      continue;
    // Epochs or steps end a run, and only one of the two counts.
    const bool overruled = field.name == (config.steps > 0 ? "epochs" : "steps");
    settings.emplace_back(field.name, overruled ? "" : field.get(config));
  }
  settings.emplace_back("data_dir", config.data_dir);
  settings.emplace_back("data_digest", "");
  return settings;
}

// The digest of a run's data, "text 0123abcd", from its last checkpoint; "" if that has none. The text of a
// checkpoint has the options first, then the data, then the formats.
std::string data_digest(const std::string& folder, const RunConfig& config) {
  constexpr size_t kDigits = 8;
  std::string run;
  try {
    const TensorFile file(folder + "/last.safetensors");
    const auto found = file.metadata().find("run");
    if (found != file.metadata().end()) run = found->second;
  } catch (const Error&) {
    return "";  // it is gone or damaged
  }
  const std::string options = run_text(config);
  if (!run.starts_with(options)) return "";
  std::string last = run.substr(options.size());
  last.resize(std::min(last.find("; formats "), last.size()));
  const size_t begin = last.rfind("; ");
  if (begin == last.npos) return "";
  last.erase(0, begin + 2);
  const size_t space = last.rfind(' ');
  const bool is_digest = space != last.npos && last.size() - space - 1 == kDigits &&
                         last.find_first_not_of("0123456789abcdef", space + 1) == last.npos;
  return is_digest ? last : "";
}

void set_digest(UpdateSettings& settings, const std::string& digest) {
  if (digest.empty()) return;
  for (auto& [name, value] : settings) {
    if (name == "data_dir") value.clear();
    if (name == "data_digest") value = digest;
  }
}

void refuse_one_seed_twice(std::span<const UpdateRun* const> runs) {
  std::map<uint64_t, const UpdateRun*> by_seed;
  for (const UpdateRun* run : runs) {
    const auto [same, is_new] = by_seed.try_emplace(run->seed, run);
    if (is_new) continue;
    fail("lab", "{} and {} are runs of seed {} that differ in nothing but threads: remove one of them",
         same->second->path, run->path, run->seed);
  }
}

// The settings in which not all runs are alike, by place.
std::vector<size_t> differing(std::span<const UpdateRun> runs) {
  std::vector<size_t> places;
  for (size_t i = 0; !runs.empty() && i < runs.front().settings.size(); ++i) {
    const auto differs = [&](const UpdateRun& run) { return run.settings[i] != runs.front().settings[i]; };
    if (std::any_of(runs.begin(), runs.end(), differs)) places.push_back(i);
  }
  return places;
}

// All have one.
Score score_of(std::span<const UpdateCost> costs) { return costs.empty() ? Score{} : costs.front().score; }

constexpr const char* kColors[] = {"#444444", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e",
                                   "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f", "#aec7e8"};

}  // namespace

bool read_update_run(const RunConfig& given, std::string_view metrics, const std::string& path,
                     UpdateRun& run) {
  const RunConfig config = with_shortest_names(given);
  const UpdateOptions updates = update_options(config);
  // Each weight its own format: there is no one figure for them.
  if (updates.weight.assigned || !updates.groups.empty()) return false;
  run = {config.policy, storage_name(updates.weight.format), update_rule_text(updates.rule), config.seed};
  run.bytes = bytes_of(updates, updates.weight.format);
  run.settings = settings_of(config);
  run.path = path;
  bool done = false;
  double sum = 0;
  size_t steps = 0;
  for (size_t line = 1; !metrics.empty(); ++line) {
    const size_t end = metrics.find('\n');
    if (end == metrics.npos) break;  // being written
    const auto damaged = [&] { fail("lab", "line {} of {} is none that training writes", line, path); };
    try {
      const Json entry = parse_json(metrics.substr(0, end));
      const std::string event = entry.at("event").get<std::string>();
      if (event == "step") {
        sum += entry.at("cancelled").get<double>();
        ++steps;
      } else if (event == "epoch") {
        run.score = epoch_score(entry);
        run.reached = metric_number(entry, "test_" + run.score.name);
        run.train_loss = entry.at("train_loss").is_number() ? entry.at("train_loss").get<double>()
                                                            : std::numeric_limits<double>::quiet_NaN();
        run.cancelled.push_back(steps == 0 ? 0 : sum / static_cast<double>(steps));
        sum = 0;
        steps = 0;
      }
      if (event == "diverged") run.reached = run.train_loss = std::numeric_limits<double>::quiet_NaN();
      done = done || event == "done" || event == "diverged";
    } catch (const Json::exception&) {
      damaged();
    } catch (const Error&) {
      damaged();
    }
    metrics.remove_prefix(end + 1);
  }
  return done;
}

std::vector<UpdateRun> find_update_runs(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail("lab", "there is no folder {}", folder);
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "metrics.jsonl") found.push_back(entry.path().parent_path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<UpdateRun> runs;
  for (const std::string& run : found) {
    const std::string path = run + "/metrics.jsonl";
    std::ifstream in(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    UpdateRun made;
    const RunConfig config = load_config(run + "/config.toml");
    if (!read_update_run(config, text, path, made)) continue;
    set_digest(made.settings, data_digest(run, config));
    made.path = run;
    runs.push_back(std::move(made));
  }
  if (runs.empty()) fail("lab", "{} holds no finished run: make some with ulp sweep", folder);
  return runs;
}

std::vector<UpdateCost> update_costs(std::span<const UpdateRun> runs) {
  for (const UpdateRun& run : runs) {
    if (run.score == runs.front().score) continue;
    fail("lab", "the runs have different metrics, {} and {}: name a folder with runs of one task",
         runs.front().score.name, run.score.name);
  }
  std::map<std::tuple<std::string, std::string, double, std::string, UpdateSettings>,
           std::vector<const UpdateRun*>>
      alike;
  for (const UpdateRun& run : runs)
    alike[{run.policy, run.weight, run.bytes, run.rule, run.settings}].push_back(&run);
  const std::vector<size_t> shown = differing(runs);
  std::vector<UpdateCost> costs;
  for (const auto& [key, members] : alike) {
    refuse_one_seed_twice(members);
    const UpdateRun& first = *members.front();
    UpdateCost cost{first.policy, first.weight, first.rule, first.score, members.size(), first.bytes};
    cost.least = std::numeric_limits<double>::infinity();
    cost.most = -cost.least;
    const auto count = static_cast<double>(members.size());
    cost.cancelled.resize(first.cancelled.size());
    for (const UpdateRun* run : members) {
      cost.reached += run->reached / count;
      cost.least = std::min(cost.least, run->reached);
      cost.most = std::max(cost.most, run->reached);
      cost.train_loss += run->train_loss / count;
      cost.cancelled.resize(std::min(cost.cancelled.size(), run->cancelled.size()));
      for (size_t i = 0; i < cost.cancelled.size(); ++i) cost.cancelled[i] += run->cancelled[i] / count;
    }
    for (const size_t place : shown) cost.settings.push_back(first.settings[place]);
    if (std::isnan(cost.reached)) cost.least = cost.most = cost.reached;
    costs.push_back(std::move(cost));
  }
  return costs;
}

namespace {

// After the policy, the weights and the rule.
constexpr ptrdiff_t kSettings = 3;

void add_columns(TextTable& table, std::span<const UpdateCost> costs) {
  if (costs.empty()) return;
  ptrdiff_t at = kSettings;
  for (const auto& [name, value] : costs.front().settings)
    table.columns.insert(table.columns.begin() + at++, {name, true});
}

void add_settings(std::vector<std::string>& row, const UpdateCost& cost) {
  ptrdiff_t at = kSettings;
  for (const auto& [name, value] : cost.settings) row.insert(row.begin() + at++, value);
}

}  // namespace

std::string update_costs_markdown(std::span<const UpdateCost> costs) {
  const Score score = score_of(costs);
  TextTable table;
  table.columns = {{"policy", true},  {"weights", true},
                   {"rule", true},    {"bytes of a weight"},
                   {"seeds"},         {fmt::format("test {}{}", score.word(), score.percent() ? " %" : "")},
                   {"training loss"}, {"cancelled %: first epoch"},
                   {"last epoch"}};
  add_columns(table, costs);
  for (const UpdateCost& cost : costs) {
    const auto share = [](double x) { return fmt::format("{:.1f}", 100 * x); };
    table.rows.push_back(
        {cost.policy, cost.weight, cost.rule, fmt::format("{:.3g}", cost.bytes), std::to_string(cost.seeds),
         fmt::format("{} ({}..{})", score.number(cost.reached), score.number(cost.least),
                     score.number(cost.most)),
         fmt::format("{:.4f}", cost.train_loss), cost.cancelled.empty() ? "" : share(cost.cancelled.front()),
         cost.cancelled.empty() ? "" : share(cost.cancelled.back())});
    add_settings(table.rows.back(), cost);
  }
  return table.markdown();
}

std::string update_costs_csv(std::span<const UpdateCost> costs) {
  TextTable table;
  table.columns = {{"policy"}, {"weight"}, {"update"},    {"bytes"}, {"seeds"}, {score_of(costs).word()},
                   {"least"},  {"most"},   {"train_loss"}};
  size_t epochs = 0;
  for (const UpdateCost& cost : costs) epochs = std::max(epochs, cost.cancelled.size());
  for (size_t i = 0; i < epochs; ++i) table.columns.push_back({fmt::format("cancelled_{}", i + 1)});
  add_columns(table, costs);
  for (const UpdateCost& cost : costs) {
    std::vector<std::string> row = {cost.policy, cost.weight, cost.rule};
    row.push_back(fmt::format("{}", cost.bytes));
    row.push_back(std::to_string(cost.seeds));
    for (const double x : {cost.reached, cost.least, cost.most, cost.train_loss})
      row.push_back(fmt::format("{}", x));
    for (size_t i = 0; i < epochs; ++i)
      row.push_back(i < cost.cancelled.size() ? fmt::format("{}", cost.cancelled[i]) : "");
    add_settings(row, cost);
    table.rows.push_back(std::move(row));
  }
  return table.csv();
}

std::string update_costs_svg(std::span<const UpdateCost> costs) {
  Panel loss{"What a rule is worth",
             "bytes of a weight, optimizer state not counted",
             "training loss at the end",
             {}};
  Panel lost{"What it loses", "epoch", "share of updates cancelled", {}};
  // A rule that fails altogether would leave no room for the differences between the others.
  constexpr double kWorst = 1.35;
  double least = std::numeric_limits<double>::infinity();
  for (const UpdateCost& cost : costs) least = std::min(least, cost.train_loss);
  std::map<std::string, Series> by_family;
  size_t left_out = 0;
  for (const UpdateCost& cost : costs) {
    const std::string name = family(cost);
    Series& series = by_family[name];
    series.name = name;
    if (cost.train_loss <= kWorst * least) {
      series.points.emplace_back(cost.bytes, cost.train_loss);
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) loss.title += fmt::format(" ({} above {} times the least left out)", left_out, kWorst);
  size_t next = 0;
  for (auto& [name, series] : by_family) {
    series.color = kColors[next++ % std::size(kColors)];
    std::sort(series.points.begin(), series.points.end());
    series.line = series.points.size() > 1 && name != "fp32 weights";
    loss.series.push_back(series);
  }
  for (const UpdateCost& cost : costs) {
    // Extra bits differ too much for one line, and would be many.
    if (cost.rule.starts_with("extra") || cost.rule == "master") continue;
    Series line{family(cost), by_family[family(cost)].color, {}, true, 4, false};
    for (size_t i = 0; i < cost.cancelled.size(); ++i)
      line.points.emplace_back(static_cast<double>(i + 1), cost.cancelled[i]);
    lost.series.push_back(std::move(line));
  }
  const Panel panels[] = {std::move(loss), std::move(lost)};
  return svg_chart(panels);
}

}  // namespace ulp
