#include "apps/ulp/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "apps/ulp/text.h"
#include "ulp/doctor/checkup.h"

namespace ulp {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 10;
constexpr uint64_t kPlainLinesAnEpoch = 10;
constexpr size_t kBarWidth = 10;
constexpr size_t kUsualColumns = 80;
// What a forward pass takes of a step; each example of the test set has one, or two where formats are
// narrow.
constexpr double kForwardShare = 1.0 / 3;
constexpr double kLeastHorizon = 20;  // steps; an epoch may have one

size_t terminal_columns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

// Whether all was written.
bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;  // a reader who is slow, not gone: this text is lost
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string size_text(size_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string rate_text(double examples_per_second) {
  if (!(examples_per_second >= 0 && std::isfinite(examples_per_second))) return "? ex/s";
  return examples_per_second < 100 ? fmt::format("{:.1f} ex/s", examples_per_second)
                                   : fmt::format("{:.0f} ex/s", examples_per_second);
}

// A column of the epochs' lines: wide enough for its title and its values.
struct Column {
  std::string title, value;
};

std::vector<Column> epoch_columns(const EpochReport& r) {
  std::vector<Column> columns = {{"train loss", loss_text(r.train_loss)}};
  const auto add = [&columns](std::string_view part, std::span<const MetricValue> metrics) {
    for (const MetricValue& metric : metrics)
      columns.push_back({fmt::format("{} {}", part, metric.name), metric_text(metric)});
  };
  add("train", r.train);
  columns.push_back({"test loss", loss_text(r.test_loss)});
  add("test", r.test);
  if (r.narrow) add("fp32", r.test_fp32);
  columns.push_back({"time", duration_text(r.seconds)});
  columns.push_back({"speed", rate_text(r.examples_per_second)});
  return columns;
}

// Of a part of these widths, whatever the number of epochs.
constexpr size_t kEpochWidth = 9, kLeastWidth = 7, kSpeedWidth = 10;

std::string column_text(const Column& column, std::string_view text) {
  const size_t least = column.title == "speed" ? kSpeedWidth : kLeastWidth;
  return fmt::format("  {:>{}}", text, std::max(column.title.size(), least));
}

std::string metrics_text(std::span<const MetricValue> metrics) {
  std::string text;
  for (const MetricValue& metric : metrics) text += fmt::format("  {} {}", metric.name, metric_text(metric));
  return text;
}

}  // namespace

ProgressOutput standard_output() {
  std::signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);  // what was printed before comes first
  const char* const terminal = std::getenv("TERM");
  ProgressOutput output;
  output.live = isatty(STDOUT_FILENO) == 1 && std::string_view(terminal ? terminal : "") != "dumb";
  output.columns = terminal_columns;
  output.write = [open = true](std::string_view text) mutable { open = open && write_all(text); };
  output.seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  return output;
}

void TimeLeft::step(double seconds, uint64_t step) {
  if (began_ && step > step_) {
    const auto steps = static_cast<double>(step - step_);
    const double keep = std::exp(-steps / horizon_);
    sum_ = sum_ * keep + (1 - keep) * (seconds - std::max(seconds_, ended_)) / steps;
    weight_ = weight_ * keep + (1 - keep);
  }
  began_ = true;
  seconds_ = seconds;
  step_ = step;
  share_ = 0;
}

void TimeLeft::evaluation(double seconds, double share) {
  if (!began_ || !(share > 0)) return;
  share_ = std::min(share, 1.0);
  evaluation_ = (seconds - seconds_) / share_;
  if (share_ == 1) ended_ = seconds;
}

double TimeLeft::left(uint64_t steps, uint64_t evaluations) const {
  const double step = sum_ / weight_, evaluation = evaluation_ < 0 ? evaluation_steps_ * step : evaluation_;
  const double pauses = static_cast<double>(evaluations) - share_;
  return (steps == 0 ? 0 : static_cast<double>(steps) * step) + (pauses > 0 ? pauses * evaluation : 0);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "nan";  // whose sign fmt would show
  return std::abs(loss) < 1e4 ? fmt::format("{:.4f}", loss) : fmt::format("{:.3g}", loss);
}

std::string share_text(double share) {
  return std::isnan(share) ? "nan" : fmt::format("{:.2f}%", 100 * share);
}

std::string metric_text(const MetricValue& metric) {
  return metric.share ? share_text(metric.value) : loss_text(metric.value);
}

std::string metric_title(const std::string& name) { return name == "acc" ? "accuracy" : name; }

std::string bar_text(uint64_t part, uint64_t whole, size_t width) {
  const double share =
      whole == 0 ? 0 : static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(width - filled, '.'));
}

std::string clip_text(std::string line, size_t columns) {
  if (line.size() <= columns) return line;
  const size_t gap = line.rfind("  ", columns);
  line.resize(gap == std::string::npos || gap == 0 ? columns : gap);
  return line;
}

uint64_t epoch_count(uint64_t total_steps, uint64_t steps_per_epoch) {
  return steps_per_epoch == 0 ? 0 : total_steps / steps_per_epoch + (total_steps % steps_per_epoch != 0);
}

std::string start_text(const StartReport& r) {
  std::string text = fmt::format("{} on {}: {} parameters, {} training and {} test examples\n", r.model,
                                 r.data, r.parameters, r.train_examples, r.test_examples);
  text += fmt::format("{} steps, {} an epoch, on {} {}{}\n", r.total_steps, r.steps_per_epoch, r.threads,
                      r.threads == 1 ? "thread" : "threads", r.out.empty() ? "" : "; written to " + r.out);
  if (r.first_step > 0) text += fmt::format("resumed after step {}\n", r.first_step);
  const auto row = [&](std::string_view name, size_t bytes) {
    text += fmt::format("  {:<16}{:>10}\n", name, size_text(bytes));
  };
  text += fmt::format("planned memory, with {:.2f} bytes of weight and state a parameter\n",
                      r.state_bytes_per_parameter);
  row("weights", r.bytes.weights);
  row("optimizer state", r.bytes.optimizer);
  row("activations", r.bytes.activations);
  row("gradients", r.bytes.gradients);
  row("workspace", r.bytes.workspace);
  if (r.bytes.snapshot > 0) row("snapshot", r.bytes.snapshot);
  row("total", r.bytes.total());
  text.pop_back();
  return text;
}

uint64_t epoch_steps(uint64_t epoch, uint64_t total_steps, uint64_t steps_per_epoch) {
  const uint64_t before = (std::max<uint64_t>(epoch, 1) - 1) * steps_per_epoch;
  return std::min(steps_per_epoch, total_steps - std::min(before, total_steps));
}

std::string step_text(const StepReport& r, double seconds_left, bool with_bar) {
  const uint64_t steps = epoch_steps(r.epoch, r.total_steps, r.steps_per_epoch);
  const std::string bar = with_bar ? bar_text(r.step_in_epoch, steps, kBarWidth) : "step";
  // What is least missed stands last: a narrow terminal has no room for it.
  return fmt::format("epoch {}/{}  {} {:>{}}/{}  {}  loss {}{}  left {}  mem {}", r.epoch,
                     epoch_count(r.total_steps, r.steps_per_epoch), bar, r.step_in_epoch,
                     std::to_string(steps).size(), steps, rate_text(r.examples_per_second),
                     loss_text(r.epoch_loss), metrics_text(r.epoch_metrics), duration_text(seconds_left),
                     size_text(r.memory_bytes));
}

std::string epoch_heading(const EpochReport& r, int64_t every) {
  const std::string metric = r.test.empty() ? "result" : metric_title(r.test.front().name);
  const std::string steps = every > 1    ? fmt::format(" and every {} steps", every)
                            : every == 1 ? " and every step"
                                         : "";
  std::string text = fmt::format(
      "after each epoch{} last.safetensors is saved; * is the best test {} so far, saved as "
      "best.safetensors\n{:>{}}",
      steps, metric, "epoch", kEpochWidth);
  for (const Column& column : epoch_columns(r)) text += column_text(column, column.title);
  return text;
}

std::string epoch_text(const EpochReport& r, uint64_t epochs) {
  std::string text = fmt::format("{:>{}}", fmt::format("{}/{}", r.epoch, epochs), kEpochWidth);
  for (const Column& column : epoch_columns(r)) text += column_text(column, column.value);
  return text + (r.best ? " *" : "");
}

std::string done_text(const DoneReport& r) {
  std::string text =
      fmt::format("done in {}: test {} {}, {} at best\n", duration_text(r.seconds),
                  metric_title(r.final_test.name), metric_text(r.final_test), metric_text(r.best_test));
  text += fmt::format("memory: {} at the peak, {} planned", size_text(r.peak_bytes),
                      size_text(r.planned_peak_bytes));
  if (r.rss_peak_bytes > 0) {
    text += fmt::format("; the process had {} before and {} at its peak", size_text(r.rss_start_bytes),
                        size_text(r.rss_peak_bytes));
  }
  return text;
}

// Whatever ended the run says so on a line of its own.
Progress::~Progress() {
  try {
    if (drawn_ > 0) output_.write("\n");
  } catch (...) {  // NOLINT(bugprone-empty-catch): nowhere to tell it
  }
}

void Progress::on_start(const StartReport& r) {
  folder_ = r.out;
  epochs_ = epoch_count(r.total_steps, r.steps_per_epoch);
  epoch_ = r.steps_per_epoch == 0 ? 0 : r.first_step / r.steps_per_epoch + 1;
  const auto steps = static_cast<double>(r.steps_per_epoch);
  const double share = r.train_examples == 0
                           ? 0
                           : static_cast<double>(r.test_examples) / static_cast<double>(r.train_examples);
  time_left_ = TimeLeft(std::max(steps, kLeastHorizon), kForwardShare * (r.narrow ? 2 : 1) * share * steps);
  last_step_ = r.first_step;
  print(start_text(r));
  last_seconds_ = output_.seconds();
}

void Progress::on_step(const StepReport& r) {
  epoch_ = r.epoch;
  time_left_.step(output_.seconds(), r.step);
  steps_left_ = r.total_steps - std::min(r.step, r.total_steps);
  const double left = time_left_.left(steps_left_, epochs_ + 1 - std::min(epoch_, epochs_));
  if (output_.live) {
    if (due()) draw(step_text(r, left, true));
    return;
  }
  // The line of the epoch comes right after its last step.
  const uint64_t steps = epoch_steps(r.epoch, r.total_steps, r.steps_per_epoch);
  const bool last = r.step_in_epoch == steps;
  const bool far = (r.step - last_step_) * kPlainLinesAnEpoch >= steps;
  if (last || !far || output_.seconds() - last_seconds_ < kPlainSeconds) return;
  print(step_text(r, left, false));
  last_step_ = r.step;
  last_seconds_ = output_.seconds();
}

void Progress::on_evaluate(size_t done, size_t total) {
  time_left_.evaluation(output_.seconds(), static_cast<double>(done) / static_cast<double>(total));
  if (!output_.live || !due()) return;
  const double left = time_left_.left(steps_left_, epochs_ + 1 - std::min(epoch_, epochs_));
  draw(fmt::format("epoch {}/{}  {} test {}/{}  left {}", epoch_, epochs_, bar_text(done, total, kBarWidth),
                   done, total, duration_text(left)));
}

void Progress::on_epoch(const EpochReport& r) {
  time_left_.evaluation(output_.seconds(), 1);
  print((headed_ ? "" : epoch_heading(r, checkpoint_every_) + "\n") + epoch_text(r, epochs_));
  headed_ = true;
  last_step_ = r.step;
  last_seconds_ = output_.seconds();
}

void Progress::on_checkpoint(const std::string& path, uint64_t step) {
  if (time_left_.evaluated()) time_left_.evaluation(output_.seconds(), 1);
  saved_[path] = step;
}

void Progress::on_done(const DoneReport& r) {
  std::string text = done_text(r);
  for (const auto& [path, step] : saved_) text += fmt::format("\nsaved: {}, after step {}", path, step);
  print(text);
}

void Progress::on_trouble(const std::string& folder) { on_note(doctor_report(folder)); }

void Progress::on_note(const std::string& text) { print(text); }

bool Progress::due() {
  const double now = output_.seconds();
  if (drawn_ > 0 && now - last_seconds_ < kRedrawSeconds) return false;
  last_seconds_ = now;
  return true;
}

void Progress::draw(std::string line) {
  // A letter in the last column makes some terminals go on to the next line.
  const size_t most = std::max(output_.columns(), size_t{2}) - 1;
  line = clip_text(std::move(line), most);
  const size_t columns = line.size();
  const size_t old = std::min(drawn_, most);
  if (old > columns) line.append(old - columns, ' ');
  output_.write("\r" + line);
  drawn_ = columns;
}

void Progress::print(const std::string& lines) {
  const std::string clear = drawn_ > 0 ? fmt::format("\r{:{}}\r", "", drawn_) : "";
  drawn_ = 0;
  output_.write(clear + lines + "\n");
}

}  // namespace ulp
